/*
 * `rimtool load`: pushes the GPU-fleet stream to a remote-write receiver and reports what it took.
 *
 * Every connection is a thread that owns a share of the nodes and sends their samples in order, as
 * Prometheus's sending shards do. It goes as fast as the receiver answers, or with --realtime at
 * the scrape interval. Requests that get 5xx, 429 or no answer are repeated until --retry-for is
 * over.
 */
#include <curl/curl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/process.h"
#include "base/thread.h"
#include "engine/write.h"
#include "tools/fleet_stream.h"
#include "tools/load_options_internal.h"
#include "tools/load_request.h"
#include "tools/tools_internal.h"

enum { ANSWER_TEXT_MAX = 512, REFUSAL_TEXT_MAX = ANSWER_TEXT_MAX + 64, LATE_SCRAPES = 2 };

/* Relaxed everywhere: statistics. */
struct load_totals {
    _Atomic uint64_t samples, refused, failed, late, stale, requests, retries, body_bytes,
        plain_bytes;
};

struct load_run {
    struct load_options options;
    struct fleet_template *template;
    struct load_totals totals;
    pthread_barrier_t warm; /* all workers and the main thread, twice */
    uint64_t start_ns;
    struct load_worker *workers; /* connection_count of them */
    atomic_bool failed;          /* a worker gave up; the first story is in `ei` */
    struct mutex lock;           /* guards ei and refusal_text */
    struct errinfo ei;
    char refusal_text[REFUSAL_TEXT_MAX];
    _Atomic uint32_t running;
};

struct late_sample {
    struct fleet_sample sample; /* labels owned */
    uint64_t due_scrape;
};

struct load_worker {
    struct load_run *run;
    struct thread thread;
    struct fleet_nodes *nodes;
    uint32_t node_count, first_node;
    struct load_request *request;
    CURL *curl;
    struct curl_slist *headers;
    char answer[ANSWER_TEXT_MAX];
    size_t answer_size;
    struct late_sample *late; /* ring in order of due_scrape */
    size_t late_count, late_capacity;
    uint64_t random;
    _Atomic uint64_t scrape; /* relaxed: the one at hand; UINT64_MAX at the end */
};

static size_t on_answer(char *data, size_t size, size_t count, void *ctx)
{
    struct load_worker *w = ctx;
    size_t room = sizeof w->answer - 1 - w->answer_size;
    size_t n = size * count < room ? size * count : room;

    memcpy(w->answer + w->answer_size, data, n);
    w->answer_size += n;
    w->answer[w->answer_size] = '\0';
    return size * count;
}

static void worker_fail(struct load_worker *w, const char *format, ...) PRINTF_LIKE(2, 3);
static void worker_fail(struct load_worker *w, const char *format, ...)
{
    va_list args;

    mutex_lock(&w->run->lock);
    va_start(args, format);
    (void)errinfo_setv(&w->run->ei, ERR_UNAVAILABLE, 0, format, args); /* the first one stays */
    va_end(args);
    mutex_unlock(&w->run->lock);
    atomic_store(&w->run->failed, true);
}

/* Leaves whole lines only: the room for an answer may end in the middle of one. */
static void answer_cut(char *answer)
{
    char *end = strrchr(answer, '\n');

    if (end != NULL)
        *end = '\0';
}

/* "N of M samples refused": N, or all of them when the answer has another form. */
static uint64_t refused_count(const char *answer, uint64_t sample_count)
{
    char *end = NULL;
    unsigned long long n = strtoull(answer, &end, 10);

    return end != answer && strncmp(end, " of ", 4) == 0 ? n : sample_count;
}

static void pause_seconds(double seconds)
{
    struct timespec ts = {(time_t)seconds, (long)((seconds - (double)(time_t)seconds) * 1e9)};

    (void)nanosleep(&ts, NULL); /* woken early: the caller looks again */
}

/* One attempt: the HTTP status, or 0 when there was no answer. */
static long post_once(struct load_worker *w, struct bytes body)
{
    long status = 0;
    CURLcode code;

    w->answer_size = 0;
    w->answer[0] = '\0';
    (void)curl_easy_setopt(w->curl, CURLOPT_POSTFIELDS, (const char *)body.data);
    (void)curl_easy_setopt(w->curl, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)body.size);
    code = curl_easy_perform(w->curl);
    if (code != CURLE_OK) {
        snprintf(w->answer, sizeof w->answer, "%s", curl_easy_strerror(code));
        return 0;
    }
    (void)curl_easy_getinfo(w->curl, CURLINFO_RESPONSE_CODE, &status);
    return status;
}

