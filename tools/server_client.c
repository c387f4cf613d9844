#include "tools/server_client_internal.h"

#include <curl/curl.h>
#include <string.h>

enum { CONNECT_SECONDS = 10, CALL_SECONDS = 600 };

void url_escape(struct byte_writer *w, struct str text)
{
    static const char hex[] = "0123456789ABCDEF";

    for (size_t i = 0; i < text.size; i++) {
        uint8_t c = (uint8_t)text.data[i];

        if ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
            (c != 0 && strchr("-_.~", c) != NULL)) {
            writer_u8(w, c);
        } else {
            writer_u8(w, '%');
            writer_u8(w, (uint8_t)hex[c >> 4]);
            writer_u8(w, (uint8_t)hex[c & 15]);
        }
    }
}

static size_t on_data(char *data, size_t size, size_t count, void *ctx)
{
    struct byte_writer *w = ctx;

    writer_append(w, data, size * count);
    return w->failed ? 0 : size * count;
}

enum err server_call(const char *method, const char *url, const char *path,
                     const struct byte_writer *body, const char *type, long *status,
                     struct byte_writer *answer, struct errinfo *ei)
{
    size_t url_size = strlen(url);
    struct curl_slist *headers = NULL;
    struct byte_writer target, header;
    CURL *curl = curl_easy_init();
    CURLcode code = CURLE_OUT_OF_MEMORY;

    writer_init(&target);
    writer_init(&header);
    while (url_size > 0 && url[url_size - 1] == '/')
        url_size--;
    writer_append(&target, url, url_size);
    writer_append(&target, path, strlen(path) + 1);
    writer_printf(&header, "Content-Type: %s", type == NULL ? "" : type);
    writer_u8(&header, 0);
    if (curl != NULL && !target.failed && !header.failed) {
        (void)curl_easy_setopt(curl, CURLOPT_URL, (const char *)target.data);
        (void)curl_easy_setopt(curl, CURLOPT_CUSTOMREQUEST, method);
        (void)curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, on_data);
        (void)curl_easy_setopt(curl, CURLOPT_WRITEDATA, answer);
        (void)curl_easy_setopt(curl, CURLOPT_USERAGENT, "rimtool");
        (void)curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
        (void)curl_easy_setopt(curl, CURLOPT_CONNECTTIMEOUT, (long)CONNECT_SECONDS);
        (void)curl_easy_setopt(curl, CURLOPT_TIMEOUT, (long)CALL_SECONDS);
        if (body != NULL) {
            headers = curl_slist_append(headers, (const char *)header.data);
            (void)curl_easy_setopt(curl, CURLOPT_POSTFIELDS,
                                   body->size == 0 ? "" : (const char *)body->data);
            (void)curl_easy_setopt(curl, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)body->size);
            (void)curl_easy_setopt(curl, CURLOPT_HTTPHEADER, headers);
        }
        code = curl_easy_perform(curl);
        (void)curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, status);
    }
    if (curl != NULL)
        curl_easy_cleanup(curl);
    curl_slist_free_all(headers);
    writer_done(&target);
    writer_done(&header);
    return code == CURLE_OK ? ERR_OK
                            : errinfo_set(ei, ERR_IO, 0, "%s: %s", url, curl_easy_strerror(code));
}

enum err server_answer(long status, const struct byte_writer *answer, json_t **out,
                       struct errinfo *ei)
{
    json_t *root = json_loadb((const char *)answer->data, answer->size, 0, NULL), *data;
    const char *error = json_string_value(json_object_get(root, "error"));
    enum err e = ERR_OK;

    data = json_object_get(root, "data");
    if (status / 100 != 2)
        e = errinfo_set(ei, ERR_INVALID, 0, "the server answers %ld: %s", status,
                        error != NULL ? error : "no reason given");
    else if (data == NULL)
        e = errinfo_set(ei, ERR_INVALID, 0, "the answer is not that of a Rimstone server");
    else
        *out = json_incref(data);
    json_decref(root);
    return e;
}

enum err server_get(const char *url, const char *path, json_t **out, struct errinfo *ei)
{
    struct byte_writer answer;
    long status = 0;
    enum err e;

    writer_init(&answer);
    e = server_call("GET", url, path, NULL, NULL, &status, &answer, ei);
    if (e == ERR_OK)
        e = server_answer(status, &answer, out, ei);
    writer_done(&answer);
    return e;
}
