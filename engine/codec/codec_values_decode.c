/*
 * Decoding a value column. The bytes are trusted in nothing: every form is bounds-checked, counts
 * are compared with the caller's n before they are used, and a column must end where its bytes do.
 * Integers are built in the caller's array and become doubles in place.
 */
#include <string.h>

#include "engine/codec/codec_internal.h"

enum {
    SPLIT_BLOCK = 256
}; /* indexes unpacked at a time: a multiple of 8, so that blocks begin at
      whole bytes */

static bool constant_read(struct byte_reader *r, unsigned exponent, size_t n, codec_word *out)
{
    uint64_t bits;

    if (exponent == CODEC_CONSTANT_RAW) {
        bits = reader_le64(r);
    } else {
        codec_word x = codec_unzigzag(reader_varint(r));

        codec_kernels_portable.decimal_to(&x, 1, codec_powers[exponent]);
        bits = x;
    }
    if (r->failed)
        return false;
    for (size_t i = 0; i < n; i++)
        out[i] = bits;
    return true;
}

static bool exceptions_read(struct byte_reader *r, size_t n, codec_word *out)
{
    unsigned form = reader_u8(r);
    uint64_t count = reader_varint(r), position = 0;
    struct byte_reader positions = *r;
    uint64_t bits = CODEC_STALE_BITS;

    if (r->failed || form > CODEC_EXCEPTIONS_STALE || count > n)
        return false;
    /* The values stand behind all positions. */
    for (uint64_t i = 0; i < count; i++)
        (void)reader_varint(r); /* read again below */
    if (form == CODEC_EXCEPTIONS_SAME)
        bits = reader_le64(r);
    for (uint64_t i = 0; i < count; i++) {
        uint64_t gap = reader_varint(&positions);

        if (form == CODEC_EXCEPTIONS_OWN)
            bits = reader_le64(r);
        if (r->failed || gap >= n - position)
            return false;
        position += gap;
        out[position] = bits;
    }
    return true;
}

static bool decimal_read(struct byte_reader *r, unsigned exponent, bool is_patched, size_t n,
                         codec_word *out)
{
    if (exponent > CODEC_EXPONENT_MAX || !codec_ints_read(r, n, out))
        return false;
    codec_kernels_get()->decimal_to(out, n, codec_powers[exponent]);
    return !is_patched || exceptions_read(r, n, out);
}

static bool dictionary_read(struct byte_reader *r, size_t n, codec_word *out)
{
    uint64_t keys[CODEC_DICTIONARY_MAX], largest = 0;
    size_t count = reader_u8(r), left;
    const uint8_t *packed;
    unsigned width;

    if (count == 0 || count > CODEC_DICTIONARY_MAX)
        return false;
    for (size_t i = 0; i < count; i++)
        keys[i] = reader_le64(r);
    width = codec_log2_ceiling(count);
    left = reader_left(r);
    packed = reader_take(r, codec_packed_size(n, width));
    if (packed == NULL)
        return false;
    codec_kernels_get()->unpack(packed, left, n, 0, 0, width, out);
    for (size_t i = 0; i < n; i++)
        largest = out[i] > largest ? out[i] : largest;
    if (largest >= count)
        return false;
    for (size_t i = 0; i < n; i++)
        out[i] = keys[out[i]];
    return true;
}

static bool split_read(struct byte_reader *r, size_t n, codec_word *out)
{
    const struct codec_kernels *k = codec_kernels_get();
    unsigned low_bits = reader_u8(r), shift = reader_u8(r), low_width = reader_u8(r);
    size_t count = reader_u8(r), left;
    unsigned width;
    uint64_t highs[CODEC_DICTIONARY_MAX];
    codec_word indexes[SPLIT_BLOCK];
    const uint8_t *packed, *low;

    if (r->failed || low_bits < CODEC_SPLIT_LOW_MIN || low_bits > CODEC_SPLIT_LOW_MAX ||
        shift + low_width > low_bits || count == 0 || count > CODEC_DICTIONARY_MAX)
        return false;
    for (size_t i = 0; i < count; i++)
        highs[i] = (uint64_t)reader_le16(r) << low_bits;
    width = codec_log2_ceiling(count);
    left = reader_left(r);
    packed = reader_take(r, codec_packed_size(n, width));
    low = reader_take(r, codec_packed_size(n, low_width));
    if (low == NULL)
        return false;
    k->unpack(low, codec_packed_size(n, low_width), n, 0, shift, low_width, out);
    for (size_t at = 0; at < n; at += SPLIT_BLOCK) {
        size_t here = n - at < SPLIT_BLOCK ? n - at : SPLIT_BLOCK, offset = at / 8 * width;

        k->unpack(packed + offset, left - offset, here, 0, 0, width, indexes);
        for (size_t i = 0; i < here; i++) {
            if (indexes[i] >= count)
                return false;
            out[at + i] |= highs[indexes[i]];
        }
    }
    return true;
}

