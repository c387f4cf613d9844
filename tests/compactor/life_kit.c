#include "tests/compactor/life_kit.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "wal/wal.h"

static struct maintain_control control;

struct maintain_control *life_control(void)
{
    return &control;
}

void life_init(struct life *l, struct fs *fs, uint32_t shard_count)
{
    *l = (struct life){.fs = fs, .shard_count = shard_count, .now_ms = LIFE_T0};
    life_model_init(&l->model);
}

void life_init_like(struct life *l, struct fs *fs, const struct life *other)
{
    *l = (struct life){.fs = fs,
                       .shard_count = other->shard_count,
                       .now_ms = other->now_ms,
                       .purge_is_unsure = other->purge_is_unsure,
                       .purge_is_worn = other->purge_is_worn,
                       .snapshot_count = other->snapshot_count};
    life_model_copy(&other->model, &l->model);
}

void life_done(struct life *l)
{
    if (l->is_open)
        life_abandon(l);
    life_model_done(&l->model);
    fs_free(l->fs);
}

enum err life_open(struct life *l, struct errinfo *ei)
{
    const struct engine_options options = {.shard_count = l->shard_count, .wal_commit_delay_ms = 1};
    enum err e = kit_try_open(&l->kit, l->fs, &options);

    CHECK(!l->is_open);
    if (e != ERR_OK) {
        *ei = l->kit.ei;
        return e;
    }
    l->is_open = true;
    /* Series leave only when their definitions have been repeated: a life is short. */
    atomic_store_explicit(&l->kit.engine->logs.repeat_delay_ns, 1000000, memory_order_relaxed);
    CHECK(engine_shard_count(l->kit.engine) <= LIFE_SHARDS_MAX);
    memset(l->sequences, 0, sizeof l->sequences);
    life_set_now(l, l->now_ms);
    life_purge_opened(l);
    return ERR_OK;
}

void life_open_checked(struct life *l)
{
    struct errinfo ei = {0};

    CHECK_OK(life_open(l, &ei), &ei);
    CHECK_MSG(l->kit.replay.unknown_ref_samples == 0, "%" PRIu64 " samples of unknown series",
              l->kit.replay.unknown_ref_samples);
}

void life_close(struct life *l)
{
    kit_close(&l->kit);
    life_model_durable(&l->model);
    l->is_open = false;
}

void life_abandon(struct life *l)
{
    kit_abandon(&l->kit);
    life_model_crashed(&l->model);
    l->is_open = false;
}

void life_lose_power(struct life *l, const struct test_crash_mode *mode, uint64_t seed)
{
    struct fs *after;

    if (l->is_open)
        life_abandon(l);
    after = test_fs_after_crash(l->fs, mode, seed);
    fs_free(l->fs);
    l->fs = after;
    life_verify(after, true);
}

void life_set_now(struct life *l, int64_t now_ms)
{
    l->now_ms = now_ms;
    if (l->is_open)
        clock_set_fake(&l->kit.clock, now_ms);
}

/* ---- writing ---- */

static struct life_written {
    uint32_t series;
    int64_t t_ms;
    uint64_t bits;
} * written; /* the request at hand; one store at a time writes */
static size_t written_count, written_capacity;

void life_put(struct life *l, uint32_t series, int64_t t_ms, double value)
{
    char text[LIFE_LABELS_SIZE];

    if (written_count == written_capacity) {
        written_capacity = 2 * written_capacity + 64;
        written = realloc(written, written_capacity * sizeof *written);
        CHECK(written != NULL);
    }
    if (written_count == 0 || written[written_count - 1].series != series) {
        life_labels_text(series, l->variant, text);
        kit_series(&l->kit, text);
    }
    kit_sample_of(&l->kit, series, t_ms, value);
    written[written_count++] = (struct life_written){series, t_ms, double_bits(value)};
}

/* Refusals must be of timestamps that are taken, by another value. */
static void check_result(const struct life *l, size_t taken)
{
    const struct write_result *r = &l->kit.result;

    CHECK_MSG(r->refused_count == r->refused[REFUSAL_DUPLICATE_TIMESTAMP] &&
                  r->refused_count <= taken,
              "%" PRIu64 " refused, %zu taken: %s", r->refused_count, taken, r->examples[0]);
    CHECK(r->sample_count == written_count);
    CHECK(r->stored_count + r->repeat_count + r->refused_count == r->sample_count);
}

enum err life_send(struct life *l)
{
    size_t taken = 0;
    enum err e = kit_write(&l->kit);

    for (uint32_t i = 0; i < engine_shard_count(l->kit.engine); i++) {
        if (l->kit.sequences[i] > l->sequences[i])
            l->sequences[i] = l->kit.sequences[i];
    }

    for (size_t i = 0; i < written_count; i++) {
        const struct life_written *p = &written[i];
        const struct life_sample *known = life_model_find(&l->model, p->series, p->t_ms);

        taken += known != NULL && (known->bits != p->bits || known->has_rival);
        life_model_write(&l->model, p->series, p->t_ms, p->bits);
    }
    if (e == ERR_OK)
        check_result(l, taken);
    else /* some of it may be stored: as if it was in flight when the process died */
        life_model_crashed(&l->model);
    written_count = 0;
    return e;
}

