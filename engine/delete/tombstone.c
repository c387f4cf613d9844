/*
 * Tombstones. What a list holds of one (its matchers and its filter, compiled) is counted by
 * itself, so that a successor of a long list compiles nothing again.
 *
 * As bytes (the content of the manifest's section 4, docs/formats/manifest.md):
 *
 *   | count (4) | tombstones, ascending by generation ... |
 *   Tombstone: | min time (8) | max time (8) | generation (8) | matcher count (4) | matchers ... |
 *   Matcher:   | kind (1) | name size (4) | value size (4) | name | value |
 *
 * Where any tombstone has a filter, which is section 6, each ends with one:
 *
 *   Filter:    | kind (1), 0: none, and nothing behind it |
 *              | label count (4) | separator size (4) | value size (4) | separator | value | labels
 * | Label:     | size (4) | name |
 */
#include "engine/delete/tombstone_internal.h"

#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/assert.h"
#include "engine/purge.h"

enum {
    TOMBSTONE_SIZE_MIN = 28, /* without its matchers */
    MATCHER_SIZE_MIN = 9,    /* without its texts */
    LABEL_SIZE_MIN = 4,      /* of a filter, without its name */
};

/* Kinds of filters as bytes. */
static const uint8_t filter_kinds[] = {
    [RELABEL_DROP] = 1,
    [RELABEL_KEEP] = 2,
    [RELABEL_DROPEQUAL] = 3,
    [RELABEL_KEEPEQUAL] = 4,
};

/* Matchers and filter of one tombstone, and the texts they borrow. */
struct tombstone_matchers {
    _Atomic uint32_t refs;
    struct arena arena;
    struct relabel *filter; /* owned; NULL: none */
    size_t count;           /* compiled so far */
    struct matcher items[];
};

static void matchers_unref(struct tombstone_matchers *m)
{
    /* acq_rel: whoever frees comes after everything the others did with it */
    if (m == NULL || atomic_fetch_sub_explicit(&m->refs, 1, memory_order_acq_rel) != 1)
        return;
    for (size_t i = 0; i < m->count; i++)
        matcher_done(&m->items[i]);
    relabel_done(m->filter);
    arena_done(&m->arena);
    free(m);
}

static struct tombstone_matchers *matchers_new(size_t capacity)
{
    struct tombstone_matchers *m = calloc(1, sizeof *m + capacity * sizeof m->items[0]);

    if (m != NULL) {
        atomic_init(&m->refs, 1);
        arena_init(&m->arena, NULL);
    }
    return m;
}

static enum err matchers_add(struct tombstone_matchers *m, enum matcher_kind kind, struct str name,
                             struct str value, struct errinfo *ei)
{
    enum err e = matcher_init(&m->items[m->count], kind, name, value, &m->arena, ei);

    m->count += e == ERR_OK;
    return e;
}

/* ---- lists ---- */

struct tombstone_list *tombstone_list_ref(struct tombstone_list *list)
{
    if (list != NULL) /* relaxed: the caller sees a reference that stays meanwhile */
        (void)atomic_fetch_add_explicit(&list->refs, 1, memory_order_relaxed);
    return list;
}

void tombstone_list_unref(struct tombstone_list *list)
{
    if (list == NULL || atomic_fetch_sub_explicit(&list->refs, 1, memory_order_acq_rel) != 1)
        return;
    for (size_t i = 0; i < list->count; i++)
        matchers_unref(list->items[i].shared);
    free(list->items);
    free(list);
}

static struct tombstone_list *list_new(size_t capacity, struct errinfo *ei)
{
    struct tombstone_list *list = calloc(1, sizeof *list);

    if (list != NULL)
        list->items = calloc(capacity, sizeof *list->items);
    if (list == NULL || list->items == NULL) {
        free(list);
        (void)errinfo_set(ei, ERR_NOMEM, 0, "a list of tombstones");
        return NULL;
    }
    atomic_init(&list->refs, 1);
    return list;
}

/* Takes over `matchers`. */
static void list_put(struct tombstone_list *list, struct tombstone t,
                     struct tombstone_matchers *matchers)
{
    t.shared = matchers;
    t.matchers = matchers->items;
    t.matcher_count = matchers->count;
    t.filter = matchers->filter;
    list->items[list->count++] = t;
}

static void list_put_again(struct tombstone_list *list, const struct tombstone *t)
{
    /* relaxed: `t` holds a reference that stays meanwhile */
    (void)atomic_fetch_add_explicit(&t->shared->refs, 1, memory_order_relaxed);
    list_put(list, *t, t->shared);
}

