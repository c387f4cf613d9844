#include "tests/engine/seal_kit.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/memtable/chunk_internal.h"

void seal_model_init(struct seal_model *m, size_t series_count, uint64_t seed)
{
    CHECK(series_count <= SEAL_SERIES_MAX);
    memset(m, 0, sizeof *m);
    m->series_count = series_count;
    m->now_ms = KIT_NOW_MS + INT64_C(3600) * 1000;
    m->random = test_random_init(seed);
}

void seal_model_done(struct seal_model *m)
{
    for (size_t i = 0; i < m->series_count; i++) {
        free(m->series[i].t_ms);
        free(m->series[i].value);
        free(m->series[i].acknowledged);
    }
}

const char *seal_series_name(size_t series, char out[64])
{
    (void)snprintf(out, 64, "__name__=metric_%zu,instance=host-%zu,job=j%zu", series % 7,
                   series / 7, series % 2);
    return out;
}

enum err seal_try_open_with(struct kit *k, struct fs *fs, const struct seal_model *m,
                            uint32_t shard_count)
{
    enum err e = kit_try_open(k, fs, &(struct engine_options){.shard_count = shard_count});

    if (e == ERR_OK)
        clock_set_fake(&k->clock, m->now_ms);
    return e;
}

enum err seal_try_open(struct kit *k, struct fs *fs, const struct seal_model *m)
{
    return seal_try_open_with(k, fs, m, SEAL_SHARDS);
}

void seal_open(struct kit *k, struct fs *fs, const struct seal_model *m)
{
    CHECK_OK(seal_try_open(k, fs, m), &k->ei);
}

void seal_advance(struct kit *k, struct seal_model *m, int64_t ms)
{
    m->now_ms += ms;
    clock_set_fake(&k->clock, m->now_ms);
}

static void samples_grow(struct seal_samples *s)
{
    if (s->count < s->capacity)
        return;
    s->capacity = s->capacity == 0 ? 64 : 2 * s->capacity;
    s->t_ms = realloc(s->t_ms, s->capacity * sizeof *s->t_ms);
    s->value = realloc(s->value, s->capacity * sizeof *s->value);
    s->acknowledged = realloc(s->acknowledged, s->capacity * sizeof *s->acknowledged);
    CHECK(s->t_ms != NULL && s->value != NULL && s->acknowledged != NULL);
}

/* Returns where it stands now. */
static size_t samples_add(struct seal_samples *s, int64_t t_ms, double value)
{
    size_t at = s->count;

    samples_grow(s);
    for (; at > 0 && s->t_ms[at - 1] > t_ms; at--) {
        s->t_ms[at] = s->t_ms[at - 1];
        s->value[at] = s->value[at - 1];
        s->acknowledged[at] = s->acknowledged[at - 1];
    }
    s->t_ms[at] = t_ms;
    s->value[at] = value;
    s->acknowledged[at] = false;
    s->count++;
    return at;
}

static double value_draw(struct test_random *r)
{
    switch (test_random_below(r, 4)) {
    case 0:
        return 1;
    case 1:
        return (double)test_random_below(r, 100000) / 100;
    case 2:
        return double_from_bits(test_random_u64(r));
    default:
        return (double)test_random_below(r, 1000);
    }
}

/* What one request has sent. */
struct sent {
    size_t count;
    struct {
        size_t series, at;
    } items[SEAL_SERIES_MAX];
};

static void put(struct kit *k, struct seal_model *m, struct sent *sent, size_t series, int64_t t_ms)
{
    double value = value_draw(&m->random);
    char name[64];

    kit_series(k, seal_series_name(series, name));
    kit_sample_of(k, series, t_ms, value);
    sent->items[sent->count].series = series;
    sent->items[sent->count++].at = samples_add(&m->series[series], t_ms, value);
}

static bool send(struct kit *k, struct seal_model *m, const struct sent *sent)
{
    enum err e = kit_write(k);

    if (e == ERR_OK) {
        CHECK_MSG(k->result.refused_count == 0, "%s", k->result.examples[0]);
        e = kit_wait(k);
    }
    for (size_t i = 0; i < sent->count && e == ERR_OK; i++)
        m->series[sent->items[i].series].acknowledged[sent->items[i].at] = true;
    return e == ERR_OK;
}

static void put_share(struct kit *k, struct seal_model *m, unsigned share, struct sent *sent)
{
    for (size_t s = 0; s < m->series_count; s++) {
        if (test_random_below(&m->random, 100) < share)
            put(k, m, sent, s, m->now_ms);
    }
}

bool seal_send(struct kit *k, struct seal_model *m, unsigned share)
{
    struct sent sent = {0};

    put_share(k, m, share, &sent);
    return send(k, m, &sent);
}

