/*
 * Bytes of a sealed or late file, little-endian. docs/formats/sealed.md
 *
 * File:      | header (64) | slice | slice | ... | footer, trailer (32): once finished |
 *
 * Header:    0            8         10     11            12          16         20
 *            | "RIMSEAL1" | version | kind | codecs' ver | must bits | may bits | shard count |
 *            24      28     32          40      48            56     60
 *            | shard | zero | secret id | epoch | file number | zero | crc of [0, 60) |
 *
 * Slice:     | header (80) | timestamp columns | group | group | ... | group table | crc |
 *
 * Slice      0       4       8       16         24       32       40             48
 * header:    | magic | index | epoch | sequence | min ms | max ms | sample count | slice size |
 *            52            56            60           64            68     76
 *            | chunk count | group count | table size | payload crc | zero | crc of [0, 76) |
 *
 * Group:     | directory | crc | page | crc | page | crc | ...
 * Column:    | timestamps | crc |
 *
 * Footer:    | magic | slice count | offset, slice header, group table, crc | ... |
 * Trailer:   0             8       16           20      24     28
 *            | footer size | epoch | footer crc | magic | zero | crc of [0, 28) |
 *
 * Every checksum but those of the three fixed headers covers the file's epoch and the place as
 * well.
 */
#include "engine/sealed/sealed_format_internal.h"

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/checksum.h"
#include "engine/codec/fixed_bytes_internal.h"
#include "engine/sealed/shard_file_header_internal.h"
#include "wal/wal.h"

static_assert((int)SEALED_HEADER_SIZE == (int)SHARD_FILE_HEADER_SIZE,
              "one header serves both formats");

static const uint8_t file_magic[SHARD_FILE_MAGIC_SIZE] = {'R', 'I', 'M', 'S', 'E', 'A', 'L', '1'};
const uint8_t sealed_slice_magic[SEALED_MAGIC_SIZE] = {0xf7, 'S', 'l', 0xfb};
const uint8_t sealed_footer_magic[SEALED_MAGIC_SIZE] = {0xf7, 'S', 'f', 0xfb};

enum {
    SEALED_FEATURE_HISTOGRAMS = 1 << 0, /* must-understand: chunks may be of histograms */
    SEALED_FEATURES_KNOWN = SEALED_FEATURE_HISTOGRAMS,
    SLICE_CRC_AT = SEALED_SLICE_HEADER_SIZE - 4,
    TRAILER_CRC_AT = SEALED_TRAILER_SIZE - 4,
};

uint32_t sealed_crc(uint64_t epoch, uint64_t offset, const void *data, size_t size)
{
    uint64_t place[2] = {epoch, offset};

    return crc32c_extend(crc32c(place, sizeof place), data, size);
}

/* ---- file header ---- */

void sealed_header_encode(const struct sealed_identity *id, uint8_t out[SEALED_HEADER_SIZE])
{
    struct shard_file_header h = {.version = SEALED_VERSION,
                                  .kind = (uint8_t)id->kind,
                                  .codec_version = CODEC_VERSION,
                                  .must_understand =
                                      id->has_histograms ? SEALED_FEATURE_HISTOGRAMS : 0,
                                  .shard_count = id->shard_count,
                                  .shard = id->shard,
                                  .secret_id = id->secret_id,
                                  .epoch = id->epoch,
                                  .number = id->number};

    shard_file_header_encode(file_magic, &h, out);
}

static bool identity_possible(const struct sealed_identity *id)
{
    return (id->kind == SEALED_RECENT || id->kind == SEALED_LATE) && id->shard_count > 0 &&
           id->shard_count <= WAL_SHARD_COUNT_MAX && id->shard < id->shard_count;
}

enum err sealed_header_decode(const uint8_t *data, size_t size, const char *path,
                              struct sealed_identity *id, struct errinfo *ei)
{
    struct shard_file_header h;
    struct sealed_identity got;
    enum err e = shard_file_header_decode(data, size, file_magic, "sealed file", path, &h, ei);

