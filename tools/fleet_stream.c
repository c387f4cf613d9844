/*
 * See fleet_stream.h. The template is one node's block of encoded label sets, plus a list of
 * patches: places whose text depends on the node, the GPU or the pod. All texts of one kind have
 * one width, so a patch never moves a byte.
 *
 * Value models of a GPU node's 1,000 series: constant 372, centisecond counters 272, integer
 * counters 156, byte counters 64, integer gauges 56, six-decimal ratios 40, rare events 32,
 * three-decimal power 8.
 */
#include "tools/fleet_stream.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"

enum {
    GPU_COUNT = 8,
    CPU_COUNT = 64,
    DEVICE_COUNT = 16,
    VERB_COUNT = 10,
    CONTAINER_COUNT = 16,
    CONTAINER_METRIC_COUNT = 60,
    UNIT_MAX = 16, /* GPUs or containers of a node: what a pod label belongs to */
    TARGET_MAX = 3,
    LABEL_MAX = 16,
    TEXT_MAX = 64,
};

/* What a patch writes; the width of each kind is fixed. */
enum patch_kind { PATCH_NONE, PATCH_NODE, PATCH_UUID, PATCH_POD, PATCH_HEX64, PATCH_POD_UID };
static const uint8_t patch_width[] = {0, 5, 36, 10, 64, 36};

enum value_model {
    MODEL_CONSTANT,
    MODEL_CENTISECONDS,
    MODEL_INTEGER_COUNTER,
    MODEL_BYTE_COUNTER,
    MODEL_GAUGE,
    MODEL_RATIO,
    MODEL_RARE,
    MODEL_POWER,
};

struct patch {
    uint32_t offset;
    uint8_t kind;
    uint8_t unit;
};

struct series_shape {
    uint32_t offset, size; /* label bytes within the block */
    uint8_t model;
    uint8_t target;
    uint8_t unit;    /* pod it belongs to, or UINT8_MAX */
    uint8_t scale;   /* histogram buckets: step = random * (scale + 1) / 12 */
    int32_t initial; /* constants */
};

struct fleet_template {
    struct byte_writer block;
    struct series_shape *series;
    uint32_t series_count, series_capacity;
    struct patch *patches;
    uint32_t patch_count, patch_capacity;
    uint32_t unit_count, target_count;
    bool failed;
};

/* One label of a shape: prefix, patched text, suffix. */
struct label_shape {
    const char *name, *prefix;
    enum patch_kind kind;
    const char *suffix;
};

static const char *const gpu_metrics[30] = {
    "DCGM_FI_DEV_POWER_USAGE",
    "DCGM_FI_PROF_GR_ENGINE_ACTIVE",
    "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE",
    "DCGM_FI_PROF_DRAM_ACTIVE",
    "DCGM_FI_PROF_SM_ACTIVE",
    "DCGM_FI_PROF_SM_OCCUPANCY",
    "DCGM_FI_DEV_GPU_UTIL",
    "DCGM_FI_DEV_MEM_COPY_UTIL",
    "DCGM_FI_DEV_GPU_TEMP",
    "DCGM_FI_DEV_MEMORY_TEMP",
    "DCGM_FI_DEV_SM_CLOCK",
    "DCGM_FI_DEV_FB_USED",
    "DCGM_FI_DEV_FB_FREE",
    "DCGM_FI_DEV_XID_ERRORS",
    "DCGM_FI_DEV_PCIE_REPLAY_COUNTER",
    "DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS",
    "DCGM_FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL",
    "DCGM_FI_DEV_MEM_CLOCK",
    "DCGM_FI_DEV_ENC_UTIL",
    "DCGM_FI_DEV_DEC_UTIL",
    "DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS",
    "DCGM_FI_DEV_ROW_REMAP_FAILURE",
    "DCGM_FI_DEV_VGPU_LICENSE_STATUS",
    "DCGM_FI_DEV_FB_RESERVED",
    "DCGM_FI_DEV_POWER_MGMT_LIMIT",
    "DCGM_FI_DEV_THERMAL_VIOLATION",
    "DCGM_FI_DEV_POWER_VIOLATION",
    "DCGM_FI_DEV_RETIRED_SBE",
    "DCGM_FI_DEV_RETIRED_DBE",
    "DCGM_FI_DEV_RETIRED_PENDING",
};