/* A copy of `base` with one more; takes over `matchers`. */
static enum err list_add(const struct tombstone_list *base, struct tombstone added,
                         struct tombstone_matchers *matchers, struct tombstone_list **out,
                         struct errinfo *ei)
{
    size_t count = base == NULL ? 0 : base->count, at = 0;
    struct tombstone_list *list = list_new(count + 1, ei);

    if (list == NULL) {
        matchers_unref(matchers);
        return ERR_NOMEM;
    }
    for (; at < count && base->items[at].generation <= added.generation; at++)
        list_put_again(list, &base->items[at]);
    list_put(list, added, matchers);
    for (; at < count; at++)
        list_put_again(list, &base->items[at]);
    *out = list;
    return ERR_OK;
}

static enum err no_memory(struct errinfo *ei)
{
    return errinfo_set(ei, ERR_NOMEM, 0, "matchers of a tombstone");
}

enum err tombstone_list_add(const struct tombstone_list *base, const struct matcher *matchers,
                            size_t matcher_count, int64_t min_time_ms, int64_t max_time_ms,
                            uint64_t generation, struct tombstone_list **out, struct errinfo *ei)
{
    const struct tombstone added = {
        .min_time_ms = min_time_ms, .max_time_ms = max_time_ms, .generation = generation};
    struct tombstone_matchers *m;
    enum err e = ERR_OK;

    if (matcher_count == 0 || matcher_count > PURGE_LABELS_MAX || min_time_ms > max_time_ms)
        return errinfo_set(ei, ERR_INVALID, 0, "a deletion needs a time range and 1 to %d matchers",
                           PURGE_LABELS_MAX);
    m = matchers_new(matcher_count);
    if (m == NULL)
        return no_memory(ei);
    for (size_t i = 0; i < matcher_count && e == ERR_OK; i++)
        e = matchers_add(m, matchers[i].kind, matchers[i].name, matchers[i].value, ei);
    if (e == ERR_OK)
        return list_add(base, added, m, out, ei);
    matchers_unref(m);
    return e;
}

enum err tombstone_list_add_filter(const struct tombstone_list *base,
                                   const struct relabel_config *filter, int64_t min_time_ms,
                                   int64_t max_time_ms, uint64_t generation,
                                   struct tombstone_list **out, struct errinfo *ei)
{
    const struct tombstone added = {
        .min_time_ms = min_time_ms, .max_time_ms = max_time_ms, .generation = generation};
    struct tombstone_matchers *m;
    enum err e;

    if (!relabel_action_filters(filter->action) || min_time_ms > max_time_ms ||
        filter->source_label_count > PURGE_LABELS_MAX)
        return errinfo_set(ei, ERR_INVALID, 0,
                           "a deletion needs a time range and a rule that drops, of at most %d "
                           "source labels",
                           PURGE_LABELS_MAX);
    m = matchers_new(0);
    if (m == NULL)
        return no_memory(ei);
    e = relabel_compile(filter, &m->arena, &m->filter, ei);
    if (e == ERR_OK)
        return list_add(base, added, m, out, ei);
    matchers_unref(m);
    return e;
}

enum err tombstone_list_keep(const struct tombstone_list *base, const bool *keep,
                             struct tombstone_list **out, struct errinfo *ei)
{
    size_t count = base == NULL ? 0 : base->count, kept = 0;
    struct tombstone_list *list;

    for (size_t i = 0; i < count; i++)
        kept += keep[i];
    if (kept == 0) {
        *out = NULL;
        return ERR_OK;
    }
    list = list_new(kept, ei);
    if (list == NULL)
        return ERR_NOMEM;
    for (size_t i = 0; i < count; i++) {
        if (keep[i])
            list_put_again(list, &base->items[i]);
    }
    *out = list;
    return ERR_OK;
}

/* ---- what they hit ---- */

bool tombstone_list_concerns(const struct tombstone_list *list, uint64_t generation,
                             int64_t min_time_ms, int64_t max_time_ms)
{
    /* From the youngest on: those that are too old come last. */
    for (size_t i = list == NULL ? 0 : list->count; i-- > 0;) {
        const struct tombstone *t = &list->items[i];

        if (t->generation <= generation)
            return false;
        if (t->min_time_ms <= max_time_ms && t->max_time_ms >= min_time_ms)
            return true;
    }
    return false;
}

