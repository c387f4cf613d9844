#include "tests/engine/rule_kit.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/regex.h"

static const char *const label_names[] = {"__name__", "job", "pod", "tmp", "zone"};
static const char *const label_values[] = {"a", "ab", "abc", "b", "ba", "node-1", "node-2", ""};
static const char *const patterns[] = {
    "a",   "a|b",     "a.*", "ab.+",  ".*",       "",  "node-[0-9]+", "(.*)-(.*)", ".*b",
    "b?a", "a|ab|ba", "a;b", "a.*;b", "(a|b);.*", "x", "node-1;.*",   "[ab]+",     "ba;|b"};
static const char *const name_patterns[] = {"tmp", "t.*", "zone|pod", "p(.*)", ".*", "job"};
static const char *const separators[] = {";", ";", ";", "", ";;", "a"};

#define PICK(random, list) ((list)[test_random_below((random), sizeof(list) / sizeof(list)[0])])

static struct str pick_name(struct test_random *random)
{
    return str_from(PICK(random, label_names));
}

static struct relabel_config random_relabel(struct test_random *random, struct arena *arena,
                                            bool filters_only)
{
    struct relabel_config c;
    size_t count = test_random_below(random, 3);
    struct str *sources = ARENA_ARRAY(arena, 3, struct str);

    CHECK(sources != NULL);
    for (size_t i = 0; i < 3; i++)
        sources[i] = pick_name(random);
    relabel_config_init(&c);
    do {
        c.action = (enum relabel_action)test_random_below(random, RELABEL_UPPERCASE + 1);
    } while (filters_only && !relabel_action_filters(c.action));
    if (c.action == RELABEL_LABELDROP || c.action == RELABEL_LABELKEEP) {
        c.regex = str_from(PICK(random, name_patterns));
        return c;
    }
    c.source_labels = sources;
    c.source_label_count = count;
    c.has_source_labels = true;
    if (c.action == RELABEL_KEEPEQUAL || c.action == RELABEL_DROPEQUAL) {
        c.target_label = pick_name(random);
        return c;
    }
    c.separator = str_from(PICK(random, separators));
    if (c.action == RELABEL_LABELMAP) {
        c.regex = str_from(PICK(random, name_patterns));
        c.replacement =
            test_random_below(random, 2) == 0 ? STR_LITERAL("x_$1") : STR_LITERAL("zone");
        return c;
    }
    c.regex = str_from(PICK(random, patterns));
    c.target_label = pick_name(random);
    c.modulus = 1 + test_random_below(random, 3);
    if (c.action == RELABEL_REPLACE && test_random_below(random, 2) == 0)
        c.replacement = test_random_below(random, 2) == 0 ? STR_LITERAL("n$1") : STR_LITERAL("ab");
    return c;
}

struct relabel_config rule_kit_filter(struct test_random *random, struct arena *arena)
{
    return random_relabel(random, arena, true);
}

bool rule_kit_filter_drops(const struct relabel_config *c, const struct labels *labels)
{
    struct regex *re = NULL;
    struct errinfo ei = {0};
    struct byte_writer joined;
    struct str text;
    bool is_equal, is_match;

    writer_init(&joined);
    for (size_t i = 0; i < c->source_label_count; i++) {
        struct str value = labels_get(labels, c->source_labels[i]);

        if (i > 0)
            writer_append(&joined, c->separator.data, c->separator.size);
        writer_append(&joined, value.data, value.size);
    }
    CHECK(!joined.failed);
    text = (struct str){joined.data == NULL ? "" : (const char *)joined.data, joined.size};
    is_equal = str_equal(text, labels_get(labels, c->target_label));
    CHECK_OK(regex_compile(c->regex, &re, &ei), &ei);
    is_match = regex_match(re, text);
    regex_free(re);
    writer_done(&joined);
    switch (c->action) {
    case RELABEL_DROP:
        return is_match;
    case RELABEL_KEEP:
        return !is_match;
    case RELABEL_DROPEQUAL:
        return is_equal;
    case RELABEL_KEEPEQUAL:
        return !is_equal;
    default:
        CHECK(false);
        return false;
    }
}

