/*
 * Rules are kept as texts, one a rule, in the form that requests bring: whatever changes, the list
 * is written, read back by the one parser, compiled, made durable, and put into effect, in this
 * order.
 */
#include "api/rule_book.h"

#include <stdlib.h>
#include <string.h>

#include "api/rules/drop_rule_json_internal.h"
#include "api/rules/rule_file_internal.h"
#include "api/rules/rule_purge_internal.h"
#include "api/rules/rule_selector_internal.h"
#include "base/assert.h"
#include "base/json.h"
#include "base/log.h"
#include "base/thread.h"

/* Texts of rules; each is malloc()ed. */
struct rule_texts {
    struct rule_text {
        char *name, *text; /* owned */
    } * items;             /* owned */
    size_t count, capacity;
};

struct rule_book {
    struct fs *fs;         /* borrowed */
    struct engine *engine; /* borrowed */
    struct mutex lock;     /* guards the texts; held over file calls and the engine's change */
    struct rule_texts api, file;
    const struct rule_set *set; /* in effect; the engine's until the next change */
    bool is_settled;            /* changes purge as well */
};

/* ---- texts ---- */

static void texts_done(struct rule_texts *t)
{
    for (size_t i = 0; i < t->count; i++) {
        free(t->items[i].name);
        free(t->items[i].text);
    }
    free(t->items);
    *t = (struct rule_texts){0};
}

static char *copy_of(const void *data, size_t size)
{
    char *copy = malloc(size + 1);

    if (copy == NULL)
        return NULL;
    if (size > 0)
        memcpy(copy, data, size);
    copy[size] = '\0';
    return copy;
}

static size_t texts_find(const struct rule_texts *t, struct str name)
{
    size_t i = 0;

    while (i < t->count && !str_equal(str_from(t->items[i].name), name))
        i++;
    return i;
}

/* Puts a text at `at`, in the place of what is there, or at the end. Takes both. */
static bool texts_put(struct rule_texts *t, size_t at, char *name, char *text)
{
    if (name == NULL || text == NULL)
        goto fail;
    if (at < t->count) {
        free(t->items[at].name);
        free(t->items[at].text);
    } else {
        if (t->count == t->capacity) {
            size_t capacity = t->capacity == 0 ? 8 : 2 * t->capacity;
            struct rule_text *grown = reallocarray(t->items, capacity, sizeof *grown);

            if (grown == NULL)
                goto fail;
            t->items = grown;
            t->capacity = capacity;
        }
        t->count++;
    }
    t->items[at] = (struct rule_text){name, text};
    return true;
fail:
    free(name);
    free(text);
    return false;
}

static bool texts_put_rule(struct rule_texts *t, size_t at, const struct drop_rule *r)
{
    struct byte_writer w;
    bool ok;

    writer_init(&w);
    drop_rule_write(&w, r);
    ok =
        !w.failed && texts_put(t, at, copy_of(r->name.data, r->name.size), copy_of(w.data, w.size));
    writer_done(&w);
    return ok;
}

static bool texts_copy(const struct rule_texts *from, struct rule_texts *out)
{
    *out = (struct rule_texts){0};
    for (size_t i = 0; i < from->count; i++) {
        const struct rule_text *t = &from->items[i];

        if (!texts_put(out, i, copy_of(t->name, strlen(t->name)),
                       copy_of(t->text, strlen(t->text)))) {
            texts_done(out);
            return false;
        }
    }
    return true;
}

static bool texts_of_config(const struct config *c, struct rule_texts *out)
{
    *out = (struct rule_texts){0};
    for (size_t i = 0; i < c->drop_rule_count; i++) {
        if (!texts_put_rule(out, i, &c->drop_rules[i])) {
            texts_done(out);
            return false;
        }
    }
    return true;
}

static void texts_write(const struct rule_texts *t, struct byte_writer *w)
{
    json_write_raw(w, "[");
    for (size_t i = 0; i < t->count; i++) {
        json_write_raw(w, i == 0 ? "\n" : ",\n");
        json_write_raw(w, t->items[i].text);
    }
    json_write_raw(w, "\n]\n");
}

/* Reads texts into rules behind those that are there. */
static enum err texts_parse(const struct rule_texts *t, enum drop_rule_origin origin,
                            struct config *out, struct errinfo *ei)
{
    struct byte_writer w;
    enum err e;

    writer_init(&w);
    texts_write(t, &w);
    e = w.failed ? errinfo_set(ei, ERR_NOMEM, 0, "rules")
                 : config_rules_parse(out, "rules", (struct str){(const char *)w.data, w.size},
                                      origin, ei);
    writer_done(&w);
    return e;
}

/* ---- changes ---- */

