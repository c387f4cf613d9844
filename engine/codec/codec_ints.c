/*
 * A packed column of integers, the common part of value and timestamp columns:
 *
 *   | flags u8 | shift u8, if flagged | heads | blocks | outliers, if flagged |
 *
 *   flags     bits 0-1  order of the differences that are packed: 0, 1 or 2
 *             bit 2     a shift follows
 *             bit 3     outliers follow
 *             bits 4-6  block size: 0 = all in one; k = 1 to 5: 16 << k
 *             bit 7     zero
 *   heads     order 1: x[0]; order 2: x[0], x[1] - x[0]; zigzag varints
 *   block     | width u8 | base: zigzag varint, minus the block's before | numbers, packed |
 *             residual = (number << shift) + base; widths 0 to 57 and 64
 *   outliers  | count varint | position gap varint, excess zigzag varint | ... |
 *             excess is added to the residual at that position, whose number is 0
 *
 * All arithmetic wraps at 64 bits, so every column of integers can be stored in every order; size
 * alone decides. docs/formats/chunk-codecs.md has the whole format.
 */
#include "base/assert.h"
#include "engine/codec/codec_internal.h"

enum {
    FLAG_ORDER = 3,
    FLAG_SHIFT = 4,
    FLAG_OUTLIERS = 8,
    FLAG_BLOCK_BIT = 4,
    FLAG_BLOCK = 7 << FLAG_BLOCK_BIT,
    FLAG_ZERO = 0x80,
    BLOCK_CODE_MAX = 5,
    BLOCK_LOG_MIN = 5, /* log2 of CODEC_STAT_BLOCK */
    ORDER_MAX = 2,
};
_Static_assert(1 << BLOCK_LOG_MIN == CODEC_STAT_BLOCK, "statistics are kept per smallest block");

/* One order of differences and what it would cost. */
struct candidate {
    unsigned order;
    uint64_t *d; /* the residuals */
    size_t count, head_size;
    int64_t *mins, *maxs;
    int64_t min, max; /* of all */
    uint64_t differ;  /* bits in which residuals differ */
};

static size_t stat_block_count(size_t count)
{
    return (count + CODEC_STAT_BLOCK - 1) / CODEC_STAT_BLOCK;
}

static size_t flags_size(const struct codec_ints_plan *p)
{
    return p->shift > 0 ? 2 : 1;
}

/* Residuals of one order and their statistics; those of the order below are there already. */
static void candidate_init(struct candidate *c, struct codec_scratch *s, size_t n, unsigned order)
{
    const struct codec_kernels *k = codec_kernels_get();

    *c = (struct candidate){.order = order, .d = s->residuals[order], .count = n - order};
    c->mins = s->block_min[order];
    c->maxs = s->block_max[order];
    if (order > 0)
        k->differences(s->residuals[order - 1], c->d, c->count);
    for (unsigned o = 0; o < order; o++)
        c->head_size += codec_varint_size(codec_zigzag(s->residuals[o][0]));
    if (c->count == 0)
        return;
    c->differ = k->ranges(c->d, c->count, c->mins, c->maxs);
    c->min = c->mins[0];
    c->max = c->maxs[0];
    for (size_t b = 1; b < stat_block_count(c->count); b++) {
        c->min = c->mins[b] < c->min ? c->mins[b] : c->min;
        c->max = c->maxs[b] > c->max ? c->maxs[b] : c->max;
    }
}

/* Low bits that all residuals share need not be stored, if that wins more than the byte it takes.
 */
static unsigned shift_of(const struct candidate *c)
{
    unsigned shift = c->differ == 0 ? 0 : (unsigned)__builtin_ctzll(c->differ);

    return shift * c->count >= 16 ? shift : 0;
}

static unsigned range_width(int64_t min, int64_t max, unsigned shift)
{
    return codec_width_for(((uint64_t)max - (uint64_t)min) >> shift);
}

static size_t whole_size(const struct candidate *c, const struct codec_ints_plan *p)
{
    if (c->count == 0)
        return flags_size(p) + c->head_size;
    return flags_size(p) + c->head_size + 1 + codec_varint_size(codec_zigzag(p->base)) +
           codec_packed_size(c->count, p->width);
}

/* Smallest and largest of the block of 1 << log residuals that starts at stat block `b`. */
static void block_range(const struct candidate *c, size_t b, unsigned log, int64_t *min,
                        int64_t *max)
{
    size_t end = b + ((size_t)1 << (log - BLOCK_LOG_MIN)), all = stat_block_count(c->count);

    *min = c->mins[b];
    *max = c->maxs[b];
    for (b++; b < end && b < all; b++) {
        *min = c->mins[b] < *min ? c->mins[b] : *min;
        *max = c->maxs[b] > *max ? c->maxs[b] : *max;
    }
}