static void add_patch(struct fleet_template *t, enum patch_kind kind, uint8_t unit)
{
    if (t->patch_count == t->patch_capacity) {
        uint32_t capacity = t->patch_capacity == 0 ? 1024 : t->patch_capacity * 2;
        struct patch *grown = realloc(t->patches, capacity * sizeof *grown);

        if (grown == NULL) {
            t->failed = true;
            return;
        }
        t->patches = grown;
        t->patch_capacity = capacity;
    }
    t->patches[t->patch_count++] = (struct patch){(uint32_t)t->block.size, (uint8_t)kind, unit};
}

/* Labels must stand sorted by name. */
static void add_series(struct fleet_template *t, const struct label_shape *labels, size_t count,
                       struct series_shape shape)
{
    static const char zeros[TEXT_MAX + 1] =
        "0000000000000000000000000000000000000000000000000000000000000000";

    if (t->series_count == t->series_capacity) {
        uint32_t capacity = t->series_capacity == 0 ? 1024 : t->series_capacity * 2;
        struct series_shape *grown = realloc(t->series, capacity * sizeof *grown);

        if (grown == NULL) {
            t->failed = true;
            return;
        }
        t->series = grown;
        t->series_capacity = capacity;
    }
    shape.offset = (uint32_t)t->block.size;
    for (size_t i = 0; i < count; i++) {
        size_t name_size = strlen(labels[i].name);
        size_t prefix_size = strlen(labels[i].prefix);
        size_t suffix_size = labels[i].suffix == NULL ? 0 : strlen(labels[i].suffix);
        size_t width = patch_width[labels[i].kind];
        size_t value_size = prefix_size + width + suffix_size;

        ASSERT(i == 0 || strcmp(labels[i - 1].name, labels[i].name) < 0);
        ASSERT(value_size < 0x80 && name_size + value_size + 4 < 0x4000);
        writer_u8(&t->block, 0x0a); /* TimeSeries.labels */
        writer_varint(&t->block, name_size + value_size + 4);
        writer_u8(&t->block, 0x0a); /* Label.name */
        writer_varint(&t->block, name_size);
        writer_append(&t->block, labels[i].name, name_size);
        writer_u8(&t->block, 0x12); /* Label.value */
        writer_varint(&t->block, value_size);
        writer_append(&t->block, labels[i].prefix, prefix_size);
        if (width > 0) {
            add_patch(t, labels[i].kind, shape.unit);
            writer_append(&t->block, zeros, width);
        }
        writer_append(&t->block, labels[i].suffix, suffix_size);
    }
    shape.size = (uint32_t)t->block.size - shape.offset;
    t->series[t->series_count++] = shape;
}

static enum value_model gpu_model(size_t metric)
{
    if (metric == 0)
        return MODEL_POWER;
    if (metric <= 5)
        return MODEL_RATIO;
    if (metric <= 12)
        return MODEL_GAUGE;
    return metric <= 16 ? MODEL_RARE : MODEL_CONSTANT;
}

