/* Rules of the API and of the file: lists that are refused, JSON there and back, and the file over
 * crashes, faults and damages. */
#include "api/rule_book.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/config/config_parse_internal.h"
#include "api/rules/drop_rule_json_internal.h"
#include "api/rules/rule_file_internal.h"
#include "base/clock.h"
#include "base/file_sim.h"
#include "engine/engine.h"
#include "tests/lib/test_cmocka.h"
#include "tests/lib/test_support.h"

/* ---- texts ---- */

static const char all_fields[] =
    "[\n"
    "{\"name\":\"a\",\"comment\":\"why "
    "\\\"not\\\"\",\"purge\":true,\"drop\":\"up{job=~\\\"a.*\\\"}\"},\n"
    "{\"name\":\"b\",\"action\":\"hashmod\",\"source_labels\":[\"x\",\"y\"],\"separator\":\"\","
    "\"modulus\":18446744073709551615,\"target_label\":\"t\"},\n"
    "{\"name\":\"c\",\"action\":\"replace\",\"source_labels\":[],\"regex\":\"\",\"target_label\":"
    "\"t\","
    "\"replacement\":\"\"},\n"
    "{\"name\":\"d\",\"action\":\"labeldrop\",\"regex\":\"(.*)\"}\n"
    "]\n";

static void rules_write(const struct config *c, struct byte_writer *w)
{
    writer_printf(w, "[");
    for (size_t i = 0; i < c->drop_rule_count; i++) {
        writer_printf(w, i == 0 ? "\n" : ",\n");
        drop_rule_write(w, &c->drop_rules[i]);
    }
    writer_printf(w, "\n]\n");
}

static void test_there_and_back(void **state)
{
    struct byte_writer w;
    struct config c;
    struct errinfo ei = {0};

    (void)state;
    writer_init(&w);
    config_init(&c);
    CHECK_OK(config_rules_parse(&c, "x", str_from(all_fields), DROP_RULE_API, &ei), &ei);
    CHECK(c.drop_rule_count == 4 && c.drop_rules[0].purge && c.drop_rules[0].matcher_count == 2);
    CHECK(c.drop_rules[1].relabel.modulus == UINT64_MAX);
    CHECK(c.drop_rules[2].relabel.has_source_labels && !c.drop_rules[3].relabel.has_source_labels);
    rules_write(&c, &w);
    CHECK(w.size == strlen(all_fields) && memcmp(w.data, all_fields, w.size) == 0);
    config_done(&c);
    writer_done(&w);
}

static void check_plain(const char *text, const char *want)
{
    struct byte_writer w;

    writer_init(&w);
    config_json_plain(str_from(text), &w);
    CHECK_MSG(w.size == strlen(want) && (w.size == 0 || memcmp(w.data, want, w.size) == 0), "%s",
              text);
    writer_done(&w);
}

static void test_surrogates(void **state)
{
    (void)state;
    check_plain("", "");
    check_plain("\\ud83d\\ude00|\\u00e9", "\U0001f600|\\u00e9");
    check_plain("\\\\ud83d\\ude00", "\\\\ud83d\\ude00"); /* the backslash is escaped */
    check_plain("\\ud83d", "\\ud83d");
    check_plain("\\ud83dx\\ude00", "\\ud83dx\\ude00");
    check_plain("\\ud83d\\u", "\\ud83d\\u");
    check_plain("\\", "\\");
}

/* ---- the file ---- */

static struct fs *fs_new(uint64_t seed)
{
    struct fs *fs = NULL;
    struct errinfo ei = {0};

    CHECK_OK(fs_sim_new(seed, &fs, &ei), &ei);
    return fs;
}

/* What is kept, as a string; NULL: nothing. Freed by the caller. */
static char *kept(struct fs *fs)
{
    struct byte_writer w;
    struct errinfo ei = {0};
    char *text = NULL;

    writer_init(&w);
    CHECK_OK(rule_file_read(fs, &w, &ei), &ei);
    if (w.size > 0) {
        writer_u8(&w, '\0');
        text = strdup((const char *)w.data);
    }
    writer_done(&w);
    return text;
}

static bool is_kept(struct fs *fs, const char *want)
{
    char *text = kept(fs);
    bool is = (text == NULL) == (want == NULL) && (text == NULL || strcmp(text, want) == 0);

    free(text);
    return is;
}

/* After a crash at any operation the old rules are there or the new ones; once the call has
 * succeeded, the new ones. */
