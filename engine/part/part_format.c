/*
 * Header, footer and tables of a part, version 1, little-endian. docs/formats/part.md
 *
 * Header of both files, 40 bytes:
 *   0        8         12     16     24            32     36       40
 *   | magic  | version | file | id   | must under- | zero | crc32c |
 *   |        |         |      |      | stand bits  |      | of [0, 36)
 *
 * End of the index:
 *   | contents (toc_size bytes) | toc_size | version | crc32c | magic   |
 *   |                           | 4        | 4       | 4      | 8 bytes |
 * The checksum covers the contents, toc_size and version.
 */
#include "engine/part/part_format_internal.h"

#include <assert.h>
#include <inttypes.h>
#include <string.h>

#include "engine/codec/codec_internal.h"
#include "engine/codec/fixed_bytes_internal.h"

static const uint8_t part_magic[8] = {'R', 'I', 'M', 'P', 'A', 'R', 'T', '\n'};

enum { HEADER_CRC_AT = 36, PART_SECTIONS_MAX = 64 };
static_assert(HEADER_CRC_AT + PART_CRC_SIZE == PART_HEADER_SIZE, "the checksum ends the header");

const char *part_section_name(enum part_section section)
{
    static const char *const names[PART_SECTION_COUNT] = {
        "label names", "label values", "metrics",           "entities",          "postings",
        "series",      "fingerprints", "fingerprint table", "timestamp columns", "chunk index"};

    return names[section];
}

static uint32_t get32(const uint8_t *at)
{
    uint32_t v;

    memcpy(&v, at, sizeof v);
    return v;
}

/* ---- checksums ---- */

uint32_t part_page_crc(const uint8_t *data, size_t size, uint64_t id, uint64_t offset)
{
    uint8_t place[16];

    fixed_put(place, id, 8);
    fixed_put(place + 8, offset, 8);
    return crc32c_extend(crc32c(data, size), place, sizeof place);
}

bool part_page_is_intact(const uint8_t *stored, size_t stored_size, uint64_t id, uint64_t offset)
{
    return stored_size >= PART_CRC_SIZE &&
           get32(stored + stored_size - PART_CRC_SIZE) ==
               part_page_crc(stored, stored_size - PART_CRC_SIZE, id, offset);
}

/* ---- header ---- */

void part_header_encode(enum part_file file, uint64_t id, uint8_t out[PART_HEADER_SIZE])
{
    memset(out, 0, PART_HEADER_SIZE);
    memcpy(out, part_magic, sizeof part_magic);
    fixed_put(out + 8, PART_VERSION, 4);
    fixed_put(out + 12, file, 4);
    fixed_put(out + 16, id, 8);
    fixed_put(out + HEADER_CRC_AT, crc32c(out, HEADER_CRC_AT), 4);
}

enum err part_header_decode(const uint8_t in[PART_HEADER_SIZE], enum part_file file,
                            const char *name, uint64_t *id, struct errinfo *ei)
{
    struct byte_reader r =
        reader_init(in + sizeof part_magic, PART_HEADER_SIZE - sizeof part_magic);
    uint32_t version = reader_le32(&r), kind = reader_le32(&r);
    uint64_t found = reader_le64(&r), must_understand = reader_le64(&r);

    if (memcmp(in, part_magic, sizeof part_magic) != 0)
        return errinfo_set_at(ei, ERR_CORRUPT, name, 0, "not a part");
    if (version > PART_VERSION)
        return errinfo_set_at(ei, ERR_UNSUPPORTED, name, 8,
                              "version %" PRIu32 ", this program knows %d", version, PART_VERSION);
    if (get32(in + HEADER_CRC_AT) != crc32c(in, HEADER_CRC_AT))
        return errinfo_set_at(ei, ERR_CORRUPT, name, 0, "checksum of the header is wrong");
    if (must_understand & ~(uint64_t)PART_FEATURES_KNOWN)
        return errinfo_set_at(ei, ERR_UNSUPPORTED, name, 24,
                              "unknown features %" PRIx64 "; a newer version wrote it",
                              must_understand);
    if (version == 0 || kind != (uint32_t)file)
        return errinfo_set_at(ei, ERR_CORRUPT, name, 8, "version %" PRIu32 ", file kind %" PRIu32,
                              version, kind);
    *id = found;
    return ERR_OK;
}

