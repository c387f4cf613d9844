/*
 * Crashes in the life cycle: power loss and kill at every file operation of each step, and again
 * while the store recovers from it; failed operations and full disks. After each the store opens,
 * holds every acknowledged sample once and none that was deleted, no file lies about that the
 * manifest does not name, and the step can be done again.
 *
 * An argument names the scenario; all without one. RIMSTONE_CRASH_STRIDE=1 loses in every
 * way at every operation, and crashes at every operation of every recovery, again in every way
 * (default: three of five ways, a few operations of one recovery, in one way, others each
 * time). What a crash leaves is often what another one has left; a state is checked once.
 */
#include <inttypes.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>

#include "tests/compactor/life_scenarios.h"
#include "tests/compactor/life_states.h"
#include "tests/lib/test_cmocka.h"

enum { STRIDE = 5 };

/* ---- crashes ---- */

static uint64_t stride(void)
{
    const char *text =
        getenv("RIMSTONE_CRASH_STRIDE"); /* NOLINT(concurrency-mt-unsafe): nobody writes */

    return text == NULL ? STRIDE : strtoull(text, NULL, 0);
}

static bool is_long(void)
{
    return stride() < STRIDE;
}

/* Writers go on while a step works. */
static void write_between_slices(void *ctx)
{
    struct life *l = ctx;

    life_set_now(l, l->now_ms + 1000);
    life_put_round(l, 0, 4, 3);
    if (life_send(l) == ERR_OK && life_wait(l) != ERR_OK)
        life_model_crashed(&l->model);
}

static void writers_set(struct life *l)
{
    *life_control() =
        (struct maintain_control){.yield = l == NULL ? NULL : write_between_slices, .yield_ctx = l};
}

static void check_all(struct life *l)
{
    life_check(l);
    life_check_files(l);
}

/* A store that can be opened as often as need be: the process died with all acknowledged. */
static void base_init(struct life *base, const struct life_scenario *sc)
{
    writers_set(NULL);
    life_init(base, test_fs_new(77), LIFE_SHARDS);
    life_open_checked(base);
    sc->fill(base);
    CHECK_OK(life_wait(base), &base->kit.ei);
    life_check(base);
    life_abandon(base);
}

static void copy_open(struct life *out, const struct life *of)
{
    life_init_like(out, test_fs_after(of->fs, FS_SIM_KEEP_ALL, 1), of);
    life_open_checked(out);
}

/* One scenario's crashes. */
struct crashes {
    const struct life_scenario *sc;
    struct life base;
    struct life_states checked; /* states that a start found right */
    struct life_states entered; /* power losses whose recovery was gone through as a whole */
    uint64_t first_count, second_count, known_count;
};

static void crashes_init(struct crashes *c, const struct life_scenario *sc)
{
    *c = (struct crashes){.sc = sc};
    base_init(&c->base, sc);
    life_states_init(&c->checked);
    life_states_init(&c->entered);
}

static void crashes_done(struct crashes *c)
{
    life_done(&c->base);
    life_states_done(&c->checked);
    life_states_done(&c->entered);
}

/* What the crash leaves, not open yet. */
static void left_init(struct life *out, const struct life *crashed, size_t mode, uint64_t seed)
{
    life_init_like(out, test_fs_after_crash(crashed->fs, &test_crash_modes[mode], seed), crashed);
}

/* Opens and checks it, unless that was done with just this state. */
static void check_left(struct crashes *c, struct life *l)
{
    if (!life_states_add(&c->checked, l)) {
        c->known_count++;
        return;
    }
    life_verify(l->fs, true);
    if (c->sc->check != NULL)
        c->sc->check(l);
    life_open_checked(l);
    check_all(l);
}