static void count_answer(struct load_worker *w, long status, uint64_t sample_count)
{
    struct load_totals *totals = &w->run->totals;

    atomic_fetch_add(&totals->samples, sample_count);
    if (status / 100 == 2)
        return;
    answer_cut(w->answer);
    atomic_fetch_add(&totals->refused, refused_count(w->answer, sample_count));
    mutex_lock(&w->run->lock);
    if (w->run->refusal_text[0] == '\0')
        snprintf(w->run->refusal_text, sizeof w->run->refusal_text, "HTTP %ld: %s", status,
                 w->answer);
    mutex_unlock(&w->run->lock);
    if (status != 400)
        worker_fail(w, "HTTP %ld: %s", status, w->answer);
}

/* Why a request has to be sent again: what the server said, or that it says nothing. */
static void retry_reason(struct load_worker *w, long status, char *out, size_t size)
{
    answer_cut(w->answer);
    if (status == 0)
        (void)snprintf(out, size, "%s: %s", w->run->options.url, w->answer); /* may cut */
    else
        (void)snprintf(out, size, "HTTP %ld: %s", status, w->answer);
}

static void request_send(struct load_worker *w)
{
    struct load_totals *totals = &w->run->totals;
    struct errinfo ei = {0};
    struct bytes body;
    size_t plain_size;
    uint64_t sample_count = load_request_sample_count(w->request);
    uint64_t give_up_ns = clock_mono_ns() + (uint64_t)(w->run->options.retry_seconds * 1e9);
    double backoff = 0.03;

    if (sample_count == 0)
        return;
    if (load_request_finish(w->request, &body, &plain_size, &ei) != ERR_OK) {
        worker_fail(w, "%s", ei.message);
        return;
    }
    atomic_fetch_add(&totals->requests, 1);
    atomic_fetch_add(&totals->body_bytes, body.size);
    atomic_fetch_add(&totals->plain_bytes, plain_size);
    for (;;) {
        char reason[ANSWER_TEXT_MAX + 64];
        long status = post_once(w, body);

        if (status != 0 && status != 429 && status / 100 != 5) {
            count_answer(w, status, sample_count);
            break;
        }
        retry_reason(w, status, reason, sizeof reason);
        if (clock_mono_ns() >= give_up_ns) {
            atomic_fetch_add(&totals->failed, sample_count);
            worker_fail(w, "gave up after retries: %s", reason);
            break;
        }
        if (atomic_fetch_add(&totals->retries, 1) == 0 && !w->run->options.quiet)
            fprintf(stderr, "\nrimtool load: %s; trying again for %g s\n", reason,
                    w->run->options.retry_seconds);
        pause_seconds(backoff);
        backoff = backoff * 2 < 5 ? backoff * 2 : 5;
    }
    load_request_reset(w->request);
}

static void request_add(struct load_worker *w, const struct fleet_sample *sample)
{
    struct errinfo ei = {0};

    if (load_request_add(w->request, sample, &ei) != ERR_OK) {
        worker_fail(w, "%s", ei.message);
        return;
    }
    if (load_request_sample_count(w->request) >= w->run->options.batch_size)
        request_send(w);
}

static bool late_draw(struct load_worker *w)
{
    double share = w->run->options.late_share;

    if (share <= 0)
        return false;
    w->random ^= w->random << 13;
    w->random ^= w->random >> 7;
    w->random ^= w->random << 17;
    return (double)(w->random >> 11) * 0x1p-53 < share;
}

static void late_keep(struct load_worker *w, const struct fleet_sample *sample, uint64_t scrape)
{
    uint8_t *labels = malloc(sample->labels.size);

    if (w->late_count == w->late_capacity) {
        size_t capacity = w->late_capacity == 0 ? 1024 : w->late_capacity * 2;
        struct late_sample *grown = realloc(w->late, capacity * sizeof *grown);

        if (grown == NULL) {
            free(labels);
            worker_fail(w, "out of memory for late samples");
            return;
        }
        w->late = grown;
        w->late_capacity = capacity;
    }
    if (labels == NULL) {
        worker_fail(w, "out of memory for late samples");
        return;
    }
    memcpy(labels, sample->labels.data, sample->labels.size);
    w->late[w->late_count] = (struct late_sample){*sample, scrape + LATE_SCRAPES};
    w->late[w->late_count++].sample.labels.data = labels;
    atomic_fetch_add(&w->run->totals.late, 1);
}

