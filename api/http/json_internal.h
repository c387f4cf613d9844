/*
 * JSON text as Prometheus's HTTP API writes it.
 */
#ifndef RIMSTONE_API_HTTP_JSON_INTERNAL_H
#define RIMSTONE_API_HTTP_JSON_INTERNAL_H

#include <stdint.h>

#include "base/bytes.h"
#include "base/json.h"
#include "engine/labels.h"

/* {"name":"value",...} */
void json_write_labels(struct byte_writer *w, const struct labels *l);
/* [<time>,"<value>"] as of samples (all decimals of the time or none, the value in 'f' or 'e'
 * form), or as of scalars (no needless decimals, 'f' form). */
void json_write_point(struct byte_writer *w, int64_t t_ms, double value);
void json_write_point_f(struct byte_writer *w, int64_t t_ms, double value);

#endif
