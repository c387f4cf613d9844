#include "tests/api/http_client.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include "tests/lib/test_support.h"

int http_connect(uint16_t port)
{
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(port)};
    struct timeval patience = {.tv_sec = 30};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    CHECK(fd >= 0);
    CHECK(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience) == 0);
    CHECK(connect(fd, (struct sockaddr *)&to, sizeof to) == 0);
    return fd;
}

void http_send(int fd, const void *data, size_t size)
{
    const char *p = data;

    while (size > 0) {
        ssize_t sent = send(fd, p, size, MSG_NOSIGNAL);

        if (sent <= 0)
            return; /* the server has closed: the answer tells */
        p += sent;
        size -= (size_t)sent;
    }
}

void http_send_text(int fd, const char *text)
{
    http_send(fd, text, strlen(text));
}

static bool read_exactly(int fd, struct byte_writer *to, size_t size)
{
    while (size > 0) {
        uint8_t *at = writer_reserve(to, size);
        ssize_t got = 0;

        CHECK(at != NULL);
        got = recv(fd, at, size, 0);
        if (got <= 0)
            return false;
        to->size += (size_t)got;
        size -= (size_t)got;
    }
    return true;
}

/* Reads up to and including `end`, at most `size_max` bytes; byte by byte, nothing beyond. */
static bool read_until(int fd, const char *end, char *out, size_t size_max)
{
    size_t used = 0, length = strlen(end);

    while (used + 1 < size_max) {
        if (recv(fd, out + used, 1, 0) != 1)
            return false;
        out[++used] = '\0';
        if (used >= length && memcmp(out + used - length, end, length) == 0)
            return true;
    }
    return false;
}

bool http_header(const struct http_answer *a, const char *name, char out[256])
{
    size_t length = strlen(name);
    const char *line = strstr(a->headers, "\r\n");

    for (; line != NULL; line = strstr(line, "\r\n")) {
        line += 2;
        if (strncasecmp(line, name, length) == 0 && line[length] == ':') {
            const char *value = line + length + 1 + strspn(line + length + 1, " ");

            (void)snprintf(out, 256, "%.*s", (int)strcspn(value, "\r\n"), value);
            return true;
        }
    }
    return false;
}

static bool read_chunks(int fd, struct byte_writer *body)
{
    for (;;) {
        char line[64];
        size_t size = 0;

        if (!read_until(fd, "\r\n", line, sizeof line))
            return false;
        size = strtoul(line, NULL, 16);
        if (size > 0 && !read_exactly(fd, body, size))
            return false;
        if (!read_until(fd, "\r\n", line, sizeof line))
            return false;
        if (size == 0)
            return true;
    }
}

static void answer_read(int fd, bool is_head, struct http_answer *out)
{
    char value[256];

    *out = (struct http_answer){0};
    writer_init(&out->body);
    if (!read_until(fd, "\r\n\r\n", out->headers, sizeof out->headers))
        return;
    CHECK(strncmp(out->headers, "HTTP/1.", 7) == 0);
    out->status = (int)strtol(out->headers + 9, NULL, 10);
    if (is_head)
        out->complete = true;
    else if (http_header(out, "Transfer-Encoding", value))
        out->complete = read_chunks(fd, &out->body);
    else if (http_header(out, "Content-Length", value))
        out->complete = read_exactly(fd, &out->body, strtoul(value, NULL, 10));
    else
        out->complete = out->status == 204;
}

void http_read(int fd, struct http_answer *out)
{
    answer_read(fd, false, out);
}

void http_answer_done(struct http_answer *a)
{
    writer_done(&a->body);
}

bool http_body_contains(const struct http_answer *a, const char *text)
{
    return a->body.size > 0 && memmem(a->body.data, a->body.size, text, strlen(text)) != NULL;
}

void http_call(uint16_t port, const char *method, const char *path, const char *headers,
               const void *body, size_t body_size, struct http_answer *out)
{
    struct byte_writer head;
    int fd = http_connect(port);

    writer_init(&head);
    writer_printf(&head, "%s %s HTTP/1.1\r\nHost: test\r\n%s", method, path, headers);
    if (body != NULL)
        writer_printf(&head, "Content-Length: %zu\r\n", body_size);
    writer_append(&head, "\r\n", 2);
    http_send(fd, head.data, head.size);
    if (body != NULL)
        http_send(fd, body, body_size);
    writer_done(&head);
    answer_read(fd, strcmp(method, "HEAD") == 0, out);
    (void)close(fd);
}

void http_get(uint16_t port, const char *path, struct http_answer *out)
{
    http_call(port, "GET", path, "", NULL, 0, out);
}
