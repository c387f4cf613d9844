/*
 * Families are kept sorted by name, each with its metrics in order of registration; reading walks
 * them under the registry's lock, updating touches only the metric itself.
 */
#include "base/metrics.h"

#include <inttypes.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/float_text.h"
#include "base/thread.h"

enum { COUNTER_SHARD_COUNT = 16, CACHE_LINE_BYTES = 64 };

struct counter_shard {
    /* relaxed: a statistic */
    _Alignas(CACHE_LINE_BYTES) _Atomic uint64_t value;
};

struct metric_counter {
    struct counter_shard shards[COUNTER_SHARD_COUNT];
};

struct metric_gauge {
    _Atomic uint64_t bits; /* of a double; relaxed: a statistic */
};

struct metric_histogram {
    size_t bound_count;
    double *bounds;           /* owned */
    _Atomic uint64_t *counts; /* owned; bound_count + 1, the last one for +Inf; relaxed */
    _Atomic uint64_t sum_bits;
};

enum metric_kind { METRIC_COUNTER, METRIC_GAUGE, METRIC_HISTOGRAM, METRIC_CALLBACK };

struct metric {
    struct metric *next;
    enum metric_kind kind;
    char *labels; /* owned */
    union {
        struct metric_counter *counter; /* owned, as are the next two */
        struct metric_gauge *gauge;
        struct metric_histogram *histogram;
        struct {
            double (*read)(void *ctx);
            void *ctx; /* borrowed */
        } callback;
    } as;
};

struct metric_family {
    struct metric_family *next; /* by name */
    char *name, *help;          /* owned */
    const char *type;           /* a literal */
    struct metric *metrics, **metrics_end;
};

struct metrics_registry {
    struct mutex lock; /* guards the lists; callbacks run under it and must not register */
    struct metric_family *families;
};

/* Registration happens at start-up, where there is nothing to fall back to. */
static void *must_have(void *p)
{
    ASSERT(p != NULL && "out of memory while registering metrics");
    return p;
}

enum err metrics_registry_new(struct metrics_registry **out, struct errinfo *ei)
{
    struct metrics_registry *r = calloc(1, sizeof *r);

    if (r == NULL)
        return errinfo_set(ei, ERR_NOMEM, 0, "metrics registry");
    mutex_init(&r->lock);
    *out = r;
    return ERR_OK;
}

static void metric_free(struct metric *m)
{
    switch (m->kind) {
    case METRIC_COUNTER:
        free(m->as.counter);
        break;
    case METRIC_GAUGE:
        free(m->as.gauge);
        break;
    case METRIC_HISTOGRAM:
        free(m->as.histogram->bounds);
        free(m->as.histogram->counts);
        free(m->as.histogram);
        break;
    case METRIC_CALLBACK:
        break;
    }
    free(m->labels);
    free(m);
}

static void family_free(struct metric_family *f)
{
    while (f->metrics != NULL) {
        struct metric *m = f->metrics;

        f->metrics = m->next;
        metric_free(m);
    }
    free(f->name);
    free(f->help);
    free(f);
}

void metrics_registry_free(struct metrics_registry *r)
{
    if (r == NULL)
        return;
    while (r->families != NULL) {
        struct metric_family *f = r->families;

        r->families = f->next;
        family_free(f);
    }
    mutex_done(&r->lock);
    free(r);
}

/* Needs r->lock. */
static struct metric_family *family_get(struct metrics_registry *r, const char *type,
                                        const char *name, const char *help)
{
    struct metric_family **link = &r->families;

    while (*link != NULL && strcmp((*link)->name, name) < 0)
        link = &(*link)->next;
    if (*link != NULL && strcmp((*link)->name, name) == 0) {
        ASSERT(strcmp((*link)->type, type) == 0);
        ASSERT(strcmp((*link)->help, help) == 0);
        return *link;
    }
    struct metric_family *f = must_have(calloc(1, sizeof *f));
    f->name = must_have(strdup(name));
    f->help = must_have(strdup(help));
    f->type = type;
    f->metrics_end = &f->metrics;
    f->next = *link;
    *link = f;
    return f;
}

