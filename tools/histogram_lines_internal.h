/*
 * Native histograms as lines of JSON, for which OpenMetrics text has no form. Lossless: layout,
 * hint and start timestamp stand there as they are stored, and each number reads back as the same
 * double. The form is described in docs/operations.md.
 */
#ifndef RIMSTONE_TOOLS_HISTOGRAM_LINES_INTERNAL_H
#define RIMSTONE_TOOLS_HISTOGRAM_LINES_INTERNAL_H

#include <stdint.h>

#include "base/bytes.h"
#include "engine/histogram.h"
#include "engine/labels.h"

/* What every line of a series begins with. */
void histogram_line_series(struct byte_writer *w, const struct labels *labels);
/* The rest of the line, its end included. */
void histogram_line_sample(struct byte_writer *w, int64_t t_ms, const struct histogram *h);

#endif
