/*
 * The fleet stream into an engine.
 */
#include "bench/fleet_feed.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fingerprint.h"
#include "bench/bench_support.h"

void fleet_feed_init(struct fleet_feed *f, struct engine *engine, const struct fleet_options *o)
{
    struct errinfo ei = {0};

    *f = (struct fleet_feed){.engine = engine,
                             .wire_capacity = (size_t)FLEET_REQUEST_SAMPLES * 2048};
    fleet_source_init(&f->fleet, o);
    if (write_batch_new(&f->batch, &ei) != ERR_OK)
        bench_fail("batch", &ei);
    f->batch->labels_parse = fleet_labels_parse_write;
    f->wire = malloc(f->wire_capacity);
    f->sequences = calloc(engine_shard_count(engine), sizeof *f->sequences);
    f->result.sequences = f->sequences;
    if (f->wire == NULL || f->sequences == NULL)
        bench_fail("out of memory", NULL);
}

void fleet_feed_done(struct fleet_feed *f)
{
    write_batch_free(f->batch);
    free(f->sequences);
    free(f->wire);
    fleet_source_done(&f->fleet);
}

void fleet_feed_send(struct fleet_feed *f)
{
    struct errinfo ei = {0};
    uint64_t begin, spent;
    size_t series_count = f->batch->series_count;

    if (series_count == 0)
        return;
    /* The bytes do not move while a request is filled, but pointers are set only now. */
    for (size_t i = 0, at = 0; i < f->batch->series_count; i++) {
        struct write_series *s = &f->batch->series[i];

        s->wire_labels.data = f->wire + at;
        s->sender_key =
            hash128_bytes(engine_hash_secret(f->engine), s->wire_labels.data, s->wire_labels.size);
        at += s->wire_labels.size;
    }
    begin = clock_thread_cpu_ns();
    if (engine_write(f->engine, f->batch, &f->result, &ei) != ERR_OK)
        bench_fail("write", &ei);
    spent = clock_thread_cpu_ns() - begin;
    f->engine_ns += spent;
    if (series_count == FLEET_REQUEST_SAMPLES && spent < f->request_best_ns)
        f->request_best_ns = spent;
    if (f->result.refused_count > 0) {
        (void)errinfo_set(&ei, ERR_INVALID, 0, "%s", f->result.examples[0]);
        bench_fail("refused", &ei);
    }
    f->samples += f->result.sample_count;
    write_batch_reset(f->batch);
    f->wire_size = 0;
}

void fleet_feed_sample(struct fleet_feed *f, const struct fleet_sample *sample)
{
    struct write_batch *batch = f->batch;
    struct errinfo ei = {0};

    if (f->wire_size + sample->labels.size > f->wire_capacity || !write_batch_grow_series(batch) ||
        !write_batch_grow_samples(batch))
        bench_fail("request too large", &ei);
    memcpy(f->wire + f->wire_size, sample->labels.data, sample->labels.size);
    f->wire_size += sample->labels.size;
    batch->series[batch->series_count++] = (struct write_series){
        .wire_labels = {NULL, sample->labels.size},
        .sample_first = (uint32_t)batch->sample_count,
        .sample_count = 1,
    };
    batch->samples[batch->sample_count++] = (struct write_sample){sample->t_ms, sample->value};
    if (batch->series_count == FLEET_REQUEST_SAMPLES)
        fleet_feed_send(f);
}

/* One scrape of every node. */
void fleet_feed_scrape(struct fleet_feed *f)
{
    for (uint32_t n = 0; n < f->fleet.node_count; n++) {
        const struct fleet_sample *samples;
        size_t count = fleet_node_scrape(f->fleet.nodes, n, &samples);

        for (size_t i = 0; i < count; i++)
            fleet_feed_sample(f, &samples[i]);
    }
    fleet_feed_send(f);
}

void fleet_feed_wait(struct fleet_feed *f)
{
    struct engine_stats stats;

    do {                    /* the log has written all that was sent */
        (void)usleep(1000); /* allow(usleep): a benchmark polls */
        engine_stats_get(f->engine, &stats);
    } while (stats.wal.samples_written < f->samples);
}

uint64_t fleet_resident_bytes(void)
{
    char text[256] = "";
    char *second;
    FILE *f = fopen("/proc/self/statm", "r"); /* allow(fopen): not a file of the product */

    if (f == NULL || fgets(text, sizeof text, f) == NULL)
        text[0] = '\0';
    if (f != NULL)
        (void)fclose(f);
    (void)strtoull(text, &second, 10); /* total; the second number is what is resident */
    return strtoull(second, NULL, 10) * (uint64_t)sysconf(_SC_PAGESIZE);
}
