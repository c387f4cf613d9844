/*
 * The scanner, one function per kind of token. Errors carry Prometheus's texts and the offset it
 * would report.
 */
#include "promql/parse/lexer_internal.h"

#include <string.h>

#include "promql/parse/text_internal.h"

void lexer_init(struct lexer *lx, struct str input, struct arena *arena)
{
    *lx = (struct lexer){.input = input, .arena = arena};
}

static int32_t next(struct lexer *lx)
{
    unsigned width;
    int32_t r = rune_decode((struct str){lx->input.data == NULL ? NULL : lx->input.data + lx->pos,
                                         lx->input.size - lx->pos},
                            &width);

    lx->width = width;
    lx->pos += width;
    return r;
}

/* Steps back over the character read last; once per next(). */
static void backup(struct lexer *lx)
{
    lx->pos -= lx->width;
    lx->width = 0;
}

static int32_t peek(struct lexer *lx)
{
    int32_t r = next(lx);

    backup(lx);
    return r;
}

static bool rune_in(int32_t r, const char *set)
{
    return r > 0 && r < 0x80 && strchr(set, r) != NULL;
}

static bool accept(struct lexer *lx, const char *set)
{
    if (rune_in(next(lx), set))
        return true;
    backup(lx);
    return false;
}

static void accept_run(struct lexer *lx, const char *set)
{
    while (accept(lx, set))
        ;
}

static bool rune_is_space(int32_t r)
{
    return r == ' ' || r == '\t' || r == '\n' || r == '\r';
}

static bool rune_is_digit(int32_t r)
{
    return r >= '0' && r <= '9';
}

static bool rune_is_alpha(int32_t r)
{
    return r == '_' || (r >= 'a' && r <= 'z') || (r >= 'A' && r <= 'Z');
}

static bool rune_is_alphanumeric(int32_t r)
{
    return rune_is_alpha(r) || rune_is_digit(r);
}

static struct str pending(const struct lexer *lx)
{
    return (struct str){lx->input.data + lx->start, lx->pos - lx->start};
}

static struct token emit(struct lexer *lx, enum token_kind kind)
{
    struct token t = {kind, lx->start, pending(lx)};

    lx->start = lx->pos;
    return t;
}

/* `text` may be NULL: the arena refused to hold it. */
static struct token fail(struct lexer *lx, const char *text)
{
    lx->error = text != NULL ? text : "query too large to describe its error";
    return (struct token){TOKEN_ERROR, lx->start, {NULL, 0}};
}

/* `format` has one %s, for the quoted character. */
static struct token fail_rune(struct lexer *lx, const char *before, int32_t r, const char *after)
{
    char quoted[RUNE_TEXT_SIZE];

    rune_quote(r, quoted);
    return fail(lx, arena_printf(lx->arena, "%s%s%s", before, quoted, after));
}

/* What follows a backslash; NULL or what is wrong. */
static const char *scan_escape(struct lexer *lx, int32_t quote)
{
    int32_t r = next(lx);
    unsigned count, base = 16;
    uint32_t limit = 0x10FFFF, v = 0;
    char text[RUNE_TEXT_SIZE];

    if (rune_in(r, "abfnrtv\\") || r == quote)
        return NULL;
    if (r == RUNE_EOF)
        return "escape sequence not terminated";
    if (r >= '0' && r <= '7') {
        count = 3, base = 8, limit = 255;
    } else if (rune_in(r, "xuU")) {
        count = r == 'x' ? 2 : r == 'u' ? 4 : 8;
        limit = r == 'x' ? 255 : limit;
        r = next(lx);
    } else {
        rune_format_unicode(r, text);
        return arena_printf(lx->arena, "unknown escape sequence %s", text);
    }
    for (unsigned i = 0; i < count; i++) {
        uint32_t digit = rune_is_digit(r)       ? (uint32_t)(r - '0')
                         : r >= 'a' && r <= 'f' ? (uint32_t)(r - 'a' + 10)
                         : r >= 'A' && r <= 'F' ? (uint32_t)(r - 'A' + 10)
                                                : 16;

        if (digit >= base) {
            if (r == RUNE_EOF)
                return "escape sequence not terminated";
            rune_format_unicode(r, text);
            return arena_printf(lx->arena, "illegal character %s in escape sequence", text);
        }
        v = v * base + digit;
        if (i + 1 < count)
            r = next(lx);
    }
    if (v > limit || (v >= 0xD800 && v < 0xE000))
        return "escape sequence is an invalid Unicode code point";
    return NULL;
}

