#include "tools/load_options_internal.h"

#include "base/clock.h"
#include "tools/options_internal.h"

enum { CONNECTION_MAX = 1024 };

static const char usage[] =
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
    "  --quiet               no progress line\n";

/* What the table cannot put where it belongs, since types or units differ. */
struct raw {
    bool aligned;
    int profile, protocol, compression;
    uint64_t nodes, jitter_ms, connections, batch, pid;
    double interval_s, start_s, churn_every_min, churn_for_min;
};

#define START_NOT_GIVEN (-1e18)

static void apply(struct load_options *o, const struct raw *raw)
{
    struct clock clock;

    o->protocol = raw->protocol == 0 ? LOAD_PROTOCOL_1 : LOAD_PROTOCOL_2;
    o->compression = raw->compression == 0 ? LOAD_SNAPPY : LOAD_ZSTD;
    o->connection_count = (uint32_t)(raw->connections < raw->nodes ? raw->connections : raw->nodes);
    o->batch_size = (uint32_t)raw->batch;
    o->server_pid = (int64_t)raw->pid;
    o->fleet.profile = raw->profile == 0 ? FLEET_GPU : FLEET_CADVISOR;
    o->fleet.node_count = (uint32_t)raw->nodes;
    o->fleet.interval_ms = (int64_t)(raw->interval_s * 1000);
    o->fleet.jitter_ms = (uint32_t)raw->jitter_ms;
    o->fleet.target_offsets = !raw->aligned;
    o->fleet.churn_period_ms = (int64_t)(raw->churn_every_min * 60000);
    o->fleet.churn_length_ms = (int64_t)(raw->churn_for_min * 60000);
    if (raw->start_s != START_NOT_GIVEN) {
        o->fleet.start_ms = (int64_t)(raw->start_s * 1000);
        return;
    }
    clock_init_real(&clock);
    o->fleet.start_ms = clock_now_ms(&clock);
    if (!o->realtime)
        o->fleet.start_ms -=
            (int64_t)(o->scrape_count + o->warmup_scrapes + 1) * o->fleet.interval_ms;
}

int load_options_parse(int argc, char **argv, struct load_options *o)
{
    struct raw raw = {.nodes = 100,
                      .connections = 2,
                      .batch = 2000,
                      .interval_s = 15,
                      .start_s = START_NOT_GIVEN,
                      .churn_for_min = 10};
    const struct tool_option options[] = {
        {.name = "url", .text = &o->url},
        {.name = "profile", .choice = &raw.profile, .choices = {"gpu", "cadvisor"}},
        {.name = "nodes", .whole = &raw.nodes, .low = 1, .high = 100000},
        {.name = "scrapes", .whole = &o->scrape_count, .low = 1, .high = 1e9},
        {.name = "warmup-scrapes", .whole = &o->warmup_scrapes, .high = 1e9},
        {.name = "interval", .number = &raw.interval_s, .low = 0.001, .high = 86400},
        {.name = "start", .number = &raw.start_s, .low = -1e10, .high = 1e11},
        {.name = "realtime", .flag = &o->realtime},
        {.name = "jitter", .whole = &raw.jitter_ms, .high = 1e6},
        {.name = "aligned", .flag = &raw.aligned},
        {.name = "churn", .number = &o->fleet.churn_per_minute, .high = 1e9},
        {.name = "churn-every", .number = &raw.churn_every_min, .high = 1e6},
        {.name = "churn-for", .number = &raw.churn_for_min, .high = 1e6},
        {.name = "late", .number = &o->late_share, .high = 1},
        {.name = "protocol", .choice = &raw.protocol, .choices = {"1.0", "2.0"}},
        {.name = "compression", .choice = &raw.compression, .choices = {"snappy", "zstd"}},
        {.name = "connections", .whole = &raw.connections, .low = 1, .high = CONNECTION_MAX},
        {.name = "batch", .whole = &raw.batch, .low = 1, .high = 1e6},
        {.name = "seed", .whole = &o->fleet.seed, .high = 1e15},
        {.name = "pid", .whole = &raw.pid, .low = 1, .high = 1e9},
        {.name = "settle", .number = &o->settle_seconds, .high = 3600},
        {.name = "retry-for", .number = &o->retry_seconds, .high = 1e6},
        {.name = "for", .number = &o->for_seconds, .high = 1e6},
        {.name = "lockstep", .whole = &o->lockstep_scrapes, .low = 1, .high = 1e9},
        {.name = "quiet", .flag = &o->quiet},
    };
    const struct tool_command command = {usage, options, sizeof options / sizeof options[0], 0, 0};
    int operands, code;

    *o = (struct load_options){.url = "http://127.0.0.1:9440/api/v1/write",
                               .fleet = {.seed = 1},
                               .scrape_count = 20,
                               .retry_seconds = 60};
    code = tool_options_parse(&command, argc, argv, &operands);
    if (code < 0)
        apply(o, &raw);
    return code;
}
