#include "bench/fleet_capture.h"

#include <stdlib.h>

#include "bench/bench_support.h"
#include "engine/part.h"

/* ---- the stream ---- */

void fleet_source_init(struct fleet_source *s, const struct fleet_options *o)
{
    struct errinfo ei = {0};

    s->node_count = o->node_count;
    if (fleet_template_new(o->profile, &s->template, &ei) != ERR_OK ||
        fleet_nodes_new(s->template, o, 0, o->node_count, &s->nodes, &ei) != ERR_OK)
        bench_fail("stream", &ei);
}

void fleet_source_done(struct fleet_source *s)
{
    fleet_nodes_free(s->nodes);
    fleet_template_free(s->template);
}

enum fleet_profile fleet_profile_from_env(void)
{
    return bench_env_is_second("BENCH_PROFILE", "gpu", "cadvisor") ? FLEET_CADVISOR : FLEET_GPU;
}

/* ---- labels of remote write 1.0 ---- */

static struct str read_field(struct byte_reader *r)
{
    size_t size;

    (void)reader_varint(r); /* the tag */
    size = (size_t)reader_varint(r);
    return (struct str){(const char *)reader_take(r, size), size};
}

size_t fleet_labels_parse(struct bytes wire, struct label out[FLEET_LABEL_MAX])
{
    struct byte_reader r = reader_init(wire.data, wire.size);
    size_t n = 0;

    while (reader_left(&r) > 0) {
        struct str message = read_field(&r);
        struct byte_reader m = reader_init(message.data, message.size);

        if (n == FLEET_LABEL_MAX)
            bench_fail("too many labels in the stream", NULL);
        out[n].name = read_field(&m);
        out[n++].value = read_field(&m);
        if (r.failed || m.failed)
            bench_fail("labels of the stream do not parse", NULL);
    }
    return n;
}

enum err fleet_labels_parse_write(const void *ctx, struct bytes wire, struct arena *arena,
                                  struct labels *out)
{
    struct label *items = ARENA_ARRAY(arena, FLEET_LABEL_MAX, struct label);

    (void)ctx;
    if (items == NULL)
        return ERR_NOMEM;
    *out = (struct labels){fleet_labels_parse(wire, items), items};
    return ERR_OK;
}

uint64_t fleet_labels_entity_hash(const struct hash_secret *secret, const struct label *items,
                                  size_t count)
{
    uint64_t hash = 0;

    for (size_t i = 0; i < count; i++) {
        if (!str_equal(items[i].name, LABEL_METRIC_NAME))
            hash = hash * 31 + hash64_bytes(secret, items[i].value.data, items[i].value.size);
    }
    return hash;
}

/* ---- one shard's share ---- */

static bool is_ours(const struct fleet_capture *c, struct bytes wire)
{
    struct label items[FLEET_LABEL_MAX];
    uint64_t hash = fleet_labels_entity_hash(&c->secret, items, fleet_labels_parse(wire, items));

    return (hash ^ hash >> 32) % c->shard_count == 0;
}

static void add_row(struct fleet_capture *c, struct bytes wire)
{
    struct label *items = ARENA_ARRAY(&c->arena, FLEET_LABEL_MAX, struct label);
    char *copy = arena_memdup0(&c->arena, wire.data, wire.size);
    struct fleet_row *row;

    if (c->row_count == c->row_capacity) {
        c->row_capacity = c->row_capacity == 0 ? 4096 : c->row_capacity * 2;
        c->rows = reallocarray(c->rows, c->row_capacity, sizeof *c->rows);
    }
    if (items == NULL || copy == NULL || c->rows == NULL)
        bench_fail("out of memory", NULL);
    row = &c->rows[c->row_count];
    row->number = c->row_count++;
    row->labels.count = fleet_labels_parse((struct bytes){(const uint8_t *)copy, wire.size}, items);
    row->labels.items = items;
    row->fingerprint = hash128_bytes(&c->secret, copy, wire.size);
}

static int compare_rows(const void *a, const void *b)
{
    return part_labels_compare(&((const struct fleet_row *)a)->labels,
                               &((const struct fleet_row *)b)->labels);
}

static void choose_rows(struct fleet_capture *c)
{
    size_t at = 0;

    for (uint32_t n = 0; n < c->source.node_count; n++) {
        const struct fleet_sample *samples;
        size_t count = fleet_node_scrape(c->source.nodes, n, &samples);

        for (size_t i = 0; i < count && at < c->series_count; i++, at++) {
            bool ours = is_ours(c, samples[i].labels);

            c->number_of[at] = ours ? c->row_count : SIZE_MAX;
            if (ours)
                add_row(c, samples[i].labels);
        }
    }
    if (c->row_count == 0)
        bench_fail("no series of so few nodes falls on the first shard", NULL);
    qsort(c->rows, c->row_count, sizeof *c->rows, compare_rows);
}

void fleet_capture_init(struct fleet_capture *c, const struct fleet_options *o,
                        uint32_t shard_count, uint32_t scrape_count)
{
    *c = (struct fleet_capture){.shard_count = shard_count, .scrape_count = scrape_count};
    arena_init(&c->arena, NULL);
    hash_secret_init(&c->secret, 1);
    fleet_source_init(&c->source, o);
    c->series_count = (size_t)o->node_count * fleet_series_per_node(c->source.template);
    c->number_of = calloc(c->series_count, sizeof *c->number_of);
    if (c->number_of == NULL)
        bench_fail("out of memory", NULL);
    choose_rows(c);
    c->t_ms = calloc(c->row_count * scrape_count, sizeof *c->t_ms);
    c->value = calloc(c->row_count * scrape_count, sizeof *c->value);
    if (c->t_ms == NULL || c->value == NULL)
        bench_fail("out of memory", NULL);
}

void fleet_capture_window(struct fleet_capture *c)
{
    for (size_t s = 0; s < c->scrape_count; s++) {
        size_t at = 0;

        for (uint32_t n = 0; n < c->source.node_count; n++) {
            const struct fleet_sample *samples;
            size_t got = fleet_node_scrape(c->source.nodes, n, &samples);

            for (size_t i = 0; i < got && at < c->series_count; i++, at++) {
                if (c->number_of[at] == SIZE_MAX)
                    continue;
                c->t_ms[c->number_of[at] * c->scrape_count + s] = samples[i].t_ms;
                c->value[c->number_of[at] * c->scrape_count + s] = samples[i].value;
            }
        }
    }
}

void fleet_capture_done(struct fleet_capture *c)
{
    fleet_source_done(&c->source);
    free(c->number_of);
    free(c->rows);
    free(c->t_ms);
    free(c->value);
    arena_done(&c->arena);
}
