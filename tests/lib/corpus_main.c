/*
 * Runs a fuzz target's corpus as a plain test, without libFuzzer: every file of the directories
 * given as arguments, each in a buffer of exactly its size so that a sanitizer sees the first byte
 * read past the end, and the empty input always.
 */
#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size); /* NOLINT: libFuzzer's name */

static void die(const char *path)
{
    fprintf(stderr, "%s: %s\n", path, strerror(errno)); /* NOLINT(concurrency-mt-unsafe) */
    exit(1);                                            /* NOLINT(concurrency-mt-unsafe) */
}

static void run_file(const char *path)
{
    struct stat st;
    FILE *f = fopen(path, "rb");
    uint8_t *data = NULL;
    size_t size = 0;

    if (f == NULL || fstat(fileno(f), &st) != 0)
        die(path);
    size = (size_t)st.st_size;
    data = malloc(size != 0 ? size : 1);
    if (data == NULL || fread(data, 1, size, f) != size)
        die(path);
    (void)fclose(f); /* read only: nothing to lose */
    printf("%s (%zu bytes)\n", path, size);
    (void)fflush(stdout);                     /* so that a crash leaves the file's name behind */
    (void)LLVMFuzzerTestOneInput(data, size); /* always 0 */
    free(data);
}

static unsigned run_directory(const char *dir)
{
    unsigned count = 0;
    struct dirent *entry = NULL;
    char path[PATH_MAX];
    DIR *d = opendir(dir);

    if (d == NULL)
        die(dir);
    while ((entry = readdir(d)) != NULL) { /* NOLINT(concurrency-mt-unsafe): one thread */
        if (entry->d_name[0] == '.')
            continue;
        if (snprintf(path, sizeof path, "%s/%s", dir, entry->d_name) >= (int)sizeof path) {
            errno = ENAMETOOLONG;
            die(dir);
        }
        run_file(path);
        count++;
    }
    (void)closedir(d); /* read only: nothing to lose */
    return count;
}

int main(int argc, char **argv)
{
    unsigned count = 0;
    const uint8_t nothing = 0;

    (void)LLVMFuzzerTestOneInput(&nothing, 0); /* always 0 */
    for (int i = 1; i < argc; i++)
        count += run_directory(argv[i]);
    printf("%u inputs\n", count);
    if (count == 0) {
        fprintf(stderr, "an empty corpus tests nothing\n");
        return 1;
    }
    return 0;
}
