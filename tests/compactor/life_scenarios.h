/*
 * The steps of the life cycle that crashes are tried in, and the stores that they find. A third of
 * the series holds native histograms, a sixth of them both kinds in turn (kit_is_histogram()).
 */
#ifndef RIMSTONE_TESTS_LIFE_SCENARIOS_H
#define RIMSTONE_TESTS_LIFE_SCENARIOS_H

#include "tests/compactor/life_kit.h"

enum {
    LIFE_SHARDS = 2,
    LIFE_SCRAPED = 8, /* series that go on; those behind them end in the first window */
};

struct life_scenario {
    const char *name;
    /* What is durable before the step. */
    void (*fill)(struct life *l);
    /* The step; may be done any number of times. */
    enum err (*run)(struct life *l);
    /* What else must hold right behind a crash; the store is closed. May be NULL. */
    void (*check)(struct life *l);
};
extern const struct life_scenario life_scenarios[];
extern const size_t life_scenario_count;

/* Adds a sample of each series in [first, end) at this moment to the request at hand. */
void life_put_round(struct life *l, uint32_t first, uint32_t end, unsigned round);
/* Such samples of the first series, an interval apart; durable, CHECKed. */
void life_scrape(struct life *l, uint32_t series_count, unsigned rounds, int64_t interval_ms);
/* Two samples of half a dozen series at a time that has passed; durable, CHECKed. */
void life_put_late(struct life *l, int64_t t_ms, double value);

#endif