static size_t blocks_size(const struct candidate *c, unsigned log, unsigned shift)
{
    size_t size = (shift > 0 ? 2 : 1) + c->head_size, block = (size_t)1 << log;
    uint64_t base_before = 0;

    for (size_t at = 0; at < c->count; at += block) {
        size_t count = c->count - at < block ? c->count - at : block;
        int64_t min, max;

        block_range(c, at >> BLOCK_LOG_MIN, log, &min, &max);
        size += 1 + codec_varint_size(codec_zigzag((uint64_t)min - base_before)) +
                codec_packed_size(count, range_width(min, max, shift));
        base_before = (uint64_t)min;
    }
    return size;
}

/* Sorts by insertion: there are at most 256, mostly 15, and qsort() may allocate. */
static int64_t median(const int64_t *values, size_t count)
{
    int64_t sorted[CODEC_STAT_BLOCK_MAX];

    ASSERT(count > 0);
    for (size_t i = 0; i < count; i++) {
        size_t at = i;

        for (; at > 0 && sorted[at - 1] > values[i]; at--)
            sorted[at] = sorted[at - 1];
        sorted[at] = values[i];
    }
    return sorted[count / 2];
}

/*
 * A base for most of the residuals: the smallest of the blocks' minima that is not further below
 * the usual minimum than the usual range is wide. A counter's reset, one huge step down, falls
 * below it and becomes an outlier.
 */
static uint64_t robust_base(const struct candidate *c)
{
    size_t blocks = stat_block_count(c->count);
    int64_t low = median(c->mins, blocks), high = median(c->maxs, blocks);
    uint64_t range = high > low ? (uint64_t)high - (uint64_t)low : 0;
    int64_t base = low;

    for (size_t b = 0; b < blocks; b++) {
        if (c->mins[b] < base && (uint64_t)low - (uint64_t)c->mins[b] <= range)
            base = c->mins[b];
    }
    return (uint64_t)base;
}

/* What one outlier takes, about, when its distance from the base has `bits` bits. */
static size_t outlier_size_guess(unsigned bits)
{
    return 2 + (bits + 7) / 7;
}

/* Chooses the width for a given base by a histogram of lengths, and counts exactly what lies
 * outside. */
static size_t outliers_size(const struct candidate *c, struct codec_ints_plan *p)
{
    size_t histogram[65] = {0};
    size_t outside = 0, guess, best = SIZE_MAX, size, position_before = 0;

    for (size_t i = 0; i < c->count; i++)
        histogram[codec_bit_length((c->d[i] - p->base) >> p->shift)]++;
    for (unsigned bits = 64; bits-- > 0;) { /* a width of 64 has no outliers */
        outside += histogram[bits + 1] * outlier_size_guess(bits + 1 + p->shift);
        if (bits > CODEC_WIDTH_MAX)
            continue;
        guess = codec_packed_size(c->count, bits) + outside;
        if (guess < best) {
            best = guess;
            p->width = bits;
        }
    }
    p->outlier_count = 0;
    size = 0;
    for (size_t i = 0; i < c->count; i++) {
        uint64_t excess = c->d[i] - p->base;

        if (codec_bit_length(excess >> p->shift) <= p->width)
            continue;
        size += codec_varint_size(i - position_before) + codec_varint_size(codec_zigzag(excess));
        position_before = i;
        p->outlier_count++;
    }
    if (p->outlier_count > 0)
        size += codec_varint_size(p->outlier_count);
    return whole_size(c, p) + size;
}

static void keep_smaller(struct codec_ints_plan *best, const struct codec_ints_plan *p)
{
    if (p->size < best->size)
        *best = *p;
}

static struct codec_ints_plan whole_plan(const struct candidate *c)
{
    struct codec_ints_plan p = {.order = c->order, .base = (uint64_t)c->min};

    if (c->count > 0) {
        p.shift = shift_of(c);
        p.width = range_width(c->min, c->max, p.shift);
    }
    p.size = whole_size(c, &p);
    return p;
}

/* The width of the middle one of the smallest blocks: what most residuals need. */
static unsigned usual_width(const struct candidate *c, unsigned shift)
{
    size_t histogram[65] = {0}, blocks = stat_block_count(c->count), seen = 0;
    unsigned width = 0;

    for (size_t b = 0; b < blocks; b++)
        histogram[range_width(c->mins[b], c->maxs[b], shift)]++;
    while ((seen += histogram[width]) * 2 < blocks)
        width++;
    return width;
}

