/*
 * Where the samples of a series are cut into chunks: at fixed fractions of the window, so that
 * series of one target share timestamp columns whenever they began.
 */
#include "engine/part.h"

enum { BASE_SAMPLES = 480, TARGET_MAX = 3840, HALVINGS_MAX = 63 };

uint32_t part_chunk_target(uint64_t window_size_ms)
{
    static const uint64_t base_ms = UINT64_C(2) * 3600 * 1000;
    uint64_t times = window_size_ms / base_ms;

    if (times > TARGET_MAX / BASE_SAMPLES)
        times = TARGET_MAX / BASE_SAMPLES;
    return times > 1 ? BASE_SAMPLES * (uint32_t)times : BASE_SAMPLES;
}

struct part_cuts part_cuts_choose(int64_t window_first_ms, int64_t window_last_ms,
                                  uint32_t target_samples, uint64_t sample_count, int64_t first_ms,
                                  int64_t last_ms)
{
    uint64_t window_ms = (uint64_t)window_last_ms - (uint64_t)window_first_ms, span = window_ms;
    unsigned halvings = 0;

    if (sample_count > target_samples && last_ms > first_ms) {
        double expected = (double)window_ms * (double)(sample_count - 1) /
                          (double)((uint64_t)last_ms - (uint64_t)first_ms);

        /* A few more are tolerated: jitter must not halve the chunks. */
        while (expected > target_samples + target_samples / 16.0 && halvings < HALVINGS_MAX) {
            expected /= 2;
            halvings++;
        }
        /* window_ms is one short of the size: with it added, spans never lack a moment. */
        span = window_ms >> halvings;
    }
    return (struct part_cuts){window_first_ms, window_last_ms,
                              span == UINT64_MAX ? span : span + 1};
}

uint64_t part_cuts_number(const struct part_cuts *c, int64_t t_ms)
{
    return ((uint64_t)t_ms - (uint64_t)c->first_ms) / c->span_ms;
}

int64_t part_cuts_end(const struct part_cuts *c, int64_t t_ms)
{
    uint64_t begin = part_cuts_number(c, t_ms) * c->span_ms;
    uint64_t left = (uint64_t)c->last_ms - (uint64_t)c->first_ms - begin;

    if (left < c->span_ms)
        return c->last_ms;
    return (int64_t)((uint64_t)c->first_ms + begin + (c->span_ms - 1));
}
