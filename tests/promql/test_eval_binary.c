/*
 * Operators between vectors against a twin that works step by step, sample by sample: both sides
 * are queried alone, and each step's two small vectors are matched by comparing every pair.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "promql/eval/label_sets_internal.h"
#include "tests/lib/test_cmocka.h"
#include "tests/lib/test_support.h"
#include "tests/promql/query_support.h"

enum {
    STEPS = 6,
    STEP_MS = 60000,
    END_MS = (STEPS - 1) * STEP_MS,
    ROWS_MAX = 256,
    MATCHED_MAX = 512
};

struct shape {
    const char *op, *modifier, *group;
    bool on, is_set, comparison, return_bool;
    const struct str *names, *include;
    size_t name_count, include_count;
    int side; /* 0 one-to-one, 1 group_left, 2 group_right */
    struct fill_value fill_left, fill_right;
};

/* One step's result: rows, or the start of an error text. */
struct step_result {
    struct labels labels[ROWS_MAX];
    double value[ROWS_MAX];
    size_t count;
    const char *error;
};

static struct engine *random_engine(struct test_random *r)
{
    struct engine *e = fake_engine_new();

    for (int metric = 0; metric < 2; metric++) {
        for (int a = 0; a < 3; a++) {
            for (int b = 0; b < 3; b++) {
                char text[96];
                size_t s;

                if (test_random_below(r, 3) == 0)
                    continue;
                (void)snprintf(text, sizeof text, "__name__=%s,a=%d,b=%d", metric == 0 ? "x" : "y",
                               a, b);
                s = fake_engine_add(e, text);
                for (int k = 0; k < STEPS; k++) {
                    if (test_random_below(r, 3) != 0)
                        fake_engine_sample(e, s, (int64_t)k * STEP_MS,
                                           (double)test_random_below(r, 4));
                }
            }
        }
    }
    return e;
}

static bool signature_equal(const struct shape *s, const struct labels *a, const struct labels *b)
{
    static const char *const all[] = {"a", "b"};

    for (size_t i = 0; i < 2; i++) {
        struct str name = str_from(all[i]);

        if (names_contain(s->names, s->name_count, name) == s->on &&
            !str_equal(labels_get(a, name), labels_get(b, name)))
            return false;
    }
    return true;
}

static double arithmetic(const struct shape *s, double l, double r, bool *keep)
{
    *keep = true;
    switch (s->op[0]) {
    case '+':
        return l + r;
    case '-':
        return l - r;
    case '>':
        *keep = l > r;
        break;
    default:
        *keep = l == r;
        break;
    }
    if (s->return_bool) {
        l = *keep ? 1 : 0;
        *keep = true;
    }
    return l;
}

static struct labels twin_labels(const struct shape *s, const struct labels *many,
                                 const struct labels *one, struct arena *arena)
{
    struct labels l = {0, NULL};

    for (size_t i = 0; i < many->count; i++) {
        struct str name = many->items[i].name, value = many->items[i].value;
        bool is_name = str_equal(name, LABEL_METRIC_NAME);

        if (is_name && (!s->comparison || s->return_bool))
            continue;
        if (s->side == 0 && (s->on ? !names_contain(s->names, s->name_count, name)
                                   : !is_name && names_contain(s->names, s->name_count, name)))
            continue;
        CHECK(labels_with(&l, name, value, arena, &l, NULL) == ERR_OK);
    }
    for (size_t i = 0; i < s->include_count; i++)
        CHECK(labels_with(&l, s->include[i], labels_get(one, s->include[i]), arena, &l, NULL) ==
              ERR_OK);
    return l;
}

struct step_vector {
    const struct labels *labels[ROWS_MAX];
    double value[ROWS_MAX];
    size_t count;
};

static void step_take(const struct promql_result *r, size_t k, struct step_vector *out)
{
    out->count = 0;
    for (size_t i = 0; i < r->series_count; i++) {
        if (!result_point_present(&r->series[i], k))
            continue;
        out->labels[out->count] = &r->series[i].labels;
        out->value[out->count++] = r->series[i].value[k];
    }
}

static bool has_match(const struct shape *s, const struct labels *l, const struct step_vector *v)
{
    for (size_t i = 0; i < v->count; i++) {
        if (signature_equal(s, l, v->labels[i]))
            return true;
    }
    return false;
}

static void result_add(struct step_result *out, struct labels l, double value)
{
    CHECK(out->count < ROWS_MAX);
    out->labels[out->count] = l;
    out->value[out->count++] = value;
}