static enum err no_memory(struct errinfo *ei)
{
    (void)errinfo_set(ei, ERR_NOMEM, 0, "rules");
    return ERR_NOMEM; /* for the analyzer, which cannot see what errinfo_set() returns */
}

static enum err compile(const struct rule_texts *api, const struct rule_texts *file,
                        struct rule_set **out, struct errinfo *ei)
{
    struct config lists[2];
    struct drop_rule *all;
    enum err e;

    config_init(&lists[0]);
    config_init(&lists[1]);
    e = texts_parse(api, DROP_RULE_API, &lists[0], ei);
    if (e == ERR_OK)
        e = texts_parse(file, DROP_RULE_FILE, &lists[1], ei);
    all = calloc(lists[0].drop_rule_count + lists[1].drop_rule_count + 1, sizeof *all);
    if (e == ERR_OK && all == NULL)
        e = no_memory(ei);
    if (e == ERR_OK) {
        size_t count = 0;

        for (int l = 0; l < 2; l++) {
            for (size_t i = 0; i < lists[l].drop_rule_count; i++)
                all[count++] = lists[l].drop_rules[i];
        }
        e = rule_set_new(all, count, out, ei);
    }
    free(all);
    config_done(&lists[0]);
    config_done(&lists[1]);
    return e;
}

static enum err keep(struct rule_book *b, const struct rule_texts *api, struct errinfo *ei)
{
    struct byte_writer w;
    enum err e;

    writer_init(&w);
    texts_write(api, &w);
    e = w.failed ? no_memory(ei)
                 : rule_file_write(b->fs, (struct str){(const char *)w.data, w.size}, ei);
    writer_done(&w);
    return e;
}

/* Puts a set into effect, which it takes. Caller holds the lock. */
static enum err apply(struct rule_book *b, struct rule_set *set, struct rule_change *out,
                      struct errinfo *ei)
{
    enum err e = engine_rules_apply(b->engine, set, &out->applied, ei);

    out->purges = (struct rule_purges){0};
    if (e == ERR_OK)
        b->set = set;
    return e;
}

/* compile(), and whether what the new rules purge can be purged. */
static enum err compile_checked(struct rule_book *b, const struct rule_texts *api,
                                const struct rule_texts *file, struct rule_set **out,
                                struct errinfo *ei)
{
    enum err e = compile(api, file, out, ei);

    if (e == ERR_OK && b->is_settled)
        e = rule_purges_check(b->engine, *out, ei);
    if (e != ERR_OK) {
        rule_set_free(*out);
        *out = NULL;
    }
    return e;
}

static enum err purges_settle(struct rule_book *b, struct rule_purges *out, struct errinfo *ei)
{
    return b->is_settled ? rule_purges_settle(b->engine, b->set, out, ei) : ERR_OK;
}

/* The API's rules shall be others; takes *api on success. Caller holds the lock. */
static enum err change_api(struct rule_book *b, struct rule_texts *api, struct rule_change *out,
                           struct errinfo *ei)
{
    struct rule_set *set = NULL;
    struct errinfo ignored = {0};
    enum err e = compile_checked(b, api, &b->file, &set, ei);

    if (e != ERR_OK)
        return e;
    e = keep(b, api, ei);
    if (e != ERR_OK) {
        rule_set_free(set);
    } else {
        e = apply(b, set, out, ei);
    }
    if (e != ERR_OK) {
        /* The disk may have the new list; what is in effect is the old one. */
        if (keep(b, &b->api, &ignored) != ERR_OK)
            LOG_ERROR(
                "the file of drop rules may differ from those in effect until the next change",
                LOG_STR("error", ignored.message));
        return e;
    }
    texts_done(&b->api);
    b->api = *api;
    *api = (struct rule_texts){0};
    e = purges_settle(b, &out->purges, ei);
    if (e != ERR_OK)
        errinfo_prefix(ei, "the rules are in effect, but what is stored does not follow them yet");
    return e;
}

enum err rule_book_set_file(struct rule_book *b, const struct config *config,
                            struct rule_change *out, struct errinfo *ei)
{
    struct rule_texts file;
    struct rule_set *set = NULL;
    struct errinfo why = {0};
    enum err e;

    if (!texts_of_config(config, &file))
        return no_memory(ei);
    mutex_lock(&b->lock);
    e = compile_checked(b, &b->api, &file, &set, ei);
    if (e == ERR_OK)
        e = apply(b, set, out, ei);
    if (e == ERR_OK) {
        texts_done(&b->file);
        b->file = file;
        if (purges_settle(b, &out->purges, &why) != ERR_OK)
            LOG_ERROR("the rules are in effect, but what is stored does not follow them yet",
                      LOG_STR("error", why.message));
    } else {
        texts_done(&file);
    }
    mutex_unlock(&b->lock);
    return e;
}