/* ---- footer ---- */

static void key_encode(struct byte_writer *w, const struct part_key *k)
{
    writer_le64(w, (uint64_t)k->window_start_ms);
    writer_le64(w, k->window_size_ms);
    writer_le64(w, k->resolution_ms);
    writer_le64(w, k->generation);
    writer_le32(w, k->shard);
    writer_le32(w, k->shard_count);
    writer_le32(w, k->retention_class);
}

static void key_decode(struct byte_reader *r, struct part_key *k)
{
    k->window_start_ms = (int64_t)reader_le64(r);
    k->window_size_ms = reader_le64(r);
    k->resolution_ms = reader_le64(r);
    k->generation = reader_le64(r);
    k->shard = reader_le32(r);
    k->shard_count = reader_le32(r);
    k->retention_class = reader_le32(r);
}

void part_footer_encode(struct byte_writer *w, const struct part_footer *f)
{
    size_t start = w->size;
    const struct part_info *i = &f->info;

    writer_le64(w, i->has_histograms ? PART_FEATURE_HISTOGRAMS : 0); /* must be understood */
    writer_le64(w, 0); /* features that may be ignored */
    writer_le64(w, i->id);
    key_encode(w, &i->key);
    writer_le64(w, (uint64_t)i->min_time_ms);
    writer_le64(w, (uint64_t)i->max_time_ms);
    writer_le64(w, i->highest_sequence);
    writer_le64(w, i->sample_count);
    writer_le64(w, i->chunk_count);
    writer_le64(w, i->chunks_size);
    writer_le32(w, i->series_count);
    writer_le32(w, i->entity_count);
    writer_le32(w, i->times_count);
    writer_le32(w, f->name_count);
    writer_le32(w, f->metric_count);
    writer_le32(w, f->unnamed_count);
    writer_le32(w, f->bucket_bits);
    writer_le32(w, f->codec_version);
    writer_le32(w, PART_SECTION_COUNT);
    for (uint32_t s = 0; s < PART_SECTION_COUNT; s++) {
        writer_le32(w, s);
        writer_le32(w, f->tables[s].count);
        writer_le64(w, f->tables[s].offset);
    }
    if (w->failed)
        return;
    writer_le32(w, (uint32_t)(w->size - start));
    writer_le32(w, PART_VERSION);
    if (!w->failed)
        writer_le32(w, crc32c(w->data + start, w->size - start));
    writer_append(w, part_magic, sizeof part_magic);
}

enum err part_trailer_decode(const uint8_t in[PART_TRAILER_SIZE], uint64_t file_size,
                             const char *name, uint32_t *toc_size, struct errinfo *ei)
{
    uint64_t at = file_size - PART_TRAILER_SIZE;
    uint32_t size = get32(in), version = get32(in + 4);

    if (memcmp(in + 12, part_magic, sizeof part_magic) != 0)
        return errinfo_set_at(ei, ERR_CORRUPT, name, at, "the footer is missing");
    if (version > PART_VERSION)
        return errinfo_set_at(ei, ERR_UNSUPPORTED, name, at,
                              "version %" PRIu32 ", this program knows %d", version, PART_VERSION);
    if (size > PART_TOC_SIZE_MAX || size > at - PART_HEADER_SIZE)
        return errinfo_set_at(ei, ERR_CORRUPT, name, at, "footer of %" PRIu32 " bytes", size);
    *toc_size = size;
    return ERR_OK;
}

static void sections_decode(struct byte_reader *r, struct part_footer *f)
{
    uint32_t count = reader_le32(r), seen = 0;

    if (count > PART_SECTIONS_MAX)
        r->failed = true;
    for (uint32_t i = 0; i < count && !r->failed; i++) {
        uint32_t kind = reader_le32(r), pages = reader_le32(r);
        uint64_t offset = reader_le64(r);

        if (kind >= PART_SECTION_COUNT) /* of a later version, to be ignored */
            continue;
        if (seen & 1U << kind)
            r->failed = true;
        seen |= 1U << kind;
        f->tables[kind].count = pages;
        f->tables[kind].offset = offset;
    }
    if (seen != (1U << PART_SECTION_COUNT) - 1)
        r->failed = true;
}

