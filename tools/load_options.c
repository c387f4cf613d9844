#include "tools/load_options_internal.h"

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"

enum { CONNECTION_MAX = 1024 };

static void usage(FILE *f)
{
    fputs(
        "usage: rimtool load [options]\n"
        "Pushes the GPU-fleet stream by remote write and reports rates and costs.\n\n"
        "  --url URL             receiver (http://127.0.0.1:9440/api/v1/write)\n"
        "  --profile NAME        gpu: 1,000 series a node; cadvisor: 960 (gpu)\n"
        "  --nodes N             nodes (100)\n"
        "  --scrapes N           scrapes of every node (20)\n"
        "  --warmup-scrapes N    scrapes before measuring starts (0)\n"
        "  --interval SECONDS    between scrapes (15)\n"
        "  --start UNIX_SECONDS  time of the first scrape (now - all scrapes; now if --realtime)\n"
        "  --realtime            send at the scrape interval instead of at full speed\n"
        "  --jitter MS           each target's scrape moves by up to this (0)\n"
        "  --aligned             all targets scrape at the same instant\n"
        "  --churn N             pods relabelled a minute, old series get staleness markers (0)\n"
        "  --churn-every MINUTES only at the end of every so many minutes of data (0: always)\n"
        "  --churn-for MINUTES   ... for so long (10)\n"
        "  --late SHARE          share of samples sent two scrapes late, 0..1 (0)\n"
        "  --protocol 1.0|2.0    remote write version (1.0)\n"
        "  --compression NAME    snappy or zstd (snappy)\n"
        "  --connections N       parallel senders (2)\n"
        "  --batch N             samples a request (2000)\n"
        "  --seed N              of the stream (1)\n"
        "  --pid PID             server's process: adds CPU per sample and memory per series\n"
        "  --settle SECONDS      wait before the last look at the server (0)\n"
        "  --retry-for SECONDS   repeat requests that get 5xx, 429 or no answer (60)\n"
        "  --for SECONDS         end after that time, with the scrape at hand\n"
        "  --lockstep SCRAPES    no connection is further ahead of the slowest one (no limit)\n"
        "  --quiet               no progress line\n",
        f);
}

static bool number_parse(const char *text, double low, double high, double *out)
{
    char *end = NULL;
    double v = strtod(text, &end);

    if (end == text || *end != '\0' || !(v >= low && v <= high))
        return false;
    *out = v;
    return true;
}

static bool choice_parse(const char *text, const char *a, const char *b, int *out)
{
    if (strcmp(text, a) != 0 && strcmp(text, b) != 0)
        return false;
    *out = strcmp(text, b) == 0;
    return true;
}

enum option_id {
    OPTION_URL = 1,
    OPTION_PROFILE,
    OPTION_NODES,
    OPTION_SCRAPES,
    OPTION_WARMUP,
    OPTION_INTERVAL,
    OPTION_START,
    OPTION_REALTIME,
    OPTION_JITTER,
    OPTION_ALIGNED,
    OPTION_CHURN,
    OPTION_CHURN_EVERY,
    OPTION_CHURN_FOR,
    OPTION_LATE,
    OPTION_PROTOCOL,
    OPTION_COMPRESSION,
    OPTION_CONNECTIONS,
    OPTION_BATCH,
    OPTION_SEED,
    OPTION_PID,
    OPTION_SETTLE,
    OPTION_RETRY,
    OPTION_FOR,
    OPTION_LOCKSTEP,
    OPTION_QUIET,
    OPTION_HELP,
};

static const struct option long_options[] = {
    {"url", required_argument, NULL, OPTION_URL},
    {"profile", required_argument, NULL, OPTION_PROFILE},
    {"nodes", required_argument, NULL, OPTION_NODES},
    {"scrapes", required_argument, NULL, OPTION_SCRAPES},
    {"warmup-scrapes", required_argument, NULL, OPTION_WARMUP},
    {"interval", required_argument, NULL, OPTION_INTERVAL},
    {"start", required_argument, NULL, OPTION_START},
    {"realtime", no_argument, NULL, OPTION_REALTIME},
    {"jitter", required_argument, NULL, OPTION_JITTER},
    {"aligned", no_argument, NULL, OPTION_ALIGNED},
    {"churn", required_argument, NULL, OPTION_CHURN},
    {"churn-every", required_argument, NULL, OPTION_CHURN_EVERY},
    {"churn-for", required_argument, NULL, OPTION_CHURN_FOR},
    {"late", required_argument, NULL, OPTION_LATE},
    {"protocol", required_argument, NULL, OPTION_PROTOCOL},
    {"compression", required_argument, NULL, OPTION_COMPRESSION},
    {"connections", required_argument, NULL, OPTION_CONNECTIONS},
    {"batch", required_argument, NULL, OPTION_BATCH},
    {"seed", required_argument, NULL, OPTION_SEED},
    {"pid", required_argument, NULL, OPTION_PID},
    {"settle", required_argument, NULL, OPTION_SETTLE},
    {"retry-for", required_argument, NULL, OPTION_RETRY},
    {"for", required_argument, NULL, OPTION_FOR},
    {"lockstep", required_argument, NULL, OPTION_LOCKSTEP},
    {"quiet", no_argument, NULL, OPTION_QUIET},
    {"help", no_argument, NULL, OPTION_HELP},
    {NULL, 0, NULL, 0},
};