static void crash_at(uint64_t op, enum fs_sim_loss loss, uint64_t seed, bool *done)
{
    struct fs *fs = fs_new(seed), *after = NULL;
    struct errinfo ei = {0};
    enum err e;

    CHECK_OK(rule_file_write(fs, STR_LITERAL("old"), &ei), &ei);
    fs_sim_set_fault(fs, FS_SIM_FAULT_CRASH, fs_sim_op_count(fs) + op);
    e = rule_file_write(fs, STR_LITERAL("new and longer"), &ei);
    *done = e == ERR_OK;
    CHECK_OK(fs_sim_after_crash(fs, loss, seed, &after, &ei), &ei);
    CHECK_MSG(is_kept(after, "new and longer") || (!*done && is_kept(after, "old")),
              "operation %d, loss %d", (int)op, (int)loss);
    /* What a crash has left is in nobody's way. */
    CHECK_OK(rule_file_write(after, STR_LITERAL("next"), &ei), &ei);
    CHECK(is_kept(after, "next"));
    fs_free(after);
    fs_free(fs);
}

static void test_crash_everywhere(void **state)
{
    (void)state;
    for (int loss = FS_SIM_KEEP_ALL; loss <= FS_SIM_DROP_RANDOM; loss++) {
        for (uint64_t seed = 1; seed < 9; seed++) {
            bool done = false;

            for (uint64_t op = 0; !done; op++) {
                CHECK(op < 20);
                crash_at(op, (enum fs_sim_loss)loss, seed, &done);
            }
        }
    }
}

static void test_damages(void **state)
{
    struct byte_writer w;
    struct errinfo ei = {0};
    uint64_t bits = UINT64_C(8) * (32 + 5);

    (void)state;
    writer_init(&w);
    for (uint64_t bit = 0; bit < bits; bit++) {
        struct fs *fs = fs_new(1);

        CHECK_OK(rule_file_write(fs, STR_LITERAL("rules"), &ei), &ei);
        CHECK_OK(fs_sim_flip_bit(fs, RULE_FILE_PATH, bit, &ei), &ei);
        CHECK_MSG(rule_file_read(fs, &w, &ei) == ERR_CORRUPT, "bit %d", (int)bit);
        CHECK(strstr(ei.message, RULE_FILE_PATH) != NULL && w.size == 0);
        fs_free(fs);
    }
    for (uint64_t size = 0; size < 37; size++) {
        struct fs *fs = fs_new(1);
        struct file *file = NULL;

        CHECK_OK(rule_file_write(fs, STR_LITERAL("rules"), &ei), &ei);
        CHECK_OK(file_open(fs, RULE_FILE_PATH, FILE_READ_WRITE, &file, &ei), &ei);
        CHECK_OK(file_truncate(file, size, &ei), &ei);
        file_close(file);
        CHECK(rule_file_read(fs, &w, &ei) == ERR_CORRUPT && w.size == 0);
        fs_free(fs);
    }
    writer_done(&w);
}

/* A file of this version as it is for good. */
static void test_golden(void **state)
{
    static const uint8_t golden[] = {'R',  'I',  'M',  'R',  'U',  'L', 'E',  'S',  1,
                                     0,    0,    0,    0,    0,    0,   0,    0,    0,
                                     0,    0,    3,    0,    0,    0,   0x31, 0x85, 0xd0,
                                     0x6e, 0xa9, 0xaf, 0x9f, 0x65, '[', ']',  '\n'};
    struct fs *fs = fs_new(1);
    struct file *file = NULL;
    struct errinfo ei = {0};
    uint8_t bytes[sizeof golden];

    (void)state;
    CHECK_OK(rule_file_write(fs, STR_LITERAL("[]\n"), &ei), &ei);
    CHECK_OK(file_open(fs, RULE_FILE_PATH, FILE_READ, &file, &ei), &ei);
    CHECK_OK(file_read(file, bytes, sizeof bytes, 0, &ei), &ei);
    file_close(file);
    CHECK(memcmp(bytes, golden, sizeof golden) == 0);
    fs_free(fs);
}

/* ---- the book ---- */

struct world {
    struct fs *fs;
    struct clock clock;
    struct engine *engine;
    struct config config;
    struct rule_book *book;
};

static void world_open(struct world *w, struct fs *fs, const char *file_rules)
{
    struct engine_replay_result replay;
    struct errinfo ei = {0};

    w->fs = fs;
    clock_init_fake(&w->clock, 1767225600000);
    const struct engine_options options = {.fs = fs, .clock = &w->clock};
    CHECK_OK(engine_open(&options, &w->engine, &ei), &ei);
    config_init(&w->config);
    CHECK_OK(config_parse(&w->config, "x.yml", str_from(file_rules), &ei), &ei);
    CHECK_OK(rule_book_new(fs, w->engine, &w->config, &w->book, &ei), &ei);
    CHECK_OK(engine_replay(w->engine, 1, &replay, &ei), &ei);
}

