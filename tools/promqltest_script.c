/*
 * A script's text to commands. Lines are trimmed, comments are empty lines, and an empty line ends
 * a block. Everything is checked before anything runs, except the expressions themselves: an eval
 * may expect one to be refused.
 */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "promql/ast.h"
#include "tools/promqltest_internal.h"

#define SCRIPT_MEMORY_BYTES (UINT64_C(1) << 30)

struct lines {
    struct str *items; /* trimmed; comments are empty */
    size_t count;
    size_t next; /* index of the line to look at */
};

struct script_parser {
    struct script *script;
    struct lines lines;
    struct errinfo *ei;
};

static bool is_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\r' || c == '\v' || c == '\f';
}

static struct str trim(struct str s)
{
    while (s.size > 0 && is_blank(s.data[0])) {
        s.data++;
        s.size--;
    }
    while (s.size > 0 && is_blank(s.data[s.size - 1]))
        s.size--;
    return s;
}

static bool starts_with(struct str s, const char *prefix)
{
    size_t n = strlen(prefix);

    return s.size >= n && memcmp(s.data, prefix, n) == 0;
}

/* The first word, taken off *s with the blanks behind it. */
static struct str take_word(struct str *s)
{
    struct str word = {s->data, 0};

    while (word.size < s->size && !is_blank(s->data[word.size]))
        word.size++;
    *s = trim((struct str){s->data + word.size, s->size - word.size});
    return word;
}

static bool take_word_if(struct str *s, const char *word)
{
    struct str rest = *s;

    if (!str_equal(take_word(&rest), str_from(word)))
        return false;
    *s = rest;
    return true;
}

/* Fails for a line, 1-based. */
static enum err fail_line(struct script_parser *p, size_t line, const char *format, ...)
    PRINTF_LIKE(3, 4);
static enum err fail_line(struct script_parser *p, size_t line, const char *format, ...)
{
    char reason[ERRINFO_MESSAGE_SIZE];
    va_list args;

    va_start(args, format);
    (void)vsnprintf(reason, sizeof reason, format, args);
    va_end(args);
    (void)errinfo_set(p->ei, ERR_INVALID, 0, "%s:%zu: %s", p->script->path, line, reason);
    return ERR_INVALID;
}

static enum err out_of_memory(struct script_parser *p)
{
    return arena_error(&p->script->arena, p->ei);
}

/* Room for one more item behind `count`. NULL when the arena refuses. */
static void *grow(struct arena *a, void *array, size_t count, size_t *capacity, size_t size)
{
    size_t wanted = *capacity == 0 ? 8 : *capacity * 2;

    if (count < *capacity)
        return array;
    array = arena_grow_array(a, array, count, wanted, size);
    if (array != NULL)
        *capacity = wanted;
    return array;
}

static enum err split_lines(struct script_parser *p, struct str text)
{
    size_t capacity = 0;

    while (text.size > 0) {
        const char *newline = memchr(text.data, '\n', text.size);
        size_t size = newline != NULL ? (size_t)(newline - text.data) : text.size;
        struct str line = trim((struct str){text.data, size});

        if (line.size > 0 && line.data[0] == '#')
            line.size = 0;
        p->lines.items = grow(&p->script->arena, p->lines.items, p->lines.count, &capacity,
                              sizeof *p->lines.items);
        if (p->lines.items == NULL)
            return out_of_memory(p);
        p->lines.items[p->lines.count++] = line;
        size += newline != NULL;
        text.data += size;
        text.size -= size;
    }
    return ERR_OK;
}

/* The next line of a block, or false at its end. *number is 1-based. */
static bool block_line(struct script_parser *p, struct str *line, size_t *number)
{
    if (p->lines.next == p->lines.count || p->lines.items[p->lines.next].size == 0)
        return false;
    *line = p->lines.items[p->lines.next++];
    *number = p->lines.next;
    return true;
}

static enum err parse_duration(struct script_parser *p, size_t line, struct str text,
                               int64_t *out_ms)
{
    struct errinfo why = {0};

    if (promql_duration_parse(text, out_ms, &why) == ERR_OK)
        return ERR_OK;
    return fail_line(p, line, "%s", why.message);
}