    if (e != ERR_OK)
        return e;
    if (h.version != SEALED_VERSION || h.codec_version != CODEC_VERSION ||
        (h.must_understand & ~(uint32_t)SEALED_FEATURES_KNOWN) != 0)
        return errinfo_set(ei, ERR_UNSUPPORTED, 0,
                           "%s: another version wrote it: version %u, codecs %u, features %" PRIx32,
                           path, h.version, h.codec_version, h.must_understand);
    got = (struct sealed_identity){.kind = (enum sealed_kind)h.kind,
                                   .shard_count = h.shard_count,
                                   .shard = h.shard,
                                   .secret_id = h.secret_id,
                                   .has_histograms =
                                       (h.must_understand & SEALED_FEATURE_HISTOGRAMS) != 0,
                                   .epoch = h.epoch,
                                   .number = h.number};
    if (!identity_possible(&got))
        return errinfo_set_at(ei, ERR_CORRUPT, path, 0, "kind %u, shard %u of %u", h.kind,
                              got.shard, got.shard_count);
    *id = got;
    return ERR_OK;
}

/* ---- slice header ---- */

void sealed_slice_header_encode(const struct sealed_slice_header *h,
                                uint8_t out[SEALED_SLICE_HEADER_SIZE])
{
    memset(out, 0, SEALED_SLICE_HEADER_SIZE);
    memcpy(out, sealed_slice_magic, SEALED_MAGIC_SIZE);
    fixed_put(out + 4, h->index, 4);
    fixed_put(out + 8, h->epoch, 8);
    fixed_put(out + 16, h->sequence, 8);
    fixed_put(out + 24, (uint64_t)h->min_time_ms, 8);
    fixed_put(out + 32, (uint64_t)h->max_time_ms, 8);
    fixed_put(out + 40, h->sample_count, 8);
    fixed_put(out + 48, h->size, 4);
    fixed_put(out + 52, h->chunk_count, 4);
    fixed_put(out + 56, h->group_count, 4);
    fixed_put(out + 60, h->table_size, 4);
    fixed_put(out + 64, h->payload_crc, 4);
    fixed_put(out + SLICE_CRC_AT, crc32c(out, SLICE_CRC_AT), 4);
}

bool sealed_slice_header_decode(const uint8_t data[SEALED_SLICE_HEADER_SIZE],
                                struct sealed_slice_header *out)
{
    struct byte_reader r = reader_init(data, SEALED_SLICE_HEADER_SIZE);
    const uint8_t *magic = reader_take(&r, SEALED_MAGIC_SIZE);
    struct sealed_slice_header h;

    if (memcmp(magic, sealed_slice_magic, SEALED_MAGIC_SIZE) != 0)
        return false;
    h.index = reader_le32(&r);
    h.epoch = reader_le64(&r);
    h.sequence = reader_le64(&r);
    h.min_time_ms = (int64_t)reader_le64(&r);
    h.max_time_ms = (int64_t)reader_le64(&r);
    h.sample_count = reader_le64(&r);
    h.size = reader_le32(&r);
    h.chunk_count = reader_le32(&r);
    h.group_count = reader_le32(&r);
    h.table_size = reader_le32(&r);
    h.payload_crc = reader_le32(&r);
    (void)reader_le64(&r); /* zero */
    if (reader_le32(&r) != crc32c(data, SLICE_CRC_AT))
        return false;
    if (h.size > SEALED_SLICE_SIZE_MAX || h.size < SEALED_SLICE_HEADER_SIZE ||
        h.table_size <= SEALED_CRC_SIZE || h.table_size > h.size - SEALED_SLICE_HEADER_SIZE)
        return false;
    if (h.chunk_count == 0 || h.chunk_count > SEALED_SLICE_CHUNKS_MAX || h.group_count == 0 ||
        h.group_count > h.chunk_count || h.min_time_ms > h.max_time_ms)
        return false;
    *out = h;
    return true;
}

/* ---- integers ---- */

void sealed_ints_put(struct byte_writer *w, struct codec_scratch *s, const int64_t *x, size_t n)
{
    uint8_t column[8 * SEALED_INTS_PIECE + CODEC_BOUND_SLACK];

    for (size_t i = 0; i < n; i += SEALED_INTS_PIECE) {
        size_t piece = n - i < SEALED_INTS_PIECE ? n - i : SEALED_INTS_PIECE;
        size_t size = codec_times_encode(x + i, piece, s, column);

        writer_varint(w, size);
        writer_append(w, column, size);
    }
}

