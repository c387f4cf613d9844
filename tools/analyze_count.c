#include <stdlib.h>
#include <string.h>

#include "tools/analyze_internal.h"

const uint32_t chunk_class_limits[CHUNK_CLASS_COUNT] = {
    1, 10, 30, 60, 120, 240, 480, 1000, 2000, 4000, CODEC_SAMPLES_MAX};

enum { TABLE_PLACES_MIN = 1024 };

void counter_init(struct counter *c, const struct analyze_options *o)
{
    *c = (struct counter){.o = o, .min_time_ms = INT64_MAX, .max_time_ms = INT64_MIN};
    arena_init(&c->arena, NULL);
}

void counter_done(struct counter *c)
{
    free(c->metrics.places);
    free(c->pairs.places);
    free(c->names.places);
    free(c->seen);
    free(c->windows);
    arena_done(&c->arena);
}

/* ---- tables ---- */

static uint64_t hash_text(struct str name, struct str value)
{
    uint64_t h = 0xcbf29ce484222325; /* FNV-1a: nobody aims at a table of one run */

    for (size_t i = 0; i < name.size; i++)
        h = (h ^ (uint8_t)name.data[i]) * 0x100000001b3;
    h = (h ^ 0xff) * 0x100000001b3;
    for (size_t i = 0; i < value.size; i++)
        h = (h ^ (uint8_t)value.data[i]) * 0x100000001b3;
    return h ^ h >> 29;
}

static size_t place_find(const struct count_table *t, struct str name, struct str value)
{
    size_t at = hash_text(name, value) & (t->place_count - 1);

    while (t->places[at] != NULL &&
           (!str_equal(t->places[at]->name, name) || !str_equal(t->places[at]->value, value)))
        at = (at + 1) & (t->place_count - 1);
    return at;
}

static bool table_grow(struct count_table *t)
{
    struct count_table grown = {.place_count =
                                    t->place_count == 0 ? TABLE_PLACES_MIN : 2 * t->place_count};

    /* NOLINTNEXTLINE(bugprone-sizeof-expression): an array of pointers */
    grown.places = calloc(grown.place_count, sizeof *grown.places);
    if (grown.places == NULL)
        return false;
    for (size_t i = 0; i < t->place_count; i++) {
        struct count_item *item = t->places[i];

        if (item != NULL)
            grown.places[place_find(&grown, item->name, item->value)] = item;
    }
    grown.count = t->count;
    free(t->places);
    *t = grown;
    return true;
}

/* The item of that text, made if it is new; NULL without memory. */
static struct count_item *table_item(struct counter *c, struct count_table *t, struct str name,
                                     struct str value, bool *is_new)
{
    struct count_item *item;
    size_t at;

    *is_new = false;
    if (2 * t->count >= t->place_count && !table_grow(t))
        return NULL;
    at = place_find(t, name, value);
    if (t->places[at] != NULL)
        return t->places[at];
    item = arena_calloc(&c->arena, 1, sizeof *item);
    if (item == NULL)
        return NULL;
    item->name = (struct str){arena_memdup0(&c->arena, name.data, name.size), name.size};
    item->value = (struct str){arena_memdup0(&c->arena, value.data, value.size), value.size};
    if (item->name.data == NULL || item->value.data == NULL)
        return NULL;
    t->places[at] = item;
    t->count++;
    *is_new = true;
    return item;
}

static int compare_bytes(const void *a, const void *b)
{
    const struct count_item *x = *(struct count_item *const *)a;
    const struct count_item *y = *(struct count_item *const *)b;
    int order;

    if (x->tally.bytes != y->tally.bytes)
        return x->tally.bytes > y->tally.bytes ? -1 : 1;
    if (x->tally.sample_count != y->tally.sample_count)
        return x->tally.sample_count > y->tally.sample_count ? -1 : 1;
    order = str_compare(x->name, y->name);
    return order != 0 ? order : str_compare(x->value, y->value);
}

static int compare_values(const void *a, const void *b)
{
    const struct count_item *x = *(struct count_item *const *)a;
    const struct count_item *y = *(struct count_item *const *)b;

    if (x->value_count != y->value_count)
        return x->value_count > y->value_count ? -1 : 1;
    return str_compare(x->name, y->name);
}

