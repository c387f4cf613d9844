/*
 * Series as OpenMetrics text: `name{label="value"} value timestamp`. Names that are no identifiers
 * of Prometheus are quoted as its UTF-8 syntax says: {"my.name","label.two"="value"}. There are no
 * `# TYPE` lines, so every family is of unknown type and its name is taken as it is.
 */
#ifndef RIMSTONE_TOOLS_OPENMETRICS_INTERNAL_H
#define RIMSTONE_TOOLS_OPENMETRICS_INTERNAL_H

#include <stdbool.h>
#include <stdint.h>

#include "base/bytes.h"
#include "engine/labels.h"

/* What every sample line of the series begins with. False when it has no metric name: the text has
 * no form for it. */
bool openmetrics_write_series(struct byte_writer *w, const struct labels *labels);
/*
 * The rest of a line: ` <value> <seconds>\n`. Values are the shortest text that gives back the same
 * double; all NaNs are "NaN". Times read back as the same millisecond, also by readers that
 * multiply the double by 1,000 and cut off the rest, as Prometheus does.
 */
void openmetrics_write_sample(struct byte_writer *w, int64_t t_ms, double value);

#endif