static void add_gpu_series(struct fleet_template *t)
{
    char device[16], gpu[4], bus[24];

    for (unsigned g = 0; g < GPU_COUNT; g++) {
        snprintf(device, sizeof device, "nvidia%u", g);
        snprintf(gpu, sizeof gpu, "%u", g);
        snprintf(bus, sizeof bus, "00000000:%02X:00.0", 0x0f + 0x10 * g);
        for (size_t m = 0; m < sizeof gpu_metrics / sizeof gpu_metrics[0]; m++) {
            const struct label_shape labels[] = {
                {"DCGM_FI_DRIVER_VERSION", "550.54.15", PATCH_NONE, NULL},
                {"Hostname", "gpu-node-", PATCH_NODE, NULL},
                {"UUID", "GPU-", PATCH_UUID, NULL},
                {"__name__", gpu_metrics[m], PATCH_NONE, NULL},
                {"cluster", "train-a", PATCH_NONE, NULL},
                {"container", "trainer", PATCH_NONE, NULL},
                {"device", device, PATCH_NONE, NULL},
                {"gpu", gpu, PATCH_NONE, NULL},
                {"instance", "gpu-node-", PATCH_NODE, ":9400"},
                {"job", "dcgm-exporter", PATCH_NONE, NULL},
                {"modelName", "NVIDIA H100 80GB HBM3", PATCH_NONE, NULL},
                {"namespace", "research", PATCH_NONE, NULL},
                {"pci_bus_id", bus, PATCH_NONE, NULL},
                {"pod", "train-job-", PATCH_POD, "-worker"},
            };

            add_series(t, labels, sizeof labels / sizeof labels[0],
                       (struct series_shape){.model = (uint8_t)gpu_model(m),
                                             .unit = (uint8_t)g,
                                             .initial = m % 3 == 0 ? 0 : (int32_t)m * 97});
        }
    }
}

static void add_cpu_series(struct fleet_template *t)
{
    static const char *const modes[8] = {"user",    "system", "idle", "iowait",
                                         "softirq", "irq",    "nice", "steal"};
    char cpu[4];

    for (unsigned c = 0; c < CPU_COUNT; c++) {
        snprintf(cpu, sizeof cpu, "%u", c);
        for (unsigned m = 0; m < 8; m++) {
            const struct label_shape labels[] = {
                {"__name__", "node_cpu_seconds_total", PATCH_NONE, NULL},
                {"cluster", "train-a", PATCH_NONE, NULL},
                {"cpu", cpu, PATCH_NONE, NULL},
                {"instance", "gpu-node-", PATCH_NODE, ":9100"},
                {"job", "node-exporter", PATCH_NONE, NULL},
                {"mode", modes[m], PATCH_NONE, NULL},
                {"node", "gpu-node-", PATCH_NODE, NULL},
            };
            bool busy = m < 4 || (m == 4 && c < 16);

            add_series(t, labels, sizeof labels / sizeof labels[0],
                       (struct series_shape){
                           .model = busy ? MODEL_CENTISECONDS : MODEL_CONSTANT,
                           .target = 1,
                           .unit = UINT8_MAX,
                       });
        }
    }
}

static void add_device_series(struct fleet_template *t)
{
    static const char *const metrics[8] = {
        "node_network_receive_bytes_total",   "node_network_transmit_bytes_total",
        "node_disk_read_bytes_total",         "node_disk_written_bytes_total",
        "node_network_receive_packets_total", "node_network_transmit_packets_total",
        "node_disk_reads_completed_total",    "node_disk_writes_completed_total",
    };
    char device[8];

    for (unsigned d = 0; d < DEVICE_COUNT; d++) {
        snprintf(device, sizeof device, "dev%u", d);
        for (unsigned m = 0; m < 8; m++) {
            const struct label_shape labels[] = {
                {"__name__", metrics[m], PATCH_NONE, NULL},
                {"cluster", "train-a", PATCH_NONE, NULL},
                {"device", device, PATCH_NONE, NULL},
                {"instance", "gpu-node-", PATCH_NODE, ":9100"},
                {"job", "node-exporter", PATCH_NONE, NULL},
                {"node", "gpu-node-", PATCH_NODE, NULL},
            };

            add_series(t, labels, sizeof labels / sizeof labels[0],
                       (struct series_shape){
                           .model = m < 4 ? MODEL_BYTE_COUNTER : MODEL_INTEGER_COUNTER,
                           .target = 1,
                           .unit = UINT8_MAX,
                           .scale = 11,
                       });
        }
    }
}

