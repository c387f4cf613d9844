/*
 * See codec_twin.h.
 */
#include "tests/engine/codec_twin.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests/lib/test_support.h"

struct input {
    const uint8_t *data;
    size_t size, at;
    bool bad;
};

static uint64_t little_endian(struct input *in, unsigned size)
{
    uint64_t v = 0;

    if (in->size - in->at < size) {
        in->at = in->size;
        in->bad = true;
        return 0;
    }
    for (unsigned i = 0; i < size; i++)
        v |= (uint64_t)in->data[in->at++] << 8 * i;
    return v;
}

static uint64_t varint(struct input *in)
{
    uint64_t v = 0;

    for (unsigned shift = 0; shift < 70; shift += 7) {
        uint64_t byte = little_endian(in, 1), group = byte & 127;

        if (in->bad || (shift == 63 && group > 1))
            break;
        v |= group << shift;
        if (byte < 128)
            return v;
    }
    in->bad = true;
    return 0;
}

static uint64_t zigzag(struct input *in)
{
    uint64_t u = varint(in);

    return u % 2 == 0 ? u / 2 : ~(u / 2);
}

/* `count` numbers of `width` bits, lowest bit first; the last byte is filled up. */
static void packed(struct input *in, size_t count, unsigned width, uint64_t *out)
{
    size_t start = in->at, size = (count * width + 7) / 8;

    if (in->bad || in->size - in->at < size) {
        in->bad = true;
        return;
    }
    for (size_t i = 0; i < count; i++) {
        out[i] = 0;
        for (size_t k = 0; k < width; k++) {
            size_t bit = i * width + k;

            out[i] |= (uint64_t)(in->data[start + bit / 8] >> bit % 8 & 1) << k;
        }
    }
    in->at += size;
}

static bool integers(struct input *in, size_t n, uint64_t *x)
{
    unsigned flags = (unsigned)little_endian(in, 1), order = flags & 3, code = flags >> 4 & 7;
    unsigned shift = flags & 4 ? (unsigned)little_endian(in, 1) : 0;
    size_t block = code == 0 ? n : (size_t)16 << code, m = n - order, position = 0;
    uint64_t *d = x + order, base = 0;

    if (in->bad || order == 3 || order > n || code > 5 || flags > 127 || shift > 63)
        return false;
    for (unsigned o = 0; o < order; o++)
        x[o] = zigzag(in);
    for (size_t at = 0; at < m; at += block) {
        size_t count = m - at < block ? m - at : block;
        unsigned width = (unsigned)little_endian(in, 1);

        base += zigzag(in);
        if (width > 57 && width != 64)
            return false;
        packed(in, count, width, d + at);
        if (in->bad)
            return false;
        for (size_t i = 0; i < count; i++)
            d[at + i] = (d[at + i] << shift) + base;
    }
    if (flags & 8) {
        uint64_t count = varint(in);

        if (in->bad || count > m)
            return false;
        for (uint64_t i = 0; i < count; i++) {
            uint64_t gap = varint(in), excess = zigzag(in);

            if (in->bad || gap >= m - position)
                return false;
            position += gap;
            d[position] += excess;
        }
    }
    if (in->bad)
        return false;
    for (; order > 0; order--) {
        for (size_t i = order; i < n; i++)
            x[i] += x[i - 1];
    }
    return true;
}

static uint64_t divided(uint64_t x, unsigned exponent)
{
    static const double powers[] = {1e0, 1e1, 1e2,  1e3,  1e4,  1e5,  1e6, 1e7,
                                    1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14};
    double v = (double)(int64_t)x / powers[exponent];
    uint64_t bits;

    memcpy(&bits, &v, sizeof bits);
    return bits;
}

static bool exceptions(struct input *in, size_t n, uint64_t *out)
{
    unsigned form = (unsigned)little_endian(in, 1);
    uint64_t count = varint(in), same = UINT64_C(0x7ff0000000000002);
    uint64_t positions[8192], position = 0;

    if (in->bad || form > 2 || count > n)
        return false;
    for (uint64_t i = 0; i < count; i++) {
        uint64_t gap = varint(in);

        if (in->bad || gap >= n - position)
            return false;
        positions[i] = position += gap;
    }
    if (form == 1)
        same = little_endian(in, 8);
    for (uint64_t i = 0; i < count; i++)
        out[positions[i]] = form == 0 ? little_endian(in, 8) : same;
    return !in->bad;
}

static unsigned index_width(uint64_t count)
{
    unsigned width = 0;

    while ((UINT64_C(1) << width) < count)
        width++;
    return width;
}