static void twin_set(const struct shape *s, const struct step_vector *l,
                     const struct step_vector *r, struct step_result *out)
{
    for (size_t i = 0; i < l->count; i++) {
        if (s->op[0] == 'o' || has_match(s, l->labels[i], r) == (s->op[0] == 'a'))
            result_add(out, *l->labels[i], l->value[i]);
    }
    for (size_t i = 0; s->op[0] == 'o' && i < r->count; i++) {
        if (!has_match(s, r->labels[i], l))
            result_add(out, *r->labels[i], r->value[i]);
    }
}

/* The labels that take part in matching. */
static struct labels signature_of(const struct shape *s, const struct labels *l,
                                  struct arena *arena)
{
    struct labels out = {0, NULL};

    for (size_t i = 0; i < l->count; i++) {
        struct str name = l->items[i].name;

        if (!str_equal(name, LABEL_METRIC_NAME) &&
            names_contain(s->names, s->name_count, name) == s->on)
            CHECK(labels_with(&out, name, l->items[i].value, arena, &out, NULL) == ERR_OK);
    }
    return out;
}

/* What has been matched at a step. */
struct twin_matched {
    struct labels result[MATCHED_MAX], signature[MATCHED_MAX];
    size_t count;
};

static void twin_pair(const struct shape *s, const struct labels *many, double many_value,
                      const struct labels *one, double one_value, struct twin_matched *m,
                      struct step_result *out, struct arena *arena)
{
    struct labels labels = twin_labels(s, many, one, arena);
    double lv = s->side == 2 ? one_value : many_value, rv = s->side == 2 ? many_value : one_value;
    double value;
    bool keep;

    for (size_t i = 0; i < m->count; i++) {
        if (signature_equal(s, &m->signature[i], many) &&
            (s->side == 0 || labels_equal(&m->result[i], &labels)))
            out->error = "multiple matches for labels";
    }
    CHECK(m->count < MATCHED_MAX);
    m->result[m->count] = labels;
    m->signature[m->count++] = *many;
    value = arithmetic(s, lv, rv, &keep);
    if (keep)
        result_add(out, labels, value);
}

static void twin_match(const struct shape *s, const struct step_vector *l,
                       const struct step_vector *r, struct step_result *out, struct arena *arena)
{
    const struct step_vector *many = s->side == 2 ? r : l, *one = s->side == 2 ? l : r;
    struct twin_matched matched = {.count = 0};
    bool fills = s->fill_left.given || s->fill_right.given;

    if ((l->count == 0 || r->count == 0) && !fills)
        return;
    for (size_t i = 0; i < one->count; i++) {
        for (size_t k = 0; k < i; k++) {
            if (signature_equal(s, one->labels[i], one->labels[k]))
                out->error = "found duplicate series for the match group";
        }
    }
    for (size_t i = 0; out->error == NULL && i < many->count; i++) {
        struct labels signature = signature_of(s, many->labels[i], arena);

        for (size_t k = 0; k < one->count; k++) {
            if (signature_equal(s, many->labels[i], one->labels[k]))
                twin_pair(s, many->labels[i], many->value[i], one->labels[k], one->value[k],
                          &matched, out, arena);
        }
        if (s->fill_right.given && !has_match(s, many->labels[i], one))
            twin_pair(s, many->labels[i], many->value[i], &signature, s->fill_right.value, &matched,
                      out, arena);
    }
    for (size_t i = 0; out->error == NULL && s->fill_left.given && i < one->count; i++) {
        struct labels signature = signature_of(s, one->labels[i], arena);

        if (!has_match(s, one->labels[i], many))
            twin_pair(s, &signature, s->fill_left.value, one->labels[i], one->value[i], &matched,
                      out, arena);
    }
    for (size_t i = 0; out->error == NULL && i < out->count; i++) {
        for (size_t k = 0; k < i; k++) {
            if (labels_equal(&out->labels[i], &out->labels[k]))
                out->error = "vector cannot contain metrics with the same labelset";
        }
    }
}

/* Fill modifiers for a shape, as text. */
static void fills_make(struct test_random *r, struct shape *s, char *text, size_t size)
{
    s->fill_left = (struct fill_value){test_random_below(r, 2) == 0, 1};
    s->fill_right = (struct fill_value){test_random_below(r, 2) == 0, 2};
    if (s->fill_left.given && s->fill_right.given && test_random_below(r, 2) == 0) {
        s->fill_right.value = 1;
        (void)snprintf(text, size, " fill (1)");
        return;
    }
    (void)snprintf(text, size, "%s%s", s->fill_left.given ? " fill_left(1)" : "",
                   s->fill_right.given ? " fill_right(2)" : "");
}

