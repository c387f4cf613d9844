#include "tests/compactor/life_model.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "tests/engine/rule_kit.h"
#include "tests/lib/test_support.h"

enum { NAMES = 5, JOBS = 3 };

void life_model_init(struct life_model *m)
{
    *m = (struct life_model){0};
}

void life_model_done(struct life_model *m)
{
    for (size_t i = 0; i < m->count; i++) {
        free(m->series[i].items);
        free(m->series[i].hidden);
    }
    free(m->series);
    free(m->pending);
}

static void note_pending(struct life_model *m, uint32_t series, int64_t t_ms)
{
    if (m->pending_count == m->pending_capacity) {
        m->pending_capacity = 2 * m->pending_capacity + 64;
        m->pending = realloc(m->pending, m->pending_capacity * sizeof *m->pending);
        CHECK(m->pending != NULL);
    }
    m->pending[m->pending_count++] = (struct life_pending){series, t_ms};
}

static struct life_sample *samples_copy(const struct life_sample *from, size_t count)
{
    struct life_sample *to = malloc((count + 1) * sizeof *to);

    CHECK(to != NULL);
    if (count > 0)
        memcpy(to, from, count * sizeof *to);
    return to;
}

void life_model_copy(const struct life_model *from, struct life_model *out)
{
    *out = (struct life_model){.count = from->count, .is_hiding = from->is_hiding};
    for (size_t i = 0; i < from->pending_count; i++)
        note_pending(out, from->pending[i].series, from->pending[i].t_ms);
    out->series = calloc(from->count + 1, sizeof *out->series);
    CHECK(out->series != NULL);
    for (size_t i = 0; i < from->count; i++) {
        struct life_series *to = &out->series[i];

        *to = from->series[i];
        to->capacity = to->count;
        to->items = samples_copy(to->items, to->count);
        to->hidden = samples_copy(to->hidden, to->hidden_count);
    }
}

/* ---- names ---- */

/* In byte order. */
static const char *const label_names[LIFE_LABEL_COUNT] = {"__name__", "id", "instance", "job"};

struct str life_label_value(uint32_t series, struct str name, char out[LIFE_LABELS_SIZE])
{
    uint32_t entity = series / NAMES;

    out[0] = '\0';
    if (str_equal(name, LABEL_METRIC_NAME))
        (void)snprintf(out, LIFE_LABELS_SIZE, "metric_%" PRIu32, series % NAMES);
    else if (str_equal(name, STR_LITERAL("id")))
        (void)snprintf(out, LIFE_LABELS_SIZE, "%" PRIu32, series);
    else if (str_equal(name, STR_LITERAL("instance")))
        (void)snprintf(out, LIFE_LABELS_SIZE, "host-%" PRIu32 ".example", entity);
    else if (str_equal(name, STR_LITERAL("job")))
        (void)snprintf(out, LIFE_LABELS_SIZE, "job-%" PRIu32, entity % JOBS);
    return str_from(out);
}

void life_labels_text(uint32_t series, unsigned variant, char out[LIFE_LABELS_SIZE])
{
    size_t size = 0;

    for (unsigned i = 0; i < LIFE_LABEL_COUNT; i++) {
        const char *name = label_names[(i + variant) % LIFE_LABEL_COUNT];
        char value[LIFE_LABELS_SIZE];

        (void)life_label_value(series, str_from(name), value);
        size += (size_t)snprintf(out + size, LIFE_LABELS_SIZE - size, "%s%s=%.30s",
                                 i == 0 ? "" : ",", name, value);
        CHECK(size < LIFE_LABELS_SIZE);
    }
}

static bool rule_drops(uint32_t series, const struct relabel_config *rule)
{
    char values[LIFE_LABEL_COUNT][LIFE_LABELS_SIZE];
    struct label items[LIFE_LABEL_COUNT];
    const struct labels labels = {LIFE_LABEL_COUNT, items};

    for (size_t i = 0; i < LIFE_LABEL_COUNT; i++) {
        struct str name = str_from(label_names[i]);

        items[i] = (struct label){name, life_label_value(series, name, values[i])};
    }
    return rule_kit_filter_drops(rule, &labels);
}

