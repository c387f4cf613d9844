#include "tools/load_request.h"

#include <snappy-c.h>
#include <stdlib.h>
#include <string.h>
#include <zstd.h>

#include "base/assert.h"

enum { SYMBOL_TABLE_SIZE = 1 << 16, SYMBOLS_MAX = SYMBOL_TABLE_SIZE / 2 };

/* A string of the request, kept in `symbol_text` in the order of first use. */
struct symbol {
    uint32_t offset, size;
};

struct load_request {
    enum load_protocol protocol;
    enum load_compression compression;
    size_t sample_count;
    struct byte_writer plain;  /* 1.0: the message; 2.0: the timeseries fields */
    struct byte_writer packed; /* compressed */
    /* 2.0 only */
    struct byte_writer message, refs, series, symbol_text;
    struct symbol *symbols;
    uint32_t symbol_count;
    uint32_t *table; /* symbol number + 1 by hash, open addressing */
    ZSTD_CCtx *zstd;
};

enum err load_request_new(enum load_protocol protocol, enum load_compression compression,
                          struct load_request **out, struct errinfo *ei)
{
    struct load_request *r = calloc(1, sizeof *r);

    if (r == NULL)
        return errinfo_set(ei, ERR_NOMEM, 0, "load request");
    r->protocol = protocol;
    r->compression = compression;
    writer_init(&r->plain);
    writer_init(&r->packed);
    writer_init(&r->message);
    writer_init(&r->refs);
    writer_init(&r->series);
    writer_init(&r->symbol_text);
    r->symbols = calloc(SYMBOLS_MAX, sizeof *r->symbols);
    r->table = calloc(SYMBOL_TABLE_SIZE, sizeof *r->table);
    r->zstd = ZSTD_createCCtx();
    if (r->symbols == NULL || r->table == NULL || r->zstd == NULL) {
        load_request_free(r);
        return errinfo_set(ei, ERR_NOMEM, 0, "load request");
    }
    load_request_reset(r);
    *out = r;
    return ERR_OK;
}

void load_request_free(struct load_request *r)
{
    if (r == NULL)
        return;
    writer_done(&r->plain);
    writer_done(&r->packed);
    writer_done(&r->message);
    writer_done(&r->refs);
    writer_done(&r->series);
    writer_done(&r->symbol_text);
    free(r->symbols);
    free(r->table);
    ZSTD_freeCCtx(r->zstd);
    free(r);
}

void load_request_reset(struct load_request *r)
{
    writer_reset(&r->plain);
    r->sample_count = 0;
    if (r->protocol == LOAD_PROTOCOL_2) {
        writer_reset(&r->symbol_text);
        memset(r->table, 0, SYMBOL_TABLE_SIZE * sizeof *r->table);
        r->symbols[0] = (struct symbol){0, 0}; /* symbol 0 is the empty string */
        r->symbol_count = 1;
    }
}

size_t load_request_sample_count(const struct load_request *r)
{
    return r->sample_count;
}

/* tag 0x09 (1.0 and 2.0: value, fixed64), tag 0x10 (timestamp) */
static size_t sample_encode(uint8_t *out, const struct fleet_sample *sample)
{
    uint64_t bits = double_bits(sample->value);

    out[0] = 0x09;
    memcpy(out + 1, &bits, sizeof bits);
    out[9] = 0x10;
    return 10 + varint_write(out + 10, (uint64_t)sample->t_ms);
}

static void add_v1(struct load_request *r, const struct fleet_sample *sample)
{
    uint8_t encoded[32];
    size_t sample_size = sample_encode(encoded, sample);

    writer_u8(&r->plain, 0x0a); /* WriteRequest.timeseries */
    writer_varint(&r->plain, sample->labels.size + 2 + sample_size);
    writer_append(&r->plain, sample->labels.data, sample->labels.size);
    writer_u8(&r->plain, 0x12); /* TimeSeries.samples */
    writer_varint(&r->plain, sample_size);
    writer_append(&r->plain, encoded, sample_size);
}

static uint32_t text_hash(const uint8_t *data, size_t size)
{
    uint64_t h = 0xcbf29ce484222325U; /* FNV-1a: short strings, a tool */

    for (size_t i = 0; i < size; i++)
        h = (h ^ data[i]) * 0x100000001b3U;
    return (uint32_t)(h ^ h >> 32);
}

