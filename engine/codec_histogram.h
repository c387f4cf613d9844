/*
 * Codec of a chunk's column of native histograms in sealed files and parts, bit for bit. Like
 * codec.h a pure library without state; memory comes from the caller's arenas. Format:
 * docs/formats/chunk-codecs.md; how it chooses: engine/codec/README.md.
 *
 * A column does not hold its own length or sample count, nor a checksum: the chunk index does.
 */
#ifndef RIMSTONE_ENGINE_CODEC_HISTOGRAM_H
#define RIMSTONE_ENGINE_CODEC_HISTOGRAM_H

#include "base/arena.h"
#include "base/bytes.h"
#include "base/err.h"
#include "engine/codec.h"
#include "engine/histogram.h"

enum { CODEC_HISTOGRAM_VERSION = 1 };

/*
 * Appends the column of h[0..n), n from 1 to CODEC_SAMPLES_MAX, to `w`; each must pass
 * histogram_check_layout(). The same histograms always give the same bytes. `temp` gets back what
 * it lends. ERR_LIMIT or ERR_NOMEM; what `w` then holds is undefined.
 */
MUST_USE enum err codec_histograms_encode(const struct histogram *h, size_t n,
                                          struct codec_scratch *s, struct arena *temp,
                                          struct byte_writer *w);

/*
 * Fills out[0..n) from a column of exactly `size` bytes. Spans, bounds and buckets live in `arena`;
 * histograms of one layout share the former two. ERR_CORRUPT when the bytes are no such column;
 * out[0..n) is then undefined. A few bytes can stand for n times as many buckets, all equal: an
 * arena with a budget refuses with ERR_LIMIT what is too much.
 */
MUST_USE enum err codec_histograms_decode(const uint8_t *data, size_t size, size_t n,
                                          struct arena *arena, struct histogram *out);

#endif
