/*
 * What every benchmark program needs around its measurement: arguments and environment, a directory
 * of its own, figures, and one way to give up. Whatever goes wrong ends the program, with 1 for a
 * failure and 2 for a wrong argument: a benchmark has nobody to hand an error to. One thread.
 */
#ifndef RIMSTONE_BENCH_SUPPORT_H
#define RIMSTONE_BENCH_SUPPORT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "base/file.h"

/* Prints the program, `what` and the story of `ei` (NULL, or without an error: none); exits 1. */
_Noreturn void bench_fail(const char *what, const struct errinfo *ei);
/* bench_fail() with the code's name, unless `e` is ERR_OK. */
void bench_check(enum err e, const struct errinfo *ei);

/* One figure a line: name, value, unit, and the budget or remark `note` behind a #; "" for none. */
void bench_figure(const char *name, double value, const char *unit, const char *note);

/* The arguments behind the program's name; all are words or numbers told apart by their place. */
struct bench_args {
    const char *usage; /* borrowed */
    char **items;      /* borrowed from main() */
    int count;
};

/*
 * Looks at the arguments before any work starts. `usage` is what --help prints (exit 0): whole
 * lines. More than `count_max` arguments, or one that starts with '-', exits 2 with the usage.
 */
void bench_args_init(struct bench_args *a, int argc, char **argv, int count_max, const char *usage);
/* The argument at `index` as a decimal number from 1 to UINT32_MAX, or `fallback` when left out.
 * Anything else exits 2. */
uint32_t bench_args_number(const struct bench_args *a, int index, uint32_t fallback);
/* Whether the argument at `index` is `second`; false for `first` and when left out. Any other word
 * exits 2. */
bool bench_args_is_second(const struct bench_args *a, int index, const char *first,
                          const char *second);

/* A variable of the environment as a decimal number from `min` to UINT32_MAX, or `fallback` when
 * unset. Anything else exits 2. */
uint32_t bench_env_number(const char *name, uint32_t fallback, uint32_t min);
/* Whether the variable is `second`; false for `first` and when unset. Any other word exits 2. */
bool bench_env_is_second(const char *name, const char *first, const char *second);

/* A new directory below BENCH_DIR, else TMPDIR, else /tmp, and the file layer on it. */
struct bench_dir {
    char path[4096];
    struct fs *fs; /* owned */
};
void bench_dir_open(struct bench_dir *dir, enum fs_io io);
/* Removes it with all that is in it, whose files must be closed; says so when something stays. */
void bench_dir_close(struct bench_dir *dir);

/* splitmix64: the same numbers on every machine; all of 64 bits, or in [0, 1). */
static inline uint64_t bench_random(uint64_t *state)
{
    uint64_t z = (*state += UINT64_C(0x9e3779b97f4a7c15));

    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}
static inline double bench_random_unit(uint64_t *state)
{
    return (double)(bench_random(state) >> 11) * 0x1p-53;
}

#endif