static bool flat(struct input *in, size_t n, uint64_t *out)
{
    unsigned first = (unsigned)little_endian(in, 1), kind = first & 15, exponent = first >> 4;
    uint64_t table[128], count, low[8192];
    unsigned cut, shift, width;

    if (in->bad || (exponent != 0 && kind != 2 && kind != 3 && kind != 4))
        return false;
    switch (kind) {
    case 1: /* raw */
        for (size_t i = 0; i < n && !in->bad; i++)
            out[i] = little_endian(in, 8);
        return !in->bad;
    case 2: /* constant */
        out[0] = exponent == 15 ? little_endian(in, 8) : divided(zigzag(in), exponent);
        for (size_t i = 1; i < n; i++)
            out[i] = out[0];
        return !in->bad;
    case 3: /* decimal, and with exceptions */
    case 4:
        if (exponent == 15 || !integers(in, n, out))
            return false;
        for (size_t i = 0; i < n; i++)
            out[i] = divided(out[i], exponent);
        return kind == 3 || exceptions(in, n, out);
    case 5: /* bits */
        return integers(in, n, out);
    case 6: /* dictionary */
        count = little_endian(in, 1);
        if (count == 0 || count > 128)
            return false;
        for (uint64_t i = 0; i < count; i++)
            table[i] = little_endian(in, 8);
        packed(in, n, index_width(count), out);
        for (size_t i = 0; i < n && !in->bad; i++) {
            if (out[i] >= count)
                return false;
            out[i] = table[out[i]];
        }
        return !in->bad;
    case 9: /* split */
        cut = (unsigned)little_endian(in, 1);
        shift = (unsigned)little_endian(in, 1);
        width = (unsigned)little_endian(in, 1);
        count = little_endian(in, 1);
        if (in->bad || cut < 48 || cut > 52 || shift + width > cut || count == 0 || count > 128)
            return false;
        for (uint64_t i = 0; i < count; i++)
            table[i] = little_endian(in, 2);
        packed(in, n, index_width(count), out);
        packed(in, n, width, low);
        for (size_t i = 0; i < n && !in->bad; i++) {
            if (out[i] >= count)
                return false;
            out[i] = table[out[i]] << cut | low[i] << shift;
        }
        return !in->bad;
    default:
        return false;
    }
}

static bool runs(struct input *in, size_t n, uint64_t *out)
{
    uint64_t values[8193];
    bool starts[8192] = {false};
    size_t count = 0, run = 0;

    if (in->data[in->at++] == 7) {
        uint64_t left = varint(in), position = 0;

        if (in->bad || left == 0 || left >= n)
            return false;
        for (; left > 0; left--) {
            uint64_t gap = varint(in);

            if (in->bad || gap == 0 || gap >= n - position)
                return false;
            position += gap;
            starts[position] = true;
            count++;
        }
    } else {
        uint64_t bits[8192];
        size_t size = (n - 1 + 7) / 8;

        if (n == 1)
            return false;
        packed(in, 8 * size, 1, bits); /* the spare bits of the last byte must be zero */
        for (size_t i = 0; i < 8 * size && !in->bad; i++) {
            if (i >= n - 1 && bits[i] != 0)
                return false;
            if (i < n - 1)
                starts[i + 1] = bits[i] != 0;
            count += bits[i] != 0;
        }
    }
    if (in->bad || !flat(in, count + 1, values))
        return false;
    for (size_t i = 0; i < n; i++) {
        run += starts[i];
        out[i] = values[run];
    }
    return true;
}

bool twin_values_decode(const uint8_t *data, size_t size, size_t n, uint64_t *out)
{
    struct input in = {data, size, 0, false};
    bool good;

    if (size == 0 || n == 0 || n > 8192)
        return false;
    good = data[0] == 7 || data[0] == 8 ? runs(&in, n, out) : flat(&in, n, out);
    return good && !in.bad && in.at == size;
}

bool twin_times_decode(const uint8_t *data, size_t size, size_t n, uint64_t *out)
{
    struct input in = {data, size, 0, false};
    unsigned first = (unsigned)little_endian(&in, 1);
    uint64_t start, step, gap_count = 0, position = 0, missing_before[8192] = {0}, slot = 0;

    if (in.bad || n == 0 || n > 8192)
        return false;
    if (first == 2)
        return integers(&in, n, out) && in.at == size;
    if ((first & 15) != 1 || first > 0x3f)
        return false;
    start = zigzag(&in);
    step = varint(&in);
    if (first & 0x10)
        gap_count = varint(&in);
    if (in.bad || gap_count > n)
        return false;
    for (; gap_count > 0; gap_count--) {
        uint64_t gap = varint(&in), missing = varint(&in);

        if (in.bad || gap == 0 || gap >= n - position)
            return false;
        position += gap;
        missing_before[position] = missing;
    }
    memset(out, 0, n * sizeof *out);
    if (first & 0x20 && !integers(&in, n, out))
        return false;
    for (size_t i = 0; i < n; i++) {
        slot += i == 0 ? 0 : 1 + missing_before[i];
        out[i] += start + step * slot;
    }
    return !in.bad && in.at == size;
}