static void add_kubelet_series(struct fleet_template *t)
{
    static const char *const bounds[12] = {"0.005", "0.01", "0.025", "0.05", "0.1", "0.25",
                                           "0.5",   "1",    "2.5",   "5",    "10",  "+Inf"};
    static const char *const verbs[VERB_COUNT] = {"GET",   "POST", "PUT",  "PATCH",   "DELETE",
                                                  "WATCH", "LIST", "HEAD", "OPTIONS", "CONNECT"};

    for (unsigned v = 0; v < VERB_COUNT; v++) {
        for (unsigned b = 0; b < 12; b++) {
            const struct label_shape labels[] = {
                {"__name__", "kubelet_http_requests_duration_seconds_bucket", PATCH_NONE, NULL},
                {"cluster", "train-a", PATCH_NONE, NULL},
                {"instance", "gpu-node-", PATCH_NODE, ":10250"},
                {"job", "kubelet", PATCH_NONE, NULL},
                {"le", bounds[b], PATCH_NONE, NULL},
                {"node", "gpu-node-", PATCH_NODE, NULL},
                {"verb", verbs[v], PATCH_NONE, NULL},
            };
            bool constant = b < 2 || (b == 2 && v < 8);

            add_series(t, labels, sizeof labels / sizeof labels[0],
                       (struct series_shape){
                           .model = constant ? MODEL_CONSTANT : MODEL_INTEGER_COUNTER,
                           .target = 2,
                           .unit = UINT8_MAX,
                           .scale = (uint8_t)b,
                       });
        }
    }
}

static void add_container_series(struct fleet_template *t)
{
    char metric[48];

    for (unsigned c = 0; c < CONTAINER_COUNT; c++) {
        for (unsigned m = 0; m < CONTAINER_METRIC_COUNT; m++) {
            /* Shares as in the GPU profile: a third constant, counters, a few gauges. */
            static const enum value_model models[10] = {
                MODEL_CONSTANT,        MODEL_CENTISECONDS,
                MODEL_CONSTANT,        MODEL_BYTE_COUNTER,
                MODEL_INTEGER_COUNTER, MODEL_CONSTANT,
                MODEL_INTEGER_COUNTER, MODEL_GAUGE,
                MODEL_CONSTANT,        MODEL_RARE,
            };

            snprintf(metric, sizeof metric, "container_fleet_metric_%02u_total", m);
            const struct label_shape labels[] = {
                {"__name__", metric, PATCH_NONE, NULL},
                {"cluster", "train-a", PATCH_NONE, NULL},
                {"container", "app", PATCH_NONE, NULL},
                {"id", "/kubepods/pod/", PATCH_HEX64, NULL},
                {"image", "images.example/research/app:v1.42.0", PATCH_NONE, NULL},
                {"instance", "gpu-node-", PATCH_NODE, ":10250"},
                {"job", "cadvisor", PATCH_NONE, NULL},
                {"name", "app-", PATCH_HEX64, NULL},
                {"namespace", "research", PATCH_NONE, NULL},
                {"node", "gpu-node-", PATCH_NODE, NULL},
                {"pod", "app-", PATCH_POD, NULL},
                {"pod_uid", "", PATCH_POD_UID, NULL},
            };

            add_series(t, labels, sizeof labels / sizeof labels[0],
                       (struct series_shape){.model = (uint8_t)models[m % 10],
                                             .unit = (uint8_t)c,
                                             .scale = 11,
                                             .initial = (int32_t)(m % 20)});
        }
    }
}

enum err fleet_template_new(enum fleet_profile profile, struct fleet_template **out,
                            struct errinfo *ei)
{
    struct fleet_template *t = calloc(1, sizeof *t);

    if (t == NULL)
        return errinfo_set(ei, ERR_NOMEM, 0, "fleet template");
    writer_init(&t->block);
    if (profile == FLEET_GPU) {
        t->unit_count = GPU_COUNT;
        t->target_count = 3;
        add_gpu_series(t);
        add_cpu_series(t);
        add_device_series(t);
        add_kubelet_series(t);
    } else {
        t->unit_count = CONTAINER_COUNT;
        t->target_count = 1;
        add_container_series(t);
    }
    if (t->failed || t->block.failed) {
        fleet_template_free(t);
        return errinfo_set(ei, ERR_NOMEM, 0, "fleet template");
    }
    *out = t;
    return ERR_OK;
}