/* The forms of one order without outliers, if one beats *best. */
static void candidate_weigh(const struct candidate *c, struct codec_ints_plan *best)
{
    struct codec_ints_plan p = whole_plan(c);

    keep_smaller(best, &p);
    if (p.width == 0)
        return;
    for (unsigned code = 1; code <= BLOCK_CODE_MAX; code++) {
        p.block_log = BLOCK_LOG_MIN + code - 1;
        if (c->count <= (size_t)1 << p.block_log)
            break;
        p.size = blocks_size(c, p.block_log, p.shift);
        keep_smaller(best, &p);
    }
}

/* The form with outliers, if it beats *best. It is looked for only in the order that is usually the
 * narrowest, and only where that is narrower than the best form by more than a bit: on evenly
 * spread residuals the search would be wasted on every chunk. */
static void outliers_weigh(const struct candidate *c, unsigned width, struct codec_ints_plan *best)
{
    struct codec_ints_plan whole = whole_plan(c), p = whole;

    if (best->size <= c->head_size + 8 + codec_packed_size(c->count, width + 1))
        return;
    p.size = outliers_size(c, &p);
    keep_smaller(best, &p);
    p = whole;
    p.base = robust_base(c);
    if (p.base != whole.base) {
        p.size = outliers_size(c, &p);
        keep_smaller(best, &p);
    }
}

/* Second differences pay only for smooth curves; two blocks of them tell. */
static bool second_order_pays(struct codec_scratch *s, size_t n)
{
    const size_t two = (size_t)2 * CODEC_STAT_BLOCK;
    size_t m = n - 2 < two ? n - 2 : two;
    int64_t *mins = s->block_min[2], *maxs = s->block_max[2];
    unsigned narrower = 0;

    codec_kernels_get()->differences(s->residuals[1], s->residuals[2], m);
    (void)codec_kernels_get()->ranges(s->residuals[2], m, mins, maxs); /* only ranges are asked */
    for (size_t b = 0; b < stat_block_count(m); b++)
        narrower += range_width(mins[b], maxs[b], 0) <
                    range_width(s->block_min[1][b], s->block_max[1][b], 0);
    return narrower > 0;
}

void codec_ints_plan(struct codec_scratch *s, size_t n, struct codec_ints_plan *plan)
{
    struct candidate c, narrowest = {.order = 0};
    unsigned width, width_best = 0;

    ASSERT(n > 0);
    *plan = (struct codec_ints_plan){.size = SIZE_MAX};
    for (unsigned order = 0; order <= ORDER_MAX && order < n; order++) {
        if (order == 2 && (n < 4 || !second_order_pays(s, n)))
            break;
        candidate_init(&c, s, n, order);
        candidate_weigh(&c, plan);
        if (c.differ == 0) /* all residuals are equal: nothing will be smaller */
            return;
        width = usual_width(&c, shift_of(&c));
        if (order == 0 || width < width_best) {
            width_best = width;
            narrowest = c;
        }
    }
    outliers_weigh(&narrowest, width_best, plan);
}

static uint8_t *write_outliers(const struct codec_ints_plan *p, const struct codec_scratch *s,
                               uint8_t *out)
{
    size_t before = 0;

    out += varint_write(out, p->outlier_count);
    for (size_t i = 0; i < p->outlier_count; i++) {
        out += varint_write(out, s->outliers[i] - before);
        out += varint_write(out, codec_zigzag(s->excesses[i]));
        before = s->outliers[i];
    }
    return out;
}

/* Takes the outliers out of the residuals, into the scratch. */
static void set_outliers_aside(const struct codec_ints_plan *p, struct codec_scratch *s,
                               uint64_t *d, size_t count)
{
    size_t found = 0;

    for (size_t i = 0; i < count && found < p->outlier_count; i++) {
        uint64_t excess = d[i] - p->base;

        if (codec_bit_length(excess >> p->shift) <= p->width)
            continue;
        s->outliers[found] = (uint16_t)i;
        s->excesses[found++] = excess;
        d[i] = p->base;
    }
}

static uint8_t *write_block(const uint64_t *d, size_t count, uint64_t base, uint64_t base_before,
                            unsigned width, unsigned shift, uint8_t *out)
{
    *out++ = (uint8_t)width;
    out += varint_write(out, codec_zigzag(base - base_before));
    codec_kernels_get()->pack(d, count, base, shift, width, out);
    return out + codec_packed_size(count, width);
}

