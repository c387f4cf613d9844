/*
 * Columns of native histograms: | count le16 | the column |. Decoding must not step outside; what
 * it accepts must hold together and survive encoding and decoding.
 */
#include <stdint.h>
#include <stdlib.h>

#include "base/assert.h"
#include "base/bytes.h"
#include "engine/codec_histogram.h"
#include "tests/engine/histogram_kit.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size); /* NOLINT: libFuzzer's name */

enum { MEMORY_MAX = 64 << 20 };

static void round_trip(const struct histogram *h, size_t n, struct arena *arena)
{
    struct codec_scratch *s = malloc(sizeof *s);
    struct histogram *got = malloc((n + 1) * sizeof *got);
    struct byte_writer w;
    enum err e;

    ASSERT(s != NULL && got != NULL);
    writer_init(&w);
    e = codec_histograms_encode(h, n, s, arena, &w);
    if (e == ERR_OK)
        e = codec_histograms_decode(w.data, w.size, n, arena, got);
    ASSERT(e == ERR_OK || e == ERR_LIMIT);
    for (size_t i = 0; e == ERR_OK && i < n; i++)
        ASSERT(histogram_same_bits(&h[i], &got[i]));
    writer_done(&w);
    free(s);
    free(got);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct byte_reader r = reader_init(data, size);
    size_t n = reader_le16(&r) % (CODEC_SAMPLES_MAX + 2);
    struct histogram *h = malloc((n + 1) * sizeof *h);
    struct budget budget;
    struct arena arena;

    ASSERT(h != NULL);
    budget_init(&budget, "fuzz", MEMORY_MAX, NULL);
    arena_init(&arena, &budget);
    if (!r.failed && codec_histograms_decode(r.pos, reader_left(&r), n, &arena, h) == ERR_OK) {
        for (size_t i = 0; i < n; i++)
            ASSERT(histogram_check_layout(&h[i], NULL) == ERR_OK);
        round_trip(h, n, &arena);
    }
    arena_done(&arena);
    free(h);
    return 0;
}