bool life_matches(uint32_t series, const struct matcher *matchers, size_t matcher_count)
{
    char value[LIFE_LABELS_SIZE];

    for (size_t i = 0; i < matcher_count; i++) {
        if (!matcher_matches(&matchers[i], life_label_value(series, matchers[i].name, value)))
            return false;
    }
    return true;
}

uint32_t life_series_of(const struct labels *labels)
{
    struct str id = labels_get(labels, STR_LITERAL("id"));
    uint32_t series = 0;

    CHECK(labels->count == LIFE_LABEL_COUNT && labels_are_canonical(labels));
    CHECK(id.size > 0 && id.size < 9);
    for (size_t i = 0; i < id.size; i++) {
        CHECK(id.data[i] >= '0' && id.data[i] <= '9');
        series = series * 10 + (uint32_t)(id.data[i] - '0');
    }
    for (size_t i = 0; i < labels->count; i++) {
        char value[LIFE_LABELS_SIZE];

        CHECK(str_equal(labels->items[i].value,
                        life_label_value(series, labels->items[i].name, value)));
    }
    return series;
}

/* ---- samples ---- */

static struct life_series *series_of(struct life_model *m, uint32_t series)
{
    if (series >= m->count) {
        size_t count = (size_t)series + 32;

        m->series = realloc(m->series, count * sizeof *m->series);
        CHECK(m->series != NULL);
        memset(m->series + m->count, 0, (count - m->count) * sizeof *m->series);
        m->count = count;
    }
    return &m->series[series];
}

