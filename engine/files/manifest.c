/*
 * Manifest of a data directory, version 2, little-endian. docs/formats/manifest.md
 *
 *   0        8         12     16        24        32        36       40
 *   | magic  | version | zero | must    | may     | shard   | secret | secret's id
 *   |        |         |      | under-  | ignore  | count   | size   | (8 bytes)
 *   |        |         |      | stand   |         |         |        |
 *   48                  240                248             252      256
 *   | secret (192 bytes) | next file number | section count | crc32c |
 *
 *   Section:  | kind u32 | flags u32 | size u64 | content |
 *   At the end, behind all sections: | crc32c of [256, end) |
 *
 * The first checksum covers bytes [0, 252). Version 1 is bytes [0, 256) with zeros at 240.
 */
#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/checksum.h"
#include "engine/files/manifest_internal.h"
#include "wal/wal.h"

static const uint8_t manifest_magic[8] = {'R', 'I', 'M', 'M', 'A', 'N', 'I', 'F'};

enum {
    MANIFEST_VERSION = 2,
    MANIFEST_SECRET_AT = 48,
    MANIFEST_HEAD_CRC_AT = MANIFEST_HEAD_SIZE - 4,
    MANIFEST_FEATURES_KNOWN = 0, /* none yet */
    SECTION_HEAD_SIZE = 16,
    SECTION_MUST = 1, /* flag: a reader that does not know the kind must refuse */
    FILE_ENTRY_SIZE = 32,
    PART_ENTRY_SIZE = 96,
};
static_assert(MANIFEST_SECRET_AT + HASH_SECRET_SIZE + 16 == MANIFEST_HEAD_SIZE, "the head is full");

enum section_kind {
    SECTION_SEQUENCES = 1,
    SECTION_FILES = 2,
    SECTION_PARTS = 3,
    SECTION_TOMBSTONES = 4, /* only where there are any */
    SECTION_PURGES = 5,     /* the same */
    SECTION_FILTERS = 6,    /* tombstones where any has a filter; then 4 is not there */
};

enum {
    SECTIONS_ALWAYS = 1 << SECTION_SEQUENCES | 1 << SECTION_FILES | 1 << SECTION_PARTS,
    SECTIONS_TOMBSTONES = 1 << SECTION_TOMBSTONES | 1 << SECTION_FILTERS, /* one of them */
};

/* ---- writing ---- */

static void head_encode(const struct manifest *m, uint32_t section_count, struct byte_writer *w)
{
    writer_append(w, manifest_magic, sizeof manifest_magic);
    writer_le32(w, MANIFEST_VERSION);
    writer_le32(w, 0);
    writer_le64(w, MANIFEST_FEATURES_KNOWN);
    writer_le64(w, 0); /* may-ignore features */
    writer_le32(w, m->shard_count);
    writer_le32(w, HASH_SECRET_SIZE);
    writer_le64(w, m->secret.id);
    writer_append(w, m->secret.bytes, HASH_SECRET_SIZE);
    writer_le64(w, m->next_file_number);
    writer_le32(w, section_count);
    if (!w->failed)
        writer_le32(w, crc32c(w->data, MANIFEST_HEAD_CRC_AT));
}

static void section_head(struct byte_writer *w, enum section_kind kind, uint64_t size)
{
    writer_le32(w, kind);
    writer_le32(w, SECTION_MUST);
    writer_le64(w, size);
}

static void file_encode(const struct manifest_file *f, struct byte_writer *w)
{
    writer_le32(w, (uint32_t)f->kind);
    writer_le32(w, f->shard);
    writer_le32(w, f->shard_count);
    writer_le32(w, 0);
    writer_le64(w, f->number);
    writer_le64(w, f->durable_size);
}

