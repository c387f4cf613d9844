/*
 * The codecs of columns. The first byte chooses what the rest is:
 *   0, 1   a value or timestamp column of the two bytes' count that follow: decoding it must not
 *          step outside, and what it accepts must survive encoding and decoding
 *   2, 3   values or timestamps, 8 bytes each: they must come back bit for bit
 */
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/bytes.h"
#include "engine/codec.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size); /* NOLINT: libFuzzer's name */

struct work {
    struct codec_scratch scratch;
    uint8_t bytes[8 * CODEC_SAMPLES_MAX + CODEC_BOUND_SLACK];
};

static void values_round_trip(struct work *w, const double *v, size_t n)
{
    size_t size = codec_values_encode(v, n, &w->scratch, w->bytes);
    double *got = malloc(n * sizeof *got);

    ASSERT(got != NULL && size <= 8 * n + 1);
    ASSERT(codec_values_decode(w->bytes, size, n, got));
    ASSERT(memcmp(got, v, n * sizeof *v) == 0);
    free(got);
}

static void times_round_trip(struct work *w, const int64_t *t, size_t n)
{
    size_t size = codec_times_encode(t, n, &w->scratch, w->bytes);
    int64_t *got = malloc(n * sizeof *got);

    ASSERT(got != NULL && size <= codec_bound(n));
    ASSERT(codec_times_decode(w->bytes, size, n, got));
    ASSERT(memcmp(got, t, n * sizeof *t) == 0);
    free(got);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct byte_reader r = reader_init(data, size);
    unsigned what = reader_u8(&r) & 3;
    bool is_encoded = what < 2, is_times = what % 2 != 0;
    size_t n = is_encoded ? reader_le16(&r) % (CODEC_SAMPLES_MAX + 2) : reader_left(&r) / 8;
    struct work *w;
    uint64_t *words; /* exactly n, so that a sanitizer sees the first one too many */

    if (r.failed || n == 0 || (!is_encoded && n > CODEC_SAMPLES_MAX))
        return 0;
    w = malloc(sizeof *w);
    words = malloc(n * sizeof *words);
    ASSERT(w != NULL && words != NULL);
    if (!is_encoded)
        memcpy(words, r.pos, n * sizeof *words);
    if (is_times) {
        if (!is_encoded || codec_times_decode(r.pos, reader_left(&r), n, (int64_t *)words))
            times_round_trip(w, (const int64_t *)words, n);
    } else {
        double *v = malloc(n * sizeof *v);

        ASSERT(v != NULL);
        memcpy(v, words, n * sizeof *v * !is_encoded);
        if (!is_encoded || codec_values_decode(r.pos, reader_left(&r), n, v))
            values_round_trip(w, v, n);
        free(v);
    }
    free(words);
    free(w);
    return 0;
}
