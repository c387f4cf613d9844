/*
 * What a store should hold, as plain sorted lists: the model of the tests of whole lives.
 *
 * A series is a number; its labels follow from it. Per timestamp the first acknowledged value
 * counts. What a crash, a cut-off deletion or retention leaves open is marked as such.
 */
#ifndef RIMSTONE_TESTS_LIFE_MODEL_H
#define RIMSTONE_TESTS_LIFE_MODEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/labels.h"
#include "engine/querier.h"
#include "engine/relabel.h"

struct life_sample {
    int64_t t_ms;
    uint64_t bits;
    bool is_pending;    /* written, not known to be durable: a crash makes it `maybe` */
    bool maybe;         /* may be there or not */
    bool any_value;     /* several values were written, and it is open which came first */
    bool has_rival;     /* another value was written at some time, and may lie beside it */
    bool was_contested; /* another value was written while this one was pending or maybe */
};

struct life_series {
    struct life_sample *items; /* owned; ascending by time */
    size_t count, capacity;
    bool was_named; /* a sample of it was written once, so the store may know its name */
    bool is_purged; /* by the purge at hand; it hides these: */
    struct life_sample *hidden; /* owned; ascending by time */
    size_t hidden_count;
};

struct life_pending {
    uint32_t series;
    int64_t t_ms;
};

struct life_model {
    struct life_series *series; /* owned; by number */
    size_t count;
    struct life_pending *pending; /* owned: which samples are, and some that were */
    size_t pending_count, pending_capacity;
    bool is_hiding; /* the purge stands */
};

void life_model_init(struct life_model *m);
void life_model_done(struct life_model *m);
void life_model_copy(const struct life_model *from, struct life_model *out);

enum { LIFE_LABELS_SIZE = 160, LIFE_LABEL_COUNT = 4 };
/* "name=value,..." as the kit's writers take it; the same label set in another order for each
 * `variant`. */
void life_labels_text(uint32_t series, unsigned variant, char out[LIFE_LABELS_SIZE]);
/* The value of one of its labels, in `out`; empty for a name it does not have. */
struct str life_label_value(uint32_t series, struct str name, char out[LIFE_LABELS_SIZE]);
bool life_matches(uint32_t series, const struct matcher *matchers, size_t matcher_count);
/* The number of the series with these labels; CHECKs that they are one's. */
uint32_t life_series_of(const struct labels *labels);

/* A sample was written, and not refused as far as is known. */
void life_model_write(struct life_model *m, uint32_t series, int64_t t_ms, uint64_t bits);
/* NULL when there is none. */
const struct life_sample *life_model_find(const struct life_model *m, uint32_t series,
                                          int64_t t_ms);
/* All that was written is durable; or the process died and it may be lost. */
void life_model_durable(struct life_model *m);
void life_model_crashed(struct life_model *m);
/* Deletes, or with `maybe` leaves open whether it did. Returns how many samples it hit. */
size_t life_model_delete(struct life_model *m, const struct matcher *matchers, size_t matcher_count,
                         int64_t min_time_ms, int64_t max_time_ms, bool maybe);
/* A purge that can be taken back, one at a time: names series; hides what they have by now; shows
 * it again, certainly so when the `whole` of it is left. Between the last two they may be written
 * anew, and hidden samples be deleted. Forgotten, it names none and nothing is hidden. */
void life_model_purge(struct life_model *m, const struct matcher *matchers, size_t matcher_count);
/* The same of what a relabelling rule drops. */
void life_model_purge_rule(struct life_model *m, const struct relabel_config *rule);
void life_model_hide(struct life_model *m);
void life_model_show(struct life_model *m, bool whole);
void life_model_forget(struct life_model *m);
/* What is older may be gone. */
void life_model_retain(struct life_model *m, int64_t cutoff_ms);
uint64_t life_model_sample_count(const struct life_model *m);

/* CHECKs the samples in [min, max] of a series. */
void life_model_check(const struct life_model *m, uint32_t series, int64_t min_time_ms,
                      int64_t max_time_ms, const struct column *got);
/* Whether a series has a sample there for certain. */
bool life_model_has(const struct life_model *m, uint32_t series, int64_t min_time_ms,
                    int64_t max_time_ms);

#endif
