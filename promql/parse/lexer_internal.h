/*
 * The scanner: query text to tokens. Its modes (inside braces, inside brackets) follow
 * Prometheus's, since they decide which error a wrong query gets.
 */
#ifndef RIMSTONE_PROMQL_PARSE_LEXER_INTERNAL_H
#define RIMSTONE_PROMQL_PARSE_LEXER_INTERNAL_H

#include <stdbool.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/bytes.h"

/* Ranges of kinds are compared: operators, aggregators and keywords must stay together. */
enum token_kind {
    TOKEN_ERROR, /* lexer.error says why */
    TOKEN_EOF,
    TOKEN_IDENTIFIER,
    TOKEN_METRIC_IDENTIFIER, /* with a colon */
    TOKEN_NUMBER,
    TOKEN_DURATION,
    TOKEN_STRING, /* with its quotes */
    TOKEN_LEFT_PAREN,
    TOKEN_RIGHT_PAREN,
    TOKEN_LEFT_BRACE,
    TOKEN_RIGHT_BRACE,
    TOKEN_LEFT_BRACKET,
    TOKEN_RIGHT_BRACKET,
    TOKEN_COMMA,
    TOKEN_COLON,
    TOKEN_EQL,
    /* operators */
    TOKEN_ADD,
    TOKEN_SUB,
    TOKEN_MUL,
    TOKEN_DIV,
    TOKEN_MOD,
    TOKEN_POW,
    TOKEN_ATAN2,
    TOKEN_EQLC,
    TOKEN_NEQ,
    TOKEN_LSS,
    TOKEN_LTE,
    TOKEN_GTR,
    TOKEN_GTE,
    TOKEN_TRIM_UPPER,
    TOKEN_TRIM_LOWER,
    TOKEN_LAND,
    TOKEN_LOR,
    TOKEN_LUNLESS,
    TOKEN_EQL_REGEX,
    TOKEN_NEQ_REGEX,
    TOKEN_AT,
    /* aggregators */
    TOKEN_SUM,
    TOKEN_AVG,
    TOKEN_COUNT,
    TOKEN_MIN,
    TOKEN_MAX,
    TOKEN_GROUP,
    TOKEN_STDDEV,
    TOKEN_STDVAR,
    TOKEN_TOPK,
    TOKEN_BOTTOMK,
    TOKEN_COUNT_VALUES,
    TOKEN_QUANTILE,
    TOKEN_LIMITK,
    TOKEN_LIMIT_RATIO,
    /* keywords */
    TOKEN_BOOL,
    TOKEN_BY,
    TOKEN_GROUP_LEFT,
    TOKEN_GROUP_RIGHT,
    TOKEN_FILL,
    TOKEN_FILL_LEFT,
    TOKEN_FILL_RIGHT,
    TOKEN_IGNORING,
    TOKEN_OFFSET,
    TOKEN_SMOOTHED,
    TOKEN_ANCHORED,
    TOKEN_ON,
    TOKEN_WITHOUT,
    /* preprocessors */
    TOKEN_START,
    TOKEN_END,
    TOKEN_STEP,
    TOKEN_RANGE,
    TOKEN_MAX_OF,
    TOKEN_MIN_OF,
};

static inline bool token_is_operator(enum token_kind k)
{
    return k >= TOKEN_ADD && k <= TOKEN_AT;
}
static inline bool token_is_aggregator(enum token_kind k)
{
    return k >= TOKEN_SUM && k <= TOKEN_LIMIT_RATIO;
}
static inline bool token_is_keyword(enum token_kind k)
{
    return k >= TOKEN_BOOL && k <= TOKEN_WITHOUT;
}

struct token {
    enum token_kind kind;
    uint32_t start;  /* byte offset in the query; of an error: where it is reported */
    struct str text; /* as written, borrowed from the query */
};

enum lexer_mode { LEXER_STATEMENTS, LEXER_BRACES, LEXER_DURATION };

struct lexer {
    struct str input;
    struct arena *arena; /* error texts live there */
    uint32_t pos, start; /* next byte to read; first byte of the token being read */
    uint32_t width;      /* of the character read last */
    enum lexer_mode mode;
    unsigned paren_depth;
    bool bracket_open, got_colon, got_duration;
    const char *error;
};

void lexer_init(struct lexer *lx, struct str input, struct arena *arena);
/* Comments are left out. After TOKEN_ERROR or TOKEN_EOF it must not be called again. */
struct token lexer_next(struct lexer *lx);

#endif