static void world_close(struct world *w)
{
    struct errinfo ei = {0};

    rule_book_free(w->book);
    CHECK_OK(engine_close(w->engine, 1000, &ei), &ei);
    config_done(&w->config);
}

/* Names in effect, such as "a,b|f": the API's, then the file's. */
static void check_names(struct world *w, const char *want)
{
    struct drop_rule_state *states = NULL;
    struct byte_writer names;
    struct arena arena;
    struct errinfo ei = {0};
    size_t count = 0;
    bool in_file = false;

    arena_init(&arena, NULL);
    writer_init(&names);
    CHECK_OK(engine_rules_state(w->engine, &arena, &states, &count, &ei), &ei);
    for (size_t i = 0; i < count; i++) {
        bool of_file = states[i].rule.origin == DROP_RULE_FILE;

        writer_printf(&names, "%s%.*s",
                      of_file && !in_file ? "|"
                      : i == 0            ? ""
                                          : ",",
                      STR_ARGS(states[i].rule.name));
        in_file |= of_file;
    }
    writer_u8(&names, 0);
    CHECK_MSG(strcmp((const char *)names.data, want) == 0, "%s", (const char *)names.data);
    writer_done(&names);
    arena_done(&arena);
}

static enum err add(struct world *w, const char *text)
{
    struct rule_change applied;
    struct errinfo ei = {0};

    return rule_book_add(w->book, str_from(text), &applied, &ei);
}

static void test_book(void **state)
{
    struct rule_change applied;
    struct errinfo ei = {0};
    struct world w;
    struct fs *fs = fs_new(1);

    (void)state;
    world_open(&w, fs, "drop_rules: [{name: f, drop: x}]");
    check_names(&w, "|f");
    CHECK(add(&w, "[{name: a, drop: a}, {name: b, drop: b}]") == ERR_OK);
    CHECK(add(&w, "[{name: c, drop: c}, {name: a, drop: other}]") == ERR_OK);
    check_names(&w, "a,b,c|f");
    CHECK(add(&w, "[{name: d, drop: d}, {name: e}]") == ERR_INVALID); /* all or none */
    check_names(&w, "a,b,c|f");
    CHECK_OK(rule_book_remove(w.book, STR_LITERAL("b"), &applied, &ei), &ei);
    CHECK(rule_book_remove(w.book, STR_LITERAL("b"), &applied, &ei) == ERR_NOT_FOUND);
    CHECK(rule_book_remove(w.book, STR_LITERAL("f"), &applied, &ei) == ERR_INVALID);
    /* A disk that refuses changes nothing. */
    fs_sim_set_fault(fs, FS_SIM_FAULT_NO_SPACE, fs_sim_op_count(fs));
    CHECK(add(&w, "{name: z, drop: z}") == ERR_NO_SPACE);
    fs_sim_clear_fault(fs);
    check_names(&w, "a,c|f");
    world_close(&w);
    world_open(&w, fs, "");
    check_names(&w, "a,c");
    CHECK(add(&w, "{name: z, drop: z}") == ERR_OK);
    world_close(&w);
    world_open(&w, fs, "drop_rules: [{name: a, drop: x}]"); /* the same name in both */
    check_names(&w, "a,c,z|a");
    world_close(&w);
    fs_free(fs);
}

/* A purge is refused where a later rule may write a label that its selector reads, and only there.
 */