/* Life goes on behind a crash: writes, does the step again, loses the power again. */
static void live_on(struct crashes *c, struct life *l, uint64_t seed)
{
    if (!l->is_open)
        life_open_checked(l);
    life_scrape(l, 4, 2, LIFE_MINUTE);
    life_put_late(l, LIFE_T0 + 25 * LIFE_MINUTE + 9, 900);
    CHECK_OK(c->sc->run(l), &l->kit.ei);
    life_scrape(l, LIFE_SCRAPED, 1, LIFE_MINUTE); /* what comes right behind the checkpoint */
    life_check(l);
    life_lose_power(l, &test_crash_modes[seed % TEST_CRASH_MODE_COUNT], seed);
    life_open_checked(l);
    check_all(l);
}

/* Crashes once more at operation `op` of the recovery; false when it has fewer. */
static bool crash_again(struct crashes *c, const struct life *crashed, size_t mode, uint64_t seed,
                        uint64_t op)
{
    struct errinfo ei = {0};
    struct life l;
    bool hit;

    left_init(&l, crashed, mode, seed);
    fs_sim_set_fault(l.fs, FS_SIM_FAULT_CRASH, fs_sim_op_count(l.fs) + op);
    if (life_open(&l, &ei) == ERR_OK)
        life_abandon(&l);
    hit = fs_sim_fault_hit(l.fs);
    for (size_t i = 0; i < TEST_CRASH_MODE_COUNT; i++) {
        struct life left;

        if (!is_long() && i != (seed + op) % TEST_CRASH_MODE_COUNT)
            continue;
        c->second_count += hit;
        left_init(&left, &l, i, seed + op);
        check_left(c, &left);
        life_done(&left);
    }
    life_done(&l);
    return hit;
}

/* One way a crash may go; `is_whole`: what follows it too. */
static void lose(struct crashes *c, const struct life *crashed, size_t mode, uint64_t seed,
                 bool is_whole)
{
    bool may_lose_more = test_crash_modes[mode].loss == FS_SIM_KEEP_ALL;
    struct life l;

    c->first_count++;
    left_init(&l, crashed, mode, seed);
    if (is_whole && (life_states_add(&c->entered, &l) || may_lose_more)) {
        check_left(c, &l);
        live_on(c, &l, seed);
        for (uint64_t op = (seed + mode) % stride(); crash_again(c, crashed, mode, seed, op);)
            op += is_long() ? stride() : stride() + op;
    } else {
        check_left(c, &l);
    }
    life_done(&l);
}

/* True when the step has an operation of that number. */
static bool crash_at(struct crashes *c, uint64_t op)
{
    struct life l;
    bool hit;
    enum err e;

    copy_open(&l, &c->base);
    writers_set(&l);
    fs_sim_set_fault(l.fs, FS_SIM_FAULT_CRASH, fs_sim_op_count(l.fs) + op);
    e = c->sc->run(&l);
    writers_set(NULL);
    hit = fs_sim_fault_hit(l.fs);
    if (!hit) {
        CHECK_OK(e, &l.kit.ei);
        check_all(&l);
    }
    if (l.is_open)
        life_abandon(&l);
    for (size_t i = 0; i < TEST_CRASH_MODE_COUNT; i++) {
        size_t between = 2 + op / 3 % (TEST_CRASH_MODE_COUNT - 2);

        /* Kill, all lost, and one of the ways in between; one of the three goes on from there. */
        if (is_long() || i < 2 || i == between)
            lose(c, &l, i, op, is_long() || (i < 2 ? i : 2) == op % 3);
    }
    life_done(&l);
    return hit;
}

/* Of the step when nothing fails. */
static uint64_t operation_count(const struct crashes *c)
{
    uint64_t count;
    struct life l;

    copy_open(&l, &c->base);
    count = fs_sim_op_count(l.fs);
    writers_set(&l);
    CHECK_OK(c->sc->run(&l), &l.kit.ei);
    writers_set(NULL);
    count = fs_sim_op_count(l.fs) - count;
    life_done(&l);
    return count;
}

/* NULL: all */
static const char *chosen;

static bool is_chosen(const struct life_scenario *sc)
{
    return chosen == NULL || strcmp(chosen, sc->name) == 0;
}

