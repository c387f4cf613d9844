/*
 * The inner loops built for AVX2: CMake compiles this file with -mavx2 -mfma, and only
 * codec_kernels.c chooses it, where the CPU has both. Nothing else may live here.
 */
#if defined(__x86_64__)
#include "engine/codec/codec_kernels_body_internal.h"

#if !defined(__AVX2__) || !defined(__FMA__)
#error "this file must be compiled with -mavx2 -mfma"
#endif

const struct codec_kernels codec_kernels_avx2 = CODEC_KERNELS;
#endif
