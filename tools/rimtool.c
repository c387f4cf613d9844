/*
 * rimtool: the command-line companion of the server.
 */
#include "tools/tools_internal.h"
#include "tools/verbs_internal.h"

static const struct verb verbs[] = {
    {"load", "push the GPU-fleet stream to a receiver and report rates and costs", tool_load},
    {"promqltest", "run scripts in Prometheus's test language", tool_promqltest},
    {"verify", "check the files of a data directory", tool_verify},
    {"analyze", "say what a data directory holds", tool_analyze},
    {"dump", "write a data directory as OpenMetrics text", tool_dump},
    {"rules", "work on series-drop rules", tool_rules},
    {"query", "query a server; meanwhile promtool query does it", NULL},
    {"check", "check configuration files; meanwhile rimtool rules check does it", NULL},
};

int main(int argc, char **argv)
{
    return verbs_run("rimtool", verbs, sizeof verbs / sizeof verbs[0], argc, argv);
}