/* `metric@st values`, ahead of the metric's own line. */
struct start_timestamps {
    struct labels labels;
    struct start_offsets starts;
    size_t line;
    bool pending;
};

static bool is_start_timestamps(struct str line)
{
    struct str rest = line, word = take_word(&rest);

    return rest.size > 0 && word.size >= 3 && memcmp(word.data + word.size - 3, "@st", 3) == 0;
}

static enum err parse_start_timestamps(struct script_parser *p, struct str line, size_t number,
                                       struct start_timestamps *out)
{
    struct str values = line, metric = take_word(&values);
    struct errinfo why = {0};
    enum err e;

    if (out->pending)
        return fail_line(p, out->line, "@st line has no following sample line");
    metric.size -= 3;
    e = series_metric_parse(metric, &p->script->arena, &out->labels, &why);
    if (e == ERR_OK)
        e = start_timestamps_parse(values, &p->script->arena, &out->starts, &why);
    out->line = number;
    out->pending = true;
    return e == ERR_OK ? ERR_OK : fail_line(p, number, "%s", why.message);
}

static enum err check_start_timestamps(struct script_parser *p, const struct start_timestamps *st,
                                       const struct series_line *line)
{
    if (!labels_equal(&st->labels, &line->labels))
        return fail_line(p, st->line, "@st metric does not match the following sample line");
    if (st->starts.count != line->points.count)
        return fail_line(p, st->line, "@st line has %zu values but sample line has %zu",
                         st->starts.count, line->points.count);
    return ERR_OK;
}

/* Adds a series; one with the same labels is replaced, as in Prometheus. */
static enum err load_add(struct script_parser *p, struct load_command *c, size_t *capacity,
                         const struct series_line *series)
{
    for (size_t i = 0; i < c->series_count; i++) {
        if (labels_equal(&c->series[i].labels, &series->labels)) {
            c->series[i] = *series;
            return ERR_OK;
        }
    }
    c->series = grow(&p->script->arena, c->series, c->series_count, capacity, sizeof *c->series);
    if (c->series == NULL)
        return out_of_memory(p);
    c->series[c->series_count++] = *series;
    return ERR_OK;
}

static enum err parse_load_lines(struct script_parser *p, struct load_command *c)
{
    struct start_timestamps st = {.pending = false};
    struct str line;
    size_t number, capacity = 0;

    while (block_line(p, &line, &number)) {
        struct series_line series = {0};
        struct errinfo why = {0};
        enum err e;

        if (is_start_timestamps(line)) {
            e = parse_start_timestamps(p, line, number, &st);
            if (e != ERR_OK)
                return e;
            continue;
        }
        e = series_line_parse(line, &p->script->arena, &series, &why);
        if (e != ERR_OK)
            return fail_line(p, number, "%s", why.message);
        if (st.pending)
            e = check_start_timestamps(p, &st, &series);
        if (st.pending)
            series.start_offsets_ms = st.starts.offsets_ms;
        st.pending = false;
        if (e == ERR_OK)
            e = load_add(p, c, &capacity, &series);
        if (e != ERR_OK)
            return e;
    }
    return st.pending ? fail_line(p, st.line, "@st line has no following sample line") : ERR_OK;
}

static enum err parse_load(struct script_parser *p, struct str line, size_t number,
                           struct load_command *c)
{
    struct str word = take_word(&line);
    enum err e;

    c->with_nhcb = str_equal(word, STR_LITERAL("load_with_nhcb"));
    if (!c->with_nhcb && !str_equal(word, STR_LITERAL("load")))
        return fail_line(p, number, "invalid load command");
    e = parse_duration(p, number, line, &c->step_ms);
    return e == ERR_OK ? parse_load_lines(p, c) : e;
}

/* Go's unanchored search with this project's anchored expressions. */
static enum err compile_pattern(struct script_parser *p, size_t line, struct str pattern,
                                struct regex **out)
{
    struct script *s = p->script;
    struct errinfo why = {0};
    char *text = arena_printf(&s->arena, "(?s:.*)(?-s:%.*s)(?s:.*)", STR_ARGS(pattern));
    enum err e;