/* A quoted string whose first quote has been read. */
static struct token scan_string(struct lexer *lx, int32_t quote)
{
    for (;;) {
        int32_t r = next(lx);
        const char *wrong;

        if (r == '\\') {
            wrong = scan_escape(lx, quote);
            if (wrong != NULL)
                return fail(lx, wrong);
        } else if (r == RUNE_ERROR) {
            return fail(lx, "invalid UTF-8 rune");
        } else if (r == RUNE_EOF || r == '\n') {
            return fail(lx, "unterminated quoted string");
        } else if (r == quote) {
            return emit(lx, TOKEN_STRING);
        }
    }
}

static struct token scan_raw_string(struct lexer *lx)
{
    for (;;) {
        int32_t r = next(lx);

        if (r == RUNE_ERROR)
            return fail(lx, "invalid UTF-8 rune");
        if (r == RUNE_EOF)
            return fail(lx, "unterminated raw string");
        if (r == '`')
            return emit(lx, TOKEN_STRING);
    }
}

/* One step inside a number; *more tells whether another may follow, false for a bad number. */
static bool scan_number_part(struct lexer *lx, bool hex, bool *dot, bool *exponent)
{
    if (rune_in(peek(lx), ".")) {
        (void)accept(lx, ".");
        if (*dot || accept(lx, "_.") || hex)
            return false;
        *dot = true;
        return true;
    }
    if (rune_in(peek(lx), "eE")) {
        (void)accept(lx, "eE");
        if (*exponent)
            return false;
        *exponent = true;
        (void)accept(lx, "+-");
        return !accept(lx, "._eE") && peek(lx) != RUNE_EOF;
    }
    if (accept(lx, "_"))
        return !accept(lx, "._eE") && peek(lx) != RUNE_EOF;
    accept_run(lx, hex ? "0123456789abcdefABCDEF" : "0123456789");
    return true;
}

/* Takes what looks like a number; whether it is one is decided when its value is read. A hex
 * number's `e` counts as an exponent here, as in Prometheus: 0xbeef is refused, 0xfade is not. */
static bool scan_number(struct lexer *lx)
{
    uint32_t first = lx->pos;
    bool hex = false, dot = false, exponent = false;

    if (accept(lx, "0") && accept(lx, "xX")) {
        (void)accept(lx, "_");
        hex = true;
    }
    (void)accept(lx, ".");
    (void)accept(lx, hex ? "0123456789abcdefABCDEF" : "0123456789");
    while (rune_in(peek(lx), hex ? "0123456789abcdefABCDEF._" : "0123456789._eE")) {
        if (!scan_number_part(lx, hex, &dot, &exponent))
            return false;
    }
    return lx->pos != first && !rune_is_alphanumeric(peek(lx));
}

/* The rest of a duration, once its first number has been taken. Takes one character too many. */
static bool scan_duration_rest(struct lexer *lx)
{
    if (!accept(lx, "smhdwy"))
        return false;
    (void)accept(lx, "s"); /* of ms; bad units are found when the value is read */
    while (accept(lx, "0123456789")) {
        accept_run(lx, "0123456789");
        if (!accept(lx, "smhdw"))
            return false;
        (void)accept(lx, "s");
    }
    return !rune_is_alphanumeric(next(lx));
}

static struct token scan_number_or_duration(struct lexer *lx)
{
    if (scan_number(lx))
        return emit(lx, TOKEN_NUMBER);
    if (scan_duration_rest(lx)) {
        backup(lx);
        return emit(lx, TOKEN_DURATION);
    }
    return fail(lx, arena_printf(lx->arena, "bad number or duration syntax: %s",
                                 text_quote(pending(lx), lx->arena)));
}

