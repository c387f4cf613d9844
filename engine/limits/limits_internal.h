/*
 * Limits at work. What an engine counts, who asks before a series is made, and what is remembered
 * of those that were refused.
 *
 * Only the making and the end of a series pay: one atomic number for all series, and one table for
 * each label that has a limit (limit_counts_internal.h). A series counts from before it is
 * published until its slot is dead. Series that have ended but are still in memory would keep their
 * successors out, so when a limit refuses, those that have ended are counted (limits_recount.c), a
 * bounded part of the time, and the limit is raised by them until they are gone.
 *
 * A refused series' sender key goes to the front table with an expiry of half a minute to a minute,
 * so that most of its scrapes cost a look-up only.
 */
#ifndef RIMSTONE_ENGINE_LIMITS_LIMITS_INTERNAL_H
#define RIMSTONE_ENGINE_LIMITS_LIMITS_INTERNAL_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/thread.h"
#include "engine/labels.h"
#include "engine/limits.h"
#include "engine/limits/limit_counts_internal.h"

struct engine;
struct shard;

enum {
    /* A limit's number: its kind, or LIMIT_KIND_COUNT and the place in limits.labels. */
    LIMIT_NUMBER_MAX = LIMIT_KIND_COUNT + LIMITS_LABELS_MAX,
    LIMIT_OFFENDERS_MAX = 64,
    LIMIT_TEXT_SIZE = 128,
    /* Refused keys in the front table: one for so many bytes of the memory limit, which they take a
     * thirty-second part of then, and one more for so many series. */
    LIMIT_KEY_MEMORY = 640,
    LIMIT_KEYS_LEAST = 65536,
    LIMIT_KEYS_UNLIMITED = 1 << 22, /* without a memory limit */
    LIMIT_KEYS_SHARE = 4,
    LIMIT_EXPIRY_LEAST_S = 30,
    LIMIT_EXPIRY_SPREAD_S = 31,
};

/* A label whose values' series are counted. */
struct limit_table {
    struct str label; /* in the limiter's texts */
    uint32_t number;
    struct limit_counts counts;
};

/* Somebody who met a limit or came near it. */
struct limit_watch {
    uint64_t key; /* hash of the value; 0 where the limit has none */
    uint64_t series, max;
    uint64_t refusals, logged_refusals;
    int64_t last_ms, next_log_ms, next_recount_ms;
    uint32_t number; /* 0: free */
    uint16_t label_size, value_size;
    bool is_warning; /* above the threshold since the last line */
    char label[LIMIT_TEXT_SIZE], value[LIMIT_TEXT_SIZE]; /* cut when longer */
};

/* Limits and tables that belong together. */
struct limit_set {
    struct arena texts;
    struct limits limits;        /* labels point into texts */
    struct limit_table **tables; /* owned array; tables are shared with the set before */
    size_t table_count;
};

struct limiter {
    /* Read-held from the moment a new series is counted until it is published, and around the end
     * of series; write-held while a set is exchanged and labels are counted. Taken under
     * create_lock; shard.lock is taken under it. */
    struct rwlock lock;
    struct limit_set *set;      /* owned; NULL: no limits */
    bool is_counting;           /* after the replay */
    _Atomic uint64_t series;    /* relaxed: exact, but orders nothing */
    _Atomic uint64_t ended;     /* of these, as found by the last recount */
    _Atomic uint64_t end_count; /* series that have died; a recount across that is void */
    /* relaxed: of the limits and drop rules; refused keys of older ones have expired */
    _Atomic uint32_t version;
    _Atomic uint64_t request_max;  /* relaxed: samples of a request; UINT64_MAX: no limit */
    _Atomic uint64_t refused_keys; /* relaxed: in the front table, expired ones too */
    _Atomic int64_t keys_swept_ms; /* relaxed: when they were last looked at */
    /* relaxed: statistics, by limit number */
    _Atomic uint64_t refusals[LIMIT_NUMBER_MAX], samples_refused[LIMIT_NUMBER_MAX],
        warnings[LIMIT_NUMBER_MAX];
    struct mutex watch_lock; /* a leaf; guards what follows */
    struct limit_watch watches[LIMIT_OFFENDERS_MAX];
    int64_t log_minute; /* lines are counted by the minute */
    uint32_t log_lines;
    struct mutex recount_lock; /* who recounts; only tried for */
    uint64_t next_recount_ns;  /* monotonic; under recount_lock */
};

void limiter_init(struct limiter *l);
void limiter_done(struct limiter *l);

/* Why a series was refused. Texts are the labels'. */
struct limit_verdict {
    uint32_t number;
    uint64_t max, series;
    struct str label, value;
};

/*
 * Counts a new series in, or says which limit it is past: ERR_LIMIT. On ERR_OK the limiter's lock
 * is held until limits_settle() says that the series is published, or limits_withdraw() that it is
 * not to be. Labels are canonical. Caller holds the shard's create_lock and not its lock.
 */
MUST_USE enum err limits_admit(struct engine *e, const struct labels *labels,
                               struct limit_verdict *verdict);
void limits_settle(struct engine *e);
void limits_withdraw(struct engine *e, const struct labels *labels);

/* Around the end of series: limits_end() counts out `count` slots that are dead by now but still in
 * the index. Caller holds maintain_lock and create_lock. */
void limits_end_begin(struct engine *e);
void limits_end(struct engine *e, struct shard *s, const uint32_t *slots, size_t count);

/* Notes a refusal for the log. True when it may have room again, since ended series were counted:
 * the caller tries once more. No lock is held. */
bool limits_refused(struct engine *e, const struct limit_verdict *verdict);
/* Counts samples that a limit has refused. */
void limits_count_samples(struct engine *e, uint32_t number, uint64_t samples);

/* What a refused key leads to, and for how long. */
uint64_t limits_key_make(struct engine *e, uint64_t salt, uint32_t number);
/* Whether it still holds; then *number is the limit. */
bool limits_key_holds(const struct engine *e, uint64_t target, uint32_t *number);
/* What was refused so far gets a second look with its next sample. */
void limits_keys_expire(struct engine *e);
/* One such key more in the front table, or one less. */
void limits_key_count(struct engine *e, int more);
/* After a sweep of the front table, which left so many of them. */
void limits_keys_swept(struct engine *e, uint64_t kept);
/* Those that may have expired since the last sweep: none until it is some minutes old. */
uint64_t limits_keys_worn(const struct engine *e);
/* Whether one more may be cached. */
bool limits_key_allowed(struct engine *e);

/* "series_per_metric, max 1000, __name__=x": which limit and who, cut to `size`. */
void limits_describe(struct engine *e, uint32_t number, const struct labels *labels, char *out,
                     size_t size);
const char *limits_number_name(uint32_t number);

/* Counts what the replay has brought. Nobody else is at work. */
MUST_USE enum err limits_replayed(struct engine *e, struct errinfo *ei);

/* ---- limits_recount.c ---- */

/* Counts the series of a table's label in all shards. Caller holds the lock for writing. */
MUST_USE enum err limits_count_label(struct engine *e, struct limit_table *t, struct errinfo *ei);
/* Counts the series that have ended, of a value or of all (NULL), if it is time to; true when it
 * was done. No lock is held but recount_lock, which is tried for. */
bool limits_recount(struct engine *e, const struct limit_verdict *verdict);
/* The hash of a value, and that of whom a verdict is about. */
uint64_t limits_key_of(const struct engine *e, struct str value);
uint64_t limits_watch_key(const struct engine *e, const struct limit_verdict *v);
/* Series less those known to have ended. */
uint64_t limits_active_series(const struct limiter *l);

#endif
