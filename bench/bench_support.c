#include "bench/bench_support.h"

#include <errno.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static _Noreturn void quit(int code)
{
    exit(code); /* NOLINT(concurrency-mt-unsafe): nothing else calls exit */
}

_Noreturn void bench_fail(const char *what, const struct errinfo *ei)
{
    bool has_story = ei != NULL && ei->message[0] != '\0';

    (void)fflush(stdout);
    (void)fprintf(stderr, "%s: %s%s%s\n", program_invocation_short_name, what,
                  has_story ? ": " : "", has_story ? ei->message : "");
    quit(1);
}

void bench_check(enum err e, const struct errinfo *ei)
{
    if (e != ERR_OK)
        bench_fail(err_name(e), ei);
}

void bench_figure(const char *name, double value, const char *unit, const char *note)
{
    (void)printf("%-44s %14.3f %-18s%s%s\n", name, value, unit, note[0] != '\0' ? "# " : "", note);
    (void)fflush(stdout);
}

/* ---- arguments and environment ---- */

static _Noreturn void refuse(const struct bench_args *a, int index)
{
    (void)fprintf(stderr, "%s: argument '%s' is not understood\n%s", program_invocation_short_name,
                  a->items[index], a->usage);
    quit(2);
}

static _Noreturn void refuse_env(const char *name, const char *text)
{
    (void)fprintf(stderr, "%s: %s='%s' is not understood\n", program_invocation_short_name, name,
                  text);
    quit(2);
}

static const char *env_get(const char *name)
{
    return getenv(name); /* NOLINT(concurrency-mt-unsafe): nobody writes the environment */
}

/* Digits and nothing else: strtoul() would also take a sign and spaces in front. */
static bool parse_number(const char *text, uint32_t *out)
{
    uint64_t n = 0;

    if (*text == '\0')
        return false;
    for (const char *p = text; *p != '\0'; p++) {
        if (*p < '0' || *p > '9')
            return false;
        n = n * 10 + (uint64_t)(*p - '0');
        if (n > UINT32_MAX)
            return false;
    }
    *out = (uint32_t)n;
    return true;
}

void bench_args_init(struct bench_args *a, int argc, char **argv, int count_max, const char *usage)
{
    *a = (struct bench_args){.usage = usage, .items = argv + 1, .count = argc - 1};
    for (int i = 0; i < a->count; i++) {
        if (strcmp(a->items[i], "--help") == 0 || strcmp(a->items[i], "-h") == 0) {
            (void)fputs(usage, stdout);
            quit(0);
        }
    }
    for (int i = 0; i < a->count; i++) {
        if (i >= count_max || a->items[i][0] == '-')
            refuse(a, i);
    }
}

uint32_t bench_args_number(const struct bench_args *a, int index, uint32_t fallback)
{
    uint32_t n;

    if (index >= a->count)
        return fallback;
    if (!parse_number(a->items[index], &n) || n == 0)
        refuse(a, index);
    return n;
}

bool bench_args_is_second(const struct bench_args *a, int index, const char *first,
                          const char *second)
{
    bool is_second;

    if (index >= a->count)
        return false;
    is_second = strcmp(a->items[index], second) == 0;
    if (!is_second && strcmp(a->items[index], first) != 0)
        refuse(a, index);
    return is_second;
}

uint32_t bench_env_number(const char *name, uint32_t fallback, uint32_t min)
{
    const char *text = env_get(name);
    uint32_t n;

    if (text == NULL)
        return fallback;
    if (!parse_number(text, &n) || n < min)
        refuse_env(name, text);
    return n;
}

bool bench_env_is_second(const char *name, const char *first, const char *second)
{
    const char *text = env_get(name);
    bool is_second;

    if (text == NULL)
        return false;
    is_second = strcmp(text, second) == 0;
    if (!is_second && strcmp(text, first) != 0)
        refuse_env(name, text);
    return is_second;
}

/* ---- directories ---- */

void bench_dir_open(struct bench_dir *dir, enum fs_io io)
{
    const char *base = env_get("BENCH_DIR");
    struct errinfo ei = {0};
    int size;

    if (base == NULL)
        base = env_get("TMPDIR");
    size = snprintf(dir->path, sizeof dir->path, "%s/rimstone-bench-XXXXXX",
                    base != NULL ? base : "/tmp");
    if (size < 0 || (size_t)size >= sizeof dir->path)
        bench_fail("the path of the temporary directory is too long", NULL);
    if (mkdtemp(dir->path) == NULL) { /* allow(mkdtemp): the benchmark's own directory */
        (void)errinfo_set(&ei, err_from_errno(errno), errno, "create %s", dir->path);
        bench_fail("temporary directory", &ei);
    }
    if (fs_open(dir->path, io, &dir->fs, &ei) != ERR_OK)
        bench_fail("open directory", &ei);
}

static int remove_entry(const char *path, const struct stat *status, int type, struct FTW *place)
{
    (void)status;
    (void)type;
    (void)place;
    return remove(path); /* allow(remove): below the benchmark's own directory */
}

void bench_dir_close(struct bench_dir *dir)
{
    enum { DESCRIPTORS_MAX = 16 };

    fs_free(dir->fs);
    /* FTW_DEPTH: a directory after what is in it. FTW_PHYS: links are removed, not followed.
     * NOLINTNEXTLINE(concurrency-mt-unsafe): no other thread uses the directory */
    if (nftw(dir->path, remove_entry, DESCRIPTORS_MAX, FTW_DEPTH | FTW_PHYS) != 0)
        (void)fprintf(stderr, "%s: %s is left behind\n", program_invocation_short_name, dir->path);
}