static void test_what_can_be_purged(void **state)
{
    static const struct {
        const char *file_rule;
        bool is_refused;
    } cases[] = {
        {"regex: pod, action: labeldrop", false},
        {"regex: 'j.*', action: labeldrop", true},
        {"regex: '__name__|job', action: labelkeep", false},
        {"regex: __name__, action: labelkeep", true},
        {"regex: 'x_(.*)', action: labelmap", true},
        {"target_label: job, replacement: x", true},
        {"target_label: env, replacement: x", false},
        {"source_labels: [x], target_label: $1", true},
        {"source_labels: [x], target_label: job, action: lowercase", true},
        {"source_labels: [job], target_label: y, modulus: 3, action: hashmod", false},
        {"source_labels: [job], regex: a, action: keep", false},
        {"source_labels: [job], regex: a, action: drop", false},
        {"drop: '{job=\"b\"}'", false},
    };
    static const char *const purging[] = {
        "{name: p, purge: true, drop: '{job=\"a\"}'}",
        "{name: p, purge: true, source_labels: [job], regex: a, action: drop}",
        "{name: p, purge: true, source_labels: [job], regex: b, action: keep}",
        "{name: p, purge: true, source_labels: [job, __name__], regex: 'a;b', action: drop}",
        "{name: p, purge: true, source_labels: [__name__, job], separator: '', action: keep}",
        "{name: p, purge: true, source_labels: [__name__], target_label: job, action: keepequal}",
        "{name: p, purge: true, source_labels: [], target_label: job, action: dropequal}",
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct fs *fs = fs_new(i);
        struct rule_change change = {0};
        struct errinfo ei = {0};
        struct world w;
        char text[200];
        enum err e;

        (void)snprintf(text, sizeof text, "drop_rules: [{name: f, %s}]", cases[i].file_rule);
        world_open(&w, fs, text);
        CHECK_OK(rule_book_settle(w.book, &change.purges, &ei), &ei);
        CHECK(change.purges.made == 0 && change.purges.withdrawn == 0);
        for (size_t k = 0; k < sizeof purging / sizeof purging[0]; k++) {
            e = rule_book_add(w.book, str_from(purging[k]), &change, &ei);
            CHECK_MSG(e == (cases[i].is_refused ? ERR_INVALID : ERR_OK), "%s: %s", text,
                      ei.message);
            CHECK(change.purges.made == !cases[i].is_refused);
        }
        check_names(&w, cases[i].is_refused ? "|f" : "p|f");
        world_close(&w);
        fs_free(fs);
    }
}

/* Purges follow the rules: over changes, and over starts between which the file has changed. */
static void test_purges_follow(void **state)
{
    static const char purging[] = "drop_rules: [{name: f, purge: true, drop: f}]";
    struct fs *fs = fs_new(30);
    struct rule_change change = {0};
    struct rule_purges settled;
    struct errinfo ei = {0};
    struct world w;

    (void)state;
    world_open(&w, fs, purging);
    CHECK_OK(rule_book_settle(w.book, &settled, &ei), &ei);
    CHECK(settled.made == 1 && settled.withdrawn == 0);
    CHECK_OK(rule_book_add(w.book,
                           STR_LITERAL("[{name: a, purge: true, drop: a}, {name: b, "
                                       "purge: true, drop: f}]"),
                           &change, &ei),
             &ei);
    CHECK(change.purges.made == 1 && change.purges.withdrawn == 0);
    world_close(&w);
    world_open(&w, fs, purging);
    CHECK_OK(rule_book_settle(w.book, &settled, &ei), &ei);
    CHECK(settled.made == 0 && settled.withdrawn == 0);
    CHECK_OK(rule_book_add(w.book, STR_LITERAL("{name: a, purge: true, drop: c}"), &change, &ei),
             &ei);
    CHECK(change.purges.made == 1 && change.purges.withdrawn == 1);
    world_close(&w);
    world_open(&w, fs, ""); /* b has the file's selector */
    CHECK_OK(rule_book_settle(w.book, &settled, &ei), &ei);
    CHECK(settled.made == 0 && settled.withdrawn == 0);
    CHECK_OK(rule_book_remove(w.book, STR_LITERAL("b"), &change, &ei), &ei);
    CHECK(change.purges.made == 0 && change.purges.withdrawn == 1);
    CHECK(add(&w, "{name: r, action: labeldrop, regex: x, purge: true}") == ERR_INVALID);
    check_names(&w, "a");
    world_close(&w);
    fs_free(fs);
}

/* Those of rules with several labels too: one purge of a rule, kept over a start, gone with it. */
static void test_purges_of_rules(void **state)
{
    static const char *const rules[] = {
        "{name: r, purge: true, source_labels: [a, b], separator: '', regex: x, action: drop}",
        "{name: r, purge: true, source_labels: [a, b], regex: x, action: drop}",
        "{name: r, purge: true, source_labels: [a, b], regex: x, action: keep}",
        "{name: r, purge: true, source_labels: [a], target_label: b, action: dropequal}",
        "{name: r, purge: true, source_labels: [a], target_label: b, action: keepequal}",
        "{name: r, purge: true, source_labels: [b], target_label: a, action: keepequal}",
    };
    struct fs *fs = fs_new(31);
    struct rule_change change = {0};
    struct rule_purges settled;
    struct errinfo ei = {0};
    char text[200];
    struct world w;

    (void)state;
    for (size_t i = 0; i < sizeof rules / sizeof rules[0]; i++) {
        world_open(&w, fs, "");
        CHECK_OK(rule_book_settle(w.book, &settled, &ei), &ei);
        CHECK(settled.made == 0 && settled.withdrawn == 0);
        CHECK_OK(rule_book_add(w.book, str_from(rules[i]), &change, &ei), &ei);
        CHECK(change.purges.made == 1 && change.purges.withdrawn == (i > 0));
        CHECK_OK(rule_book_add(w.book, str_from(rules[i]), &change, &ei), &ei);
        CHECK(change.purges.made == 0 && change.purges.withdrawn == 0);
        world_close(&w);
    }
    /* The file's, in the place of the API's. */
    (void)snprintf(text, sizeof text, "drop_rules: [%s]", rules[5]);
    world_open(&w, fs, text);
    CHECK_OK(rule_book_settle(w.book, &settled, &ei), &ei);
    CHECK_OK(rule_book_remove(w.book, STR_LITERAL("r"), &change, &ei), &ei);
    CHECK(settled.made + settled.withdrawn + change.purges.made + change.purges.withdrawn == 0);
    world_close(&w);
    world_open(&w, fs, "");
    CHECK_OK(rule_book_settle(w.book, &settled, &ei), &ei);
    CHECK(settled.made == 0 && settled.withdrawn == 1);
    world_close(&w);
    fs_free(fs);
}

