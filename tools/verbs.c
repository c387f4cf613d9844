/*
 * See verbs_internal.h.
 */
#include "tools/verbs_internal.h"

#include <stdio.h>
#include <string.h>

static void usage(const char *program, const struct verb *verbs, size_t count, FILE *f)
{
    size_t width = 0;

    for (size_t i = 0; i < count; i++)
        width = strlen(verbs[i].name) > width ? strlen(verbs[i].name) : width;
    fprintf(f, "usage: %s VERB [arguments]\n\n", program);
    for (size_t i = 0; i < count; i++)
        fprintf(f, "  %-*s %s%s\n", (int)width + 1, verbs[i].name, verbs[i].summary,
                verbs[i].run == NULL ? " (not built yet)" : "");
}

int verbs_run(const char *program, const struct verb *verbs, size_t count, int argc, char **argv)
{
    char name[64];

    if (argc < 2) {
        usage(program, verbs, count, stderr);
        return 2;
    }
    if (strcmp(argv[1], "help") == 0 || strcmp(argv[1], "--help") == 0) {
        usage(program, verbs, count, stdout);
        return 0;
    }
    for (size_t i = 0; i < count; i++) {
        if (strcmp(argv[1], verbs[i].name) != 0)
            continue;
        if (verbs[i].run == NULL) {
            fprintf(stderr, "%s %s: not built yet (%s)\n", program, verbs[i].name,
                    verbs[i].summary);
            return 2;
        }
        (void)snprintf(name, sizeof name, "%s %s", program, verbs[i].name); /* may cut */
        argv[1] = name; /* getopt begins its complaints with it */
        return verbs[i].run(argc - 1, argv + 1);
    }
    fprintf(stderr, "%s: unknown verb \"%s\"\n", program, argv[1]);
    usage(program, verbs, count, stderr);
    return 2;
}