static struct metric *metric_add(struct metrics_registry *r, const char *type, const char *name,
                                 const char *labels, const char *help, struct metric like)
{
    struct metric *m = must_have(malloc(sizeof *m));

    *m = like;
    m->next = NULL;
    m->labels = must_have(strdup(labels));
    mutex_lock(&r->lock);
    struct metric_family *f = family_get(r, type, name, help);
    for (const struct metric *other = f->metrics; other != NULL; other = other->next)
        ASSERT(strcmp(other->labels, labels) != 0);
    *f->metrics_end = m;
    f->metrics_end = &m->next;
    mutex_unlock(&r->lock);
    return m;
}

struct metric_counter *metrics_counter(struct metrics_registry *r, const char *name,
                                       const char *labels, const char *help)
{
    struct metric_counter *c = must_have(aligned_alloc(CACHE_LINE_BYTES, sizeof *c));

    for (size_t i = 0; i < COUNTER_SHARD_COUNT; i++)
        atomic_init(&c->shards[i].value, 0);
    (void)metric_add(r, "counter", name, labels, help,
                     (struct metric){.kind = METRIC_COUNTER, .as.counter = c});
    return c;
}

struct metric_gauge *metrics_gauge(struct metrics_registry *r, const char *name, const char *labels,
                                   const char *help)
{
    struct metric_gauge *g = must_have(malloc(sizeof *g));

    atomic_init(&g->bits, double_bits(0));
    (void)metric_add(r, "gauge", name, labels, help,
                     (struct metric){.kind = METRIC_GAUGE, .as.gauge = g});
    return g;
}

struct metric_histogram *metrics_histogram(struct metrics_registry *r, const char *name,
                                           const char *labels, const char *help,
                                           const double *bounds, size_t bound_count)
{
    struct metric_histogram *h = must_have(malloc(sizeof *h));

    h->bound_count = bound_count;
    h->bounds = must_have(calloc(bound_count + 1, sizeof *h->bounds)); /* one spare: never empty */
    h->counts = must_have(calloc(bound_count + 1, sizeof *h->counts));
    for (size_t i = 0; i < bound_count; i++) {
        ASSERT(i == 0 || bounds[i - 1] < bounds[i]);
        h->bounds[i] = bounds[i];
    }
    for (size_t i = 0; i <= bound_count; i++)
        atomic_init(&h->counts[i], 0);
    atomic_init(&h->sum_bits, double_bits(0));
    (void)metric_add(r, "histogram", name, labels, help,
                     (struct metric){.kind = METRIC_HISTOGRAM, .as.histogram = h});
    return h;
}

void metrics_callback(struct metrics_registry *r, const char *kind, const char *name,
                      const char *labels, const char *help, double (*read)(void *ctx), void *ctx)
{
    bool is_counter = strcmp(kind, "counter") == 0;

    ASSERT(is_counter || strcmp(kind, "gauge") == 0);
    (void)metric_add(r, is_counter ? "counter" : "gauge", name, labels, help,
                     (struct metric){.kind = METRIC_CALLBACK, .as.callback = {read, ctx}});
}

void metric_counter_add(struct metric_counter *c, uint64_t n)
{
    /* The CPU rather than the thread: no thread-local state, and what runs at the same time is on
     * different CPUs. glibc reads the number from the kernel's rseq area, without a call. */
    unsigned shard = (unsigned)sched_getcpu() % COUNTER_SHARD_COUNT;

    atomic_fetch_add_explicit(&c->shards[shard].value, n, memory_order_relaxed);
}

uint64_t metric_counter_read(const struct metric_counter *c)
{
    uint64_t sum = 0;

    for (size_t i = 0; i < COUNTER_SHARD_COUNT; i++)
        sum += atomic_load_explicit(&c->shards[i].value, memory_order_relaxed);
    return sum;
}

static void double_add(_Atomic uint64_t *bits, double v)
{
    uint64_t old = atomic_load_explicit(bits, memory_order_relaxed);

    while (!atomic_compare_exchange_weak_explicit(bits, &old,
                                                  double_bits(double_from_bits(old) + v),
                                                  memory_order_relaxed, memory_order_relaxed))
        ;
}

void metric_gauge_set(struct metric_gauge *g, double v)
{
    atomic_store_explicit(&g->bits, double_bits(v), memory_order_relaxed);
}

