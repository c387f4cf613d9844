/*
 * `rimtool rules`: series-drop rules from the command line.
 */
#include "tools/rules_internal.h"
#include "tools/tools_internal.h"
#include "tools/verbs_internal.h"

static const struct verb verbs[] = {
    {"list", "print the rules that a server has in effect", rules_list},
    {"add", "add rules to a server, or replace those of the same name", rules_add},
    {"remove", "remove a rule from a server", rules_remove},
    {"check", "check a configuration file with rules", rules_check},
    {"preview", "tell what rules would drop", rules_preview},
    {"suggest", "propose rules for metrics that nobody reads", rules_suggest},
};

int tool_rules(int argc, char **argv)
{
    return verbs_run("rimtool rules", verbs, sizeof verbs / sizeof verbs[0], argc, argv);
}