struct count_item **count_table_sorted(const struct count_table *t, bool by_values)
{
    /* NOLINTNEXTLINE(bugprone-sizeof-expression): an array of pointers */
    struct count_item **items = calloc(t->count + 1, sizeof *items);
    size_t count = 0;

    if (items == NULL)
        return NULL;
    for (size_t i = 0; i < t->place_count; i++) {
        if (t->places[i] != NULL)
            items[count++] = t->places[i];
    }
    /* NOLINTNEXTLINE(bugprone-sizeof-expression): as above */
    qsort((void *)items, count, sizeof *items, by_values ? compare_values : compare_bytes);
    return items;
}

/* ---- series ---- */

static size_t seen_place(const struct seen_series *seen, size_t places, struct hash128 f)
{
    size_t at = f.low & (places - 1);

    while (seen[at].first_window <= seen[at].last_window && !hash128_equal(seen[at].fingerprint, f))
        at = (at + 1) & (places - 1);
    return at;
}

static bool seen_grow(struct counter *c)
{
    size_t places = c->seen_places == 0 ? TABLE_PLACES_MIN : 2 * c->seen_places;
    struct seen_series *grown = reallocarray(NULL, places, sizeof *grown);

    if (grown == NULL)
        return false;
    for (size_t i = 0; i < places; i++)
        grown[i] = (struct seen_series){.first_window = 1, .last_window = 0};
    for (size_t i = 0; i < c->seen_places; i++) {
        if (c->seen[i].first_window <= c->seen[i].last_window)
            grown[seen_place(grown, places, c->seen[i].fingerprint)] = c->seen[i];
    }
    free(c->seen);
    c->seen = grown;
    c->seen_places = places;
    return true;
}

static int32_t window_of(int64_t t_ms)
{
    int64_t w = t_ms / CHURN_WINDOW_MS - (t_ms % CHURN_WINDOW_MS < 0);

    return w < INT32_MIN ? INT32_MIN : w > INT32_MAX ? INT32_MAX : (int32_t)w;
}

/* Notes when the series was there; *is_new when it is seen for the first time. */
static bool seen_note(struct counter *c, struct hash128 fingerprint, int64_t min_ms, int64_t max_ms,
                      bool *is_new)
{
    int32_t first = window_of(min_ms), last = window_of(max_ms);
    struct seen_series *s;

    if (2 * c->seen_count >= c->seen_places && !seen_grow(c))
        return false;
    s = &c->seen[seen_place(c->seen, c->seen_places, fingerprint)];
    *is_new = s->first_window > s->last_window;
    c->seen_count += *is_new;
    if (*is_new)
        *s = (struct seen_series){fingerprint, first, last};
    s->first_window = first < s->first_window ? first : s->first_window;
    s->last_window = last > s->last_window ? last : s->last_window;
    return true;
}

static void tally_add(struct tally *t, const struct tally *more)
{
    t->series_count += more->series_count;
    t->sample_count += more->sample_count;
    t->file_sample_count += more->file_sample_count;
    t->bytes += more->bytes;
}

/* ---- a series in a file ---- */

static bool in_range(const struct counter *c, const struct inspect_chunk *chunk)
{
    return chunk->min_time_ms <= c->o->max_time_ms && chunk->max_time_ms >= c->o->min_time_ms;
}

static void class_add(struct class_count *k, const struct inspect_chunk *chunk)
{
    k->chunk_count++;
    k->sample_count += chunk->sample_count;
    k->bytes += chunk->bytes;
}

static void chunk_add(struct counter *c, enum inspect_kind kind, const struct inspect_chunk *chunk)
{
    size_t class = 0;

    c->kinds[kind].chunk_count += kind != INSPECT_LOG; /* no chunk there */
    c->kinds[kind].sample_count += chunk->sample_count;
    c->min_time_ms = chunk->min_time_ms < c->min_time_ms ? chunk->min_time_ms : c->min_time_ms;
    c->max_time_ms = chunk->max_time_ms > c->max_time_ms ? chunk->max_time_ms : c->max_time_ms;
    if (kind == INSPECT_LOG)
        return;
    while (class + 1 < CHUNK_CLASS_COUNT && chunk->sample_count > chunk_class_limits[class])
        class ++;
    class_add(&c->chunk_classes[class], chunk);
    class_add(chunk->is_histograms ? &c->histograms
                                   : &c->codecs[chunk->codec < CODEC_COUNT ? chunk->codec : 0],
              chunk);
}