void fleet_template_free(struct fleet_template *t)
{
    if (t == NULL)
        return;
    writer_done(&t->block);
    free(t->series);
    free(t->patches);
    free(t);
}

uint32_t fleet_series_per_node(const struct fleet_template *t)
{
    return t->series_count;
}

struct node_state {
    uint64_t random; /* splitmix64 state: the node's own, so order of nodes does not matter */
    uint64_t scrape;
    double churn_owed; /* pods to relabel, accumulates */
    uint16_t pod_generation[UNIT_MAX];
};

struct fleet_nodes {
    const struct fleet_template *template;
    struct fleet_options options;
    uint32_t first_node, count;
    struct node_state *nodes;
    int64_t *values;              /* series_count per node, scaled integers */
    uint8_t *block, *stale_block; /* label bytes of the node at hand; of its ended pods */
    struct fleet_sample *samples; /* 2 * series_count */
};

static uint64_t mix(uint64_t z)
{
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9U;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebU;
    return z ^ (z >> 31);
}

static uint64_t next_random(struct node_state *n)
{
    return mix(n->random += 0x9e3779b97f4a7c15U);
}

static uint64_t random_below(struct node_state *n, uint64_t bound)
{
    return (uint64_t)(((unsigned __int128)next_random(n) * bound) >> 64);
}

static int64_t initial_value(const struct series_shape *s, struct node_state *n)
{
    switch ((enum value_model)s->model) {
    case MODEL_CONSTANT:
        return s->initial;
    case MODEL_CENTISECONDS:
        return (int64_t)random_below(n, 100000000);
    case MODEL_INTEGER_COUNTER:
        return (int64_t)random_below(n, 1000000) * (s->scale + 1);
    case MODEL_BYTE_COUNTER:
        return (int64_t)random_below(n, 1000000000000);
    case MODEL_GAUGE:
        return (int64_t)(20 + random_below(n, 60));
    case MODEL_RATIO:
        return (int64_t)random_below(n, 1000000);
    case MODEL_RARE:
        return 0;
    case MODEL_POWER:
        return (int64_t)(300000 + random_below(n, 400000));
    }
    return 0;
}

/* A node's cumulative buckets of one histogram move together, so `shared` is drawn per verb. */
static void step_value(const struct series_shape *s, struct node_state *n, uint64_t shared,
                       int64_t *v)
{
    switch ((enum value_model)s->model) {
    case MODEL_CONSTANT:
        return;
    case MODEL_CENTISECONDS:
        *v += (int64_t)random_below(n, 1500);
        return;
    case MODEL_INTEGER_COUNTER:
        *v += (int64_t)(shared * (uint64_t)(s->scale + 1) / 12);
        return;
    case MODEL_BYTE_COUNTER:
        *v += (int64_t)random_below(n, 4000000000U);
        return;
    case MODEL_GAUGE:
        if (random_below(n, 3) == 0) {
            *v += (int64_t)random_below(n, 7) - 3;
            if (*v < 0)
                *v = 0;
        }
        return;
    case MODEL_RATIO:
        *v = (int64_t)random_below(n, 1000000);
        return;
    case MODEL_RARE:
        *v += random_below(n, 500) == 0;
        return;
    case MODEL_POWER:
        *v = (int64_t)(300000 + random_below(n, 400000));
        return;
    }
}

static double scaled_value(const struct series_shape *s, int64_t v)
{
    switch ((enum value_model)s->model) {
    case MODEL_CENTISECONDS:
        return (double)v / 100;
    case MODEL_RATIO:
        return (double)v / 1000000;
    case MODEL_POWER:
        return (double)v / 1000;
    default:
        return (double)v;
    }
}

