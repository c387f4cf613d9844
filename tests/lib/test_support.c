#include "tests/lib/test_support.h"

#include <ftw.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The newest seed of this process, for failure messages only. */
static _Atomic uint64_t last_seed;

struct test_random test_random_init(uint64_t seed)
{
    const char *from_env = getenv("TEST_SEED"); /* NOLINT(concurrency-mt-unsafe): nobody writes */

    if (from_env != NULL)
        seed = strtoull(from_env, NULL, 0);
    last_seed = seed;
    return (struct test_random){seed, seed};
}

uint64_t test_random_u64(struct test_random *r)
{
    uint64_t z = (r->state += 0x9e3779b97f4a7c15U);

    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9U;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebU;
    return z ^ (z >> 31);
}

uint64_t test_random_below(struct test_random *r, uint64_t bound)
{
    return (uint64_t)(((unsigned __int128)test_random_u64(r) * bound) >> 64);
}

uint64_t test_random_wide(struct test_random *r, unsigned shift_bound)
{
    uint64_t v = test_random_u64(r);

    return v >> test_random_below(r, shift_bound);
}

double test_random_unit(struct test_random *r)
{
    return (double)(test_random_u64(r) >> 11) * 0x1p-53;
}

void test_check_failed(const char *file, int line, const char *expression, const char *format, ...)
{
    va_list args;

    fprintf(stderr, "%s:%d: CHECK(%s) failed ", file, line, expression);
    va_start(args, format);
    vfprintf(stderr, format, args);
    va_end(args);
    fprintf(stderr, "\nreplay with TEST_SEED=%" PRIu64 "\n", last_seed);
    abort();
}

char *test_dir_new(void)
{
    const char *base = getenv("TMPDIR"); /* NOLINT(concurrency-mt-unsafe): nobody writes */
    char *path = NULL;

    if (asprintf(&path, "%s/rimstone-test-XXXXXX", base != NULL ? base : "/tmp") < 0 ||
        mkdtemp(path) == NULL)
        abort();
    return path;
}

static int remove_entry(const char *path, const struct stat *st, int flag, struct FTW *ftw)
{
    (void)st;
    (void)flag;
    (void)ftw;
    return remove(path);
}

void test_dir_remove(char *dir)
{
    /* NOLINTNEXTLINE(concurrency-mt-unsafe): safe without FTW_CHDIR */
    (void)nftw(dir, remove_entry, 16, FTW_DEPTH | FTW_PHYS); /* best effort: it is in /tmp */
    free(dir);
}
