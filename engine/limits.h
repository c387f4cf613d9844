/*
 * Limits: how many series there may be, in all, of one metric and of one label value, and how large
 * labels and requests may be. A series past a limit is refused alone; what exists stays, also when
 * a limit is lowered below it.
 */
#ifndef RIMSTONE_ENGINE_LIMITS_H
#define RIMSTONE_ENGINE_LIMITS_H

#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/bytes.h"
#include "base/err.h"

struct engine;

enum limit_kind {
    LIMIT_STORE, /* of the store itself: slots of a shard, bytes of a record; not configurable */
    LIMIT_ACTIVE_SERIES,
    LIMIT_SERIES_PER_METRIC,
    LIMIT_SERIES_PER_LABEL_VALUE,
    LIMIT_LABELS_PER_SERIES, /* the metric's name counts as one */
    LIMIT_LABEL_NAME_BYTES,
    LIMIT_LABEL_VALUE_BYTES,
    LIMIT_SAMPLES_PER_REQUEST, /* series behind the last one that fits are refused */
    LIMIT_KIND_COUNT,
};
/* "active_series", ...: the keys of the configuration. */
const char *limit_kind_name(enum limit_kind kind);

struct limit {
    uint64_t max, warn; /* 0: off. From `warn` on the log tells; only where series are counted */
};
/* Of the series that share one value of `label`. */
struct label_limit {
    struct str label;
    struct limit limit;
};

enum { LIMITS_LABELS_MAX = 32 };

struct limits {
    struct limit items[LIMIT_KIND_COUNT]; /* those of LIMIT_SERIES_PER_LABEL_VALUE are in labels */
    const struct label_limit *labels;     /* borrowed; names differ, and none is __name__ */
    size_t label_count;
};

/* What holds without a configuration: 64 labels, 1,024 and 4,096 bytes, 100,000 samples. */
void limits_defaults(struct limits *out);

/*
 * Puts limits into effect, for all series that come from now on; copies what it needs. An engine
 * has none before the first call. When a label is counted that was not before, its series are
 * counted first, which keeps new series (no others) waiting: 0.1 s a million series.
 * ERR_NOMEM, ERR_LIMIT (the memory budget): the limits from before hold. Any thread; before
 * engine_replay() too, which counts when it is done.
 */
MUST_USE enum err engine_limits_apply(struct engine *e, const struct limits *limits,
                                      struct errinfo *ei);

/* Writes what was refused, and what is above a warning's threshold, to the log: at most once a
 * minute for each limit, metric and label value, and LIMITS_LOG_LINES lines a minute in all. To be
 * called now and then, by one thread. */
enum { LIMITS_LOG_LINES = 20 };
void engine_limits_log(struct engine *e);

/* One limit as it stands. */
struct limit_state {
    enum limit_kind kind;
    struct str label; /* LIMIT_SERIES_PER_LABEL_VALUE only */
    struct limit limit;
    uint64_t refusals;        /* times a series was refused and its labels were looked at */
    uint64_t samples_refused; /* all of them */
    uint64_t warnings;        /* log lines */
};
/* Who came near a limit or met it. */
struct limit_offender {
    enum limit_kind kind;
    struct str label, value; /* whose series they are; empty where the limit has none */
    uint64_t series;         /* that count for it, by the last look */
    uint64_t refusals;       /* in all, while it was watched */
    int64_t last_ms;         /* by the engine's clock */
};
struct limits_report {
    uint64_t active_series; /* that count: less those known to have ended */
    size_t state_count, offender_count;
    struct limit_state *states;       /* in the arena; as configured */
    struct limit_offender *offenders; /* in the arena; the latest first, at most 64 */
};
MUST_USE enum err engine_limits_report(struct engine *e, struct arena *arena,
                                       struct limits_report *out, struct errinfo *ei);

#endif
