/*
 * Names of parts, and the order of series in them.
 *
 *   part-<start>-<size>-<shard>of<count>-r<resolution>-c<class>-g<generation>.<index|chunks>[.tmp]
 *
 * Numbers are decimal, times in milliseconds; a start before 1970 has its minus sign.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "engine/part.h"

static const char *const file_suffixes[] = {".index", ".chunks"};
static const char temporary_suffix[] = ".tmp";

void part_name_format(const struct part_key *key, enum part_file file, bool temporary,
                      char out[PART_NAME_SIZE])
{
    (void)snprintf(out, PART_NAME_SIZE,
                   "part-%" PRId64 "-%" PRIu64 "-%" PRIu32 "of%" PRIu32 "-r%" PRIu64 "-c%" PRIu32
                   "-g%" PRIu64 "%s%s",
                   key->window_start_ms, key->window_size_ms, key->shard, key->shard_count,
                   key->resolution_ms, key->retention_class, key->generation, file_suffixes[file],
                   temporary ? temporary_suffix : "");
}

static bool skip(const char **at, const char *text)
{
    size_t n = strlen(text);

    if (strncmp(*at, text, n) != 0)
        return false;
    *at += n;
    return true;
}

/* A decimal number up to `max`, without superfluous zeros: a key has one name only. */
static bool read_number(const char **at, uint64_t max, uint64_t *out)
{
    const char *p = *at;
    uint64_t v = 0;

    if (*p < '0' || *p > '9' || (*p == '0' && p[1] >= '0' && p[1] <= '9'))
        return false;
    for (; *p >= '0' && *p <= '9'; p++) {
        uint64_t digit = (uint64_t)(*p - '0');

        if (v > (max - digit) / 10)
            return false;
        v = v * 10 + digit;
    }
    *at = p;
    *out = v;
    return true;
}

static bool read_signed(const char **at, int64_t *out)
{
    bool negative = skip(at, "-");
    uint64_t v;

    if (!read_number(at, negative ? UINT64_C(1) << 63 : INT64_MAX, &v) || (negative && v == 0))
        return false;
    *out = negative ? (int64_t)-v : (int64_t)v;
    return true;
}

static bool read_number32(const char **at, uint32_t *out)
{
    uint64_t v;

    if (!read_number(at, UINT32_MAX, &v))
        return false;
    *out = (uint32_t)v;
    return true;
}

bool part_name_parse(const char *name, struct part_key *key, enum part_file *file, bool *temporary)
{
    const char *at = name;
    struct part_key k = {0};
    enum part_file f = PART_FILE_INDEX;

    if (!skip(&at, "part-") || !read_signed(&at, &k.window_start_ms) || !skip(&at, "-") ||
        !read_number(&at, UINT64_MAX, &k.window_size_ms) || !skip(&at, "-") ||
        !read_number32(&at, &k.shard) || !skip(&at, "of") || !read_number32(&at, &k.shard_count) ||
        !skip(&at, "-r") || !read_number(&at, UINT64_MAX, &k.resolution_ms) || !skip(&at, "-c") ||
        !read_number32(&at, &k.retention_class) || !skip(&at, "-g") ||
        !read_number(&at, UINT64_MAX, &k.generation))
        return false;
    if (!skip(&at, file_suffixes[PART_FILE_INDEX])) {
        if (!skip(&at, file_suffixes[PART_FILE_CHUNKS]))
            return false;
        f = PART_FILE_CHUNKS;
    }
    *temporary = skip(&at, temporary_suffix);
    if (*at != '\0')
        return false;
    *key = k;
    *file = f;
    return true;
}

bool part_key_equal(const struct part_key *a, const struct part_key *b)
{
    return a->window_start_ms == b->window_start_ms && a->window_size_ms == b->window_size_ms &&
           a->resolution_ms == b->resolution_ms && a->generation == b->generation &&
           a->shard == b->shard && a->shard_count == b->shard_count &&
           a->retention_class == b->retention_class;
}

bool part_key_shards_meet(const struct part_key *a, const struct part_key *b)
{
    /* [shard, shard + 1) / count */
    return (uint64_t)a->shard * b->shard_count < ((uint64_t)b->shard + 1) * a->shard_count &&
           (uint64_t)b->shard * a->shard_count < ((uint64_t)a->shard + 1) * b->shard_count;
}

bool part_key_shard_within(const struct part_key *a, const struct part_key *b)
{
    return a->shard_count >= b->shard_count && part_key_shards_meet(a, b);
}

bool part_key_meets(const struct part_key *a, const struct part_key *b)
{
    int64_t a_last_ms = (int64_t)((uint64_t)a->window_start_ms + (a->window_size_ms - 1));
    int64_t b_last_ms = (int64_t)((uint64_t)b->window_start_ms + (b->window_size_ms - 1));

    return part_key_shards_meet(a, b) && a->resolution_ms == b->resolution_ms &&
           a->retention_class == b->retention_class && a->window_start_ms <= b_last_ms &&
           b->window_start_ms <= a_last_ms;
}

/* Steps over the metric name. */
static size_t next_label(const struct labels *l, size_t i)
{
    return i < l->count && str_equal(l->items[i].name, LABEL_METRIC_NAME) ? i + 1 : i;
}

int part_labels_compare(const struct labels *a, const struct labels *b)
{
    int c = str_compare(labels_get(a, LABEL_METRIC_NAME), labels_get(b, LABEL_METRIC_NAME));
    size_t i = next_label(a, 0), k = next_label(b, 0);

    while (c == 0 && i < a->count && k < b->count) {
        c = str_compare(a->items[i].name, b->items[k].name);
        if (c == 0)
            c = str_compare(a->items[i].value, b->items[k].value);
        i = next_label(a, i + 1);
        k = next_label(b, k + 1);
    }
    if (c == 0)
        c = (i < a->count) - (k < b->count);
    return (c > 0) - (c < 0);
}