bool sealed_ints_get(struct byte_reader *r, size_t n, int64_t *out)
{
    for (size_t i = 0; i < n && !r->failed; i += SEALED_INTS_PIECE) {
        size_t piece = n - i < SEALED_INTS_PIECE ? n - i : SEALED_INTS_PIECE;
        uint64_t size = reader_varint(r);
        const uint8_t *column = size <= reader_left(r) ? reader_take(r, (size_t)size) : NULL;

        if (column == NULL || size == 0 ||
            !codec_times_decode(column, (size_t)size, piece, out + i))
            r->failed = true;
    }
    return !r->failed;
}

/* ---- group table ---- */

enum { TABLE_COLUMNS = 8 };

static void group_fields(const struct sealed_group *g, int64_t out[TABLE_COLUMNS])
{
    out[0] = g->first_slot;
    out[1] = g->last_slot;
    out[2] = g->offset;
    out[3] = g->directory_size;
    out[4] = g->data_size;
    out[5] = g->chunk_count;
    out[6] = g->min_time_ms;
    out[7] = g->max_time_ms;
}

void sealed_table_encode(struct byte_writer *w, struct codec_scratch *s,
                         const struct sealed_group *groups, uint32_t count)
{
    int64_t x[SEALED_INTS_PIECE];

    for (unsigned column = 0; column < TABLE_COLUMNS; column++) {
        for (uint32_t i = 0; i < count; i += SEALED_INTS_PIECE) {
            uint32_t piece = count - i < SEALED_INTS_PIECE ? count - i : SEALED_INTS_PIECE;

            for (uint32_t k = 0; k < piece; k++) {
                int64_t fields[TABLE_COLUMNS];

                group_fields(&groups[i + k], fields);
                x[k] = fields[column];
            }
            sealed_ints_put(w, s, x, piece);
        }
    }
}

static bool fits_u32(int64_t v)
{
    return v >= 0 && v <= UINT32_MAX;
}

/* Fills one column of the groups; false when a number is out of its range. */
static bool table_column(struct sealed_group *groups, unsigned column, const int64_t *x,
                         uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        struct sealed_group *g = &groups[i];
        uint32_t *const fields[6] = {&g->first_slot,     &g->last_slot, &g->offset,
                                     &g->directory_size, &g->data_size, &g->chunk_count};

        if (column == 6) {
            g->min_time_ms = x[i];
        } else if (column == 7) {
            g->max_time_ms = x[i];
        } else {
            if (!fits_u32(x[i]))
                return false;
            *fields[column] = (uint32_t)x[i];
        }
    }
    return true;
}

/* Groups stand one behind the other between the timestamp columns and the table. */
static bool groups_possible(const struct sealed_slice *s, uint32_t table_size)
{
    uint64_t end = s->groups[0].offset, limit = s->size - table_size, chunks = 0;
    uint32_t slot = 0;

    if (end < SEALED_SLICE_HEADER_SIZE)
        return false;
    for (uint32_t i = 0; i < s->group_count; i++) {
        const struct sealed_group *g = &s->groups[i];

        if (g->offset != end || g->first_slot < slot || g->last_slot < g->first_slot)
            return false;
        if (g->chunk_count == 0 || g->chunk_count > SEALED_GROUP_CHUNKS ||
            g->directory_size <= SEALED_CRC_SIZE || g->directory_size > SEALED_DIRECTORY_SIZE_MAX)
            return false;
        if (g->min_time_ms > g->max_time_ms || g->min_time_ms < s->min_time_ms ||
            g->max_time_ms > s->max_time_ms)
            return false;
        end += (uint64_t)g->directory_size + g->data_size;
        if (end > limit)
            return false;
        slot = g->last_slot;
        chunks += g->chunk_count;
    }
    return end == limit && chunks == s->chunk_count;
}

static bool table_read(struct sealed_slice *s, const uint8_t *data, size_t size)
{
    struct byte_reader r = reader_init(data, size);
    int64_t x[SEALED_INTS_PIECE];

    for (unsigned column = 0; column < TABLE_COLUMNS; column++) {
        for (uint32_t i = 0; i < s->group_count; i += SEALED_INTS_PIECE) {
            uint32_t left = s->group_count - i;
            uint32_t piece = left < SEALED_INTS_PIECE ? left : SEALED_INTS_PIECE;

            if (!sealed_ints_get(&r, piece, x) || !table_column(s->groups + i, column, x, piece))
                return false;
        }
    }
    return reader_left(&r) == 0;
}