/* Rules that drop nothing, or everything. */
static void test_what_is_no_purge(void **state)
{
    static const struct {
        const char *rule, *says; /* NULL: it may */
    } cases[] = {
        {"action: labeldrop, regex: x", "needs a rule that drops series"},
        {"source_labels: [a], target_label: b", "needs a rule that drops series"},
        {"action: hashmod, source_labels: [a], target_label: b, modulus: 3",
         "needs a rule that drops series"},
        {"action: labelmap, regex: x", "needs a rule that drops series"},
        {"action: lowercase, source_labels: [a], target_label: b",
         "needs a rule that drops series"},
        {"action: drop", "needs a source label"},
        {"action: drop, source_labels: [], regex: x", "needs a source label"},
        {"action: keep, regex: x", "needs a source label"},
        {"action: drop, source_labels: [a]", "everything"},
        {"action: drop, source_labels: [a], regex: .*", "everything"},
        {"action: drop, source_labels: [a], regex: .+", NULL},
        {"action: drop, source_labels: [a, b]", "everything"},
        {"action: drop, source_labels: [a, b], regex: .*", "everything"},
        {"action: drop, source_labels: [a, b], regex: .*;.*", "everything"},
        {"action: drop, source_labels: [a, b, c], regex: (.*);.*", "everything"},
        {"action: drop, source_labels: [a, b], regex: .*;.*;.*", NULL},
        {"action: drop, source_labels: [a, b], regex: .*;", NULL},
        {"action: drop, source_labels: [a, b], separator: '', regex: .*.*", "everything"},
        {"action: drop, source_labels: [a, b], separator: '||', regex: '.*\\|\\|.*'", "everything"},
        {"action: drop, source_labels: [a, b], separator: x, regex: .*y.*", NULL},
        {"action: drop, source_labels: [a, b], separator: x., regex: .*x.*", NULL},
        {"action: dropequal, source_labels: [a], target_label: a", "everything"},
        {"action: keepequal, source_labels: [a], target_label: a", "never drops"},
        {"action: keepequal, source_labels: [a, b], target_label: a", NULL},
        {"action: dropequal, source_labels: [b], target_label: a", NULL},
        {"action: keepequal, source_labels: [], target_label: a", NULL},
    };
    struct fs *fs = fs_new(32);
    struct world w;

    (void)state;
    world_open(&w, fs, "");
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct rule_change change = {0};
        struct errinfo ei = {0};
        char text[200];
        enum err e;

        (void)snprintf(text, sizeof text, "{name: p, purge: true, %s}", cases[i].rule);
        e = rule_book_add(w.book, str_from(text), &change, &ei);
        CHECK_MSG(e == (cases[i].says == NULL ? ERR_OK : ERR_INVALID), "%s: %s", text, ei.message);
        CHECK_MSG(cases[i].says == NULL || strstr(ei.message, cases[i].says) != NULL, "%s: %s",
                  text, ei.message);
    }
    world_close(&w);
    fs_free(fs);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_there_and_back),
        cmocka_unit_test(test_surrogates),
        cmocka_unit_test(test_crash_everywhere),
        cmocka_unit_test(test_damages),
        cmocka_unit_test(test_golden),
        cmocka_unit_test(test_book),
        cmocka_unit_test(test_what_can_be_purged),
        cmocka_unit_test(test_purges_follow),
        cmocka_unit_test(test_purges_of_rules),
        cmocka_unit_test(test_what_is_no_purge),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