/* The symbol's number; SYMBOLS_MAX when the table is full. */
static uint32_t symbol_intern(struct load_request *r, const uint8_t *data, size_t size)
{
    uint32_t at = text_hash(data, size) & (SYMBOL_TABLE_SIZE - 1);

    for (; r->table[at] != 0; at = (at + 1) & (SYMBOL_TABLE_SIZE - 1)) {
        const struct symbol *s = &r->symbols[r->table[at] - 1];

        if (s->size == size && memcmp(r->symbol_text.data + s->offset, data, size) == 0)
            return r->table[at] - 1;
    }
    if (r->symbol_count == SYMBOLS_MAX)
        return SYMBOLS_MAX;
    r->symbols[r->symbol_count] = (struct symbol){(uint32_t)r->symbol_text.size, (uint32_t)size};
    writer_append(&r->symbol_text, data, size);
    r->table[at] = ++r->symbol_count;
    return r->symbol_count - 1;
}

static enum err add_v2(struct load_request *r, const struct fleet_sample *sample,
                       struct errinfo *ei)
{
    struct byte_reader in = reader_init(sample->labels.data, sample->labels.size);
    uint8_t encoded[32];
    size_t sample_size = sample_encode(encoded, sample);

    writer_reset(&r->refs);
    while (reader_left(&in) > 0 && !in.failed) {
        (void)reader_u8(&in); /* the stream's own encoding: tags are known */
        (void)reader_varint(&in);
        for (int part = 0; part < 2; part++) {
            size_t size;
            const uint8_t *text;
            uint32_t symbol;

            (void)reader_u8(&in);
            size = reader_varint(&in);
            text = reader_take(&in, size);
            symbol = text == NULL ? SYMBOLS_MAX : symbol_intern(r, text, size);
            if (symbol == SYMBOLS_MAX)
                return errinfo_set(ei, ERR_LIMIT, 0, "too many symbols in a request");
            writer_varint(&r->refs, symbol);
        }
    }
    writer_reset(&r->series);
    writer_u8(&r->series, 0x0a); /* TimeSeries.labels_refs, packed */
    writer_varint(&r->series, r->refs.size);
    writer_append(&r->series, r->refs.data, r->refs.size);
    writer_u8(&r->series, 0x12); /* TimeSeries.samples */
    writer_varint(&r->series, sample_size);
    writer_append(&r->series, encoded, sample_size);
    writer_u8(&r->plain, 0x2a); /* Request.timeseries = 5 */
    writer_varint(&r->plain, r->series.size);
    writer_append(&r->plain, r->series.data, r->series.size);
    return ERR_OK;
}

enum err load_request_add(struct load_request *r, const struct fleet_sample *sample,
                          struct errinfo *ei)
{
    enum err e = ERR_OK;

    if (r->protocol == LOAD_PROTOCOL_1)
        add_v1(r, sample);
    else
        e = add_v2(r, sample, ei);
    r->sample_count += e == ERR_OK;
    return e;
}

static const struct byte_writer *message_finish(struct load_request *r)
{
    if (r->protocol == LOAD_PROTOCOL_1)
        return &r->plain;
    writer_reset(&r->message);
    for (uint32_t i = 0; i < r->symbol_count; i++) {
        writer_u8(&r->message, 0x22); /* Request.symbols = 4 */
        writer_varint(&r->message, r->symbols[i].size);
        writer_append(&r->message, r->symbol_text.data + r->symbols[i].offset, r->symbols[i].size);
    }
    writer_append(&r->message, r->plain.data, r->plain.size);
    return &r->message;
}

enum err load_request_finish(struct load_request *r, struct bytes *body, size_t *plain_size,
                             struct errinfo *ei)
{
    const struct byte_writer *message = message_finish(r);
    size_t bound = r->compression == LOAD_SNAPPY ? snappy_max_compressed_length(message->size)
                                                 : ZSTD_compressBound(message->size);
    size_t size = bound;
    uint8_t *out;

    writer_reset(&r->packed);
    out = writer_reserve(&r->packed, bound);
    if (message->failed || out == NULL)
        return errinfo_set(ei, ERR_NOMEM, 0, "request body");
    if (r->compression == LOAD_SNAPPY) {
        if (snappy_compress((const char *)message->data, message->size, (char *)out, &size) !=
            SNAPPY_OK)
            return errinfo_set(ei, ERR_INTERNAL, 0, "snappy");
    } else {
        size = ZSTD_compressCCtx(r->zstd, out, bound, message->data, message->size, 1);
        if (ZSTD_isError(size))
            return errinfo_set(ei, ERR_INTERNAL, 0, "zstd: %s", ZSTD_getErrorName(size));
    }
    *body = (struct bytes){out, size};
    *plain_size = message->size;
    return ERR_OK;
}