enum err fleet_nodes_new(const struct fleet_template *t, const struct fleet_options *o,
                         uint32_t first_node, uint32_t count, struct fleet_nodes **out,
                         struct errinfo *ei)
{
    struct fleet_nodes *n = calloc(1, sizeof *n);
    size_t series_count = (size_t)t->series_count * count;

    if (n == NULL)
        return errinfo_set(ei, ERR_NOMEM, 0, "fleet nodes");
    n->template = t;
    n->options = *o;
    n->first_node = first_node;
    n->count = count;
    n->nodes = calloc(count == 0 ? 1 : count, sizeof *n->nodes);
    n->values = calloc(series_count == 0 ? 1 : series_count, sizeof *n->values);
    n->block = malloc(t->block.size);
    n->stale_block = malloc(t->block.size);
    n->samples = calloc((size_t)t->series_count * 2, sizeof *n->samples);
    if (n->nodes == NULL || n->values == NULL || n->block == NULL || n->stale_block == NULL ||
        n->samples == NULL) {
        fleet_nodes_free(n);
        return errinfo_set(ei, ERR_NOMEM, 0, "fleet nodes: %" PRIu32, count);
    }
    for (uint32_t i = 0; i < count; i++) {
        n->nodes[i].random = mix(o->seed + 1) ^ mix(first_node + i + 1);
        for (uint32_t s = 0; s < t->series_count; s++)
            n->values[(size_t)i * t->series_count + s] = initial_value(&t->series[s], &n->nodes[i]);
    }
    *out = n;
    return ERR_OK;
}

void fleet_nodes_free(struct fleet_nodes *n)
{
    if (n == NULL)
        return;
    free(n->nodes);
    free(n->values);
    free(n->block);
    free(n->stale_block);
    free(n->samples);
    free(n);
}

static void hex_write(char *out, size_t size, uint64_t seed)
{
    static const char digits[] = "0123456789abcdef";
    uint64_t bits = 0;

    for (size_t i = 0; i < size; i++) {
        if (i % 16 == 0)
            bits = mix(seed + i / 16 * 0x9e3779b97f4a7c15U);
        out[i] = digits[(bits >> (i % 16 * 4)) & 15];
    }
}

static void uuid_write(char *out, uint64_t seed)
{
    hex_write(out, 36, seed);
    out[8] = out[13] = out[18] = out[23] = '-';
}

/* Copies the template and writes the node's texts into it. */
static void fill_block(const struct fleet_nodes *n, uint32_t node, const struct node_state *state,
                       uint8_t *block)
{
    const struct fleet_template *t = n->template;
    char node_text[8], uuid[UNIT_MAX][36], pod[UNIT_MAX][10], hex[UNIT_MAX][64], uid[UNIT_MAX][36];

    snprintf(node_text, sizeof node_text, "%05" PRIu32, node % 100000);
    for (uint32_t u = 0; u < t->unit_count; u++) {
        uint64_t unit_seed = mix(n->options.seed ^ ((uint64_t)node << 8 | u));
        uint64_t pod_seed = mix(unit_seed + 1 + state->pod_generation[u]);

        uuid_write(uuid[u], unit_seed);
        hex_write(pod[u], 10, pod_seed);
        hex_write(hex[u], 64, pod_seed ^ 0x55);
        uuid_write(uid[u], pod_seed ^ 0xaa);
    }
    memcpy(block, t->block.data, t->block.size);
    for (uint32_t i = 0; i < t->patch_count; i++) {
        const struct patch *p = &t->patches[i];
        const char *text = NULL;

        switch ((enum patch_kind)p->kind) {
        case PATCH_NONE:
            continue;
        case PATCH_NODE:
            text = node_text;
            break;
        case PATCH_UUID:
            text = uuid[p->unit];
            break;
        case PATCH_POD:
            text = pod[p->unit];
            break;
        case PATCH_HEX64:
            text = hex[p->unit];
            break;
        case PATCH_POD_UID:
            text = uid[p->unit];
            break;
        }
        memcpy(block + p->offset, text, patch_width[p->kind]);
    }
}

