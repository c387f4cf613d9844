#include "engine/purge.h"

#include "tests/compactor/life_kit.h"

#define KEY STR_LITERAL("rule")

static bool stands(const struct life *l)
{
    struct errinfo ei = {0};
    struct arena arena;
    struct str *keys;
    size_t count;

    arena_init(&arena, NULL);
    CHECK_OK(engine_purges(l->kit.engine, &arena, &keys, &count, &ei), &ei);
    CHECK(count == 0 || (count == 1 && str_equal(keys[0], KEY)));
    arena_done(&arena);
    return count == 1;
}

static void take_over(struct life *l)
{
    bool is_hiding = stands(l);

    if (is_hiding && !l->model.is_hiding)
        life_model_hide(&l->model);
    if (!is_hiding && l->model.is_hiding)
        life_model_show(&l->model, !l->purge_is_worn);
}

void life_purge_opened(struct life *l)
{
    if (l->purge_is_unsure)
        take_over(l);
    CHECK_MSG(stands(l) == l->model.is_hiding, "the purge %s", stands(l) ? "stands" : "is gone");
    l->purge_is_unsure = false;
}

/* The model knows which series. */
static enum err make(struct life *l, const struct purge_request *request)
{
    size_t made = 0;
    enum err e;

    l->purge_is_worn = false;
    e = engine_purge(l->kit.engine, request, 1, &made, &l->kit.ei);
    CHECK(e != ERR_OK || made == 1);
    l->purge_is_unsure = e != ERR_OK;
    take_over(l);
    CHECK(e != ERR_OK || l->model.is_hiding);
    return e;
}

enum err life_purge_make(struct life *l, const struct matcher *matchers, size_t matcher_count)
{
    const struct purge_request request = {
        .key = KEY, .matchers = matchers, .matcher_count = matcher_count};

    life_model_purge(&l->model, matchers, matcher_count);
    return make(l, &request);
}

enum err life_purge_make_rule(struct life *l, const struct relabel_config *rule)
{
    const struct purge_request request = {.key = KEY, .filter = rule};

    life_model_purge_rule(&l->model, rule);
    return make(l, &request);
}

enum err life_purge_make_series(struct life *l, uint32_t series)
{
    struct arena arena;
    struct matcher m;
    enum err e;

    arena_init(&arena, NULL);
    m = life_series_matcher(&arena, series);
    e = life_purge_make(l, &m, 1);
    matcher_done(&m);
    arena_done(&arena);
    return e;
}

enum err life_purge_withdraw(struct life *l)
{
    struct purge_withdrawn w = {0};
    enum err e = engine_purges_withdraw(l->kit.engine, &KEY, 1, &w, &l->kit.ei);

    l->purge_is_unsure = e != ERR_OK;
    if (e != ERR_OK) {
        take_over(l);
        return e;
    }
    CHECK(w.file_left <= w.file_count && (w.file_left == w.file_count || l->purge_is_worn));
    /* What is counted says no more: parts of ended series that were written since may stand in for
     * files that are gone. */
    life_model_show(&l->model, !l->purge_is_worn);
    life_model_forget(&l->model);
    return ERR_OK;
}