static void part_encode(const struct manifest_part *p, struct byte_writer *w)
{
    writer_le64(w, (uint64_t)p->key.window_start_ms);
    writer_le64(w, p->key.window_size_ms);
    writer_le64(w, p->key.resolution_ms);
    writer_le64(w, p->key.generation);
    writer_le32(w, p->key.shard);
    writer_le32(w, p->key.shard_count);
    writer_le32(w, p->key.retention_class);
    writer_le32(w, 0);
    writer_le64(w, (uint64_t)p->min_time_ms);
    writer_le64(w, (uint64_t)p->max_time_ms);
    writer_le64(w, p->sample_count);
    writer_le64(w, p->index_size);
    writer_le64(w, p->chunks_size);
    writer_le64(w, p->purged_generation);
}

/* Appends one of the two sections whose sizes are known behind them. */
static enum err list_encode(const struct manifest *m, enum section_kind kind, struct byte_writer *w,
                            struct errinfo *ei)
{
    size_t begin;
    uint64_t size;
    enum err e;

    section_head(w, kind, 0);
    begin = w->size;
    e = kind == SECTION_PURGES ? purge_list_encode(m->purges, w, ei)
                               : tombstone_list_encode(m->tombstones, w, ei);
    if (e != ERR_OK || w->failed)
        return e;
    size = w->size - begin;
    memcpy(w->data + begin - sizeof size, &size, sizeof size);
    return ERR_OK;
}

enum err manifest_encode(const struct manifest *m, struct byte_writer *w, struct errinfo *ei)
{
    bool any_tombstones = m->tombstones != NULL && m->tombstones->count > 0;
    bool any_purges = m->purges != NULL && m->purges->count > 0;
    enum err e = ERR_OK;

    writer_reset(w);
    head_encode(m, 3U + any_tombstones + any_purges, w);
    section_head(w, SECTION_SEQUENCES, 8 * (uint64_t)m->shard_count);
    for (uint32_t i = 0; i < m->shard_count; i++)
        writer_le64(w, m->covered_sequences != NULL ? m->covered_sequences[i] : 0);
    section_head(w, SECTION_FILES, FILE_ENTRY_SIZE * (uint64_t)m->file_count);
    for (size_t i = 0; i < m->file_count; i++)
        file_encode(&m->files[i], w);
    section_head(w, SECTION_PARTS, PART_ENTRY_SIZE * (uint64_t)m->part_count);
    for (size_t i = 0; i < m->part_count; i++)
        part_encode(&m->parts[i], w);
    if (any_tombstones)
        e = list_encode(
            m, tombstone_list_has_filters(m->tombstones) ? SECTION_FILTERS : SECTION_TOMBSTONES, w,
            ei);
    if (any_purges && e == ERR_OK)
        e = list_encode(m, SECTION_PURGES, w, ei);
    if (e != ERR_OK)
        return e;
    if (!w->failed)
        writer_le32(w, crc32c(w->data + MANIFEST_HEAD_SIZE, w->size - MANIFEST_HEAD_SIZE));
    if (w->failed)
        return errinfo_set(ei, ERR_NOMEM, 0, "manifest of %zu files and %zu parts", m->file_count,
                           m->part_count);
    if (w->size > MANIFEST_SIZE_MAX)
        return errinfo_set(ei, ERR_LIMIT, 0, "manifest of %zu bytes", w->size);
    return ERR_OK;
}

/* ---- reading ---- */

static enum err corrupt(size_t offset, const char *what, struct errinfo *ei)
{
    return errinfo_set_at(ei, ERR_CORRUPT, MANIFEST_PATH, offset, "%s", what);
}

static bool shard_count_possible(uint32_t n)
{
    return n > 0 && n <= WAL_SHARD_COUNT_MAX && (n & (n - 1)) == 0;
}

/* The fields both versions have; the reader stands behind the version. */
static enum err head_decode(struct byte_reader *r, struct manifest *out, struct errinfo *ei)
{
    uint64_t must_understand, secret_id;
    uint32_t shard_count, secret_size;
    struct hash_secret loaded;
    const uint8_t *secret;