static const struct keyword {
    const char *text;
    enum token_kind kind;
} keywords[] = {
    {"and", TOKEN_LAND},
    {"anchored", TOKEN_ANCHORED},
    {"atan2", TOKEN_ATAN2},
    {"avg", TOKEN_AVG},
    {"bool", TOKEN_BOOL},
    {"bottomk", TOKEN_BOTTOMK},
    {"by", TOKEN_BY},
    {"count", TOKEN_COUNT},
    {"count_values", TOKEN_COUNT_VALUES},
    {"end", TOKEN_END},
    {"fill", TOKEN_FILL},
    {"fill_left", TOKEN_FILL_LEFT},
    {"fill_right", TOKEN_FILL_RIGHT},
    {"group", TOKEN_GROUP},
    {"group_left", TOKEN_GROUP_LEFT},
    {"group_right", TOKEN_GROUP_RIGHT},
    {"ignoring", TOKEN_IGNORING},
    {"inf", TOKEN_NUMBER},
    {"limit_ratio", TOKEN_LIMIT_RATIO},
    {"limitk", TOKEN_LIMITK},
    {"max", TOKEN_MAX},
    {"max_of", TOKEN_MAX_OF},
    {"min", TOKEN_MIN},
    {"min_of", TOKEN_MIN_OF},
    {"nan", TOKEN_NUMBER},
    {"offset", TOKEN_OFFSET},
    {"on", TOKEN_ON},
    {"or", TOKEN_LOR},
    {"quantile", TOKEN_QUANTILE},
    {"range", TOKEN_RANGE},
    {"smoothed", TOKEN_SMOOTHED},
    {"start", TOKEN_START},
    {"stddev", TOKEN_STDDEV},
    {"stdvar", TOKEN_STDVAR},
    {"step", TOKEN_STEP},
    {"sum", TOKEN_SUM},
    {"topk", TOKEN_TOPK},
    {"unless", TOKEN_LUNLESS},
    {"without", TOKEN_WITHOUT},
};

static const struct keyword *keyword_find(struct str word)
{
    char lower[16];

    if (word.size >= sizeof lower)
        return NULL;
    for (size_t i = 0; i < word.size; i++) {
        char c = word.data[i];

        /* Words are ASCII; the bit turns letters to lower case and leaves digits alone. */
        lower[i] = c;
        if (c != '_' && c != ':')
            lower[i] = (char)(c | 0x20);
    }
    for (size_t i = 0; i < sizeof keywords / sizeof keywords[0]; i++) {
        if (str_equal((struct str){lower, word.size}, str_from(keywords[i].text)))
            return &keywords[i];
    }
    return NULL;
}

/* fill, fill_left and fill_right are words like any other unless a parenthesis follows. */
static bool paren_follows(const struct lexer *lx)
{
    uint32_t i = lx->pos;

    while (i < lx->input.size && rune_is_space(lx->input.data[i]))
        i++;
    return i < lx->input.size && lx->input.data[i] == '(';
}

static struct token scan_word(struct lexer *lx)
{
    const struct keyword *kw;
    int32_t r = next(lx);

    while (rune_is_alphanumeric(r) || r == ':')
        r = next(lx);
    backup(lx);
    kw = keyword_find(pending(lx));
    if (kw != NULL && kw->kind >= TOKEN_FILL && kw->kind <= TOKEN_FILL_RIGHT && !paren_follows(lx))
        return emit(lx, TOKEN_IDENTIFIER);
    if (kw != NULL)
        return emit(lx, kw->kind);
    if (memchr(pending(lx).data, ':', pending(lx).size) != NULL)
        return emit(lx, TOKEN_METRIC_IDENTIFIER);
    return emit(lx, TOKEN_IDENTIFIER);
}

static bool is_duration_word_start(int32_t r)
{
    return rune_in(r, "sSrRmM");
}

/* step, range, max_of or min_of inside brackets; the first letter has been read. */
static bool scan_duration_word(struct lexer *lx, enum token_kind *kind)
{
    const struct keyword *kw;

    while (rune_is_alpha(next(lx)))
        ;
    backup(lx);
    kw = keyword_find(pending(lx));
    if (kw == NULL || kw->kind < TOKEN_STEP || kw->kind > TOKEN_MIN_OF)
        return false;
    *kind = kw->kind;
    return true;
}

static struct token scan_in_braces(struct lexer *lx)
{
    int32_t r = next(lx);

