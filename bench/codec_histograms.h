/* The part of bench_codec about columns of native histograms. */
#ifndef RIMSTONE_BENCH_CODEC_HISTOGRAMS_H
#define RIMSTONE_BENCH_CODEC_HISTOGRAMS_H

/* Prints bits per sample and per bucket, and the CPU cost of encoding and decoding. */
void codec_histograms_report(void);

#endif