static bool label_wanted(const struct counter *c, struct str name)
{
    if (str_equal(name, LABEL_METRIC_NAME))
        return false;
    for (size_t i = 0; i < c->o->labels.count; i++) {
        if (str_equal(str_from(c->o->labels.items[i]), name))
            return true;
    }
    return c->o->labels.count == 0;
}

static bool labels_add(struct counter *c, const struct labels *labels, const struct tally *t)
{
    const struct str none = {"", 0};
    bool is_new;
    struct count_item *item =
        table_item(c, &c->metrics, labels_get(labels, LABEL_METRIC_NAME), none, &is_new);

    if (item == NULL)
        return false;
    tally_add(&item->tally, t);
    for (size_t i = 0; i < labels->count; i++) {
        const struct label *l = &labels->items[i];

        if (!label_wanted(c, l->name))
            continue;
        item = table_item(c, &c->pairs, l->name, l->value, &is_new);
        if (item == NULL)
            return false;
        tally_add(&item->tally, t);
        bool new_value = is_new;
        item = table_item(c, &c->names, l->name, none, &is_new);
        if (item == NULL)
            return false;
        item->value_count += new_value;
        tally_add(&item->tally, t);
    }
    return true;
}

enum err counter_series(void *ctx, const struct inspect_series *series, struct errinfo *ei)
{
    struct counter *c = ctx;
    struct tally t = {.bytes = series->index_bytes};
    int64_t min_ms = INT64_MAX, max_ms = INT64_MIN;
    bool is_new = false;

    for (size_t i = 0; i < series->chunk_count; i++) {
        const struct inspect_chunk *chunk = &series->chunks[i];

        if (!in_range(c, chunk))
            continue;
        chunk_add(c, series->kind, chunk);
        t.sample_count += chunk->sample_count;
        t.bytes += chunk->bytes;
        min_ms = chunk->min_time_ms < min_ms ? chunk->min_time_ms : min_ms;
        max_ms = chunk->max_time_ms > max_ms ? chunk->max_time_ms : max_ms;
    }
    if (min_ms > max_ms)
        return ERR_OK; /* nothing in the range */
    if (series->kind != INSPECT_LOG)
        t.file_sample_count = t.sample_count;
    if (!seen_note(c, series->fingerprint, min_ms, max_ms, &is_new))
        return errinfo_set(ei, ERR_NOMEM, 0, "%zu series", c->seen_count);
    t.series_count = is_new;
    tally_add(&c->total, &t);
    if (!labels_add(c, &series->labels, &t))
        return errinfo_set(ei, ERR_NOMEM, 0, "%zu labels", c->pairs.count);
    return ERR_OK;
}

/* ---- churn ---- */

enum err counter_finish(struct counter *c, struct errinfo *ei)
{
    int32_t first = INT32_MAX, last = INT32_MIN;
    uint64_t active = 0;

    for (size_t i = 0; i < c->seen_places; i++) {
        if (c->seen[i].first_window > c->seen[i].last_window)
            continue;
        first = c->seen[i].first_window < first ? c->seen[i].first_window : first;
        last = c->seen[i].last_window > last ? c->seen[i].last_window : last;
    }
    if (first > last)
        return ERR_OK;
    c->window_count = (size_t)((int64_t)last - first + 1);
    c->windows = calloc(c->window_count, sizeof *c->windows);
    if (c->windows == NULL)
        return errinfo_set(ei, ERR_NOMEM, 0, "%zu windows", c->window_count);
    for (size_t i = 0; i < c->seen_places; i++) {
        if (c->seen[i].first_window > c->seen[i].last_window)
            continue;
        c->windows[c->seen[i].first_window - first].appeared++;
        c->windows[c->seen[i].last_window - first].disappeared++;
    }
    for (size_t i = 0; i < c->window_count; i++) {
        active += c->windows[i].appeared;
        c->windows[i].active = active;
        c->windows[i].start_ms = ((int64_t)i + first) * CHURN_WINDOW_MS;
        active -= c->windows[i].disappeared;
    }
    return ERR_OK;
}