static void contents_decode(struct byte_reader *r, struct part_footer *f)
{
    struct part_info *i = &f->info;

    i->id = reader_le64(r);
    key_decode(r, &i->key);
    i->min_time_ms = (int64_t)reader_le64(r);
    i->max_time_ms = (int64_t)reader_le64(r);
    i->highest_sequence = reader_le64(r);
    i->sample_count = reader_le64(r);
    i->chunk_count = reader_le64(r);
    i->chunks_size = reader_le64(r);
    i->series_count = reader_le32(r);
    i->entity_count = reader_le32(r);
    i->times_count = reader_le32(r);
    f->name_count = reader_le32(r);
    f->metric_count = reader_le32(r);
    f->unnamed_count = reader_le32(r);
    f->bucket_bits = reader_le32(r);
    f->codec_version = reader_le32(r);
    sections_decode(r, f);
}

/* Pages and tables end before `end`. Counts that pages are found by must agree with the numbers of
 * pages, which the file's size bounds: whoever allocates by them is safe from then on. */
static bool counts_fit(const struct part_footer *f, uint64_t end)
{
    const struct part_info *i = &f->info;
    const struct part_table *t = f->tables;
    uint64_t pages = 0;

    for (uint32_t s = 0; s < PART_SECTION_COUNT; s++) {
        if (t[s].offset < PART_HEADER_SIZE || t[s].offset >= end ||
            (uint64_t)t[s].count * PART_TABLE_ENTRY_SIZE + PART_CRC_SIZE > end - t[s].offset)
            return false;
        pages += t[s].count;
    }
    return pages <= end / PART_TABLE_ENTRY_SIZE && i->series_count != PART_NO_SERIES &&
           i->entity_count <= i->series_count && f->metric_count <= i->series_count &&
           f->unnamed_count <= i->series_count && i->times_count <= i->chunk_count &&
           i->chunk_count <= i->chunks_size &&
           f->bucket_bits == part_bucket_bits(i->series_count) &&
           t[PART_SECTION_PRINTS].count == part_page_count(i->series_count, PART_PRINTS_PER_PAGE) &&
           t[PART_SECTION_REFS].count == part_page_count(i->series_count, PART_REFS_PER_PAGE) &&
           t[PART_SECTION_CHUNKS].count ==
               part_page_count(i->series_count, PART_CHUNK_SERIES_PER_PAGE) &&
           t[PART_SECTION_ENTITIES].count ==
               part_page_count(i->entity_count, PART_ENTITIES_PER_PAGE) &&
           t[PART_SECTION_METRICS].count ==
               part_page_count(f->metric_count, PART_METRICS_PER_PAGE) &&
           t[PART_SECTION_LOOKUP].count ==
               part_page_count(UINT64_C(1) << f->bucket_bits, PART_BUCKETS_PER_PAGE) &&
           t[PART_SECTION_NAMES].count == 1;
}

enum err part_footer_decode(const uint8_t *in, size_t toc_size, uint64_t file_size,
                            const char *name, struct part_footer *out, struct errinfo *ei)
{
    struct byte_reader r = reader_init(in, toc_size);
    uint64_t at = file_size - PART_TRAILER_SIZE - toc_size;
    uint64_t must_understand;

    if (get32(in + toc_size + 8) != crc32c(in, toc_size + 8))
        return errinfo_set_at(ei, ERR_CORRUPT, name, at, "checksum of the footer is wrong");
    memset(out, 0, sizeof *out);
    must_understand = reader_le64(&r);
    (void)reader_le64(&r); /* features that may be ignored */
    if (must_understand & ~(uint64_t)PART_FEATURES_KNOWN)
        return errinfo_set_at(ei, ERR_UNSUPPORTED, name, at,
                              "unknown features %" PRIx64 "; a newer version wrote it",
                              must_understand);
    contents_decode(&r, out);
    out->info.has_histograms = (must_understand & PART_FEATURE_HISTOGRAMS) != 0;
    out->info.index_size = file_size;
    if (!r.failed && out->codec_version > CODEC_VERSION)
        return errinfo_set_at(ei, ERR_UNSUPPORTED, name, at,
                              "columns of version %" PRIu32 ", this program knows %d",
                              out->codec_version, CODEC_VERSION);
    if (r.failed || !counts_fit(out, at))
        return errinfo_set_at(ei, ERR_CORRUPT, name, at, "numbers in the footer do not fit");
    return ERR_OK;
}

