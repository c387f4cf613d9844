/* Options of `rimtool load`. */
#ifndef RIMSTONE_TOOLS_LOAD_OPTIONS_INTERNAL_H
#define RIMSTONE_TOOLS_LOAD_OPTIONS_INTERNAL_H

#include <stdbool.h>
#include <stdint.h>

#include "tools/fleet_stream.h"
#include "tools/load_request.h"

struct load_options {
    const char *url;
    struct fleet_options fleet;
    enum load_protocol protocol;
    enum load_compression compression;
    uint32_t connection_count, batch_size;
    uint64_t scrape_count, warmup_scrapes;
    double late_share;
    bool realtime, quiet;
    int64_t server_pid; /* 0: not given */
    double retry_seconds, settle_seconds;
    double for_seconds;        /* 0: until all scrapes are sent */
    uint64_t lockstep_scrapes; /* 0: connections do not wait for each other */
};

/* Fills *o with defaults and what the arguments say; strings are borrowed from argv. Returns -1 to
 * go on, otherwise the exit code (the reason has been printed). */
int load_options_parse(int argc, char **argv, struct load_options *o);

#endif
