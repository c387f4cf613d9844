/* Which metrics dashboards and rule files read. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/lib/test_cmocka.h"
#include "tests/lib/test_support.h"
#include "tools/used_names_internal.h"

static int by_text(const void *a, const void *b)
{
    return str_compare(*(const struct str *)a, *(const struct str *)b);
}

/* The set as one text, sorted, with spaces between. */
static void joined(const struct text_set *s, char out[2048])
{
    struct str items[256];
    size_t size = 0;

    CHECK(s->count <= 256);
    if (s->count > 0)
        memcpy(items, s->items, s->count * sizeof *items);
    qsort(items, s->count, sizeof *items, by_text);
    out[0] = '\0';
    for (size_t i = 0; i < s->count; i++)
        size += (size_t)snprintf(out + size, 2048 - size, "%s%.*s", i == 0 ? "" : " ",
                                 STR_ARGS(items[i]));
}

static void check_sets(const struct used_names *u, const char *what, const char *names,
                       const char *selectors)
{
    char text[2048];

    joined(&u->names, text);
    CHECK_MSG(strcmp(text, names) == 0, "%s: names \"%s\", expected \"%s\"", what, text, names);
    joined(&u->selectors, text);
    CHECK_MSG(strcmp(text, selectors) == 0, "%s: selectors \"%s\", expected \"%s\"", what, text,
              selectors);
}

static void expressions(void **state)
{
    static const struct {
        const char *text, *names, *selectors;
    } cases[] = {
        {"sum by (job) (rate(http_requests_total{job=\"a\"}[5m]))", "http_requests_total", ""},
        {"a / on (x) group_left b offset 5m + c @ end()", "a b c", ""},
        {"info(x)", "target_info x", ""},
        {"info(x, {a=\"b\"})", "target_info x", ""},
        {"info(x, {__name__=\"build_info\"})", "build_info x", ""},
        {"{__name__=~\"node_.*\", job!=\"x\"}", "", "{__name__=~\"node_.*\", job!=\"x\"}"},
        {"count({job=\"x\"})", "", "{job=\"x\"}"},
        {"1 + vector(2)", "", ""},
        /* Variables. */
        {"rate(up{job=~\"$job\", i=\"${i:regex}\", j=\"[[j]]\"}[$__rate_interval])", "up", ""},
        {"rate(x[$interval] offset $shift) > 0", "x", ""},
        {"max_over_time(x[1h:${step}])", "x", ""},
        {"increase(x[$__range])/$__range_s + y / $__interval_ms", "x y", ""},
        {"topk($n, x)", "x", ""},
        {"x > $limit", "x", ""},
        {"sum by ($group) (x)", "x", ""},
        {"{job=\"$job\", a=\"b\"}", "", "{a=\"b\"}"},
        {"node_${what}_total{a=\"b\"}", "", "{a=\"b\", __name__=~\"node_.*_total\"}"},
        {"{__name__=~\"$metric.*\"}", "", "{__name__=~\".*.*\"}"},
        {"rate($metric[5m])", "", ""}, /* of which nothing is known */
        {"x{a=\"$5\"} and y{b=~\"c$\"}", "x y", ""},
        /* What cannot be parsed counts by its words. */
        {"$agg(some_metric{job=\"not this\"}) ) by", "RIMTOOLvariable agg by job some_metric", ""},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct used_names u;
        struct errinfo ei = {0};

        used_names_init(&u);
        CHECK_OK(used_names_expression(&u, str_from(cases[i].text), true, &ei), &ei);
        if (u.unparsed_count == 0)
            check_sets(&u, cases[i].text, cases[i].names, cases[i].selectors);
        else
            CHECK(text_set_has(&u.names, STR_LITERAL("some_metric")) &&
                  !text_set_has(&u.names, STR_LITERAL("not")));
        CHECK((u.unparsed_count == 0) == (i + 1 < sizeof cases / sizeof cases[0]));
        used_names_done(&u);
    }
}

static void dashboards(void **state)
{
    static const char json[] =
        "{\"panels\": [{\"targets\": [{\"expr\": \"rate(a_total[$__rate_interval])\"},"
        "  {\"expr\": \"{app=\\\"x\\\"} |= \\\"err\\\"\"}, {\"expr\": \"\"}]},"
        " {\"type\": \"row\", \"panels\": [{\"targets\": [{\"expr\": \"b\"}]}]}],"
        " \"annotations\": {\"list\": [{\"expr\": \"changes(c[1m]) > 0\"}]},"
        " \"templating\": {\"list\": ["
        "  {\"query\": \"label_values(d{x=\\\"a,b\\\"}, job)\"},"
        "  {\"query\": {\"query\": \"query_result(topk(5, e))\", \"refId\": \"A\"}},"
        "  {\"query\": \"label_values(job)\"}, {\"query\": \"1m,5m,1h\"},"
        "  {\"definition\": \"metrics(node_)\"}]}}";
    struct used_names u;
    struct errinfo ei = {0};

    (void)state;
    used_names_init(&u);
    CHECK_OK(used_names_dashboard_text(&u, str_from(json), &ei), &ei);
    check_sets(&u, "dashboard", "a_total app b c d e", "{__name__=~\".*(node_).*\"}");
    CHECK(u.unparsed_count == 1 && u.expression_count == 7);
    CHECK(used_names_dashboard_text(&u, STR_LITERAL("{"), &ei) == ERR_INVALID);
    used_names_done(&u);
}

static void rules(void **state)
{
    static const char yaml[] = "groups:\n"
                               "  - name: g\n"
                               "    rules:\n"
                               "      - record: job:a:sum\n"
                               "        expr: sum by (job) (a)\n"
                               "        labels: {expr: \"b\"}\n"
                               "      - alert: X\n"
                               "        expr: |\n"
                               "          c > 0\n"
                               "          and d\n"
                               "        annotations: {summary: \"{{ $value }} of e\"}\n"
                               "---\n"
                               "spec: {groups: [{rules: [{alert: Y, expr: 'f == 0'}]}]}\n";
    struct used_names u;
    struct errinfo ei = {0};

    (void)state;
    used_names_init(&u);
    CHECK_OK(used_names_rule_text(&u, str_from(yaml), &ei), &ei);
    check_sets(&u, "rules", "a b c d f", "");
    CHECK(used_names_rule_text(&u, STR_LITERAL("a: ["), &ei) == ERR_INVALID);
    CHECK(strncmp(ei.message, "2:1:", 4) == 0 || strncmp(ei.message, "1:", 2) == 0);
    used_names_done(&u);
}

static void sets_hold_many(void **state)
{
    struct used_names u;
    char text[32];

    (void)state;
    used_names_init(&u);
    for (int round = 0; round < 2; round++)
        for (int i = 0; i < 10000; i++) {
            (void)snprintf(text, sizeof text, "metric_%d", i);
            CHECK(text_set_has(&u.names, str_from(text)) == (round == 1));
            CHECK(text_set_add(&u.names, &u.arena, str_from(text)));
        }
    CHECK(u.names.count == 10000);
    used_names_done(&u);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(expressions),
        cmocka_unit_test(dashboards),
        cmocka_unit_test(rules),
        cmocka_unit_test(sets_hold_many),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