static void late_send(struct load_worker *w, uint64_t scrape)
{
    size_t sent = 0;

    request_send(w);
    while (sent < w->late_count && w->late[sent].due_scrape <= scrape) {
        request_add(w, &w->late[sent].sample);
        free((void *)(uintptr_t)w->late[sent].sample.labels.data); /* owned here */
        sent++;
    }
    request_send(w);
    if (sent > 0)
        memmove(w->late, w->late + sent, (w->late_count - sent) * sizeof *w->late);
    w->late_count -= sent;
}

static void wait_for_turn(const struct load_worker *w, uint64_t scrape, uint32_t node)
{
    const struct load_run *run = w->run;
    uint64_t interval_ns = (uint64_t)run->options.fleet.interval_ms * 1000000;
    uint64_t due =
        run->start_ns + scrape * interval_ns + (uint64_t)node * (interval_ns / (w->node_count + 1));
    uint64_t now = clock_mono_ns();

    if (due > now)
        pause_seconds((double)(due - now) / 1e9);
}

static void scrape_all(struct load_worker *w, uint64_t scrape)
{
    for (uint32_t node = 0; node < w->node_count && !atomic_load(&w->run->failed); node++) {
        const struct fleet_sample *samples;
        size_t count;

        if (w->run->options.realtime)
            wait_for_turn(w, scrape, node);
        count = fleet_node_scrape(w->nodes, node, &samples);
        for (size_t i = 0; i < count && !atomic_load(&w->run->failed); i++) {
            if (double_bits(samples[i].value) == STALE_NAN_BITS)
                atomic_fetch_add(&w->run->totals.stale, 1);
            if (late_draw(w))
                late_keep(w, &samples[i], scrape);
            else
                request_add(w, &samples[i]);
        }
        if (w->run->options.realtime)
            request_send(w);
    }
    request_send(w);
    if (w->late_count > 0)
        late_send(w, scrape);
}

/* The clock of a receiver that takes the newest sample for now would leave a slow connection
 * behind. */
static void wait_for_others(struct load_worker *w, uint64_t scrape)
{
    const struct load_run *run = w->run;

    atomic_store_explicit(&w->scrape, scrape, memory_order_relaxed);
    for (uint32_t i = 0; run->options.lockstep_scrapes > 0 && i < run->options.connection_count;) {
        uint64_t other = atomic_load_explicit(&run->workers[i].scrape, memory_order_relaxed);

        if (other >= scrape || scrape - other <= run->options.lockstep_scrapes ||
            atomic_load(&run->failed))
            i++;
        else
            pause_seconds(0.0005);
    }
}

/* Scrapes [first, end), or as many as the time allows. */
static void scrape_range(struct load_worker *w, uint64_t first, uint64_t end)
{
    const struct load_run *run = w->run;
    uint64_t for_ns = (uint64_t)(run->options.for_seconds * 1e9);

    for (uint64_t scrape = first; scrape < end; scrape++) {
        if (for_ns > 0 && clock_mono_ns() - run->start_ns >= for_ns)
            break;
        wait_for_others(w, scrape);
        scrape_all(w, scrape);
    }
}

static void *worker_main(void *arg)
{
    struct load_worker *w = arg;
    struct load_run *run = w->run;
    uint64_t warm = run->options.warmup_scrapes;

    scrape_range(w, 0, warm);
    (void)pthread_barrier_wait(&run->warm);
    (void)pthread_barrier_wait(&run->warm);
    scrape_range(w, warm, warm + run->options.scrape_count);
    late_send(w, UINT64_MAX);
    atomic_store_explicit(&w->scrape, UINT64_MAX, memory_order_relaxed);
    atomic_fetch_sub(&run->running, 1);
    return NULL;
}

static enum err worker_init(struct load_worker *w, struct load_run *run, uint32_t index,
                            struct errinfo *ei)
{
    const struct load_options *o = &run->options;
    uint32_t first = (uint32_t)((uint64_t)o->fleet.node_count * index / o->connection_count);
    uint32_t end = (uint32_t)((uint64_t)o->fleet.node_count * (index + 1) / o->connection_count);
    enum err e;