void fleet_nodes_churn(struct fleet_nodes *n, double churn_per_minute)
{
    n->options.churn_per_minute = churn_per_minute;
}

static bool is_rollout(const struct fleet_options *o, uint64_t scrape)
{
    return o->churn_per_minute > 0 &&
           (o->churn_period_ms == 0 || (int64_t)scrape * o->interval_ms % o->churn_period_ms >=
                                           o->churn_period_ms - o->churn_length_ms);
}

/* Ends some pods: their series get staleness markers under the old labels. Returns a mask of units
 * that were relabelled. */
static uint32_t churn_pods(struct fleet_nodes *n, struct node_state *state)
{
    uint32_t ended = 0;

    state->churn_owed += n->options.churn_per_minute * (double)n->options.interval_ms / 60000 /
                         (double)n->options.node_count;
    while (state->churn_owed > 0) {
        /* Fractions of a pod become a chance, so that nodes do not churn in step. */
        double chance = state->churn_owed < 1 ? state->churn_owed : 1;

        state->churn_owed -= chance;
        if ((double)(next_random(state) >> 11) * 0x1p-53 < chance)
            ended |= 1U << random_below(state, n->template->unit_count);
    }
    return ended;
}

static size_t scrape_samples(struct fleet_nodes *n, uint32_t index, const int64_t *times,
                             struct fleet_sample *out)
{
    const struct fleet_template *t = n->template;
    struct node_state *state = &n->nodes[index];
    int64_t *values = n->values + (size_t)index * t->series_count;
    uint64_t shared = 0;

    for (uint32_t s = 0; s < t->series_count; s++) {
        const struct series_shape *shape = &t->series[s];

        if (shape->target != 2 || shape->scale == 0)
            shared = random_below(state, 6000);
        if (state->scrape > 0)
            step_value(shape, state, shared, &values[s]);
        out[s] = (struct fleet_sample){
            .labels = {n->block + shape->offset, shape->size},
            .t_ms = times[shape->target],
            .value = scaled_value(shape, values[s]),
        };
    }
    return t->series_count;
}

size_t fleet_node_scrape(struct fleet_nodes *n, uint32_t index, const struct fleet_sample **out)
{
    const struct fleet_template *t = n->template;
    const struct fleet_options *o = &n->options;
    struct node_state *state = &n->nodes[index];
    uint32_t node = n->first_node + index;
    int64_t times[TARGET_MAX];
    size_t count = 0;
    uint32_t ended = 0;

    for (uint32_t k = 0; k < t->target_count; k++) {
        uint64_t where = mix((uint64_t)node << 2 | k);

        times[k] = o->start_ms + (int64_t)state->scrape * o->interval_ms;
        if (o->target_offsets)
            times[k] += (int64_t)(where % (uint64_t)o->interval_ms);
        if (o->jitter_ms > 0)
            times[k] += (int64_t)random_below(state, 2 * o->jitter_ms + 1) - o->jitter_ms;
    }
    if (state->scrape > 0 && is_rollout(o, state->scrape))
        ended = churn_pods(n, state);
    if (ended != 0) {
        uint64_t stale_bits = 0x7ff0000000000002U; /* Prometheus's staleness marker */

        fill_block(n, node, state, n->stale_block);
        for (uint32_t s = 0; s < t->series_count; s++) {
            const struct series_shape *shape = &t->series[s];

            if (shape->unit != UINT8_MAX && (ended >> shape->unit & 1) != 0)
                n->samples[count++] = (struct fleet_sample){
                    {n->stale_block + shape->offset, shape->size},
                    times[shape->target],
                    double_from_bits(stale_bits),
                };
        }
        for (uint32_t u = 0; u < t->unit_count; u++)
            state->pod_generation[u] = (uint16_t)(state->pod_generation[u] + (ended >> u & 1));
    }
    fill_block(n, node, state, n->block);
    count += scrape_samples(n, index, times, n->samples + count);
    state->scrape++;
    *out = n->samples;
    return count;
}
