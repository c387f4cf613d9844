/*
 * Timestamp columns. A target is scraped on a grid: a start, a step, sometimes a scrape that is
 * missing, and perhaps some milliseconds of jitter about each point. So a column is stored as
 *
 *   grid:    | kind, flags u8 | start zigzag varint | step varint | gaps | distances |
 *   packed:  | kind u8 | the timestamps as a packed integer column |
 *
 *   gaps       if flagged: | count varint | position gap varint, missing steps varint | ... |
 *   distances  if flagged: of every timestamp from its grid point, a packed integer column
 *
 * Distances from the grid need a bit or two fewer than differences of neighbours, whose jitter
 * adds up. docs/formats/chunk-codecs.md has the whole format.
 */
#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "base/assert.h"
#include "engine/codec/codec_internal.h"

enum {
    TIMES_GRID = 1,
    TIMES_PACKED = 2,
    TIMES_GAPS = 0x10,
    TIMES_DISTANCES = 0x20,
    STEP_SAMPLE_COUNT = 31,
};
/* Steps of a grid are positive and below this, so that sums over a column do not overflow. */
#define STEP_LIMIT (UINT64_C(1) << 40)

struct grid {
    uint64_t start, step;
    size_t gap_count; /* positions in scratch->outliers, missing steps in scratch->excesses */
    bool is_exact;    /* every timestamp is on a grid point */
};

/* The middle one of some of the steps. */
static uint64_t usual_step(const int64_t *t, size_t n)
{
    uint64_t sorted[STEP_SAMPLE_COUNT];
    size_t count = n - 1 < STEP_SAMPLE_COUNT ? n - 1 : STEP_SAMPLE_COUNT;

    for (size_t i = 0; i < count; i++) {
        size_t at = i * (n - 1) / count, j = i;
        uint64_t step = (uint64_t)t[at + 1] - (uint64_t)t[at];

        for (; j > 0 && sorted[j - 1] > step; j--)
            sorted[j] = sorted[j - 1];
        sorted[j] = step;
    }
    return sorted[count / 2];
}

/* Steps of the grid between t[i - 1] and t[i], at least one. */
static uint64_t slots_between(const int64_t *t, size_t i, uint64_t step)
{
    uint64_t slots = ((uint64_t)t[i] - (uint64_t)t[i - 1] + step / 2) / step;

    return slots == 0 ? 1 : slots;
}

static bool steps_fit_grid(const int64_t *t, size_t n)
{
    bool fit = true;

    for (size_t i = 1; i < n; i++)
        fit &= (uint64_t)t[i] - (uint64_t)t[i - 1] - 1 < STEP_LIMIT - 1;
    return fit;
}

/* Lays a grid through the column; the distances go to s->residuals[0]. False: none fits. */
static bool grid_find(const int64_t *t, size_t n, struct codec_scratch *s, struct grid *g)
{
    uint64_t usual, slots = 0, point, distances = 0;

    *g = (struct grid){.start = (uint64_t)t[0], .is_exact = true};
    if (n == 1)
        return true;
    if (!steps_fit_grid(t, n))
        return false;
    usual = usual_step(t, n);
    for (size_t i = 1; i < n; i++) {
        uint64_t between = slots_between(t, i, usual);

        slots += between;
        if (between > 1) {
            s->outliers[g->gap_count] = (uint16_t)i;
            s->excesses[g->gap_count++] = between - 1;
        }
    }
    /* The usual step has the jitter of two scrapes in it; over the whole column it averages out. */
    g->step = ((uint64_t)t[n - 1] - g->start + slots / 2) / slots;
    point = g->start;
    s->residuals[0][0] = 0;
    for (size_t i = 1, gap = 0; i < n; i++) {
        point += g->step;
        if (gap < g->gap_count && s->outliers[gap] == i)
            point += g->step * s->excesses[gap++];
        s->residuals[0][i] = (uint64_t)t[i] - point;
        distances |= s->residuals[0][i];
    }
    g->is_exact = distances == 0;
    return true;
}

static size_t grid_size(const struct codec_scratch *s, const struct grid *g)
{
    size_t size = 1 + codec_varint_size(codec_zigzag(g->start)) + codec_varint_size(g->step);

    if (g->gap_count > 0)
        size += codec_varint_size(g->gap_count) + codec_positions_size(s->outliers, g->gap_count);
    for (size_t i = 0; i < g->gap_count; i++)
        size += codec_varint_size(s->excesses[i]);
    return size;
}