enum err sealed_table_decode(const struct sealed_slice_header *h, uint64_t offset,
                             const uint8_t *data, size_t size, struct sealed_slice **out)
{
    struct sealed_slice *s;

    /* A full piece of any column takes at least two bytes. */
    if ((h->group_count - 1) / SEALED_INTS_PIECE > size)
        return ERR_CORRUPT;
    s = calloc(1, sizeof *s + h->group_count * sizeof s->groups[0]);
    if (s == NULL)
        return ERR_NOMEM;
    s->offset = offset;
    s->size = h->size;
    s->sequence = h->sequence;
    s->min_time_ms = h->min_time_ms;
    s->max_time_ms = h->max_time_ms;
    s->sample_count = h->sample_count;
    s->index = h->index;
    s->chunk_count = h->chunk_count;
    s->group_count = h->group_count;
    if (!table_read(s, data, size) || !groups_possible(s, h->table_size)) {
        free(s);
        return ERR_CORRUPT;
    }
    *out = s;
    return ERR_OK;
}

/* ---- directory ---- */

void sealed_directory_encode(struct byte_writer *w, struct codec_scratch *s,
                             const struct sealed_directory *d)
{
    writer_varint(w, d->chunk_count);
    writer_varint(w, d->times_count);
    writer_varint(w, d->page_count);
    sealed_ints_put(w, s, d->slots, d->chunk_count);
    sealed_ints_put(w, s, d->generations, d->chunk_count);
    sealed_ints_put(w, s, d->columns, d->chunk_count);
    sealed_ints_put(w, s, d->times, d->chunk_count);
    sealed_ints_put(w, s, d->sizes, d->chunk_count);
    sealed_ints_put(w, s, d->times_offsets, d->times_count);
    sealed_ints_put(w, s, d->times_sizes, d->times_count);
    sealed_ints_put(w, s, d->times_counts, d->times_count);
    sealed_ints_put(w, s, d->times_mins, d->times_count);
    sealed_ints_put(w, s, d->times_maxs, d->times_count);
    sealed_ints_put(w, s, d->page_items, d->page_count);
}

static bool within(int64_t v, int64_t min, int64_t max)
{
    return v >= min && v <= max;
}

static bool times_possible(const struct sealed_directory *d, const struct sealed_group *group)
{
    for (uint32_t i = 0; i < d->times_count; i++) {
        int64_t size = d->times_sizes[i];

        if (!within(d->times_counts[i], 1, CODEC_SAMPLES_MAX) ||
            !within(size, 1, (int64_t)codec_bound(CODEC_SAMPLES_MAX)))
            return false;
        /* Timestamp columns stand before all groups. */
        if (!within(d->times_offsets[i], SEALED_SLICE_HEADER_SIZE,
                    (int64_t)group->offset - size - SEALED_CRC_SIZE))
            return false;
        if (d->times_mins[i] > d->times_maxs[i] || d->times_mins[i] < group->min_time_ms ||
            d->times_maxs[i] > group->max_time_ms)
            return false;
    }
    return true;
}

static int64_t size_max(int64_t column)
{
    return column == SEALED_COLUMN_HISTOGRAMS ? SEALED_HISTOGRAMS_SIZE_MAX : SEALED_VALUES_SIZE_MAX;
}

static bool chunks_possible(const struct sealed_directory *d, const struct sealed_group *group)
{
    for (uint32_t i = 0; i < d->chunk_count; i++) {
        if (!within(d->slots[i], group->first_slot, group->last_slot) ||
            !within(d->generations[i], 0, UINT16_MAX) || !within(d->columns[i], 0, UINT8_MAX) ||
            !within(d->times[i], 0, (int64_t)d->times_count - 1) ||
            !within(d->sizes[i], 1, size_max(d->columns[i])))
            return false;
        if (i == 0)
            continue;
        if (d->slots[i] < d->slots[i - 1])
            return false;
        if (d->slots[i] == d->slots[i - 1] &&
            (d->generations[i] != d->generations[i - 1] ||
             d->times_mins[d->times[i]] <= d->times_maxs[d->times[i - 1]]))
            return false;
    }
    return d->slots[0] == group->first_slot && d->slots[d->chunk_count - 1] == group->last_slot;
}