static struct matcher *random_matchers(struct test_random *random, struct arena *arena,
                                       size_t *count)
{
    struct matcher *m = arena_calloc(arena, 3, sizeof *m);
    struct errinfo ei = {0};

    CHECK(m != NULL);
    *count = 1 + test_random_below(random, 3);
    for (size_t i = 0; i < *count; i++) {
        enum matcher_kind kind = (enum matcher_kind)test_random_below(random, 4);
        const char *value = kind == MATCHER_EQUAL || kind == MATCHER_NOT_EQUAL
                                ? PICK(random, label_values)
                                : PICK(random, patterns);

        CHECK_OK(matcher_init(&m[i], kind, pick_name(random), str_from(value), arena, &ei), &ei);
    }
    return m;
}

struct drop_rule rule_kit_random(struct test_random *random, struct arena *arena, size_t number,
                                 bool filters_only)
{
    struct drop_rule r = {.comment = STR_LITERAL("")};
    char *name = arena_printf(arena, "rule-%zu", number);

    CHECK(name != NULL);
    r.name = str_from(name);
    if (test_random_below(random, 2) == 0)
        r.matchers = random_matchers(random, arena, &r.matcher_count);
    else
        r.relabel = random_relabel(random, arena, filters_only);
    return r;
}

void rule_kit_done(struct drop_rule *rules, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        for (size_t k = 0; rules[i].matchers != NULL && k < rules[i].matcher_count; k++)
            matcher_done((struct matcher *)(uintptr_t)&rules[i].matchers[k]);
    }
}

struct drop_rule rule_kit_drop(const char *rule_name, const char *label, const char *op,
                               const char *value, struct arena *arena)
{
    struct matcher *m = arena_calloc(arena, 1, sizeof *m);
    struct errinfo ei = {0};

    CHECK(m != NULL);
    CHECK_OK(matcher_init(m, strcmp(op, "=") == 0 ? MATCHER_EQUAL : MATCHER_REGEX, str_from(label),
                          str_from(value), arena, &ei),
             &ei);
    return (struct drop_rule){
        .name = str_from(rule_name), .comment = STR_LITERAL(""), .matchers = m, .matcher_count = 1};
}

struct labels rule_kit_labels(struct test_random *random, struct arena *arena)
{
    struct label *items = ARENA_ARRAY(arena, RULE_KIT_LABELS, struct label);
    size_t count = 0;

    CHECK(items != NULL);
    for (size_t i = 0; i < sizeof label_names / sizeof label_names[0]; i++) {
        const char *value = PICK(random, label_values);

        if (i == 0 && *value == '\0')
            value = "up";
        if (*value != '\0')
            items[count++] = (struct label){str_from(label_names[i]), str_from(value)};
    }
    return (struct labels){count, items};
}

static bool selector_matches(const struct drop_rule *r, const struct labels *labels)
{
    for (size_t i = 0; i < r->matcher_count; i++) {
        if (!matcher_matches(&r->matchers[i], labels_get(labels, r->matchers[i].name)))
            return false;
    }
    return true;
}

struct rule_verdict rule_kit_judge(const struct drop_rule *rules, size_t count,
                                   const struct labels *labels, struct arena *arena)
{
    struct rule_verdict v = {RULE_NONE, false, *labels};
    struct relabel_set set;

    CHECK(relabel_set_begin(&set, labels, arena));
    for (size_t i = 0; i < count && v.dropped_by == RULE_NONE; i++) {
        struct relabel *compiled = NULL;
        struct errinfo ei = {0};
        bool keeps;

        CHECK(relabel_set_labels(&set, &v.labels));
        if (rules[i].matchers != NULL) {
            keeps = !selector_matches(&rules[i], &v.labels);
        } else {
            CHECK_OK(relabel_compile(&rules[i].relabel, arena, &compiled, &ei), &ei);
            keeps = relabel_apply(compiled, &set);
            relabel_done(compiled);
        }
        if (!keeps)
            v.dropped_by = (uint32_t)i;
    }
    CHECK(!set.failed && relabel_set_labels(&set, &v.labels));
    v.is_rewritten = !labels_equal(&v.labels, labels);
    return v;
}