void seal_send_ahead(struct kit *k, struct seal_model *m, unsigned share)
{
    struct sent sent = {0};

    put_share(k, m, share, &sent);
    CHECK_OK(kit_write(k), &k->ei);
    CHECK_MSG(k->result.refused_count == 0, "%s", k->result.examples[0]);
    for (size_t i = 0; i < sent.count; i++)
        m->series[sent.items[i].series].acknowledged[sent.items[i].at] = true;
}

static bool has_time(const struct seal_samples *s, int64_t t_ms)
{
    for (size_t i = 0; i < s->count; i++) {
        if (s->t_ms[i] == t_ms)
            return true;
    }
    return false;
}

bool seal_send_late(struct kit *k, struct seal_model *m, int64_t max_age_ms)
{
    struct sent sent = {0};

    for (size_t s = 0; s < m->series_count; s++) {
        const struct seal_samples *had = &m->series[s];
        int64_t t_ms = m->now_ms - (int64_t)test_random_below(&m->random, (uint64_t)max_age_ms);

        if (had->count > 0 && t_ms < had->t_ms[had->count - 1] && !has_time(had, t_ms))
            put(k, m, &sent, s, t_ms);
    }
    return sent.count == 0 || send(k, m, &sent);
}

enum err seal_all(struct kit *k, struct seal_result *total)
{
    enum err first = ERR_OK;

    for (uint32_t i = 0; i < engine_shard_count(k->engine); i++) {
        struct seal_result got = {0};
        struct errinfo ei = {0};
        enum err e = engine_seal(k->engine, i, SEAL_INTERVAL, NULL, &got, &ei);

        if (e != ERR_OK && first == ERR_OK) {
            first = e;
            k->ei = ei;
        }
        if (total == NULL)
            continue;
        total->sample_count += got.sample_count;
        total->late_sample_count += got.late_sample_count;
        total->slice_count += got.slice_count;
        total->byte_count += got.byte_count;
        total->series_count += got.series_count;
        if (got.hold_samples_max > total->hold_samples_max)
            total->hold_samples_max = got.hold_samples_max;
    }
    return first;
}

static void check_series(const struct seal_samples *s, size_t series, const struct column *got)
{
    size_t at = 0;

    for (size_t i = 0; i < got->count; i++, at++) {
        for (; at < s->count && s->t_ms[at] != got->t_ms[i]; at++)
            CHECK_MSG(!s->acknowledged[at], "series %zu lost sample %zu", series, at);
        CHECK_MSG(at < s->count, "series %zu has an invented sample", series);
        CHECK_MSG(double_bits(s->value[at]) == double_bits(got->value[i]), "series %zu sample %zu",
                  series, at);
        kit_check_kind(series, got, i);
    }
    for (; at < s->count; at++)
        CHECK_MSG(!s->acknowledged[at], "series %zu lost sample %zu", series, at);
}

/* The samples of a series, wherever it is. */
static void read_series(struct kit *k, size_t series, struct arena *arena, struct column *out)
{
    char name[32], host[32], job[32];
    struct matcher matchers[3];
    struct series_list list;
    struct querier *q;

    (void)snprintf(name, sizeof name, "metric_%zu", series % 7);
    (void)snprintf(host, sizeof host, "host-%zu", series / 7);
    (void)snprintf(job, sizeof job, "j%zu", series % 2);
    const struct str texts[][2] = {{STR_LITERAL("__name__"), {name, strlen(name)}},
                                   {STR_LITERAL("instance"), {host, strlen(host)}},
                                   {STR_LITERAL("job"), {job, strlen(job)}}};
    for (size_t i = 0; i < 3; i++)
        CHECK_OK(matcher_init(&matchers[i], MATCHER_EQUAL, texts[i][0], texts[i][1], arena, &k->ei),
                 &k->ei);
    CHECK_OK(querier_open(k->engine, &q, &k->ei), &k->ei);
    CHECK_OK(querier_select(q, matchers, 3, INT64_MIN, INT64_MAX, arena, &list, &k->ei), &k->ei);
    CHECK_MSG(list.count <= 1, "series %zu is there %zu times", series, list.count);
    *out = (struct column){0};
    CHECK_OK(querier_read(q, list.items, list.count, INT64_MIN, INT64_MAX, arena, out, &k->ei),
             &k->ei);
    querier_close(q);
    for (size_t i = 0; i < 3; i++)
        matcher_done(&matchers[i]);
}

void seal_check(struct kit *k, const struct seal_model *m)
{
    for (size_t s = 0; s < m->series_count; s++) {
        struct column got;
        struct arena arena;

        arena_init(&arena, NULL);
        read_series(k, s, &arena, &got);
        check_series(&m->series[s], s, &got);
        arena_done(&arena);
    }
}