    s->regexes =
        grow(&s->arena, s->regexes, s->regex_count, &s->regex_capacity, sizeof(struct regex *));
    if (text == NULL || s->regexes == NULL)
        return out_of_memory(p);
    e = regex_compile(str_from(text), out, &why);
    if (e != ERR_OK)
        return fail_line(p, line, "invalid regex: %s", why.message);
    s->regexes[s->regex_count++] = *out;
    return ERR_OK;
}

static bool expect_kind_of(struct str word, enum expect_kind *out)
{
    static const char *const names[] = {
        [EXPECT_FAIL] = "fail", [EXPECT_WARN] = "warn",       [EXPECT_NO_WARN] = "no_warn",
        [EXPECT_INFO] = "info", [EXPECT_NO_INFO] = "no_info", [EXPECT_ORDERED] = "ordered",
    };

    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        if (str_equal(word, str_from(names[i]))) {
            *out = (enum expect_kind)i;
            return true;
        }
    }
    return false;
}

static enum err expectation_add(struct script_parser *p, struct eval_command *c,
                                const struct expectation *x)
{
    c->expectations = arena_grow_array(&p->script->arena, c->expectations, c->expectation_count,
                                       c->expectation_count + 1, sizeof *c->expectations);
    if (c->expectations == NULL)
        return out_of_memory(p);
    c->expectations[c->expectation_count++] = *x;
    return ERR_OK;
}

/* What stands behind `msg:` or `regex:`. */
static enum err parse_expected_text(struct script_parser *p, size_t line, struct str text,
                                    struct expectation *x)
{
    bool is_regex = starts_with(text, "regex:");

    if (!is_regex && !starts_with(text, "msg:"))
        return fail_line(p, line, "invalid expect line");
    text.data += is_regex ? 6 : 4;
    text.size -= is_regex ? 6 : 4;
    x->text = trim(text);
    return is_regex ? compile_pattern(p, line, x->text, &x->regex) : ERR_OK;
}

static enum err parse_expect(struct script_parser *p, size_t line, struct str text,
                             struct eval_command *c)
{
    struct expectation x = {0};
    enum err e = ERR_OK;

    (void)take_word(&text);
    if (!expect_kind_of(take_word(&text), &x.kind))
        return fail_line(p, line, "invalid expect line");
    if (text.size > 0)
        e = parse_expected_text(p, line, text, &x);
    if (e == ERR_OK && x.kind == EXPECT_FAIL && eval_expects(c, EXPECT_FAIL))
        return fail_line(p, line, "an eval can fail only once");
    if (e == ERR_OK)
        e = expectation_add(p, c, &x);
    if (e == ERR_OK && ((eval_expects(c, EXPECT_WARN) && eval_expects(c, EXPECT_NO_WARN)) ||
                        (eval_expects(c, EXPECT_INFO) && eval_expects(c, EXPECT_NO_INFO))))
        return fail_line(p, line, "an annotation is both expected and not");
    return e;
}

bool eval_expects(const struct eval_command *c, enum expect_kind kind)
{
    for (size_t i = 0; i < c->expectation_count; i++) {
        if (c->expectations[i].kind == kind)
            return true;
    }
    return false;
}

/* `from A to B step C`; what follows stays in *rest. */
static enum err parse_grid(struct script_parser *p, size_t line, struct str *rest,
                           struct eval_command *c)
{
    enum err e;

    if (!take_word_if(rest, "from"))
        return fail_line(p, line, "expected `from`");
    e = parse_duration(p, line, take_word(rest), &c->start_ms);
    if (e != ERR_OK)
        return e;
    if (!take_word_if(rest, "to"))
        return fail_line(p, line, "expected `to`");
    e = parse_duration(p, line, take_word(rest), &c->end_ms);
    if (e != ERR_OK)
        return e;
    if (!take_word_if(rest, "step"))
        return fail_line(p, line, "expected `step`");
    e = parse_duration(p, line, take_word(rest), &c->step_ms);
    if (e == ERR_OK && c->end_ms < c->start_ms)
        return fail_line(p, line, "the end is before the start");
    return e;
}