bool tombstone_matches(const struct tombstone *t, const struct labels *labels, struct arena *arena,
                       bool *out)
{
    *out = false;
    for (size_t i = 0; i < t->matcher_count; i++) {
        if (!matcher_matches(&t->matchers[i], labels_get(labels, t->matchers[i].name)))
            return true;
    }
    *out = true;
    return t->filter == NULL || relabel_drops(t->filter, labels, arena, out);
}

/* ---- bytes ---- */

bool tombstone_list_has_filters(const struct tombstone_list *list)
{
    for (size_t i = 0; list != NULL && i < list->count; i++) {
        if (list->items[i].filter != NULL)
            return true;
    }
    return false;
}

/* What a source value is compared with: a pattern, or the name of a label. */
static struct str *filter_value(struct relabel_config *c)
{
    return c->action == RELABEL_DROP || c->action == RELABEL_KEEP ? &c->regex : &c->target_label;
}

static void filter_encode(const struct relabel *filter, struct byte_writer *w)
{
    struct relabel_config c;
    struct str value;

    if (filter == NULL) {
        writer_u8(w, 0);
        return;
    }
    c = *relabel_config_of(filter);
    value = *filter_value(&c);
    writer_u8(w, filter_kinds[c.action]);
    writer_le32(w, (uint32_t)c.source_label_count);
    writer_le32(w, (uint32_t)c.separator.size);
    writer_le32(w, (uint32_t)value.size);
    writer_append(w, c.separator.data, c.separator.size);
    writer_append(w, value.data, value.size);
    for (size_t i = 0; i < c.source_label_count; i++) {
        writer_le32(w, (uint32_t)c.source_labels[i].size);
        writer_append(w, c.source_labels[i].data, c.source_labels[i].size);
    }
}

enum err tombstone_list_encode(const struct tombstone_list *list, struct byte_writer *w,
                               struct errinfo *ei)
{
    size_t count = list == NULL ? 0 : list->count;
    bool has_filters = tombstone_list_has_filters(list);

    writer_le32(w, (uint32_t)count);
    for (size_t i = 0; i < count; i++) {
        const struct tombstone *t = &list->items[i];

        writer_le64(w, (uint64_t)t->min_time_ms);
        writer_le64(w, (uint64_t)t->max_time_ms);
        writer_le64(w, t->generation);
        writer_le32(w, (uint32_t)t->matcher_count);
        for (size_t k = 0; k < t->matcher_count; k++) {
            const struct matcher *m = &t->matchers[k];

            writer_u8(w, (uint8_t)m->kind);
            writer_le32(w, (uint32_t)m->name.size);
            writer_le32(w, (uint32_t)m->value.size);
            writer_append(w, m->name.data, m->name.size);
            writer_append(w, m->value.data, m->value.size);
        }
        if (has_filters)
            filter_encode(t->filter, w);
    }
    return w->failed ? errinfo_set(ei, ERR_NOMEM, 0, "bytes of tombstones") : ERR_OK;
}

static enum err corrupt(const char *what, struct errinfo *ei)
{
    return errinfo_set(ei, ERR_CORRUPT, 0, "tombstones: %s", what);
}

/* What came of compiling what is read: it did compile when it was written. */
static enum err compiled(enum err e, const struct errinfo *reason, struct errinfo *ei)
{
    if (e == ERR_OK)
        return ERR_OK;
    return errinfo_set(ei, e == ERR_INVALID ? ERR_CORRUPT : e, 0, "tombstones: %s",
                       reason->message);
}

static enum err matcher_read(struct byte_reader *r, struct tombstone_matchers *m,
                             struct errinfo *ei)
{
    uint8_t kind = reader_u8(r);
    struct str name = {.size = reader_le32(r)}, value = {.size = reader_le32(r)};
    struct errinfo reason = {0};
    enum err e;

    name.data = (const char *)reader_take(r, name.size);
    value.data = (const char *)reader_take(r, value.size);
    if (r->failed)
        return corrupt("a matcher ends early", ei);
    if (kind > MATCHER_NOT_REGEX)
        return corrupt("a matcher of an unknown kind", ei);
    e = matchers_add(m, (enum matcher_kind)kind, name, value, &reason);
    return compiled(e, &reason, ei);
}