    (void)reader_le32(r); /* zero */
    must_understand = reader_le64(r);
    (void)reader_le64(r); /* features that may be ignored */
    shard_count = reader_le32(r);
    secret_size = reader_le32(r);
    secret_id = reader_le64(r);
    secret = reader_take(r, HASH_SECRET_SIZE);
    if (must_understand & ~(uint64_t)MANIFEST_FEATURES_KNOWN)
        return errinfo_set_at(ei, ERR_UNSUPPORTED, MANIFEST_PATH, 16,
                              "unknown features %" PRIx64 "; a newer version wrote it",
                              must_understand);
    if (r->failed || !shard_count_possible(shard_count) || secret_size != HASH_SECRET_SIZE)
        return errinfo_set_at(ei, ERR_CORRUPT, MANIFEST_PATH, 32, "%u shards, secret of %u bytes",
                              shard_count, secret_size);
    hash_secret_from_bytes(&loaded, secret);
    if (loaded.id != secret_id)
        return corrupt(40, "the secret's id does not fit the secret", ei);
    out->shard_count = shard_count;
    out->secret = loaded;
    return ERR_OK;
}

static enum err sequences_decode(struct byte_reader *r, struct manifest *out, struct errinfo *ei)
{
    enum err e;

    if (reader_left(r) != 8 * (size_t)out->shard_count)
        return errinfo_set(ei, ERR_CORRUPT, 0, "%s: %zu bytes of sequence numbers", MANIFEST_PATH,
                           reader_left(r));
    e = manifest_sequences_reserve(out, ei);
    for (uint32_t i = 0; i < out->shard_count && e == ERR_OK; i++)
        out->covered_sequences[i] = reader_le64(r);
    return e;
}

static enum err files_decode(struct byte_reader *r, struct manifest *out, struct errinfo *ei)
{
    size_t count = reader_left(r) / FILE_ENTRY_SIZE;

    if (reader_left(r) % FILE_ENTRY_SIZE != 0)
        return errinfo_set(ei, ERR_CORRUPT, 0, "%s: %zu bytes of files", MANIFEST_PATH,
                           reader_left(r));
    out->files = calloc(count + 1, sizeof *out->files);
    if (out->files == NULL)
        return errinfo_set(ei, ERR_NOMEM, 0, "%zu files of %s", count, MANIFEST_PATH);
    out->file_capacity = count + 1;
    for (size_t i = 0; i < count; i++) {
        struct manifest_file *f = &out->files[i];
        uint32_t kind = reader_le32(r);

        f->kind = (enum manifest_kind)kind;
        f->shard = reader_le32(r);
        f->shard_count = reader_le32(r);
        (void)reader_le32(r); /* zero */
        f->number = reader_le64(r);
        f->durable_size = reader_le64(r);
        if (kind < MANIFEST_SEALED || kind > MANIFEST_SERIES ||
            !shard_count_possible(f->shard_count) || f->shard >= f->shard_count || f->number == 0 ||
            f->number >= out->next_file_number)
            return errinfo_set(ei, ERR_CORRUPT, 0,
                               "%s: file %" PRIu64 " of kind %" PRIu32 ", shard %" PRIu32
                               " of %" PRIu32,
                               MANIFEST_PATH, f->number, kind, f->shard, f->shard_count);
    }
    out->file_count = count;
    return ERR_OK;
}

static enum err parts_decode(struct byte_reader *r, struct manifest *out, struct errinfo *ei)
{
    size_t count = reader_left(r) / PART_ENTRY_SIZE;