    w->run = run;
    w->first_node = first;
    w->node_count = end - first;
    w->random = (o->fleet.seed ^ (index + 1)) * 0x9e3779b97f4a7c15U | 1;
    e = fleet_nodes_new(run->template, &o->fleet, first, w->node_count, &w->nodes, ei);
    if (e == ERR_OK)
        e = load_request_new(o->protocol, o->compression, &w->request, ei);
    if (e != ERR_OK)
        return e;
    w->curl = curl_easy_init();
    w->headers = curl_slist_append(
        NULL, o->protocol == LOAD_PROTOCOL_1
                  ? "Content-Type: application/x-protobuf"
                  : "Content-Type: application/x-protobuf;proto=io.prometheus.write.v2.Request");
    w->headers =
        curl_slist_append(w->headers, o->compression == LOAD_SNAPPY ? "Content-Encoding: snappy"
                                                                    : "Content-Encoding: zstd");
    w->headers = curl_slist_append(w->headers, o->protocol == LOAD_PROTOCOL_1
                                                   ? "X-Prometheus-Remote-Write-Version: 0.1.0"
                                                   : "X-Prometheus-Remote-Write-Version: 2.0.0");
    w->headers = curl_slist_append(w->headers, "Expect:");
    if (w->curl == NULL || w->headers == NULL)
        return errinfo_set(ei, ERR_NOMEM, 0, "HTTP client");
    (void)curl_easy_setopt(w->curl, CURLOPT_URL, o->url);
    (void)curl_easy_setopt(w->curl, CURLOPT_HTTPHEADER, w->headers);
    (void)curl_easy_setopt(w->curl, CURLOPT_WRITEFUNCTION, on_answer);
    (void)curl_easy_setopt(w->curl, CURLOPT_WRITEDATA, w);
    (void)curl_easy_setopt(w->curl, CURLOPT_USERAGENT, "rimtool-load");
    (void)curl_easy_setopt(w->curl, CURLOPT_NOSIGNAL, 1L);
    (void)curl_easy_setopt(w->curl, CURLOPT_TIMEOUT, 60L);
    return ERR_OK;
}

static void worker_done(struct load_worker *w)
{
    for (size_t i = 0; i < w->late_count; i++)
        free((void *)(uintptr_t)w->late[i].sample.labels.data); /* owned here */
    free(w->late);
    fleet_nodes_free(w->nodes);
    load_request_free(w->request);
    curl_slist_free_all(w->headers);
    curl_easy_cleanup(w->curl);
}

static void progress_print(const struct load_run *run, uint64_t since_ns)
{
    uint64_t samples = atomic_load(&run->totals.samples);
    double seconds = (double)(clock_mono_ns() - since_ns) / 1e9;

    fprintf(stderr,
            "\r%8.1fs  %" PRIu64 " samples  %.0f/s  %" PRIu64 " refused  %" PRIu64 " retries   ",
            seconds, samples, seconds > 0 ? (double)samples / seconds : 0,
            atomic_load(&run->totals.refused), atomic_load(&run->totals.retries));
}

static void progress_wait(struct load_run *run, uint64_t since_ns)
{
    while (atomic_load(&run->running) > 0) {
        if (!run->options.quiet)
            progress_print(run, since_ns);
        for (int i = 0; i < 10 && atomic_load(&run->running) > 0; i++)
            pause_seconds(0.1);
    }
    if (!run->options.quiet) {
        progress_print(run, since_ns);
        fputc('\n', stderr);
    }
}

static void summary_print(const struct load_run *run, uint64_t samples, double seconds,
                          struct process_usage before, struct process_usage after)
{
    const struct load_totals *t = &run->totals;
    uint64_t series =
        (uint64_t)run->options.fleet.node_count * fleet_series_per_node(run->template);
    uint64_t total = atomic_load(&t->samples);