static void test_power_loss_everywhere(void **state)
{
    (void)state;
    for (size_t i = 0; i < life_scenario_count; i++) {
        const struct life_scenario *sc = &life_scenarios[i];
        uint64_t op = 0, count;
        struct crashes c;

        if (!is_chosen(sc))
            continue;
        crashes_init(&c, sc);
        count = operation_count(&c);
        while (crash_at(&c, op) || op < count) /* one may come later than the clock had it */
            op++;
        fprintf(stderr,
                "%s: %" PRIu64 " operations, %" PRIu64 " crashes, %" PRIu64
                " in recoveries, %" PRIu64 " left what others had left\n",
                sc->name, op, c.first_count, c.second_count, c.known_count);
        CHECK(op > 2);
        crashes_done(&c);
    }
}

/* ---- failures that the process survives ---- */

static bool fail_at(const struct life *base, const struct life_scenario *sc,
                    enum fs_sim_fault fault, uint64_t op)
{
    struct life l;
    bool hit;
    enum err e;

    copy_open(&l, base);
    writers_set(&l);
    fs_sim_set_fault(l.fs, fault, fs_sim_op_count(l.fs) + op);
    e = sc->run(&l);
    hit = fs_sim_fault_hit(l.fs);
    CHECK_MSG(hit || e == ERR_OK, "%s: %s", err_name(e), l.kit.ei.message);
    if (l.is_open)
        life_check(&l);
    fs_sim_clear_fault(l.fs);
    writers_set(NULL);
    while (l.is_open && engine_admit(l.kit.engine, NULL) != ERR_OK)
        (void)sched_yield(); /* the log tries again by itself */
    CHECK_OK(sc->run(&l), &l.kit.ei);
    life_scrape(&l, LIFE_SCRAPED, 1, LIFE_MINUTE);
    life_check(&l);
    CHECK_OK(life_wait(&l), &l.kit.ei);
    life_lose_power(&l, &test_crash_modes[op % TEST_CRASH_MODE_COUNT], op);
    life_open_checked(&l);
    check_all(&l);
    life_done(&l);
    return hit;
}

static void fail_everywhere(enum fs_sim_fault fault, uint64_t step)
{
    for (size_t i = 0; i < life_scenario_count; i++) {
        struct life base;
        uint64_t op = 0;

        if (!is_chosen(&life_scenarios[i]))
            continue;
        base_init(&base, &life_scenarios[i]);
        while (fail_at(&base, &life_scenarios[i], fault, op))
            op += step;
        CHECK(op > 1);
        life_done(&base);
    }
}

static void test_io_error_everywhere(void **state)
{
    (void)state;
    fail_everywhere(FS_SIM_FAULT_EIO, 1);
}

static void test_no_space_everywhere(void **state)
{
    (void)state;
    fail_everywhere(FS_SIM_FAULT_NO_SPACE, is_long() ? 1 : 3);
}

/* Each is a test of its own in CMakeLists.txt, which gives the names between spaces. */
static void check_all_listed(void)
{
    for (size_t i = 0; i < life_scenario_count; i++) {
        char name[64];

        (void)snprintf(name, sizeof name, " %s ", life_scenarios[i].name);
        CHECK_MSG(strstr(LIFE_SCENARIOS, name) != NULL, "CMakeLists.txt leaves out%s", name);
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_power_loss_everywhere),
        cmocka_unit_test(test_io_error_everywhere),
        cmocka_unit_test(test_no_space_everywhere),
    };
    bool is_known = argc < 2;

    for (size_t i = 0; i < life_scenario_count; i++)
        is_known |= argc > 1 && strcmp(argv[1], life_scenarios[i].name) == 0;
    if (!is_known) {
        fprintf(stderr, "no scenario %s\n", argv[1]);
        return 2;
    }
    check_all_listed();
    chosen = argc > 1 ? argv[1] : NULL;
    /* A start maps a few large tables and touches a little of each: small pages cost a fifth less.
     */
    CHECK(prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0) == 0);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