enum err life_wait(struct life *l)
{
    enum err e = wal_wait_blocking(l->kit.engine->wal, l->sequences, &l->kit.ei);

    if (e == ERR_OK)
        life_model_durable(&l->model);
    return e;
}

void life_send_checked(struct life *l)
{
    CHECK_OK(life_send(l), &l->kit.ei);
    CHECK_OK(life_wait(l), &l->kit.ei);
}

/* ---- reading ---- */

struct reading {
    struct life *life;
    struct querier *querier;
    struct arena arena;
    struct series_list list;
    uint32_t *numbers; /* of the list's series; in the arena */
    bool *seen;        /* by number */
    size_t seen_count;
};

/* Selects and names; a series must come once. */
static void reading_begin(struct reading *r, struct life *l, const struct matcher *matchers,
                          size_t matcher_count, int64_t min_time_ms, int64_t max_time_ms)
{
    struct errinfo ei = {0};
    struct labels *labels;

    *r = (struct reading){.life = l, .seen_count = l->model.count};
    arena_init(&r->arena, NULL);
    CHECK_OK(querier_open(l->kit.engine, &r->querier, &ei), &ei);
    CHECK_OK(querier_select(r->querier, matchers, matcher_count, min_time_ms, max_time_ms,
                            &r->arena, &r->list, &ei),
             &ei);
    CHECK_OK(querier_sort(r->querier, &r->list, &ei), &ei);
    labels = ARENA_ARRAY(&r->arena, r->list.count + 1, struct labels);
    r->numbers = ARENA_ARRAY(&r->arena, r->list.count + 1, uint32_t);
    r->seen = calloc(r->seen_count + 1, 1);
    CHECK(labels != NULL && r->numbers != NULL && r->seen != NULL);
    CHECK_OK(querier_labels(r->querier, r->list.items, r->list.count, &r->arena, labels, &ei), &ei);
    for (size_t i = 0; i < r->list.count; i++) {
        r->numbers[i] = life_series_of(&labels[i]);
        CHECK(r->numbers[i] < r->seen_count && l->model.series[r->numbers[i]].was_named);
        CHECK_MSG(!r->seen[r->numbers[i]], "series %" PRIu32 " is there twice", r->numbers[i]);
        r->seen[r->numbers[i]] = true;
        CHECK(i == 0 || labels_compare(&labels[i - 1], &labels[i]) < 0);
        CHECK_MSG(life_matches(r->numbers[i], matchers, matcher_count), "series %" PRIu32,
                  r->numbers[i]);
    }
}

static void reading_end(struct reading *r)
{
    querier_close(r->querier);
    arena_done(&r->arena);
    free(r->seen);
}

static void check_samples(struct reading *r, int64_t min_time_ms, int64_t max_time_ms)
{
    static struct column columns[QUERIER_READ_BATCH_MAX];
    struct errinfo ei = {0};

    for (size_t i = 0; i < r->list.count; i += QUERIER_READ_BATCH_MAX) {
        size_t count = r->list.count - i;
        struct arena arena;

        if (count > QUERIER_READ_BATCH_MAX)
            count = QUERIER_READ_BATCH_MAX;
        arena_init(&arena, NULL);
        CHECK_OK(querier_read(r->querier, r->list.items + i, count, min_time_ms, max_time_ms,
                              &arena, columns, &ei),
                 &ei);
        for (size_t k = 0; k < count; k++) {
            life_model_check(&r->life->model, r->numbers[i + k], min_time_ms, max_time_ms,
                             &columns[k]);
            for (size_t n = 0; n < columns[k].count; n++)
                kit_check_kind(r->numbers[i + k], &columns[k], n);
        }
        arena_done(&arena);
    }
}

/* A series that was not selected has nothing there. */
static void check_missing(struct reading *r, const struct matcher *matchers, size_t matcher_count,
                          int64_t min_time_ms, int64_t max_time_ms)
{
    for (uint32_t n = 0; n < r->life->model.count; n++) {
        if (!r->seen[n] && life_matches(n, matchers, matcher_count))
            life_model_check(&r->life->model, n, min_time_ms, max_time_ms,
                             &(const struct column){0});
    }
}

static bool holds(const struct str_list *list, struct str value)
{
    for (size_t i = 0; i < list->count; i++) {
        if (str_equal(list->items[i], value))
            return true;
    }
    return false;
}

/* The values of a label: those of series with samples there, and none of a series that never was
 * or does not match. */