    if (reader_left(r) % PART_ENTRY_SIZE != 0)
        return errinfo_set(ei, ERR_CORRUPT, 0, "%s: %zu bytes of parts", MANIFEST_PATH,
                           reader_left(r));
    out->parts = calloc(count + 1, sizeof *out->parts);
    if (out->parts == NULL)
        return errinfo_set(ei, ERR_NOMEM, 0, "%zu parts of %s", count, MANIFEST_PATH);
    out->part_capacity = count + 1;
    for (size_t i = 0; i < count; i++) {
        struct manifest_part *p = &out->parts[i];

        p->key.window_start_ms = (int64_t)reader_le64(r);
        p->key.window_size_ms = reader_le64(r);
        p->key.resolution_ms = reader_le64(r);
        p->key.generation = reader_le64(r);
        p->key.shard = reader_le32(r);
        p->key.shard_count = reader_le32(r);
        p->key.retention_class = reader_le32(r);
        (void)reader_le32(r); /* zero */
        p->min_time_ms = (int64_t)reader_le64(r);
        p->max_time_ms = (int64_t)reader_le64(r);
        p->sample_count = reader_le64(r);
        p->index_size = reader_le64(r);
        p->chunks_size = reader_le64(r);
        p->purged_generation = reader_le64(r);
        if (!shard_count_possible(p->key.shard_count) || p->key.shard >= p->key.shard_count ||
            p->key.window_size_ms == 0)
            return errinfo_set(
                ei, ERR_CORRUPT, 0,
                "%s: part of shard %" PRIu32 " of %" PRIu32 ", window of %" PRIu64 " ms",
                MANIFEST_PATH, p->key.shard, p->key.shard_count, p->key.window_size_ms);
    }
    out->part_count = count;
    return ERR_OK;
}

static int number_compare(const void *a, const void *b)
{
    const struct manifest_file *x = a, *y = b;

    return x->number < y->number ? -1 : x->number > y->number;
}

static int key_compare(const struct part_key *x, const struct part_key *y)
{
    const uint64_t a[] = {(uint64_t)x->window_start_ms,
                          x->window_size_ms,
                          x->resolution_ms,
                          x->generation,
                          x->shard,
                          x->shard_count,
                          x->retention_class};
    const uint64_t b[] = {(uint64_t)y->window_start_ms,
                          y->window_size_ms,
                          y->resolution_ms,
                          y->generation,
                          y->shard,
                          y->shard_count,
                          y->retention_class};

    for (size_t i = 0; i < sizeof a / sizeof a[0]; i++) {
        if (a[i] != b[i])
            return a[i] < b[i] ? -1 : 1;
    }
    return 0;
}

static int part_compare(const void *a, const void *b)
{
    const struct manifest_part *x = a, *y = b;

    return key_compare(&x->key, &y->key);
}

/* Sorts both lists, so that repeats stand side by side. */
static enum err repeats_refuse(struct manifest *m, struct errinfo *ei)
{
    if (m->file_count > 0)
        qsort(m->files, m->file_count, sizeof *m->files, number_compare);
    if (m->part_count > 0)
        qsort(m->parts, m->part_count, sizeof *m->parts, part_compare);
    for (size_t i = 1; i < m->file_count; i++) {
        if (m->files[i].number == m->files[i - 1].number)
            return errinfo_set(ei, ERR_CORRUPT, 0, "%s: file %" PRIu64 " stands there twice",
                               MANIFEST_PATH, m->files[i].number);
    }
    for (size_t i = 1; i < m->part_count; i++) {
        if (part_compare(&m->parts[i], &m->parts[i - 1]) == 0)
            return errinfo_set(ei, ERR_CORRUPT, 0,
                               "%s: a part of shard %" PRIu32 " stands there twice", MANIFEST_PATH,
                               m->parts[i].key.shard);
    }
    return ERR_OK;
}

static enum err tombstones_decode(const uint8_t *data, size_t size, bool has_filters,
                                  struct manifest *out, struct errinfo *ei)
{
    struct errinfo own = {0};
    enum err e = tombstone_list_decode(data, size, has_filters, &out->tombstones, &own);

    return e == ERR_OK ? e : errinfo_set(ei, e, 0, "%s: %s", MANIFEST_PATH, own.message);
}

static enum err purges_decode(const uint8_t *data, size_t size, struct manifest *out,
                              struct errinfo *ei)
{
    struct errinfo own = {0};
    enum err e = purge_list_decode(data, size, &out->purges, &own);