static enum err parse_expected_string(struct script_parser *p, size_t line, struct str text,
                                      struct eval_command *c)
{
    static const struct promql_parse_options options = {.experimental_functions = false};
    struct promql_expr *expr = NULL;

    text = trim(text);
    if (promql_parse(text, &options, &p->script->arena, &expr, NULL) != ERR_OK)
        return fail_line(p, line, "expected string is not quoted correctly");
    if (expr->root->kind != NODE_STRING) {
        promql_expr_done(expr);
        return fail_line(p, line, "a quoted string is expected");
    }
    c->string = expr->root->u.string;
    c->not_in_range_form = true;
    promql_expr_done(expr);
    return ERR_OK;
}

static enum err expected_series_add(struct script_parser *p, struct eval_command *c,
                                    size_t *capacity, const struct expected_series *x)
{
    for (size_t i = 0; i < c->series_count; i++) {
        if (labels_equal(&c->series[i].line.labels, &x->line.labels)) {
            c->series[i] = *x;
            return ERR_OK;
        }
    }
    c->series = grow(&p->script->arena, c->series, c->series_count, capacity, sizeof *c->series);
    if (c->series == NULL)
        return out_of_memory(p);
    c->series[c->series_count++] = *x;
    return ERR_OK;
}

/* A number alone, which ends the block. */
static bool scalar_parse(struct str text, double *out)
{
    bool negative = text.size > 0 && text.data[0] == '-';

    if (text.size > 0 && (negative || text.data[0] == '+')) {
        text.data++;
        text.size--;
    }
    if (promql_number_parse(text, out) != ERR_OK)
        return false;
    if (negative)
        *out = -*out;
    return true;
}

/* The deprecated second line of eval_fail. */
static bool is_fail_line(struct str line, struct str *text, bool *is_regex)
{
    *text = line;
    *is_regex = starts_with(line, "expected_fail_regexp");
    if (!*is_regex && !starts_with(line, "expected_fail_message"))
        return false;
    (void)take_word(text);
    return true;
}

static enum err parse_expected_series(struct script_parser *p, struct eval_command *c,
                                      struct str line, size_t number, size_t *capacity,
                                      size_t position)
{
    struct expected_series x = {.position = position};
    struct errinfo why = {0};

    if (series_line_parse(line, &p->script->arena, &x.line, &why) != ERR_OK)
        return fail_line(p, number, "%s", why.message);
    if (x.line.points.count > 1 && !c->is_range && c->step_ms == 0)
        return fail_line(p, number,
                         "several values in an instant evaluation need `expect range "
                         "vector`");
    if (x.line.points.count == 0 && !c->is_range)
        return fail_line(p, number, "a series without values is expected");
    return expected_series_add(p, c, capacity, &x);
}

/* One line of an eval's block. *last is set when no other may follow. */
static enum err parse_eval_line(struct script_parser *p, struct eval_command *c, struct str line,
                                size_t number, size_t *capacity, size_t *position, bool *last)
{
    struct str rest = line, text;
    bool is_regex;
    enum err e;

    if (eval_expects(c, EXPECT_FAIL) && is_fail_line(line, &text, &is_regex)) {
        struct expectation *x = &c->expectations[0]; /* the one eval_fail made */

        *last = true;
        x->text = text;
        return is_regex ? compile_pattern(p, number, text, &x->regex) : ERR_OK;
    }
    if (starts_with(line, "expect range vector")) {
        rest.data += strlen("expect range vector");
        rest.size -= strlen("expect range vector");
        rest = trim(rest);
        e = parse_grid(p, number, &rest, c);
        c->time_ms = c->end_ms;
        c->not_in_range_form = true;
        return e;
    }
    if (starts_with(line, "expect string"))
        return parse_expected_string(
            p, number,
            (struct str){line.data + strlen("expect string"), line.size - strlen("expect string")},
            c);
    if (str_equal(take_word(&rest), STR_LITERAL("expect")))
        return parse_expect(p, number, line, c);
    if (scalar_parse(line, &c->scalar)) {
        c->expects_scalar = true;
        *last = true;
        return ERR_OK;
    }
    return parse_expected_series(p, c, line, number, capacity, ++*position);
}