/* The texts stay in the bytes that are read; the labels' array in the arena. */
static enum err filter_config_read(struct byte_reader *r, enum relabel_action action,
                                   struct arena *arena, struct relabel_config *out,
                                   struct errinfo *ei)
{
    uint32_t count = reader_le32(r);
    struct str separator = {.size = reader_le32(r)}, value = {.size = reader_le32(r)}, *names;

    relabel_config_init(out);
    out->action = action;
    separator.data = (const char *)reader_take(r, separator.size);
    value.data = (const char *)reader_take(r, value.size);
    if (r->failed || count > reader_left(r) / LABEL_SIZE_MIN || count > PURGE_LABELS_MAX)
        return corrupt("a filter ends early", ei);
    names = ARENA_ARRAY(arena, count, struct str);
    if (names == NULL)
        return no_memory(ei);
    for (uint32_t i = 0; i < count; i++) {
        names[i].size = reader_le32(r);
        names[i].data = (const char *)reader_take(r, names[i].size);
    }
    if (r->failed)
        return corrupt("a filter ends early", ei);
    out->separator = separator;
    *filter_value(out) = value;
    out->source_labels = names;
    out->source_label_count = count;
    return ERR_OK;
}

static enum err filter_read(struct byte_reader *r, struct tombstone_matchers *m, struct errinfo *ei)
{
    uint8_t kind = reader_u8(r);
    struct relabel_config config;
    struct errinfo reason = {0};
    size_t action = 0;
    enum err e;

    if (r->failed)
        return corrupt("one of them ends early", ei);
    if (kind == 0)
        return ERR_OK;
    while (action < sizeof filter_kinds && filter_kinds[action] != kind)
        action++;
    if (action == sizeof filter_kinds)
        return corrupt("a filter of an unknown kind", ei);
    e = filter_config_read(r, (enum relabel_action)action, &m->arena, &config, ei);
    if (e != ERR_OK)
        return e;
    e = relabel_config_check(&config, &reason);
    if (e == ERR_OK)
        e = relabel_compile(&config, &m->arena, &m->filter, &reason);
    return compiled(e, &reason, ei);
}

static enum err tombstone_read(struct byte_reader *r, bool has_filters, struct tombstone_list *list,
                               struct errinfo *ei)
{
    struct tombstone t = {.min_time_ms = (int64_t)reader_le64(r),
                          .max_time_ms = (int64_t)reader_le64(r),
                          .generation = reader_le64(r)};
    uint32_t count = reader_le32(r);
    struct tombstone_matchers *m;
    enum err e = ERR_OK;

    if (r->failed || count > reader_left(r) / MATCHER_SIZE_MIN)
        return corrupt("one of them ends early", ei);
    if (count > PURGE_LABELS_MAX || t.min_time_ms > t.max_time_ms)
        return corrupt("one without a time range, or of too many matchers", ei);
    if (list->count > 0 && t.generation < list->items[list->count - 1].generation)
        return corrupt("their generations do not ascend", ei);
    m = matchers_new(count);
    if (m == NULL)
        return no_memory(ei);
    for (uint32_t i = 0; i < count && e == ERR_OK; i++)
        e = matcher_read(r, m, ei);
    if (e == ERR_OK && has_filters)
        e = filter_read(r, m, ei);
    if (e == ERR_OK && m->count == 0 && m->filter == NULL)
        e = corrupt("one that would delete everything", ei);
    if (e == ERR_OK)
        list_put(list, t, m);
    else
        matchers_unref(m);
    return e;
}

enum err tombstone_list_decode(const uint8_t *data, size_t size, bool has_filters,
                               struct tombstone_list **out, struct errinfo *ei)
{
    struct byte_reader r = reader_init(data, size);
    uint32_t count = reader_le32(&r);
    struct tombstone_list *list = NULL;
    enum err e = ERR_OK;

    if (r.failed || count > reader_left(&r) / TOMBSTONE_SIZE_MIN)
        return corrupt("their number does not fit", ei);
    if (count > 0) {
        list = list_new(count, ei);
        if (list == NULL)
            return ERR_NOMEM;
    }
    for (uint32_t i = 0; i < count && e == ERR_OK; i++)
        e = tombstone_read(&r, has_filters, list, ei);
    if (e == ERR_OK && reader_left(&r) > 0)
        e = corrupt("bytes behind the last", ei);
    if (e == ERR_OK && has_filters && !tombstone_list_has_filters(list))
        e = corrupt("none has a filter", ei);
    if (e == ERR_OK)
        *out = list;
    else
        tombstone_list_unref(list);
    return e;
}