/* The first sample at or behind a time. */
static size_t place_of(const struct life_series *s, int64_t t_ms)
{
    size_t low = 0, high = s->count;

    while (low < high) {
        size_t middle = (low + high) / 2;

        if (s->items[middle].t_ms < t_ms)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static void insert(struct life_series *s, size_t at, int64_t t_ms, uint64_t bits)
{
    if (s->count == s->capacity) {
        s->capacity = 2 * s->capacity + 16;
        s->items = realloc(s->items, s->capacity * sizeof *s->items);
        CHECK(s->items != NULL);
    }
    memmove(s->items + at + 1, s->items + at, (s->count - at) * sizeof *s->items);
    s->items[at] = (struct life_sample){.t_ms = t_ms, .bits = bits, .is_pending = true};
    s->count++;
}

void life_model_write(struct life_model *m, uint32_t series, int64_t t_ms, uint64_t bits)
{
    struct life_series *s = series_of(m, series);
    size_t at = place_of(s, t_ms);

    s->was_named = true;
    if (at == s->count || s->items[at].t_ms != t_ms) {
        insert(s, at, t_ms, bits);
        note_pending(m, series, t_ms);
        return;
    }
    if (s->items[at].bits != bits) {
        s->items[at].has_rival = true;
        s->items[at].any_value |= s->items[at].maybe;
        s->items[at].was_contested |= s->items[at].is_pending || s->items[at].maybe;
    }
    if (s->items[at].maybe) { /* it is there now, whichever it was */
        s->items[at].maybe = false;
        s->items[at].is_pending = true;
        note_pending(m, series, t_ms);
    }
}

const struct life_sample *life_model_find(const struct life_model *m, uint32_t series, int64_t t_ms)
{
    const struct life_series *s;
    size_t at;

    if (series >= m->count)
        return NULL;
    s = &m->series[series];
    at = place_of(s, t_ms);
    return at < s->count && s->items[at].t_ms == t_ms ? &s->items[at] : NULL;
}

/* NULL when it has been deleted. */
static struct life_sample *pending_sample(struct life_model *m, size_t i)
{
    struct life_series *s = &m->series[m->pending[i].series];
    size_t at = place_of(s, m->pending[i].t_ms);

    return at < s->count && s->items[at].t_ms == m->pending[i].t_ms ? &s->items[at] : NULL;
}

void life_model_durable(struct life_model *m)
{
    for (size_t i = 0; i < m->pending_count; i++) {
        struct life_sample *sample = pending_sample(m, i);

        if (sample != NULL)
            sample->is_pending = false;
    }
    m->pending_count = 0;
}

void life_model_crashed(struct life_model *m)
{
    for (size_t i = 0; i < m->pending_count; i++) {
        struct life_sample *sample = pending_sample(m, i);

        if (sample == NULL || !sample->is_pending)
            continue;
        sample->maybe = true;
        sample->any_value |= sample->was_contested;
        sample->is_pending = false;
    }
    m->pending_count = 0;
}

static size_t delete_samples(struct life_sample *items, size_t *count, int64_t min_time_ms,
                             int64_t max_time_ms, bool maybe)
{
    size_t kept = 0, hits = 0;

    for (size_t k = 0; k < *count; k++) {
        bool is_hit = items[k].t_ms >= min_time_ms && items[k].t_ms <= max_time_ms;

        hits += is_hit;
        items[k].maybe |= is_hit;
        if (maybe || !is_hit)
            items[kept++] = items[k];
    }
    *count = kept;
    return hits;
}

size_t life_model_delete(struct life_model *m, const struct matcher *matchers, size_t matcher_count,
                         int64_t min_time_ms, int64_t max_time_ms, bool maybe)
{
    size_t hits = 0;

    for (size_t i = 0; i < m->count; i++) {
        struct life_series *s = &m->series[i];

        if (!life_matches((uint32_t)i, matchers, matcher_count))
            continue;
        hits += delete_samples(s->items, &s->count, min_time_ms, max_time_ms, maybe);
        hits += delete_samples(s->hidden, &s->hidden_count, min_time_ms, max_time_ms, maybe);
    }
    return hits;
}

/* ---- a purge ---- */

void life_model_purge(struct life_model *m, const struct matcher *matchers, size_t matcher_count)
{
    CHECK(!m->is_hiding);
    life_model_forget(m);
    for (size_t i = 0; i < m->count; i++)
        m->series[i].is_purged = life_matches((uint32_t)i, matchers, matcher_count);
}

void life_model_purge_rule(struct life_model *m, const struct relabel_config *rule)
{
    CHECK(!m->is_hiding);
    life_model_forget(m);
    for (size_t i = 0; i < m->count; i++)
        m->series[i].is_purged = rule_drops((uint32_t)i, rule);
}

void life_model_hide(struct life_model *m)
{
    CHECK(!m->is_hiding);
    m->is_hiding = true;
    for (size_t i = 0; i < m->count; i++) {
        struct life_series *s = &m->series[i];

        if (!s->is_purged)
            continue;
        free(s->hidden);
        s->hidden = s->items;
        s->hidden_count = s->count;
        s->items = NULL;
        s->count = s->capacity = 0;
        for (size_t k = 0; k < s->hidden_count; k++)
            s->hidden[k].is_pending = false; /* a purge seals everything */
    }
}

/* A sample that was hidden, beside one that was written since for the same time. */
static struct life_sample both_shown(const struct life_sample *old, const struct life_sample *newer)
{
    bool is_same = old->bits == newer->bits && !old->any_value && !newer->any_value;
    struct life_sample both = *newer;

    if (!old->maybe)
        both = *old; /* in the older file, so it was first */
    else if (!is_same)
        both.any_value = true;
    both.has_rival |= !is_same || newer->has_rival || old->has_rival;
    return both;
}

static void series_show(struct life_series *s, bool whole)
{
    const struct life_sample *newer = s->items, *end = newer + s->count;
    struct life_sample *shown = malloc((s->count + s->hidden_count + 1) * sizeof *shown);
    size_t count = 0;

    CHECK(shown != NULL);
    for (size_t i = 0; i < s->hidden_count; i++) {
        struct life_sample *old = &s->hidden[i];

        old->maybe |= !whole;
        old->any_value |= !whole && old->has_rival; /* the rival may be what is left */
        while (newer < end && newer->t_ms < old->t_ms)
            shown[count++] = *newer++;
        if (newer < end && newer->t_ms == old->t_ms)
            shown[count++] = both_shown(old, newer++);
        else
            shown[count++] = *old;
    }
    while (newer < end)
        shown[count++] = *newer++;
    free(s->items);
    s->items = shown;
    s->count = s->capacity = count;
    s->hidden_count = 0;
}

void life_model_show(struct life_model *m, bool whole)
{
    CHECK(m->is_hiding);
    m->is_hiding = false;
    for (size_t i = 0; i < m->count; i++) {
        if (m->series[i].hidden_count > 0)
            series_show(&m->series[i], whole);
    }
}

void life_model_forget(struct life_model *m)
{
    m->is_hiding = false;
    for (size_t i = 0; i < m->count; i++) {
        m->series[i].is_purged = false;
        m->series[i].hidden_count = 0;
    }
}

static void retain_samples(struct life_sample *items, size_t count, int64_t cutoff_ms)
{
    for (size_t k = 0; k < count && items[k].t_ms < cutoff_ms; k++) {
        items[k].maybe = true;
        items[k].any_value = true; /* a younger file may have held another one */
    }
}

void life_model_retain(struct life_model *m, int64_t cutoff_ms)
{
    for (size_t i = 0; i < m->count; i++) {
        struct life_series *s = &m->series[i];

        retain_samples(s->items, s->count, cutoff_ms);
        retain_samples(s->hidden, s->hidden_count, cutoff_ms);
    }
}

uint64_t life_model_sample_count(const struct life_model *m)
{
    uint64_t count = 0;

    for (size_t i = 0; i < m->count; i++)
        count += m->series[i].count;
    return count;
}

/* ---- comparing ---- */

bool life_model_has(const struct life_model *m, uint32_t series, int64_t min_time_ms,
                    int64_t max_time_ms)
{
    if (series >= m->count)
        return false;
    for (size_t k = place_of(&m->series[series], min_time_ms); k < m->series[series].count; k++) {
        if (m->series[series].items[k].t_ms > max_time_ms)
            break;
        if (!m->series[series].items[k].maybe)
            return true;
    }
    return false;
}

static size_t pass_over_missing(const struct life_series *s, uint32_t series, size_t at,
                                int64_t until_ms)
{
    for (; at < s->count && s->items[at].t_ms < until_ms; at++)
        CHECK_MSG(s->items[at].maybe, "series %" PRIu32 " lost its sample at %" PRId64, series,
                  s->items[at].t_ms);
    return at;
}

void life_model_check(const struct life_model *m, uint32_t series, int64_t min_time_ms,
                      int64_t max_time_ms, const struct column *got)
{
    const struct life_series none = {0};
    const struct life_series *s = series < m->count ? &m->series[series] : &none;
    size_t at = place_of(s, min_time_ms);

    for (size_t i = 0; i < got->count; i++, at++) {
        int64_t t_ms = got->t_ms[i];

        CHECK_MSG(t_ms >= min_time_ms && t_ms <= max_time_ms, "series %" PRIu32 " at %" PRId64,
                  series, t_ms);
        CHECK_MSG(i == 0 || t_ms > got->t_ms[i - 1], "series %" PRIu32 " at %" PRId64, series,
                  t_ms);
        at = pass_over_missing(s, series, at, t_ms);
        CHECK_MSG(at < s->count && s->items[at].t_ms == t_ms,
                  "series %" PRIu32 " has what nobody wrote, or what was deleted, at %" PRId64,
                  series, t_ms);
        CHECK_MSG(s->items[at].any_value || s->items[at].bits == double_bits(got->value[i]),
                  "series %" PRIu32 " at %" PRId64 ": %016" PRIx64 ", not %016" PRIx64 "%s%s%s%s",
                  series, t_ms, double_bits(got->value[i]), s->items[at].bits,
                  s->items[at].is_pending ? ", pending" : "", s->items[at].maybe ? ", maybe" : "",
                  s->items[at].has_rival ? ", has a rival" : "",
                  s->items[at].was_contested ? ", was contested" : "");
    }
    (void)pass_over_missing(s, series, at, max_time_ms == INT64_MAX ? INT64_MAX : max_time_ms + 1);
}
