/*
 * Every clock of the product passes through here, so that tests can move time by hand.
 */
#ifndef RIMSTONE_BASE_CLOCK_H
#define RIMSTONE_BASE_CLOCK_H

#include <stdatomic.h>
#include <stdint.h>

struct clock {
    /* Milliseconds since the Unix epoch when fake (relaxed: a lone value), INT64_MIN: the real
     * clock. */
    _Atomic int64_t fake_now_ms;
};

void clock_init_real(struct clock *c);
void clock_init_fake(struct clock *c, int64_t now_ms);
void clock_set_fake(struct clock *c, int64_t now_ms);
int64_t clock_now_ms(const struct clock *c);
/* Monotonic nanoseconds, always the real clock: for durations and deadlines. */
uint64_t clock_mono_ns(void);
/* CPU nanoseconds of this process and of this thread. */
uint64_t clock_process_cpu_ns(void);
uint64_t clock_thread_cpu_ns(void);

#endif
