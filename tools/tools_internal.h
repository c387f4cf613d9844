/* The verbs of rimtool; each takes the arguments behind its name and returns the exit code:
 * 0 done, 1 failed, 2 wrong use. */
#ifndef RIMSTONE_TOOLS_TOOLS_INTERNAL_H
#define RIMSTONE_TOOLS_TOOLS_INTERNAL_H

int tool_analyze(int argc, char **argv);
int tool_dump(int argc, char **argv);
int tool_load(int argc, char **argv);
int tool_promqltest(int argc, char **argv);
int tool_rules(int argc, char **argv);
int tool_verify(int argc, char **argv);

#endif
