/*
 * rimtool: the command-line companion of the server.
 */
#include <stdio.h>
#include <string.h>

#include "tools/tools_internal.h"

struct verb {
    const char *name, *summary;
    int (*run)(int argc, char **argv); /* NULL: known, not built yet */
};

static const struct verb verbs[] = {
    {"load", "push the GPU-fleet stream to a receiver and report rates and costs", tool_load},
    {"promqltest", "run scripts in Prometheus's test language", tool_promqltest},
    {"verify", "check the files of a data directory", NULL},
    {"analyze", "say what a data directory holds", NULL},
    {"dump", "write a data directory as OpenMetrics text", NULL},
    {"rules", "work on series-drop rules", NULL},
    {"query", "query a server", NULL},
    {"check", "check configuration files", NULL},
};

static void usage(FILE *f)
{
    fputs("usage: rimtool VERB [arguments]\n\n", f);
    for (size_t i = 0; i < sizeof verbs / sizeof verbs[0]; i++)
        fprintf(f, "  %-11s %s%s\n", verbs[i].name, verbs[i].summary,
                verbs[i].run == NULL ? " (not built yet)" : "");
}

int main(int argc, char **argv)
{
    if (argc < 2) {
        usage(stderr);
        return 2;
    }
    if (strcmp(argv[1], "help") == 0 || strcmp(argv[1], "--help") == 0) {
        usage(stdout);
        return 0;
    }
    for (size_t i = 0; i < sizeof verbs / sizeof verbs[0]; i++) {
        if (strcmp(argv[1], verbs[i].name) != 0)
            continue;
        if (verbs[i].run == NULL) {
            fprintf(stderr, "rimtool %s: not built yet\n", verbs[i].name);
            return 2;
        }
        return verbs[i].run(argc - 1, argv + 1);
    }
    fprintf(stderr, "rimtool: unknown verb \"%s\"\n", argv[1]);
    usage(stderr);
    return 2;
}
