/*
 * Single native histograms as bytes, as they stand in log records and in memory before a seal. Such
 * a form is written and read sample by sample, without the state that codec_histogram.h's columns
 * need. Format: docs/formats/log-records.md, "Histograms".
 *
 * Each form says where it ends. All functions are pure; any thread may call them.
 */
#ifndef RIMSTONE_ENGINE_HISTOGRAM_HISTOGRAM_PACK_INTERNAL_H
#define RIMSTONE_ENGINE_HISTOGRAM_HISTOGRAM_PACK_INTERNAL_H

#include "base/arena.h"
#include "base/bytes.h"
#include "base/err.h"
#include "engine/histogram.h"

/* Bytes that histogram_pack() may need. */
size_t histogram_pack_size_max(const struct histogram *h);

/*
 * Writes h, which passes histogram_check_layout(), at `out`; returns its size. Every bit is kept,
 * the hint and empty spans too. With `before`, the histogram in front of it, an equal layout is not
 * written again, and only differences of the counts are; NULL: the form stands by itself.
 */
size_t histogram_pack(uint8_t *out, const struct histogram *h, const struct histogram *before);

/*
 * Reads one form. What it needs of arrays lies in `arena`; spans and custom values are those of
 * `before` where the layout is the same. ERR_CORRUPT when the bytes are none (also a form that
 * needs `before` without it), ERR_LIMIT or ERR_NOMEM from the arena. Nothing is allocated by a
 * number that the bytes left do not bear out.
 */
MUST_USE enum err histogram_unpack(struct byte_reader *in, const struct histogram *before,
                                   struct arena *arena, struct histogram *out);

/* Makes the hint of a form what it is behind a sample of another source. */
void histogram_packed_forget_hint(uint8_t *packed);

/*
 * What stands for a histogram where a float has its bits (series.newest_bits, look-ups of repeats):
 * STALE_NAN_BITS for a staleness marker, the value's bits for what is a float with a start
 * timestamp, else a negative quiet NaN with 51 bits of a hash of all but the hint. Histograms with
 * the same bits are taken for equal. `packed` is a form that stands by itself. Kept in series
 * files: the hash and the form stay as they are.
 */
uint64_t histogram_packed_bits(struct bytes packed);
/* The same of the value; false when memory is refused. */
MUST_USE bool histogram_value_bits(const struct histogram *h, uint64_t *out);

#endif