void metric_gauge_add(struct metric_gauge *g, double v)
{
    double_add(&g->bits, v);
}

double metric_gauge_read(const struct metric_gauge *g)
{
    return double_from_bits(atomic_load_explicit(&g->bits, memory_order_relaxed));
}

void metric_histogram_observe(struct metric_histogram *h, double v)
{
    size_t i = 0;

    while (i < h->bound_count && !(v <= h->bounds[i])) /* NaN falls into +Inf, as in Go */
        i++;
    atomic_fetch_add_explicit(&h->counts[i], 1, memory_order_relaxed);
    double_add(&h->sum_bits, v);
}

/* HELP text: backslash and newline are escaped, quotes are not. */
static void write_help(struct byte_writer *out, const struct metric_family *f)
{
    writer_printf(out, "# HELP %s ", f->name);
    for (const char *p = f->help; *p != '\0'; p++) {
        if (*p == '\\')
            writer_append(out, "\\\\", 2);
        else if (*p == '\n')
            writer_append(out, "\\n", 2);
        else
            writer_append(out, p, 1);
    }
    writer_printf(out, "\n# TYPE %s %s\n", f->name, f->type);
}

/* name_suffix{labels,extra} and a blank. `extra` is one more label, or "". */
static void write_series(struct byte_writer *out, const char *name, const char *suffix,
                         const char *labels, const char *extra)
{
    writer_printf(out, "%s%s", name, suffix);
    if (*labels != '\0' || *extra != '\0')
        writer_printf(out, "{%s%s%s}", labels, *labels != '\0' && *extra != '\0' ? "," : "", extra);
    writer_u8(out, ' ');
}

static void write_double(struct byte_writer *out, double v)
{
    char text[FLOAT_TEXT_SIZE];

    writer_append(out, text, float_format_g(v, text));
    writer_u8(out, '\n');
}

static void write_histogram(struct byte_writer *out, const struct metric_family *f,
                            const struct metric *m)
{
    const struct metric_histogram *h = m->as.histogram;
    uint64_t count = 0;

    for (size_t i = 0; i <= h->bound_count; i++) {
        char bound[FLOAT_TEXT_SIZE] = "+Inf", le[FLOAT_TEXT_SIZE + 8];

        if (i < h->bound_count)
            (void)float_format_g(h->bounds[i], bound);     /* the length is not needed */
        (void)snprintf(le, sizeof le, "le=\"%s\"", bound); /* always fits */
        count += atomic_load_explicit(&h->counts[i], memory_order_relaxed);
        write_series(out, f->name, "_bucket", m->labels, le);
        writer_printf(out, "%" PRIu64 "\n", count);
    }
    write_series(out, f->name, "_sum", m->labels, "");
    write_double(out, double_from_bits(atomic_load_explicit(&h->sum_bits, memory_order_relaxed)));
    /* The sum of the buckets, not a counter of its own: equal to +Inf's even while others count. */
    write_series(out, f->name, "_count", m->labels, "");
    writer_printf(out, "%" PRIu64 "\n", count);
}

static void write_metric(struct byte_writer *out, const struct metric_family *f,
                         const struct metric *m)
{
    if (m->kind == METRIC_HISTOGRAM) {
        write_histogram(out, f, m);
        return;
    }
    write_series(out, f->name, "", m->labels, "");
    switch (m->kind) {
    case METRIC_COUNTER:
        writer_printf(out, "%" PRIu64 "\n", metric_counter_read(m->as.counter));
        break;
    case METRIC_GAUGE:
        write_double(out, metric_gauge_read(m->as.gauge));
        break;
    case METRIC_CALLBACK:
        write_double(out, m->as.callback.read(m->as.callback.ctx));
        break;
    case METRIC_HISTOGRAM:
        break;
    }
}

enum err metrics_write_text(struct metrics_registry *r, struct byte_writer *out, struct errinfo *ei)
{
    mutex_lock(&r->lock);
    for (const struct metric_family *f = r->families; f != NULL; f = f->next) {
        write_help(out, f);
        for (const struct metric *m = f->metrics; m != NULL; m = m->next)
            write_metric(out, f, m);
    }
    mutex_unlock(&r->lock);
    return out->failed ? errinfo_set(ei, ERR_NOMEM, 0, "metrics text") : ERR_OK;
}