static uint8_t *grid_write(const struct codec_scratch *s, const struct grid *g, uint8_t *out)
{
    size_t before = 0;

    *out++ = (uint8_t)(TIMES_GRID | (g->gap_count > 0 ? TIMES_GAPS : 0) |
                       (g->is_exact ? 0 : TIMES_DISTANCES));
    out += varint_write(out, codec_zigzag(g->start));
    out += varint_write(out, g->step);
    if (g->gap_count > 0)
        out += varint_write(out, g->gap_count);
    for (size_t i = 0; i < g->gap_count; i++) {
        out += varint_write(out, s->outliers[i] - before);
        out += varint_write(out, s->excesses[i]);
        before = s->outliers[i];
    }
    return out;
}

/* Writes the grid form if it is smaller than `limit`; returns the smaller of both. */
static size_t grid_encode(const int64_t *t, size_t n, struct codec_scratch *s, uint8_t *out,
                          size_t limit)
{
    struct codec_ints_plan plan = {.size = 0};
    struct grid g;
    size_t size;

    if (!grid_find(t, n, s, &g))
        return limit;
    if (!g.is_exact)
        codec_ints_plan(s, n, &plan);
    size = grid_size(s, &g) + plan.size;
    if (size >= limit)
        return limit;
    out = grid_write(s, &g, out);
    if (!g.is_exact)
        codec_ints_write(s, n, &plan, out);
    return size;
}

size_t codec_times_encode(const int64_t *t_ms, size_t n, struct codec_scratch *s, uint8_t *out)
{
    struct codec_ints_plan plan;
    size_t size;

    ASSERT(n > 0 && n <= CODEC_SAMPLES_MAX);
    size = grid_encode(t_ms, n, s, out, SIZE_MAX);
    if (size <= 24) /* exact, few gaps: nothing to gain */
        return size;
    memcpy(s->residuals[0], t_ms, n * sizeof *t_ms);
    codec_ints_plan(s, n, &plan);
    if (1 + plan.size >= size)
        return size;
    *out++ = TIMES_PACKED;
    return 1 + codec_ints_write(s, n, &plan, out);
}

/* Adds the grid's points to the distances in `out`. */
static bool grid_add(struct byte_reader gaps, uint64_t gap_count, uint64_t start, uint64_t step,
                     size_t n, codec_word *out)
{
    uint64_t point = start, position = 0;
    size_t i = 0;

    for (uint64_t gap = 0; gap < gap_count; gap++) {
        uint64_t next = reader_varint(&gaps), missing = reader_varint(&gaps);

        if (next == 0 || next >= n - position)
            return false;
        position += next;
        for (; i < position; i++, point += step)
            out[i] += point;
        point += step * missing;
    }
    for (; i < n; i++, point += step)
        out[i] += point;
    return true;
}

static bool grid_read(struct byte_reader *r, unsigned flags, size_t n, codec_word *out)
{
    uint64_t start = codec_unzigzag(reader_varint(r)), step = reader_varint(r), gap_count = 0;
    struct byte_reader gaps;

    if ((flags & TIMES_GAPS) != 0)
        gap_count = reader_varint(r);
    if (r->failed || gap_count >= n + 1)
        return false;
    gaps = *r; /* the distances are read first, the gaps then on the way through the column */
    for (uint64_t i = 0; i < 2 * gap_count; i++)
        (void)reader_varint(r); /* a short one is seen below */
    if (r->failed)
        return false;
    if ((flags & TIMES_DISTANCES) == 0)
        memset(out, 0, n * sizeof *out);
    else if (!codec_ints_read(r, n, out))
        return false;
    return grid_add(gaps, gap_count, start, step, n, out);
}

bool codec_times_decode(const uint8_t *data, size_t size, size_t n, int64_t *out_ms)
{
    struct byte_reader r = reader_init(data, size);
    unsigned first = reader_u8(&r);
    codec_word *words = (codec_word *)out_ms;
    bool good = false;

    if (n == 0 || n > CODEC_SAMPLES_MAX)
        return false;
    if ((first & ~(unsigned)(TIMES_GAPS | TIMES_DISTANCES)) == TIMES_GRID)
        good = grid_read(&r, first, n, words);
    else if (first == TIMES_PACKED)
        good = codec_ints_read(&r, n, words);
    return good && !r.failed && reader_left(&r) == 0;
}

uint64_t codec_times_hash(const int64_t *t_ms, size_t n)
{
    return XXH3_64bits(t_ms, n * sizeof *t_ms);
}