static void check_values(struct reading *r, const char *label, const struct matcher_set *set,
                         int64_t min_time_ms, int64_t max_time_ms)
{
    struct str name = str_from(label);
    const struct life_model *m = &r->life->model;
    struct errinfo ei = {0};
    struct str_list list;
    bool truncated, *used;

    CHECK_OK(querier_label_values(r->querier, name, set, 1, min_time_ms, max_time_ms, 0, &r->arena,
                                  &list, &truncated, &ei),
             &ei);
    CHECK(!truncated);
    used = calloc(list.count + 1, 1);
    CHECK(used != NULL);
    for (uint32_t n = 0; n < m->count; n++) {
        char text[LIFE_LABELS_SIZE];
        struct str value = life_label_value(n, name, text);

        if (!m->series[n].was_named || !life_matches(n, set->items, set->count))
            continue;
        CHECK_MSG(holds(&list, value) || !life_model_has(m, n, min_time_ms, max_time_ms),
                  "series %" PRIu32 ": %s=%s", n, label, text);
        for (size_t i = 0; i < list.count; i++)
            used[i] |= str_equal(list.items[i], value);
    }
    for (size_t i = 0; i < list.count; i++) {
        CHECK_MSG(used[i], "%s=%.*s", label, STR_ARGS(list.items[i]));
        CHECK(i == 0 || str_compare(list.items[i - 1], list.items[i]) < 0);
    }
    free(used);
}

static void check_names(struct reading *r, const struct matcher_set *set, int64_t min_time_ms,
                        int64_t max_time_ms)
{
    struct errinfo ei = {0};
    struct str_list list;
    bool truncated, any = false;

    CHECK_OK(querier_label_names(r->querier, set, 1, min_time_ms, max_time_ms, 0, &r->arena, &list,
                                 &truncated, &ei),
             &ei);
    for (uint32_t n = 0; n < r->life->model.count; n++)
        any |= life_matches(n, set->items, set->count) &&
               life_model_has(&r->life->model, n, min_time_ms, max_time_ms);
    CHECK(list.count == LIFE_LABEL_COUNT || (list.count == 0 && !any));
}

void life_check_query(struct life *l, const struct matcher *matchers, size_t matcher_count,
                      int64_t min_time_ms, int64_t max_time_ms)
{
    const struct matcher_set set = {matchers, matcher_count};
    struct reading r;

    reading_begin(&r, l, matchers, matcher_count, min_time_ms, max_time_ms);
    check_samples(&r, min_time_ms, max_time_ms);
    check_missing(&r, matchers, matcher_count, min_time_ms, max_time_ms);
    check_names(&r, &set, min_time_ms, max_time_ms);
    check_values(&r, "instance", &set, min_time_ms, max_time_ms);
    check_values(&r, "__name__", &set, min_time_ms, max_time_ms);
    reading_end(&r);
}

void life_check(struct life *l)
{
    struct reading r;

    reading_begin(&r, l, NULL, 0, INT64_MIN, INT64_MAX);
    check_samples(&r, INT64_MIN, INT64_MAX);
    check_missing(&r, NULL, 0, INT64_MIN, INT64_MAX);
    reading_end(&r);
}

/* ---- files ---- */

static void check_there(struct life *l, const char *path)
{
    struct errinfo ei = {0};
    bool exists;

    CHECK_OK(fs_exists(l->fs, path, &exists, &ei), &ei);
    CHECK_MSG(exists, "the manifest names %s", path);
}

static enum err count_entry(void *ctx, const char *name, struct errinfo *ei)
{
    (void)name;
    (void)ei;
    ++*(size_t *)ctx;
    return ERR_OK;
}

/* Whatever their names. */
static size_t count_entries(struct life *l, const char *dir)
{
    struct errinfo ei = {0};
    size_t count = 0;
    bool exists;

    CHECK_OK(fs_exists(l->fs, dir, &exists, &ei), &ei);
    if (exists)
        CHECK_OK(fs_list(l->fs, dir, count_entry, &count, &ei), &ei);
    return count;
}

void life_check_files(struct life *l)
{
    struct manifest_paths debris = {0};
    struct manifest m = {0};
    struct errinfo ei = {0};

    if (!l->is_open)
        life_verify(l->fs, true);
    CHECK_OK(manifest_read(l->fs, &m, &ei), &ei);
    CHECK_OK(manifest_debris(l->fs, &m, &debris, &ei), &ei);
    CHECK_MSG(debris.count == 0, "%zu files that nobody names, the first is %s", debris.count,
              debris.items[0]);
    for (size_t i = 0; i < m.file_count; i++) {
        char path[MANIFEST_PATH_SIZE];

        manifest_file_path(&m.files[i], path);
        check_there(l, path);
    }
    for (size_t i = 0; i < m.part_count; i++) {
        for (int file = 0; file < 2; file++) {
            char name[PART_NAME_SIZE], path[MANIFEST_PATH_SIZE];

            part_name_format(&m.parts[i].key, (enum part_file)file, false, name);
            (void)snprintf(path, sizeof path, MANIFEST_PARTS_DIR "/%s", name);
            check_there(l, path);
        }
    }
    CHECK(count_entries(l, MANIFEST_SHARDS_DIR) == m.file_count);
    CHECK(count_entries(l, MANIFEST_PARTS_DIR) == 2 * m.part_count);
    manifest_paths_done(&debris);
    manifest_done(&m);
}