enum err rule_book_add(struct rule_book *b, struct str text, struct rule_change *out,
                       struct errinfo *ei)
{
    struct rule_texts api = {0};
    struct config added;
    enum err e;

    config_init(&added);
    e = config_rules_read(&added, "rules", text, ei);
    if (e == ERR_OK && added.drop_rule_count == 0)
        e = errinfo_set(ei, ERR_INVALID, 0, "no rule in the request");
    for (size_t i = 0; e == ERR_OK && i < added.warning_count; i++)
        LOG_WARN(added.warnings[i]);
    mutex_lock(&b->lock);
    if (e == ERR_OK && !texts_copy(&b->api, &api))
        e = no_memory(ei);
    for (size_t i = 0; e == ERR_OK && i < added.drop_rule_count; i++) {
        const struct drop_rule *r = &added.drop_rules[i];

        if (r->purge && rule_selector_obstacle(r) != NULL)
            e = errinfo_set(ei, ERR_INVALID, 0, "rule \"%.*s\": %s", STR_ARGS(r->name),
                            rule_selector_obstacle(r));
        else if (!texts_put_rule(&api, texts_find(&api, r->name), r))
            e = no_memory(ei);
    }
    if (e == ERR_OK)
        e = change_api(b, &api, out, ei);
    mutex_unlock(&b->lock);
    texts_done(&api);
    config_done(&added);
    return e;
}

enum err rule_book_remove(struct rule_book *b, struct str name, struct rule_change *out,
                          struct errinfo *ei)
{
    struct rule_texts api = {0};
    enum err e = ERR_OK;

    mutex_lock(&b->lock);
    size_t at = texts_find(&b->api, name);
    if (at == b->api.count && texts_find(&b->file, name) < b->file.count) {
        e = errinfo_set(ei, ERR_INVALID, 0, "rule \"%.*s\" stands in the configuration file",
                        STR_ARGS(name));
    } else if (at == b->api.count) {
        e = errinfo_set(ei, ERR_NOT_FOUND, 0, "no drop rule with the name \"%.*s\"",
                        STR_ARGS(name));
    } else if (!texts_copy(&b->api, &api)) {
        e = no_memory(ei);
    } else {
        ASSERT(at < api.count);
        free(api.items[at].name);
        free(api.items[at].text);
        api.count--;
        memmove(&api.items[at], &api.items[at + 1], (api.count - at) * sizeof *api.items);
        e = change_api(b, &api, out, ei);
    }
    mutex_unlock(&b->lock);
    texts_done(&api);
    return e;
}

enum err rule_book_settle(struct rule_book *b, struct rule_purges *out, struct errinfo *ei)
{
    enum err e;

    *out = (struct rule_purges){0};
    mutex_lock(&b->lock);
    b->is_settled = true;
    e = purges_settle(b, out, ei);
    mutex_unlock(&b->lock);
    return e;
}

/* ---- life ---- */

/* What is kept, as texts. */
static enum err load(struct rule_book *b, struct errinfo *ei)
{
    struct byte_writer w;
    struct config kept;
    enum err e;

    writer_init(&w);
    config_init(&kept);
    e = rule_file_read(b->fs, &w, ei);
    if (e == ERR_OK && w.size > 0)
        e = config_rules_parse(&kept, RULE_FILE_PATH, (struct str){(const char *)w.data, w.size},
                               DROP_RULE_API, ei);
    if (e == ERR_OK && !texts_of_config(&kept, &b->api))
        e = no_memory(ei);
    config_done(&kept);
    writer_done(&w);
    return e;
}

enum err rule_book_new(struct fs *fs, struct engine *engine, const struct config *config,
                       struct rule_book **out, struct errinfo *ei)
{
    struct rule_book *b = calloc(1, sizeof *b);
    struct rule_change ignored;
    enum err e;

    if (b == NULL)
        return no_memory(ei);
    mutex_init(&b->lock);
    b->fs = fs;
    b->engine = engine;
    e = load(b, ei);
    if (e == ERR_CORRUPT || e == ERR_INVALID) {
        LOG_ERROR("the file of drop rules is damaged: it is set aside, and its rules are lost",
                  LOG_STR("file", RULE_FILE_PATH), LOG_STR("error", ei->message));
        e = rule_file_set_aside(fs, ei);
    }
    if (e == ERR_OK)
        e = rule_book_set_file(b, config, &ignored, ei);
    if (e == ERR_OK)
        *out = TAKE(b);
    rule_book_free(b);
    return e;
}

void rule_book_free(struct rule_book *b)
{
    if (b == NULL)
        return;
    texts_done(&b->api);
    texts_done(&b->file);
    mutex_done(&b->lock);
    free(b);
}