    if (r == RUNE_EOF)
        return fail(lx, "unexpected end of input inside braces");
    if (rune_is_alpha(r)) {
        while (rune_is_alphanumeric(r))
            r = next(lx);
        backup(lx);
        return emit(lx, TOKEN_IDENTIFIER);
    }
    switch (r) {
    case ',':
        return emit(lx, TOKEN_COMMA);
    case '"':
    case '\'':
        return scan_string(lx, r);
    case '`':
        return scan_raw_string(lx);
    case '=':
        return emit(lx, accept(lx, "~") ? TOKEN_EQL_REGEX : TOKEN_EQL);
    case '!':
        r = next(lx);
        if (r != '~' && r != '=')
            return fail_rune(lx, "unexpected character after '!' inside braces: ", r, "");
        return emit(lx, r == '~' ? TOKEN_NEQ_REGEX : TOKEN_NEQ);
    case '{':
        return fail_rune(lx, "unexpected left brace ", r, "");
    case '}':
        lx->mode = LEXER_STATEMENTS;
        return emit(lx, TOKEN_RIGHT_BRACE);
    default:
        return fail_rune(lx, "unexpected character inside braces: ", r, "");
    }
}

static struct token scan_left_paren(struct lexer *lx)
{
    lx->paren_depth++;
    return emit(lx, TOKEN_LEFT_PAREN);
}

/* An unmatched one is reported behind itself, as Prometheus does. */
static struct token scan_right_paren(struct lexer *lx)
{
    struct token t = emit(lx, TOKEN_RIGHT_PAREN);

    if (lx->paren_depth == 0)
        return fail_rune(lx, "unexpected right parenthesis ", ')', "");
    lx->paren_depth--;
    return t;
}

static struct token scan_right_bracket(struct lexer *lx)
{
    lx->bracket_open = false;
    lx->mode = LEXER_STATEMENTS;
    return emit(lx, TOKEN_RIGHT_BRACKET);
}

static bool arithmetic_token(int32_t r, enum token_kind *kind)
{
    static const char runes[] = "+-*/%^";
    static const enum token_kind kinds[] = {TOKEN_ADD, TOKEN_SUB, TOKEN_MUL,
                                            TOKEN_DIV, TOKEN_MOD, TOKEN_POW};
    const char *at = r > 0 && r < 0x80 ? strchr(runes, r) : NULL;

    if (at == NULL)
        return false;
    *kind = kinds[at - runes];
    return true;
}

/* Between `[` and its first number. */
static struct token scan_in_duration(struct lexer *lx)
{
    int32_t r = next(lx);
    enum token_kind kind;

    if (r == RUNE_EOF)
        return fail(lx, "unexpected end of input in duration expression");
    if (arithmetic_token(r, &kind))
        return emit(lx, kind);
    if (rune_is_digit(r) || (r == '.' && rune_is_digit(peek(lx)))) {
        /* peek() has spent the one step back, hence the reset to the token's start. */
        lx->pos = lx->start;
        lx->got_duration = true;
        lx->mode = LEXER_STATEMENTS;
        return scan_number_or_duration(lx);
    }
    if (is_duration_word_start(r) && scan_duration_word(lx, &kind))
        return emit(lx, kind);
    switch (r) {
    case ']':
        lx->got_colon = false;
        return scan_right_bracket(lx);
    case ':': {
        struct token t = emit(lx, TOKEN_COLON);

        if (!lx->got_duration)
            return fail(lx, "unexpected colon before duration in duration expression");
        if (lx->got_colon)
            return fail(lx, "unexpected repeated colon in duration expression");
        lx->got_colon = true;
        return t;
    }
    case '(':
        return scan_left_paren(lx);
    case ')':
        return scan_right_paren(lx);
    case ',':
        return emit(lx, TOKEN_COMMA);
    default:
        return fail_rune(lx, "unexpected character in duration expression: ", r, "");
    }
}

/* A letter or colon inside brackets, behind the first number. */
static struct token scan_bracket_letter(struct lexer *lx, int32_t r)
{
    enum token_kind kind;