static bool pages_possible(const struct sealed_directory *d, const struct sealed_group *group)
{
    uint64_t bytes = (uint64_t)d->page_count * SEALED_CRC_SIZE, items = 0;

    for (uint32_t i = 0; i < d->page_count; i++) {
        if (!within(d->page_items[i], 1, d->chunk_count))
            return false;
        items += (uint64_t)d->page_items[i];
    }
    for (uint32_t i = 0; i < d->chunk_count; i++)
        bytes += (uint64_t)d->sizes[i];
    return items == d->chunk_count && bytes == group->data_size;
}

bool sealed_directory_decode(const uint8_t *data, size_t size, const struct sealed_group *group,
                             uint64_t slice_size, struct sealed_directory *out)
{
    struct byte_reader r = reader_init(data, size);
    uint64_t chunks = reader_varint(&r), times = reader_varint(&r), pages = reader_varint(&r);
    struct sealed_directory *d = out;

    if (r.failed || chunks != group->chunk_count || chunks > SEALED_GROUP_CHUNKS || times == 0 ||
        times > chunks || pages == 0 || pages > chunks || group->offset > slice_size)
        return false;
    d->chunk_count = (uint32_t)chunks;
    d->times_count = (uint32_t)times;
    d->page_count = (uint32_t)pages;
    return sealed_ints_get(&r, chunks, d->slots) && sealed_ints_get(&r, chunks, d->generations) &&
           sealed_ints_get(&r, chunks, d->columns) && sealed_ints_get(&r, chunks, d->times) &&
           sealed_ints_get(&r, chunks, d->sizes) && sealed_ints_get(&r, times, d->times_offsets) &&
           sealed_ints_get(&r, times, d->times_sizes) &&
           sealed_ints_get(&r, times, d->times_counts) &&
           sealed_ints_get(&r, times, d->times_mins) && sealed_ints_get(&r, times, d->times_maxs) &&
           sealed_ints_get(&r, pages, d->page_items) && reader_left(&r) == 0 &&
           times_possible(d, group) && chunks_possible(d, group) && pages_possible(d, group);
}

/* ---- footer ---- */

void sealed_trailer_encode(const struct sealed_trailer *t, uint8_t out[SEALED_TRAILER_SIZE])
{
    memset(out, 0, SEALED_TRAILER_SIZE);
    fixed_put(out, t->footer_size, 8);
    fixed_put(out + 8, t->epoch, 8);
    fixed_put(out + 16, t->footer_crc, 4);
    memcpy(out + 20, sealed_footer_magic, SEALED_MAGIC_SIZE);
    fixed_put(out + TRAILER_CRC_AT, crc32c(out, TRAILER_CRC_AT), 4);
}

bool sealed_trailer_decode(const uint8_t data[SEALED_TRAILER_SIZE], struct sealed_trailer *out)
{
    struct byte_reader r = reader_init(data, SEALED_TRAILER_SIZE);
    struct sealed_trailer t;
    const uint8_t *magic;

    t.footer_size = reader_le64(&r);
    t.epoch = reader_le64(&r);
    t.footer_crc = reader_le32(&r);
    magic = reader_take(&r, SEALED_MAGIC_SIZE);
    (void)reader_le32(&r); /* zero */
    if (reader_le32(&r) != crc32c(data, TRAILER_CRC_AT) ||
        memcmp(magic, sealed_footer_magic, SEALED_MAGIC_SIZE) != 0 ||
        t.footer_size < SEALED_FOOTER_HEAD_SIZE || t.footer_size > SEALED_FOOTER_SIZE_MAX)
        return false;
    *out = t;
    return true;
}

void sealed_footer_add(struct byte_writer *w, uint64_t offset, const uint8_t *header,
                       const uint8_t *table, size_t table_size)
{
    writer_le64(w, offset);
    writer_append(w, header, SEALED_SLICE_HEADER_SIZE);
    writer_append(w, table, table_size);
}