/* ---- tables ---- */

void part_table_encode(struct byte_writer *w, const struct part_table *t)
{
    for (uint32_t i = 0; i < t->count; i++) {
        writer_le64(w, t->pages[i].offset);
        writer_le32(w, t->pages[i].size);
        writer_le32(w, t->pages[i].key);
    }
}

bool part_table_decode(const uint8_t *data, size_t size, uint64_t end, struct part_table *t)
{
    struct byte_reader r = reader_init(data, size);

    for (uint32_t i = 0; i < t->count; i++) {
        struct part_page_entry *p = &t->pages[i];

        p->offset = reader_le64(&r);
        p->size = reader_le32(&r);
        p->key = reader_le32(&r);
        if (p->offset < PART_HEADER_SIZE || p->offset >= end || p->size <= PART_CRC_SIZE ||
            p->size > end - p->offset)
            return false;
    }
    return !r.failed && reader_left(&r) == 0;
}

/* ---- packed integers ---- */

/* Packs the n integers in s->residuals[0]. */
static void ints_put_piece(struct byte_writer *w, struct codec_scratch *s, size_t n)
{
    enum { SCRIBBLE = 16 };
    struct codec_ints_plan plan;
    uint8_t *at;

    codec_ints_plan(s, n, &plan);
    at = writer_reserve(w, plan.size + SCRIBBLE);
    if (at != NULL)
        w->size += codec_ints_write(s, n, &plan, at);
}

void part_ints_put(struct byte_writer *w, struct codec_scratch *s, const uint32_t *x, size_t n)
{
    for (size_t first = 0, count; first < n; first += count) {
        count = n - first < PART_INTS_PIECE ? n - first : PART_INTS_PIECE;
        for (size_t i = 0; i < count; i++)
            s->residuals[0][i] = x[first + i];
        ints_put_piece(w, s, count);
    }
}

void part_ints_put_wide(struct byte_writer *w, struct codec_scratch *s, const uint64_t *x, size_t n)
{
    for (size_t first = 0, count; first < n; first += count) {
        count = n - first < PART_INTS_PIECE ? n - first : PART_INTS_PIECE;
        memcpy(s->residuals[0], x + first, count * sizeof *x);
        ints_put_piece(w, s, count);
    }
}

bool part_ints_get_wide(struct byte_reader *r, size_t n, uint64_t *out)
{
    for (size_t first = 0, count; first < n; first += count) {
        count = n - first < PART_INTS_PIECE ? n - first : PART_INTS_PIECE;
        if (r->failed || !codec_ints_read(r, count, (codec_word *)(out + first))) {
            r->failed = true;
            return false;
        }
    }
    return !r->failed;
}

bool part_ints_get(struct byte_reader *r, size_t n, uint32_t max, uint32_t *out)
{
    uint64_t wide[PART_INTS_PIECE];

    for (size_t first = 0, count; first < n; first += count) {
        bool fits = true;

        count = n - first < PART_INTS_PIECE ? n - first : PART_INTS_PIECE;
        if (!part_ints_get_wide(r, count, wide))
            return false;
        for (size_t i = 0; i < count; i++) {
            fits &= wide[i] <= max;
            out[first + i] = (uint32_t)wide[i];
        }
        if (!fits) {
            r->failed = true;
            return false;
        }
    }
    return !r->failed;
}

uint32_t part_bucket_bits(uint32_t series_count)
{
    uint32_t bits = 0;

    while (bits < 31 && ((uint64_t)PART_BUCKET_TARGET << bits) < series_count)
        bits++;
    return bits;
}
