/* Relabelling: each action on small label sets, and what is refused. That all of it agrees with
 * Prometheus on random rules is tests/integration/relabel_peer.py's to show. */
#include "engine/relabel.h"

#include <string.h>

#include "tests/lib/test_cmocka.h"
#include "tests/lib/test_support.h"

enum { LABEL_MAX = 16 };

/* `a=1,b=2` as labels; names and values without commas. Borrowed from `text`. */
static struct labels labels_of(const char *text, struct label items[LABEL_MAX])
{
    size_t count = 0;

    while (*text != '\0') {
        size_t size = strcspn(text, ","), name = strcspn(text, "=");

        CHECK(count < LABEL_MAX && name < size);
        items[count++] = (struct label){{text, name}, {text + name + 1, size - name - 1}};
        text += size + (text[size] == ',');
    }
    return (struct labels){count, items};
}

/* Applies one rule; `want` NULL: it drops. */
static void check_one(const struct relabel_config *c, const char *before, const char *want)
{
    struct label items[LABEL_MAX], want_items[LABEL_MAX];
    struct labels labels = labels_of(before, items), got = {0};
    struct relabel *rule = NULL;
    struct relabel_set set;
    struct errinfo ei = {0};
    struct arena arena;

    arena_init(&arena, NULL);
    CHECK_OK(relabel_config_check(c, &ei), &ei);
    CHECK_OK(relabel_compile(c, &arena, &rule, &ei), &ei);
    CHECK(relabel_set_begin(&set, &labels, &arena));
    CHECK(relabel_apply(rule, &set) == (want != NULL));
    CHECK(!set.failed && relabel_set_labels(&set, &got));
    if (want != NULL) {
        struct labels expected = labels_of(want, want_items);

        CHECK_MSG(labels_equal(&got, &expected), "%s gave %s", relabel_action_name(c->action),
                  labels_format_braces(&got, &arena));
        CHECK(set.changed || labels_equal(&got, &labels));
    }
    relabel_done(rule);
    arena_done(&arena);
}

static struct relabel_config rule(enum relabel_action action, const struct str *sources,
                                  size_t count)
{
    struct relabel_config c;

    relabel_config_init(&c);
    c.action = action;
    c.source_labels = sources;
    c.source_label_count = count;
    c.has_source_labels = count > 0;
    return c;
}

static const struct str source_a[] = {{"a", 1}};
static const struct str source_ab[] = {{"a", 1}, {"b", 1}};

static void test_filters(void **state)
{
    struct relabel_config c = rule(RELABEL_DROP, source_ab, 2);

    (void)state;
    c.regex = STR_LITERAL("x;y.*");
    check_one(&c, "a=x,b=yes", NULL);
    check_one(&c, "a=x,b=no", "a=x,b=no");
    c.action = RELABEL_KEEP;
    check_one(&c, "a=x,b=yes", "a=x,b=yes");
    check_one(&c, "a=x", NULL);
    c.separator = STR_LITERAL("");
    c.regex = STR_LITERAL("xy");
    check_one(&c, "a=x,b=y", "a=x,b=y");
    c = rule(RELABEL_DROPEQUAL, source_a, 1);
    c.target_label = STR_LITERAL("b");
    check_one(&c, "a=x,b=x", NULL);
    check_one(&c, "a=x,b=y", "a=x,b=y");
    check_one(&c, "c=1", NULL); /* both missing: equal */
    c.action = RELABEL_KEEPEQUAL;
    check_one(&c, "a=x,b=x", "a=x,b=x");
    check_one(&c, "a=x,b=y", NULL);
    c = rule(RELABEL_DROP, NULL, 0);
    check_one(&c, "a=x", NULL); /* the default pattern matches the empty text */
}

static void test_replace(void **state)
{
    struct relabel_config c = rule(RELABEL_REPLACE, source_a, 1);

    (void)state;
    c.target_label = STR_LITERAL("t");
    check_one(&c, "a=x", "a=x,t=x");
    check_one(&c, "b=x,t=old", "b=x"); /* nothing to set it to: deleted */
    c.regex = STR_LITERAL("([a-z]+)-([0-9]+)");
    c.replacement = STR_LITERAL("${2}_$1");
    check_one(&c, "a=node-7", "a=node-7,t=7_node");
    check_one(&c, "a=node7,t=old", "a=node7,t=old");
    c.target_label = STR_LITERAL("l_$1");
    check_one(&c, "a=node-7", "a=node-7,l_node=7_node");
    c.target_label = STR_LITERAL("$9");
    check_one(&c, "a=node-7", "a=node-7"); /* no name: nothing happens */
    c = rule(RELABEL_REPLACE, NULL, 0);
    c.target_label = STR_LITERAL("env");
    c.replacement = STR_LITERAL("prod");
    check_one(&c, "a=1,env=dev", "a=1,env=prod");
    c.replacement = STR_LITERAL("");
    check_one(&c, "a=1,env=dev", "a=1");
}

static void test_values(void **state)
{
    struct relabel_config c = rule(RELABEL_HASHMOD, source_ab, 2);

    (void)state;
    c.target_label = STR_LITERAL("d");
    c.modulus = 1000;
    check_one(&c, "a=foo,b=bar,c=baz", "a=foo,b=bar,c=baz,d=750");
    c = rule(RELABEL_LOWERCASE, source_a, 1);
    c.target_label = STR_LITERAL("a");
    check_one(&c, "a=NoDe\u00c4", "a=node\u00e4");
    c.action = RELABEL_UPPERCASE;
    check_one(&c, "a=NoDe\u00e4", "a=NODE\u00c4");
}