static bool raw_read(struct byte_reader *r, size_t n, codec_word *out)
{
    const uint8_t *data = reader_take(r, n * sizeof *out);

    if (data == NULL)
        return false;
    memcpy(out, data, n * sizeof *out);
    return true;
}

static bool flat_read(struct byte_reader *r, size_t n, codec_word *out)
{
    unsigned first = reader_u8(r), exponent = first >> CODEC_EXPONENT_BIT;

    switch (first & CODEC_KIND_MASK) {
    case CODEC_CONSTANT:
        return constant_read(r, exponent, n, out);
    case CODEC_DECIMAL:
        return decimal_read(r, exponent, false, n, out);
    case CODEC_DECIMAL_PATCHED:
        return decimal_read(r, exponent, true, n, out);
    default:
        break;
    }
    if (exponent != 0)
        return false;
    switch (first) {
    case CODEC_RAW:
        return raw_read(r, n, out);
    case CODEC_BITS:
        return codec_ints_read(r, n, out);
    case CODEC_DICTIONARY:
        return dictionary_read(r, n, out);
    case CODEC_SPLIT:
        return split_read(r, n, out);
    default:
        return false;
    }
}

/* The runs' values are decoded to the beginning of `out` and spread from the end backwards: a run
 * never starts before its own number, so nothing is overwritten too early. */
static bool runs_list_read(struct byte_reader *r, size_t n, codec_word *out)
{
    uint64_t count = reader_varint(r), start = 0;
    uint16_t starts[CODEC_SAMPLES_MAX];
    size_t end = n;

    if (r->failed || count == 0 || count >= n)
        return false;
    for (size_t i = 0; i < count; i++) {
        uint64_t gap = reader_varint(r);

        if (gap == 0 || gap >= n - start)
            return false;
        start += gap;
        starts[i] = (uint16_t)start;
    }
    if (r->failed || !flat_read(r, count + 1, out))
        return false;
    for (size_t run = count; run > 0; run--) {
        uint64_t bits = out[run];

        for (size_t i = starts[run - 1]; i < end; i++)
            out[i] = bits;
        end = starts[run - 1];
    }
    for (size_t i = 1; i < end; i++)
        out[i] = out[0];
    return true;
}

static size_t count_bits(const uint8_t *data, size_t size)
{
    size_t count = 0;

    for (size_t i = 0; i < size; i++)
        count += (size_t)__builtin_popcount(data[i]);
    return count;
}

static bool runs_bitmap_read(struct byte_reader *r, size_t n, codec_word *out)
{
    size_t bit_count = n - 1, size = (bit_count + 7) / 8, run;
    const uint8_t *bitmap = reader_take(r, size);

    if (bitmap == NULL || size == 0)
        return false;
    if (bit_count % 8 != 0 && bitmap[size - 1] >> bit_count % 8 != 0)
        return false;
    run = count_bits(bitmap, size);
    if (!flat_read(r, run + 1, out))
        return false;
    for (size_t bit = bit_count; bit-- > 0;) {
        out[bit + 1] = out[run];
        run -= bitmap[bit / 8] >> bit % 8 & 1;
    }
    return true;
}

bool codec_values_decode(const uint8_t *data, size_t size, size_t n, double *out)
{
    struct byte_reader r = reader_init(data, size);
    codec_word *words = (codec_word *)out;
    bool good;

    if (size == 0 || n == 0 || n > CODEC_SAMPLES_MAX)
        return false;
    switch (data[0]) {
    case CODEC_RUNS_LIST:
        r.pos++;
        good = runs_list_read(&r, n, words);
        break;
    case CODEC_RUNS_BITMAP:
        r.pos++;
        good = runs_bitmap_read(&r, n, words);
        break;
    default:
        good = flat_read(&r, n, words);
    }
    return good && !r.failed && reader_left(&r) == 0;
}