/* The suffix of eval_fail and its like, as the expectation it stands for. */
static enum err parse_eval_suffix(struct script_parser *p, size_t line, struct str word,
                                  struct eval_command *c)
{
    struct expectation x = {0};

    if (str_equal(word, STR_LITERAL("eval")))
        return ERR_OK;
    if (!starts_with(word, "eval_") ||
        !expect_kind_of((struct str){word.data + 5, word.size - 5}, &x.kind) ||
        x.kind == EXPECT_NO_WARN || x.kind == EXPECT_NO_INFO)
        return fail_line(p, line, "invalid eval command");
    return expectation_add(p, c, &x);
}

static enum err parse_eval(struct script_parser *p, struct str line, size_t number,
                           struct eval_command *c)
{
    size_t capacity = 0, position = 0, at;
    bool last = false;
    enum err e = parse_eval_suffix(p, number, take_word(&line), c);

    if (e != ERR_OK)
        return e;
    if (take_word_if(&line, "instant")) {
        if (!take_word_if(&line, "at"))
            return fail_line(p, number, "expected `at`");
        e = parse_duration(p, number, take_word(&line), &c->time_ms);
        c->start_ms = c->time_ms;
    } else if (take_word_if(&line, "range")) {
        c->is_range = true;
        e = parse_grid(p, number, &line, c);
    } else {
        return fail_line(p, number, "expected `instant` or `range`");
    }
    if (e == ERR_OK && line.size == 0)
        return fail_line(p, number, "expression is missing");
    c->expr = line;
    while (e == ERR_OK && !last && block_line(p, &line, &at))
        e = parse_eval_line(p, c, line, at, &capacity, &position, &last);
    return e;
}

static bool has_prefix_any_case(struct str word, const char *prefix)
{
    return word.size >= strlen(prefix) && strncasecmp(word.data, prefix, strlen(prefix)) == 0;
}

static enum err parse_command(struct script_parser *p, struct str line, size_t number)
{
    struct script *s = p->script;
    struct str rest = line, word = take_word(&rest);
    struct command *c;

    s->commands =
        grow(&s->arena, s->commands, s->command_count, &s->command_capacity, sizeof *s->commands);
    if (s->commands == NULL)
        return out_of_memory(p);
    c = &s->commands[s->command_count++];
    *c = (struct command){.line = (unsigned)number};
    if (word.size == 5 && has_prefix_any_case(word, "clear")) {
        c->kind = COMMAND_CLEAR;
        return ERR_OK;
    }
    if (has_prefix_any_case(word, "load")) {
        c->kind = COMMAND_LOAD;
        return parse_load(p, line, number, &c->u.load);
    }
    if (has_prefix_any_case(word, "eval")) {
        c->kind = COMMAND_EVAL;
        return parse_eval(p, line, number, &c->u.eval);
    }
    return fail_line(p, number, "invalid command \"%.*s\"", STR_ARGS(word));
}

enum err script_parse(const char *path, struct str text, struct script *out, struct errinfo *ei)
{
    return script_parse_within(path, text, SCRIPT_MEMORY_BYTES, out, ei);
}

enum err script_parse_within(const char *path, struct str text, uint64_t memory_bytes,
                             struct script *out, struct errinfo *ei)
{
    struct script_parser p = {.script = out, .ei = ei};
    enum err e;

    *out = (struct script){.path = path};
    budget_init(&out->memory, "memory of a script", memory_bytes, NULL);
    arena_init(&out->arena, &out->memory);
    e = split_lines(&p, text);
    while (e == ERR_OK && p.lines.next < p.lines.count) {
        struct str line = p.lines.items[p.lines.next++];

        if (line.size > 0)
            e = parse_command(&p, line, p.lines.next);
    }
    return e;
}

void script_done(struct script *s)
{
    for (size_t i = 0; i < s->regex_count; i++)
        regex_free(s->regexes[i]);
    arena_done(&s->arena);
}