    if (r == ':') {
        if (lx->got_colon)
            return fail_rune(lx, "unexpected colon ", r, "");
        lx->got_colon = true;
        return emit(lx, TOKEN_COLON);
    }
    if (is_duration_word_start(r) && scan_duration_word(lx, &kind))
        return emit(lx, kind);
    return fail_rune(lx, "unexpected character: ", r, ", expected ':'");
}

static struct token scan_comparison(struct lexer *lx, int32_t r)
{
    switch (r) {
    case '=':
        if (accept(lx, "="))
            return emit(lx, TOKEN_EQLC);
        if (peek(lx) == '~')
            return fail_rune(lx, "unexpected character after '=': ", '~', "");
        return emit(lx, TOKEN_EQL);
    case '!':
        r = next(lx);
        if (r != '=')
            return fail_rune(lx, "unexpected character after '!': ", r, "");
        return emit(lx, TOKEN_NEQ);
    case '<':
        if (accept(lx, "="))
            return emit(lx, TOKEN_LTE);
        return emit(lx, accept(lx, "/") ? TOKEN_TRIM_UPPER : TOKEN_LSS);
    default:
        if (accept(lx, "="))
            return emit(lx, TOKEN_GTE);
        return emit(lx, accept(lx, "/") ? TOKEN_TRIM_LOWER : TOKEN_GTR);
    }
}

static struct token scan_left_bracket(struct lexer *lx)
{
    struct token t;

    if (lx->bracket_open)
        return fail_rune(lx, "unexpected left bracket ", '[', "");
    t = emit(lx, TOKEN_LEFT_BRACKET);
    lx->got_colon = false;
    lx->bracket_open = true;
    lx->mode = LEXER_DURATION;
    return t;
}

static struct token scan_end(struct lexer *lx)
{
    if (lx->paren_depth != 0)
        return fail(lx, "unclosed left parenthesis");
    if (lx->bracket_open)
        return fail(lx, "unclosed left bracket");
    return emit(lx, TOKEN_EOF);
}

static struct token scan_statement(struct lexer *lx)
{
    int32_t r = next(lx);
    enum token_kind kind;

    if (r == RUNE_EOF)
        return scan_end(lx);
    if (arithmetic_token(r, &kind))
        return emit(lx, kind);
    if (rune_is_digit(r) || (r == '.' && rune_is_digit(peek(lx)))) {
        lx->pos = lx->start;
        return scan_number_or_duration(lx);
    }
    if (rune_is_alpha(r) || r == ':') {
        if (lx->bracket_open)
            return scan_bracket_letter(lx, r);
        backup(lx);
        return scan_word(lx);
    }
    switch (r) {
    case ',':
        return emit(lx, TOKEN_COMMA);
    case '=':
    case '!':
    case '<':
    case '>':
        return scan_comparison(lx, r);
    case '"':
    case '\'':
        return scan_string(lx, r);
    case '`':
        return scan_raw_string(lx);
    case '(':
        return scan_left_paren(lx);
    case ')':
        return scan_right_paren(lx);
    case '{':
        lx->mode = LEXER_BRACES;
        return emit(lx, TOKEN_LEFT_BRACE);
    case '[':
        return scan_left_bracket(lx);
    case ']':
        if (!lx->bracket_open)
            return fail_rune(lx, "unexpected right bracket ", r, "");
        return scan_right_bracket(lx);
    case '@':
        return emit(lx, TOKEN_AT);
    default:
        return fail_rune(lx, "unexpected character: ", r, "");
    }
}

/* White space, and comments where the mode allows them (not between `[` and its first number). */
static void skip_blanks(struct lexer *lx)
{
    const char *data = lx->input.data;

    while (lx->pos < lx->input.size) {
        if (data[lx->pos] == '#' && lx->mode != LEXER_DURATION) {
            while (lx->pos < lx->input.size && data[lx->pos] != '\n' && data[lx->pos] != '\r')
                lx->pos++;
        } else if (rune_is_space(data[lx->pos])) {
            lx->pos++;
        } else {
            break;
        }
    }
    lx->start = lx->pos;
}

struct token lexer_next(struct lexer *lx)
{
    skip_blanks(lx);
    switch (lx->mode) {
    case LEXER_BRACES:
        return scan_in_braces(lx);
    case LEXER_DURATION:
        return scan_in_duration(lx);
    default:
        return scan_statement(lx);
    }
}