    return e == ERR_OK ? e : errinfo_set(ei, e, 0, "%s: %s", MANIFEST_PATH, own.message);
}

static enum err section_decode(struct byte_reader *r, uint32_t *seen, struct manifest *out,
                               struct errinfo *ei)
{
    uint32_t kind = reader_le32(r), flags = reader_le32(r);
    uint64_t size = reader_le64(r);
    const uint8_t *content = size <= reader_left(r) ? reader_take(r, (size_t)size) : NULL;
    struct byte_reader section;

    if (content == NULL)
        return errinfo_set(ei, ERR_CORRUPT, 0, "%s: section %" PRIu32 " of %" PRIu64 " bytes",
                           MANIFEST_PATH, kind, size);
    if (kind < SECTION_SEQUENCES || kind > SECTION_FILTERS) {
        if ((flags & SECTION_MUST) == 0)
            return ERR_OK;
        return errinfo_set(ei, ERR_UNSUPPORTED, 0,
                           "%s: unknown section %" PRIu32 "; a newer version wrote it",
                           MANIFEST_PATH, kind);
    }
    if (*seen & (1U << kind))
        return errinfo_set(ei, ERR_CORRUPT, 0, "%s: section %" PRIu32 " stands there twice",
                           MANIFEST_PATH, kind);
    *seen |= 1U << kind;
    if ((*seen & SECTIONS_TOMBSTONES) == SECTIONS_TOMBSTONES)
        return errinfo_set(ei, ERR_CORRUPT, 0, "%s: two sections of tombstones", MANIFEST_PATH);
    section = reader_init(content, (size_t)size);
    switch (kind) {
    case SECTION_SEQUENCES:
        return sequences_decode(&section, out, ei);
    case SECTION_FILES:
        return files_decode(&section, out, ei);
    case SECTION_PARTS:
        return parts_decode(&section, out, ei);
    case SECTION_TOMBSTONES:
    case SECTION_FILTERS:
        return tombstones_decode(content, (size_t)size, kind == SECTION_FILTERS, out, ei);
    default:
        return purges_decode(content, (size_t)size, out, ei);
    }
}

static enum err sections_decode(const uint8_t *data, size_t size, uint32_t count,
                                struct manifest *out, struct errinfo *ei)
{
    struct byte_reader r;
    uint32_t seen = 0, crc;
    enum err e = ERR_OK;

    if (size < MANIFEST_HEAD_SIZE + sizeof crc)
        return corrupt(size, "ends too early", ei);
    memcpy(&crc, data + size - sizeof crc, sizeof crc);
    size -= MANIFEST_HEAD_SIZE + sizeof crc;
    if (crc != crc32c(data + MANIFEST_HEAD_SIZE, size))
        return corrupt(MANIFEST_HEAD_SIZE, "the checksum of the sections is wrong", ei);
    r = reader_init(data + MANIFEST_HEAD_SIZE, size);
    for (uint32_t i = 0; i < count && e == ERR_OK; i++) {
        size_t at = (size_t)(r.pos - data);

        e = section_decode(&r, &seen, out, ei);
        if (e == ERR_CORRUPT && ei != NULL && !ei->has_offset) {
            ei->has_offset = true;
            ei->offset = at;
        }
    }
    if (e == ERR_OK && (r.failed || reader_left(&r) != 0))
        e = corrupt(MANIFEST_HEAD_SIZE, "the sections are not what the head counts", ei);
    if (e == ERR_OK && (seen & SECTIONS_ALWAYS) != SECTIONS_ALWAYS)
        e = corrupt(MANIFEST_HEAD_SIZE, "a section is missing", ei);
    return e == ERR_OK ? repeats_refuse(out, ei) : e;
}

