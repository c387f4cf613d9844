#include "base/clock.h"

#include <time.h>

#include "base/assert.h"

static uint64_t read_ns(clockid_t id)
{
    struct timespec ts;

    int rc = clock_gettime(id, &ts);
    ASSERT(rc == 0); /* these clocks exist on every Linux */
    return (uint64_t)ts.tv_sec * UINT64_C(1000000000) + (uint64_t)ts.tv_nsec;
}

void clock_init_real(struct clock *c)
{
    atomic_init(&c->fake_now_ms, INT64_MIN);
}

void clock_init_fake(struct clock *c, int64_t now_ms)
{
    ASSERT(now_ms != INT64_MIN);
    atomic_init(&c->fake_now_ms, now_ms);
}

void clock_set_fake(struct clock *c, int64_t now_ms)
{
    ASSERT(now_ms != INT64_MIN);
    atomic_store_explicit(&c->fake_now_ms, now_ms, memory_order_relaxed);
}

int64_t clock_now_ms(const struct clock *c)
{
    int64_t fake_ms = atomic_load_explicit(&c->fake_now_ms, memory_order_relaxed);

    return fake_ms != INT64_MIN ? fake_ms : (int64_t)(read_ns(CLOCK_REALTIME) / 1000000);
}

uint64_t clock_mono_ns(void)
{
    return read_ns(CLOCK_MONOTONIC);
}

uint64_t clock_process_cpu_ns(void)
{
    return read_ns(CLOCK_PROCESS_CPUTIME_ID);
}

uint64_t clock_thread_cpu_ns(void)
{
    return read_ns(CLOCK_THREAD_CPUTIME_ID);
}