/* False when the value makes no sense. */
static bool option_apply(struct load_options *o, enum option_id id, const char *text,
                         double *start_seconds)
{
    double v = 0;
    int choice = 0;
    bool good = true;

    switch (id) {
    case OPTION_URL:
        o->url = text;
        break;
    case OPTION_PROFILE:
        good = choice_parse(text, "gpu", "cadvisor", &choice);
        o->fleet.profile = choice == 0 ? FLEET_GPU : FLEET_CADVISOR;
        break;
    case OPTION_NODES:
        good = number_parse(text, 1, 100000, &v);
        o->fleet.node_count = (uint32_t)v;
        break;
    case OPTION_SCRAPES:
        good = number_parse(text, 1, 1e9, &v);
        o->scrape_count = (uint64_t)v;
        break;
    case OPTION_WARMUP:
        good = number_parse(text, 0, 1e9, &v);
        o->warmup_scrapes = (uint64_t)v;
        break;
    case OPTION_INTERVAL:
        good = number_parse(text, 0.001, 86400, &v);
        o->fleet.interval_ms = (int64_t)(v * 1000);
        break;
    case OPTION_START:
        good = number_parse(text, -1e10, 1e11, start_seconds);
        break;
    case OPTION_REALTIME:
        o->realtime = true;
        break;
    case OPTION_JITTER:
        good = number_parse(text, 0, 1e6, &v);
        o->fleet.jitter_ms = (uint32_t)v;
        break;
    case OPTION_ALIGNED:
        o->fleet.target_offsets = false;
        break;
    case OPTION_CHURN:
        good = number_parse(text, 0, 1e9, &o->fleet.churn_per_minute);
        break;
    case OPTION_CHURN_EVERY:
        good = number_parse(text, 0, 1e6, &v);
        o->fleet.churn_period_ms = (int64_t)(v * 60000);
        break;
    case OPTION_CHURN_FOR:
        good = number_parse(text, 0, 1e6, &v);
        o->fleet.churn_length_ms = (int64_t)(v * 60000);
        break;
    case OPTION_LATE:
        good = number_parse(text, 0, 1, &o->late_share);
        break;
    case OPTION_PROTOCOL:
        good = choice_parse(text, "1.0", "2.0", &choice);
        o->protocol = choice == 0 ? LOAD_PROTOCOL_1 : LOAD_PROTOCOL_2;
        break;
    case OPTION_COMPRESSION:
        good = choice_parse(text, "snappy", "zstd", &choice);
        o->compression = choice == 0 ? LOAD_SNAPPY : LOAD_ZSTD;
        break;
    case OPTION_CONNECTIONS:
        good = number_parse(text, 1, CONNECTION_MAX, &v);
        o->connection_count = (uint32_t)v;
        break;
    case OPTION_BATCH:
        good = number_parse(text, 1, 1e6, &v);
        o->batch_size = (uint32_t)v;
        break;
    case OPTION_SEED:
        good = number_parse(text, 0, 1e15, &v);
        o->fleet.seed = (uint64_t)v;
        break;
    case OPTION_PID:
        good = number_parse(text, 1, 1e9, &v);
        o->server_pid = (int64_t)v;
        break;
    case OPTION_SETTLE:
        good = number_parse(text, 0, 3600, &o->settle_seconds);
        break;
    case OPTION_RETRY:
        good = number_parse(text, 0, 1e6, &o->retry_seconds);
        break;
    case OPTION_FOR:
        good = number_parse(text, 0, 1e6, &o->for_seconds);
        break;
    case OPTION_LOCKSTEP:
        good = number_parse(text, 1, 1e9, &v);
        o->lockstep_scrapes = (uint64_t)v;
        break;
    case OPTION_QUIET:
        o->quiet = true;
        break;
    case OPTION_HELP:
        break;
    }
    return good;
}

int load_options_parse(int argc, char **argv, struct load_options *o)
{
    double start_seconds = -1e18;
    int id, index = 0;

    *o = (struct load_options){
        .url = "http://127.0.0.1:9440/api/v1/write",
        .fleet = {.seed = 1,
                  .node_count = 100,
                  .interval_ms = 15000,
                  .target_offsets = true,
                  .churn_length_ms = 600000},
        .connection_count = 2,
        .batch_size = 2000,
        .scrape_count = 20,
        .retry_seconds = 60,
    };
    optind = 1;
    /* NOLINTNEXTLINE(concurrency-mt-unsafe): no threads yet */
    while ((id = getopt_long(argc, argv, "", long_options, &index)) != -1) {
        if (id == OPTION_HELP) {
            usage(stdout);
            return 0;
        }
        if (id == '?')
            return 2; /* getopt has said why */
        if (!option_apply(o, (enum option_id)id, optarg, &start_seconds)) {
            fprintf(stderr, "rimtool load: bad value \"%s\" for --%s\n", optarg,
                    long_options[index].name);
            return 2;
        }
    }
    if (optind < argc) {
        fprintf(stderr, "rimtool load: unexpected argument \"%s\"\n", argv[optind]);
        return 2;
    }
    if (o->connection_count > o->fleet.node_count)
        o->connection_count = o->fleet.node_count;
    if (start_seconds > -1e17) {
        o->fleet.start_ms = (int64_t)(start_seconds * 1000);
    } else {
        struct clock clock;

        clock_init_real(&clock);
        o->fleet.start_ms = clock_now_ms(&clock);
        if (!o->realtime)
            o->fleet.start_ms -=
                (int64_t)(o->scrape_count + o->warmup_scrapes + 1) * o->fleet.interval_ms;
    }
    return -1;
}