static void shape_make(struct test_random *r, struct shape *s, char *query, size_t query_size)
{
    static const char *const ops[] = {"+", "-", ">", "==", "> bool", "and", "or", "unless"};
    static const struct str names[] = {{"a", 1}, {"b", 1}};
    size_t op = (size_t)test_random_below(r, 8), choice = (size_t)test_random_below(r, 5);
    const char *lists[] = {"", "a", "b", "a, b", ""};
    char modifier[32] = "", group[32] = "", fills[32] = "";

    *s = (struct shape){.op = ops[op], .is_set = op >= 5, .comparison = op >= 2 && op <= 4};
    s->return_bool = op == 4;
    s->names = choice == 2 ? names + 1 : names;
    s->name_count = choice == 3 ? 2 : choice == 1 || choice == 2;
    s->on = test_random_below(r, 2) == 0 && choice != 4;
    if (choice != 4)
        (void)snprintf(modifier, sizeof modifier, " %s (%s)", s->on ? "on" : "ignoring",
                       lists[choice]);
    if (!s->is_set && choice != 4 && choice != 3)
        s->side = (int)test_random_below(r, 3);
    if (s->side != 0) {
        s->include = names + 1;
        s->include_count = choice == 1 ? (size_t)test_random_below(r, 2) : 0;
        if (!s->on)
            s->include_count = 0;
        (void)snprintf(group, sizeof group, " %s (%s)", s->side == 1 ? "group_left" : "group_right",
                       s->include_count > 0 ? "b" : "");
    }
    if (!s->is_set)
        fills_make(r, s, fills, sizeof fills);
    (void)snprintf(query, query_size, "x %s%s%s%s y", s->op, modifier, group, fills);
}

static void range_run(struct query_run *q, struct engine *e, const char *text)
{
    query_init(q, e, text);
    q->query.lookback_delta_ms = STEP_MS;     /* only what is sampled at the step itself */
    (void)query_range(q, 0, END_MS, STEP_MS); /* the caller looks at q->ei */
}

static void compare_step(const struct promql_result *got, size_t k, const struct step_result *want,
                         const char *query, uint64_t seed)
{
    size_t count = 0;

    for (size_t i = 0; i < got->series_count; i++) {
        bool found = false;

        if (!result_point_present(&got->series[i], k))
            continue;
        count++;
        for (size_t w = 0; w < want->count; w++) {
            if (labels_equal(&want->labels[w], &got->series[i].labels))
                found = want->value[w] == got->series[i].value[k];
        }
        CHECK_MSG(found, "%s step %zu seed %llu", query, k, (unsigned long long)seed);
    }
    CHECK_MSG(count == want->count, "%s step %zu: %zu rows, want %zu, seed %llu", query, k, count,
              want->count, (unsigned long long)seed);
}

static void compare_query(struct engine *e, const struct shape *s, const char *query, uint64_t seed,
                          size_t *failures)
{
    static struct step_result want[STEPS];
    const char *error = NULL;
    struct query_run x, y, got;

    range_run(&x, e, "x");
    range_run(&y, e, "y");
    range_run(&got, e, query);
    for (size_t k = 0; k < STEPS; k++) {
        struct step_vector l, r;

        step_take(&x.result, k, &l);
        step_take(&y.result, k, &r);
        want[k].count = 0;
        want[k].error = NULL;
        if (s->is_set)
            twin_set(s, &l, &r, &want[k]);
        else
            twin_match(s, &l, &r, &want[k], &x.arena);
        error = error != NULL ? error : want[k].error;
    }
    CHECK_MSG((error != NULL) == (got.ei.code != ERR_OK), "%s seed %llu: %s, want %s", query,
              (unsigned long long)seed, got.ei.message, error == NULL ? "none" : error);
    /* The first step that fails decides which error it is. */
    CHECK_MSG(error == NULL || strstr(got.ei.message, error) != NULL, "%s seed %llu: %s, want %s",
              query, (unsigned long long)seed, got.ei.message, error);
    *failures += error != NULL;
    for (size_t k = 0; error == NULL && k < STEPS; k++)
        compare_step(&got.result, k, &want[k], query, seed);
    query_done(&x);
    query_done(&y);
    query_done(&got);
}

static void test_twin(void **state)
{
    struct test_random r = test_random_init(20260815);
    size_t failures = 0;

    (void)state;
    for (int round = 0; round < 3000; round++) {
        struct engine *e = random_engine(&r);
        struct shape s;
        char query[128];

        shape_make(&r, &s, query, sizeof query);
        compare_query(e, &s, query, r.seed, &failures);
        fake_engine_free(e);
    }
    CHECK(failures > 100 && failures < 2500); /* both kinds of answers were compared */
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_twin)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
