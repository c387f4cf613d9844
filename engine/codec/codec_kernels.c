/*
 * The portable build of the inner loops, and the choice between the builds.
 */
#include "engine/codec/codec_kernels_body_internal.h"

const struct codec_kernels codec_kernels_portable = CODEC_KERNELS;

/* Set by codec_dispatch() before main() and constant from then on. */
static const struct codec_kernels *chosen;

__attribute__((constructor(101))) static void codec_dispatch(void)
{
    chosen = &codec_kernels_portable;
#if defined(__x86_64__)
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
        chosen = &codec_kernels_avx2;
#endif
}

const struct codec_kernels *codec_kernels_get(void)
{
    return chosen;
}