/* What version `version` has; the head's checksum holds. */
static enum err body_decode(const uint8_t *data, size_t size, uint32_t version,
                            struct manifest *out, struct errinfo *ei)
{
    struct byte_reader r = reader_init(data, size);
    uint32_t section_count;
    enum err e;

    (void)reader_take(&r, sizeof manifest_magic + 4);
    e = head_decode(&r, out, ei);
    if (e != ERR_OK)
        return e;
    out->next_file_number = reader_le64(&r);
    section_count = reader_le32(&r);
    if (version == 1) {
        out->next_file_number = 1;
        return ERR_OK;
    }
    if (out->next_file_number == 0)
        return corrupt(240, "the next file number is 0", ei);
    return sections_decode(data, size, section_count, out, ei);
}

enum err manifest_decode(const uint8_t *data, size_t size, struct manifest *out, struct errinfo *ei)
{
    struct byte_reader r = reader_init(data, size);
    const uint8_t *magic = reader_take(&r, sizeof manifest_magic);
    uint32_t version = reader_le32(&r), crc;
    struct manifest m = {0};
    enum err e;

    if (magic == NULL || memcmp(magic, manifest_magic, sizeof manifest_magic) != 0)
        return corrupt(0, "not a manifest", ei);
    if (!r.failed && version > MANIFEST_VERSION)
        return errinfo_set_at(ei, ERR_UNSUPPORTED, MANIFEST_PATH, 8,
                              "version %u, this program knows %u", version, MANIFEST_VERSION);
    if (size < MANIFEST_HEAD_SIZE || version == 0 || (version == 1 && size != MANIFEST_V1_SIZE))
        return errinfo_set_at(ei, ERR_CORRUPT, MANIFEST_PATH, size < MANIFEST_HEAD_SIZE ? size : 8,
                              "%zu bytes, version %u", size, version);
    memcpy(&crc, data + MANIFEST_HEAD_CRC_AT, sizeof crc);
    if (crc != crc32c(data, MANIFEST_HEAD_CRC_AT))
        return corrupt(0, "the checksum of the head is wrong", ei);
    e = body_decode(data, size, version, &m, ei);
    if (e != ERR_OK) {
        manifest_done(&m);
        return e;
    }
    *out = m;
    return ERR_OK;
}

/* ---- disk ---- */

enum err manifest_read(struct fs *fs, struct manifest *out, struct errinfo *ei)
{
    struct file *f = NULL;
    uint8_t *data = NULL;
    uint64_t size = 0;
    bool exists = false;
    enum err e = fs_exists(fs, MANIFEST_PATH, &exists, ei);

    if (e != ERR_OK)
        return e;
    if (!exists)
        return ERR_NOT_FOUND; /* no story: a new directory is no failure */
    e = file_open(fs, MANIFEST_PATH, FILE_READ, &f, ei);
    if (e == ERR_OK)
        e = file_size(f, &size, ei);
    if (e == ERR_OK && size > MANIFEST_SIZE_MAX)
        e = errinfo_set_at(ei, ERR_CORRUPT, MANIFEST_PATH, MANIFEST_SIZE_MAX, "%" PRIu64 " bytes",
                           size);
    if (e == ERR_OK) {
        data = malloc((size_t)size + 1);
        e = data != NULL ? file_read(f, data, (size_t)size, 0, ei)
                         : errinfo_set(ei, ERR_NOMEM, 0, "%s", MANIFEST_PATH);
    }
    file_close(f);
    if (e == ERR_OK)
        e = manifest_decode(data, (size_t)size, out, ei);
    free(data);
    return e;
}

/* Debris of a write that was cut off is ours to remove. */
enum err manifest_write(struct fs *fs, const struct manifest *m, struct errinfo *ei)
{
    struct byte_writer w;
    enum err e;

    writer_init(&w);
    e = manifest_encode(m, &w, ei);
    if (e == ERR_OK)
        e = fs_replace(fs, MANIFEST_TEMP_PATH, MANIFEST_PATH, w.data, w.size, ei);
    writer_done(&w);
    return e;
}