    printf("series %" PRIu64 "\n", series);
    printf("samples_sent %" PRIu64 "\n", total);
    printf("samples_measured %" PRIu64 "\n", samples);
    printf("samples_refused %" PRIu64 "\n", atomic_load(&t->refused));
    printf("samples_failed %" PRIu64 "\n", atomic_load(&t->failed));
    printf("samples_late %" PRIu64 "\n", atomic_load(&t->late));
    printf("samples_stale %" PRIu64 "\n", atomic_load(&t->stale));
    printf("requests %" PRIu64 "\n", atomic_load(&t->requests));
    printf("retries %" PRIu64 "\n", atomic_load(&t->retries));
    printf("seconds %.3f\n", seconds);
    printf("samples_per_second %.0f\n", seconds > 0 ? (double)samples / seconds : 0);
    if (total > 0) {
        printf("wire_bytes_per_sample %.2f\n", (double)atomic_load(&t->body_bytes) / (double)total);
        printf("plain_bytes_per_sample %.2f\n",
               (double)atomic_load(&t->plain_bytes) / (double)total);
    }
    if (run->options.server_pid != 0 && samples > 0) {
        printf("server_cpu_seconds %.2f\n", after.cpu_seconds - before.cpu_seconds);
        printf("server_cpu_us_per_sample %.4f\n",
               (after.cpu_seconds - before.cpu_seconds) * 1e6 / (double)samples);
        printf("server_resident_bytes %" PRIu64 "\n", after.resident_bytes);
        printf("server_resident_bytes_per_series %.1f\n",
               (double)after.resident_bytes / (double)series);
    }
    if (run->refusal_text[0] != '\0')
        printf("first_refusal %s\n", run->refusal_text);
}

static enum err load_run_all(struct load_run *run, struct errinfo *ei)
{
    struct load_options *o = &run->options;
    struct load_worker *workers = calloc(o->connection_count, sizeof *workers);
    struct process_usage before = {0}, after = {0};
    uint64_t warm_ns, warm_samples;
    enum err e = ERR_OK;

    if (workers == NULL)
        return errinfo_set(ei, ERR_NOMEM, 0, "connections");
    run->workers = workers;
    for (uint32_t i = 0; e == ERR_OK && i < o->connection_count; i++)
        e = worker_init(&workers[i], run, i, ei);
    if (e != ERR_OK)
        goto out;
    run->start_ns = clock_mono_ns();
    atomic_store(&run->running, o->connection_count);
    for (uint32_t i = 0; i < o->connection_count; i++) {
        if (thread_start(&workers[i].thread, "load", worker_main, &workers[i], ei) != ERR_OK) {
            fprintf(stderr, "rimtool load: %s\n", ei->message);
            exit(1); /* NOLINT(concurrency-mt-unsafe): the others wait at the barrier for good */
        }
    }
    (void)pthread_barrier_wait(&run->warm);
    warm_ns = clock_mono_ns();
    warm_samples = atomic_load(&run->totals.samples);
    before = process_usage_get(o->server_pid);
    (void)pthread_barrier_wait(&run->warm);
    progress_wait(run, warm_ns);
    for (uint32_t i = 0; i < o->connection_count; i++)
        thread_join(&workers[i].thread);
    double seconds = (double)(clock_mono_ns() - warm_ns) / 1e9;
    if (o->settle_seconds > 0)
        pause_seconds(o->settle_seconds);
    after = process_usage_get(o->server_pid);
    summary_print(run, atomic_load(&run->totals.samples) - warm_samples, seconds, before, after);
    if (atomic_load(&run->failed))
        e = errinfo_set(ei, run->ei.code, 0, "%s", run->ei.message);
out:
    for (uint32_t i = 0; i < o->connection_count; i++)
        worker_done(&workers[i]);
    free(workers);
    return e;
}

int tool_load(int argc, char **argv)
{
    struct load_run run = {0};
    struct errinfo ei = {0};
    int code = load_options_parse(argc, argv, &run.options);
    enum err e;

    if (code >= 0)
        return code;
    mutex_init(&run.lock);
    (void)pthread_barrier_init(&run.warm, NULL, run.options.connection_count + 1);
    (void)curl_global_init(CURL_GLOBAL_DEFAULT);
    e = fleet_template_new(run.options.fleet.profile, &run.template, &ei);
    if (e == ERR_OK)
        e = load_run_all(&run, &ei);
    fleet_template_free(run.template);
    curl_global_cleanup();
    (void)pthread_barrier_destroy(&run.warm);
    mutex_done(&run.lock);
    if (e != ERR_OK)
        fprintf(stderr, "rimtool load: %s\n", ei.message);
    return e == ERR_OK ? 0 : 1;
}
