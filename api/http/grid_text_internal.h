/*
 * The floats of matrix rows as JSON. All rows of an answer stand on one grid, so the text of each
 * time is made once for all of them, and a value that repeats its neighbour's bits repeats its
 * text.
 */
#ifndef RIMSTONE_API_HTTP_GRID_TEXT_INTERNAL_H
#define RIMSTONE_API_HTTP_GRID_TEXT_INTERNAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/bytes.h"
#include "promql/promql.h"

/* What stands in front of the value of a step: `,[<time>,"`. */
enum { GRID_TIME_SIZE = 32 };
struct grid_time {
    char text[GRID_TIME_SIZE - 1];
    uint8_t size;
};

/* The texts of `count` steps, in the arena; NULL without memory. */
const struct grid_time *grid_times_new(struct arena *arena, int64_t start_ms, int64_t step_ms,
                                       size_t count);

/*
 * Writes the points of a row without histograms from step `first` on, a comma between them and in
 * front of the first one if *any. Ends at `count`, or once the writer holds `size_max` bytes;
 * returns the step to go on with. Sets *any when it has written one.
 */
size_t grid_points_write(struct byte_writer *w, const struct grid_time *times,
                         const struct result_series *s, size_t first, size_t count, size_t size_max,
                         bool *any);

#endif