size_t codec_ints_write(struct codec_scratch *s, size_t n, const struct codec_ints_plan *plan,
                        uint8_t *out)
{
    struct candidate c = {.order = plan->order, .d = s->residuals[plan->order]};
    unsigned code = plan->block_log == 0 ? 0 : plan->block_log - BLOCK_LOG_MIN + 1;
    uint8_t *start = out;

    c.count = n - plan->order;
    c.mins = s->block_min[plan->order];
    c.maxs = s->block_max[plan->order];
    *out++ = (uint8_t)(plan->order | (plan->shift > 0 ? FLAG_SHIFT : 0) |
                       (plan->outlier_count > 0 ? FLAG_OUTLIERS : 0) | code << FLAG_BLOCK_BIT);
    if (plan->shift > 0)
        *out++ = (uint8_t)plan->shift;
    for (unsigned o = 0; o < plan->order; o++)
        out += varint_write(out, codec_zigzag(s->residuals[o][0]));
    if (c.count == 0)
        return (size_t)(out - start);
    if (code == 0) {
        set_outliers_aside(plan, s, c.d, c.count);
        out = write_block(c.d, c.count, plan->base, 0, plan->width, plan->shift, out);
        if (plan->outlier_count > 0)
            out = write_outliers(plan, s, out);
        return (size_t)(out - start);
    }
    size_t block = (size_t)1 << plan->block_log;
    uint64_t base_before = 0;

    for (size_t at = 0; at < c.count; at += block) {
        int64_t min, max;

        block_range(&c, at >> BLOCK_LOG_MIN, plan->block_log, &min, &max);
        out = write_block(c.d + at, c.count - at < block ? c.count - at : block, (uint64_t)min,
                          base_before, range_width(min, max, plan->shift), plan->shift, out);
        base_before = (uint64_t)min;
    }
    return (size_t)(out - start);
}

static bool read_blocks(struct byte_reader *r, size_t block, unsigned shift, size_t count,
                        codec_word *out)
{
    const struct codec_kernels *k = codec_kernels_get();
    uint64_t base = 0;

    for (size_t at = 0; at < count; at += block) {
        size_t here = count - at < block ? count - at : block;
        unsigned width = reader_u8(r);
        size_t left;
        const uint8_t *packed;

        base += codec_unzigzag(reader_varint(r));
        if (r->failed || (width > CODEC_WIDTH_MAX && width != 64))
            return false;
        left = reader_left(r);
        packed = reader_take(r, codec_packed_size(here, width));
        if (packed == NULL)
            return false;
        k->unpack(packed, left, here, base, shift, width, out + at);
    }
    return true;
}

static bool read_outliers(struct byte_reader *r, size_t count, codec_word *out)
{
    uint64_t left = reader_varint(r), position = 0;

    if (r->failed || left > count)
        return false;
    for (; left > 0; left--) {
        uint64_t gap = reader_varint(r), excess = codec_unzigzag(reader_varint(r));

        if (r->failed || gap >= count - position)
            return false;
        position += gap;
        out[position] += excess;
    }
    return true;
}

bool codec_ints_read(struct byte_reader *r, size_t n, codec_word *out)
{
    const struct codec_kernels *k = codec_kernels_get();
    unsigned flags = reader_u8(r), order = flags & FLAG_ORDER, shift = 0;
    unsigned code = (flags & FLAG_BLOCK) >> FLAG_BLOCK_BIT;

    if (r->failed || order > ORDER_MAX || order > n || code > BLOCK_CODE_MAX ||
        (flags & FLAG_ZERO) != 0)
        return false;
    if ((flags & FLAG_SHIFT) != 0)
        shift = reader_u8(r);
    if (shift > 63)
        return false;
    for (unsigned o = 0; o < order; o++)
        out[o] = codec_unzigzag(reader_varint(r));
    if (r->failed ||
        !read_blocks(r, code == 0 ? CODEC_SAMPLES_MAX : (size_t)CODEC_STAT_BLOCK << (code - 1),
                     shift, n - order, out + order))
        return false;
    if ((flags & FLAG_OUTLIERS) != 0 && !read_outliers(r, n - order, out + order))
        return false;
    for (; order > 0; order--)
        k->prefix_sum(out + order - 1, n - order + 1);
    return true;
}

size_t codec_positions_size(const uint16_t *positions, size_t count)
{
    size_t size = 0, before = 0;

    for (size_t i = 0; i < count; i++) {
        size += codec_varint_size(positions[i] - before);
        before = positions[i];
    }
    return size;
}

uint8_t *codec_positions_write(uint8_t *out, const uint16_t *positions, size_t count)
{
    size_t before = 0;

    for (size_t i = 0; i < count; i++) {
        out += varint_write(out, positions[i] - before);
        before = positions[i];
    }
    return out;
}