static void test_names(void **state)
{
    struct relabel_config c = rule(RELABEL_LABELMAP, NULL, 0);

    (void)state;
    c.regex = STR_LITERAL("pod_(.+)");
    check_one(&c, "pod_a=1,pod_b=2", "a=1,b=2,pod_a=1,pod_b=2");
    c.replacement = STR_LITERAL("same");
    check_one(&c, "pod_a=1,pod_b=2", "pod_a=1,pod_b=2,same=2"); /* the last one in order wins */
    c = rule(RELABEL_LABELDROP, NULL, 0);
    c.regex = STR_LITERAL("pod_.*|x");
    check_one(&c, "pod_a=1,x=2,y=3", "y=3");
    c.action = RELABEL_LABELKEEP;
    check_one(&c, "pod_a=1,x=2,y=3", "pod_a=1,x=2");
}

/* What labelmap sees after other rules: first what is left of the beginning, then what was set. */
static void test_order_of_a_chain(void **state)
{
    struct label items[LABEL_MAX], want_items[LABEL_MAX];
    struct labels labels = labels_of("m_a=1,m_b=2,m_c=3", items), got = {0};
    struct labels want = labels_of("m_a=new,m_b=2,m_c=3,out=new", want_items);
    struct relabel_config set_a = rule(RELABEL_REPLACE, NULL, 0);
    struct relabel_config map = rule(RELABEL_LABELMAP, NULL, 0);
    struct relabel *rules[2] = {NULL, NULL};
    struct relabel_set set;
    struct errinfo ei = {0};
    struct arena arena;

    (void)state;
    arena_init(&arena, NULL);
    set_a.target_label = STR_LITERAL("m_a");
    set_a.replacement = STR_LITERAL("new");
    map.regex = STR_LITERAL("m_.");
    map.replacement = STR_LITERAL("out");
    CHECK_OK(relabel_compile(&set_a, &arena, &rules[0], &ei), &ei);
    CHECK_OK(relabel_compile(&map, &arena, &rules[1], &ei), &ei);
    CHECK(relabel_set_begin(&set, &labels, &arena));
    CHECK(relabel_apply(rules[0], &set) && relabel_apply(rules[1], &set));
    CHECK(relabel_set_labels(&set, &got));
    CHECK_MSG(labels_equal(&got, &want), "%s", labels_format_braces(&got, &arena));
    relabel_done(rules[0]);
    relabel_done(rules[1]);
    arena_done(&arena);
}

static void check_refused(const struct relabel_config *c, const char *want)
{
    struct errinfo ei = {0};

    CHECK(relabel_config_check(c, &ei) == ERR_INVALID);
    CHECK_MSG(strcmp(ei.message, want) == 0, "%s", ei.message);
}

static void test_refused(void **state)
{
    static const struct str empty_name[] = {{"", 0}};
    struct relabel_config c = rule(RELABEL_HASHMOD, source_a, 1);

    (void)state;
    check_refused(&c, "relabel configuration for hashmod requires non-zero modulus");
    c.modulus = 1;
    check_refused(&c, "relabel configuration for hashmod action requires 'target_label' value");
    c.target_label = STR_LITERAL("\xff");
    check_refused(&c, "\"\\xff\" is invalid 'target_label' for hashmod action");
    c = rule(RELABEL_LOWERCASE, source_a, 1);
    c.target_label = STR_LITERAL("t");
    c.replacement = STR_LITERAL("x");
    check_refused(&c, "'replacement' can not be set for lowercase action");
    c = rule(RELABEL_LABELMAP, NULL, 0);
    c.replacement = STR_LITERAL("");
    check_refused(&c, "\"\" is invalid 'replacement' for labelmap action");
    c = rule(RELABEL_DROPEQUAL, source_a, 1);
    c.target_label = STR_LITERAL("t");
    c.has_regex = true;
    check_refused(&c, "dropequal action requires only 'source_labels' and `target_label`, and no "
                      "other fields");
    c = rule(RELABEL_LABELDROP, source_a, 1);
    check_refused(&c, "labeldrop action requires only 'regex', and no other fields");
    c = rule(RELABEL_KEEP, empty_name, 1);
    check_refused(&c, "\"\" is not a valid label name");
    c = rule(RELABEL_KEEP, source_a, 1);
    c.regex = STR_LITERAL("a(");
    check_refused(&c, "invalid regular expression: missing ): a(");
}

static void test_action_names(void **state)
{
    enum relabel_action action = RELABEL_REPLACE;

    (void)state;
    for (int i = RELABEL_REPLACE; i <= RELABEL_UPPERCASE; i++) {
        CHECK(relabel_action_parse(str_from(relabel_action_name((enum relabel_action)i)), &action));
        CHECK((int)action == i);
    }
    CHECK(relabel_action_parse(STR_LITERAL("LabelMap"), &action) && action == RELABEL_LABELMAP);
    CHECK(!relabel_action_parse(STR_LITERAL(""), &action));
    CHECK(!relabel_action_parse(STR_LITERAL("kee"), &action));
    CHECK(!relabel_action_parse(STR_LITERAL("keeps"), &action));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_filters),          cmocka_unit_test(test_replace),
        cmocka_unit_test(test_values),           cmocka_unit_test(test_names),
        cmocka_unit_test(test_order_of_a_chain), cmocka_unit_test(test_refused),
        cmocka_unit_test(test_action_names),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
