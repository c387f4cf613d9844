/*
 * Writing sealed and late files. Chunks are encoded as they come; a slice is laid out in memory in
 * one piece and written with one call, so that a reader either finds all of it or none.
 *
 * Timestamp columns are found again by hash and compared in full; they stay decoded as long as the
 * slice is being made, since comparing is cheaper than encoding each once more.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "base/assert.h"
#include "engine/codec_histogram.h"
#include "engine/sealed/sealed_format_internal.h"

enum { TIMES_TABLE_BITS_MIN = 6 };

/* A distinct timestamp column of the slice. */
struct times_column {
    uint64_t hash;
    size_t first; /* of its timestamps in `timestamps` */
    uint32_t count;
    uint32_t group;        /* group + 1 that has it in its directory; see `local` */
    uint32_t local;        /* its number there */
    uint32_t offset, size; /* in the slice, once laid out */
};

struct made_chunk {
    uint32_t slot, times;
    uint32_t value_offset, value_size; /* in `values` */
    uint16_t generation;
    uint8_t column; /* enum sealed_column */
};

struct writer_scratch {
    struct sealed_directory directory;
    struct codec_scratch codec;
    struct arena temp; /* of histograms' columns; empty between calls */
};

struct sealed_writer {
    struct sealed_file *file; /* borrowed */
    char *dir;                /* owned: the folder to sync */
    uint64_t size;            /* end of the last slice */
    uint64_t durable_size;
    uint32_t slice_count;
    bool name_durable, failed, finished;
    struct byte_writer footer; /* records of all slices so far */

    /* The slice being made. */
    struct made_chunk *chunks; /* owned */
    uint32_t chunk_count, chunk_capacity;
    struct times_column *times; /* owned */
    uint32_t times_count, times_capacity;
    uint32_t *table; /* owned: 2^table_bits of times number + 1, 0: free */
    unsigned table_bits;
    int64_t *timestamps; /* owned */
    size_t timestamp_count, timestamp_capacity;
    struct byte_writer values;
    uint64_t sample_count;

    struct byte_writer image;    /* scratch */
    struct sealed_group *groups; /* owned */
    uint32_t group_capacity;
    struct writer_scratch *scratch; /* owned; NULL while there is no chunk */
};

/* ---- life ---- */

static char *dir_of(const char *path)
{
    const char *slash = strrchr(path, '/');
    size_t size = slash != NULL ? (size_t)(slash - path) : 1;
    char *dir = malloc(size + 1);

    if (dir == NULL)
        return NULL;
    memcpy(dir, slash != NULL ? path : ".", size);
    dir[size] = '\0';
    return dir;
}

static enum err writer_new(struct sealed_file *file, struct sealed_writer **out, struct errinfo *ei)
{
    struct sealed_writer *w = calloc(1, sizeof *w);

    if (w == NULL)
        return errinfo_set(ei, ERR_NOMEM, 0, "writer of %s", sealed_file_path(file));
    w->file = file;
    w->dir = dir_of(sealed_file_path(file));
    writer_init(&w->footer);
    writer_init(&w->values);
    writer_init(&w->image);
    if (w->dir == NULL) {
        sealed_writer_free(w);
        return errinfo_set(ei, ERR_NOMEM, 0, "writer of %s", sealed_file_path(file));
    }
    *out = w;
    return ERR_OK;
}

void sealed_writer_free(struct sealed_writer *w)
{
    if (w == NULL)
        return;
    sealed_writer_trim(w);
    writer_done(&w->footer);
    free(w->dir);
    free(w);
}

void sealed_writer_trim(struct sealed_writer *w)
{
    writer_done(&w->values);
    writer_done(&w->image);
    free(w->chunks);
    free(w->times);
    free(w->table);
    free(w->timestamps);
    free(w->groups);
    free(w->scratch);
    w->chunks = NULL;
    w->times = NULL;
    w->table = NULL;
    w->timestamps = NULL;
    w->groups = NULL;
    w->scratch = NULL;
    w->chunk_count = w->chunk_capacity = 0;
    w->times_count = w->times_capacity = 0;
    w->timestamp_count = w->timestamp_capacity = 0;
    w->table_bits = 0;
    w->group_capacity = 0;
    w->sample_count = 0;
}

static enum err epoch_draw(uint64_t *out, struct errinfo *ei)
{
    uint64_t v = 0;

    while (v == 0) {
        if (getrandom(&v, sizeof v, 0) != (ssize_t)sizeof v && errno != EINTR)
            return errinfo_set(ei, ERR_IO, errno, "getrandom");
    }
    *out = v;
    return ERR_OK;
}

enum err sealed_writer_create(struct fs *fs, const char *path,
                              const struct sealed_identity *identity, struct sealed_file **out_file,
                              struct sealed_writer **out, struct errinfo *ei)
{
    struct sealed_file *f = calloc(1, sizeof *f);
    struct sealed_writer *w = NULL;
    uint8_t header[SEALED_HEADER_SIZE];
    enum err e;

    if (f == NULL)
        return errinfo_set(ei, ERR_NOMEM, 0, "%s", path);
    f->fs = fs;
    f->identity = *identity;
    e = identity->epoch == 0 ? epoch_draw(&f->identity.epoch, ei) : ERR_OK;
    if (e == ERR_OK)
        e = file_open(fs, path, FILE_CREATE, &f->file, ei);
    if (e == ERR_OK)
        e = writer_new(f, &w, ei);
    if (e == ERR_OK) {
        sealed_header_encode(&f->identity, header);
        e = file_write_bytes(f->file, header, sizeof header, 0, ei);
    }
    if (e != ERR_OK) {
        sealed_writer_free(w);
        sealed_file_close(f); /* the file, if any, is debris: nothing names it */
        return e;
    }
    ASSERT(w != NULL);
    w->size = SEALED_HEADER_SIZE;
    *out_file = f;
    *out = w;
    return ERR_OK;
}

/* Collects the footer's records of the slices that are there. */
static enum err records_reread(struct sealed_writer *w, const struct sealed_opened *opened,
                               struct errinfo *ei)
{
    enum err e = ERR_OK;

    for (size_t i = 0; i < opened->slice_count && e == ERR_OK; i++) {
        const struct sealed_slice *s = opened->slices[i];
        uint8_t header[SEALED_SLICE_HEADER_SIZE];
        struct sealed_slice_header h;
        uint8_t *table;

        if (s->is_damaged)
            return errinfo_set(ei, ERR_INVALID, 0, "%s: has damaged slices",
                               sealed_file_path(w->file));
        e = file_read(w->file->file, header, sizeof header, s->offset, ei);
        if (e != ERR_OK)
            return e;
        if (!sealed_slice_header_decode(header, &h) || h.size != s->size)
            return errinfo_set_at(ei, ERR_CORRUPT, sealed_file_path(w->file), s->offset,
                                  "slice header");
        table = malloc(h.table_size);
        if (table == NULL)
            return errinfo_set(ei, ERR_NOMEM, 0, "writer of %s", sealed_file_path(w->file));
        e = file_read(w->file->file, table, h.table_size, s->offset + s->size - h.table_size, ei);
        if (e == ERR_OK)
            sealed_footer_add(&w->footer, s->offset, header, table, h.table_size);
        free(table);
        w->slice_count = h.index + 1;
    }
    return e;
}

enum err sealed_writer_resume(struct fs *fs, struct sealed_opened *opened,
                              struct sealed_writer **out, struct errinfo *ei)
{
    struct sealed_writer *w = NULL;
    enum err e;

    if (opened->is_finished)
        return errinfo_set(ei, ERR_INVALID, 0, "%s: is finished", sealed_file_path(opened->file));
    e = writer_new(opened->file, &w, ei);
    if (e != ERR_OK)
        return e;
    ASSERT(w != NULL);
    e = records_reread(w, opened, ei);
    /* Cut and synced before anything is written there: else dead bytes could stand behind a new
     * slice that power loss shortens. */
    if (e == ERR_OK)
        e = sealed_opened_persist(fs, opened, ei);
    if (e != ERR_OK) {
        sealed_writer_free(w);
        return e;
    }
    w->size = opened->end;
    w->durable_size = opened->end;
    *out = w;
    return ERR_OK;
}

/* ---- chunks ---- */

/* Room for one more item of an array; false without memory. */
static bool array_reserve(void **array, size_t count, size_t more, size_t *capacity, size_t size)
{
    size_t wanted = *capacity == 0 ? 256 : *capacity;
    void *grown;

    if (count + more <= *capacity)
        return true;
    while (wanted < count + more)
        wanted *= 2;
    grown = reallocarray(*array, wanted, size);
    if (grown == NULL)
        return false;
    *array = grown;
    *capacity = wanted;
    return true;
}

static struct writer_scratch *scratch_new(void)
{
    struct writer_scratch *s = calloc(1, sizeof *s);

    if (s != NULL)
        arena_init(&s->temp, NULL);
    return s;
}

/* Room for a chunk but for its values. */
static bool room_reserve(struct sealed_writer *w, size_t sample_count)
{
    size_t capacity = w->chunk_capacity;
    void *p = w->chunks;
    bool ok = array_reserve(&p, w->chunk_count, 1, &capacity, sizeof *w->chunks);

    w->chunks = p;
    w->chunk_capacity = (uint32_t)capacity;
    capacity = w->times_capacity;
    p = w->times;
    ok = array_reserve(&p, w->times_count, 1, &capacity, sizeof *w->times) && ok;
    w->times = p;
    w->times_capacity = (uint32_t)capacity;
    p = w->timestamps;
    ok = array_reserve(&p, w->timestamp_count, sample_count, &w->timestamp_capacity,
                       sizeof *w->timestamps) &&
         ok;
    w->timestamps = p;
    if (w->scratch == NULL)
        w->scratch = scratch_new();
    return ok && w->scratch != NULL;
}

static bool table_grow(struct sealed_writer *w)
{
    unsigned bits = w->table == NULL ? TIMES_TABLE_BITS_MIN : w->table_bits + 1;
    uint32_t *table;

    if (w->table != NULL && w->times_count * 2 < (uint32_t)1 << w->table_bits)
        return true;
    table = calloc((size_t)1 << bits, sizeof *table);
    if (table == NULL)
        return false;
    for (uint32_t i = 0; i < w->times_count; i++) {
        uint64_t at = w->times[i].hash >> (64 - bits);

        while (table[at] != 0)
            at = (at + 1) & (((uint64_t)1 << bits) - 1);
        table[at] = i + 1;
    }
    free(w->table);
    w->table = table;
    w->table_bits = bits;
    return true;
}

/* The number of a timestamp column, added when it is new. Room was reserved. */
static uint32_t times_number(struct sealed_writer *w, const int64_t *t_ms, size_t count)
{
    uint64_t hash = codec_times_hash(t_ms, count) * 0x9e3779b97f4a7c15U; /* the top bits choose */
    uint64_t mask = ((uint64_t)1 << w->table_bits) - 1;
    uint64_t at = hash >> (64 - w->table_bits);

    for (; w->table[at] != 0; at = (at + 1) & mask) {
        const struct times_column *c = &w->times[w->table[at] - 1];

        if (c->hash == hash && c->count == count &&
            memcmp(w->timestamps + c->first, t_ms, count * sizeof *t_ms) == 0)
            return w->table[at] - 1;
    }
    w->times[w->times_count] =
        (struct times_column){.hash = hash, .first = w->timestamp_count, .count = (uint32_t)count};
    memcpy(w->timestamps + w->timestamp_count, t_ms, count * sizeof *t_ms);
    w->timestamp_count += count;
    w->table[at] = ++w->times_count;
    return w->times_count - 1;
}

static int64_t times_last(const struct sealed_writer *w, uint32_t times)
{
    const struct times_column *c = &w->times[times];

    return w->timestamps[c->first + c->count - 1];
}

static bool chunk_follows(const struct sealed_writer *w, uint32_t slot, uint16_t generation,
                          int64_t first_ms)
{
    const struct made_chunk *last;

    if (w->chunk_count == 0)
        return true;
    last = &w->chunks[w->chunk_count - 1];
    return slot > last->slot || (slot == last->slot && generation == last->generation &&
                                 first_ms > times_last(w, last->times));
}

static bool ascending(const int64_t *t_ms, size_t count)
{
    for (size_t i = 1; i < count; i++) {
        if (t_ms[i] <= t_ms[i - 1])
            return false;
    }
    return true;
}

static enum err writer_usable(const struct sealed_writer *w, struct errinfo *ei)
{
    if (w->failed)
        return errinfo_set(ei, ERR_IO, 0, "%s: a sync failed before", sealed_file_path(w->file));
    ASSERT(!w->finished);
    return ERR_OK;
}

/* What the slice may need at most in the file. */
static uint64_t slice_bound(const struct sealed_writer *w)
{
    return SEALED_SLICE_HEADER_SIZE + w->values.size + w->timestamp_count * 8 +
           (uint64_t)w->times_count * (CODEC_BOUND_SLACK + SEALED_CRC_SIZE) +
           (uint64_t)w->chunk_count * 128;
}

/* What every chunk goes through first: checks, and room for it but for its values, which take up to
 * `size` bytes. Nothing has changed on error. */
static enum err chunk_begin(struct sealed_writer *w, uint32_t slot, uint16_t generation,
                            const int64_t *t_ms, size_t count, size_t size, struct errinfo *ei)
{
    enum err e = writer_usable(w, ei);

    if (e != ERR_OK)
        return e;
    if (count == 0 || count > CODEC_SAMPLES_MAX || !ascending(t_ms, count) ||
        !chunk_follows(w, slot, generation, t_ms[0]))
        return errinfo_set(ei, ERR_INVALID, 0, "%s: chunk of %zu samples of slot %" PRIu32,
                           sealed_file_path(w->file), count, slot);
    if (w->chunk_count == SEALED_SLICE_CHUNKS_MAX ||
        slice_bound(w) + size + 2 * codec_bound(count) + 256 > SEALED_SLICE_SIZE_MAX)
        return errinfo_set(ei, ERR_LIMIT, 0, "%s: the slice is full", sealed_file_path(w->file));
    if (!room_reserve(w, count) || !table_grow(w))
        return errinfo_set(ei, ERR_NOMEM, 0, "slice of %s", sealed_file_path(w->file));
    return ERR_OK;
}

/* Enters a chunk whose values stand in w->values from `offset` on. */
static void chunk_enter(struct sealed_writer *w, uint32_t slot, uint16_t generation,
                        enum sealed_column column, const int64_t *t_ms, size_t count, size_t offset)
{
    w->chunks[w->chunk_count++] =
        (struct made_chunk){.slot = slot,
                            .generation = generation,
                            .column = (uint8_t)column,
                            .times = times_number(w, t_ms, count),
                            .value_offset = (uint32_t)offset,
                            .value_size = (uint32_t)(w->values.size - offset)};
    w->sample_count += count;
}

enum err sealed_writer_chunk(struct sealed_writer *w, uint32_t slot, uint16_t generation,
                             const int64_t *t_ms, const double *value, size_t count,
                             struct errinfo *ei)
{
    enum err e = chunk_begin(w, slot, generation, t_ms, count, codec_bound(count), ei);
    size_t offset = w->values.size;

    if (e != ERR_OK)
        return e;
    if (writer_reserve(&w->values, codec_bound(count)) == NULL) {
        w->values.failed = false; /* what it holds is whole */
        return errinfo_set(ei, ERR_NOMEM, 0, "slice of %s", sealed_file_path(w->file));
    }
    w->values.size +=
        codec_values_encode(value, count, &w->scratch->codec, w->values.data + offset);
    chunk_enter(w, slot, generation, SEALED_COLUMN_VALUES, t_ms, count, offset);
    return ERR_OK;
}

static enum err histograms_check(const struct sealed_writer *w, const struct histogram *h,
                                 size_t count, struct errinfo *ei)
{
    enum err e = ERR_OK;

    if (!w->file->identity.has_histograms)
        return errinfo_set(ei, ERR_INVALID, 0, "%s: was not created for histograms",
                           sealed_file_path(w->file));
    for (size_t i = 0; i < count && e == ERR_OK; i++)
        e = histogram_check_layout(&h[i], ei);
    return e;
}

enum err sealed_writer_histograms(struct sealed_writer *w, uint32_t slot, uint16_t generation,
                                  const int64_t *t_ms, const struct histogram *h, size_t count,
                                  struct errinfo *ei)
{
    size_t offset = w->values.size, size;
    enum err e = histograms_check(w, h, count, ei);

    if (e == ERR_OK)
        e = chunk_begin(w, slot, generation, t_ms, count, 0, ei);
    if (e != ERR_OK)
        return e;
    e = codec_histograms_encode(h, count, &w->scratch->codec, &w->scratch->temp, &w->values);
    if (e != ERR_OK) {
        w->values.failed = false; /* up to `offset` it is whole */
        w->values.size = offset;
        return errinfo_set(ei, e, 0, "slice of %s", sealed_file_path(w->file));
    }
    size = w->values.size - offset;
    if (size > SEALED_HISTOGRAMS_SIZE_MAX || slice_bound(w) > SEALED_SLICE_SIZE_MAX) {
        w->values.size = offset;
        return errinfo_set(ei, ERR_LIMIT, 0, "%s: the slice is full", sealed_file_path(w->file));
    }
    chunk_enter(w, slot, generation, SEALED_COLUMN_HISTOGRAMS, t_ms, count, offset);
    return ERR_OK;
}

uint32_t sealed_writer_chunk_count(const struct sealed_writer *w)
{
    return w->chunk_count;
}

void sealed_writer_discard(struct sealed_writer *w)
{
    w->chunk_count = 0;
    w->times_count = 0;
    w->timestamp_count = 0;
    w->sample_count = 0;
    writer_reset(&w->values);
    if (w->table != NULL)
        memset(w->table, 0, sizeof *w->table << w->table_bits);
}

/* ---- laying out a slice ---- */

/* Appends the checksum of everything since `from`. */
static void image_seal(struct sealed_writer *w, size_t from)
{
    if (!w->image.failed)
        writer_le32(&w->image, sealed_crc(w->file->identity.epoch, w->size + from,
                                          w->image.data + from, w->image.size - from));
}

static void lay_times(struct sealed_writer *w)
{
    for (uint32_t i = 0; i < w->times_count; i++) {
        struct times_column *c = &w->times[i];
        uint8_t *at = writer_reserve(&w->image, codec_bound(c->count));

        if (at == NULL)
            return;
        c->offset = (uint32_t)w->image.size;
        c->size = (uint32_t)codec_times_encode(w->timestamps + c->first, c->count,
                                               &w->scratch->codec, at);
        c->group = 0;
        w->image.size += c->size;
        image_seal(w, c->offset);
    }
}

/* The number of a timestamp column in the directory being made. */
static uint32_t directory_times(struct sealed_writer *w, uint32_t group, uint32_t times)
{
    struct sealed_directory *d = &w->scratch->directory;
    struct times_column *c = &w->times[times];
    uint32_t n = d->times_count;

    if (c->group == group + 1)
        return c->local;
    c->group = group + 1;
    c->local = n;
    d->times_offsets[n] = c->offset;
    d->times_sizes[n] = c->size;
    d->times_counts[n] = c->count;
    d->times_mins[n] = w->timestamps[c->first];
    d->times_maxs[n] = times_last(w, times);
    d->times_count++;
    return n;
}

static void directory_fill(struct sealed_writer *w, uint32_t group, const struct made_chunk *chunks,
                           uint32_t count)
{
    struct sealed_directory *d = &w->scratch->directory;
    uint32_t page_bytes = 0;

    d->chunk_count = count;
    d->times_count = 0;
    d->page_count = 0;
    for (uint32_t i = 0; i < count; i++) {
        d->slots[i] = chunks[i].slot;
        d->generations[i] = chunks[i].generation;
        d->columns[i] = chunks[i].column;
        d->times[i] = directory_times(w, group, chunks[i].times);
        d->sizes[i] = chunks[i].value_size;
        if (page_bytes == 0)
            d->page_items[d->page_count++] = 0;
        d->page_items[d->page_count - 1]++;
        page_bytes += chunks[i].value_size;
        if (page_bytes >= SEALED_PAGE_TARGET_BYTES)
            page_bytes = 0;
    }
}

static void group_bounds(const struct sealed_directory *d, struct sealed_group *g)
{
    g->first_slot = (uint32_t)d->slots[0];
    g->last_slot = (uint32_t)d->slots[d->chunk_count - 1];
    g->min_time_ms = INT64_MAX;
    g->max_time_ms = INT64_MIN;
    for (uint32_t i = 0; i < d->times_count; i++) {
        if (d->times_mins[i] < g->min_time_ms)
            g->min_time_ms = d->times_mins[i];
        if (d->times_maxs[i] > g->max_time_ms)
            g->max_time_ms = d->times_maxs[i];
    }
}

static void lay_group(struct sealed_writer *w, uint32_t group, const struct made_chunk *chunks,
                      uint32_t count)
{
    struct sealed_group *g = &w->groups[group];
    const struct sealed_directory *d = &w->scratch->directory;
    size_t begin = w->image.size;

    directory_fill(w, group, chunks, count);
    sealed_directory_encode(&w->image, &w->scratch->codec, d);
    image_seal(w, begin);
    *g = (struct sealed_group){.offset = (uint32_t)begin,
                               .directory_size = (uint32_t)(w->image.size - begin),
                               .chunk_count = count};
    group_bounds(d, g);
    for (uint32_t page = 0, i = 0; page < d->page_count; page++) {
        size_t page_begin = w->image.size;

        for (int64_t k = 0; k < d->page_items[page]; k++, i++)
            writer_append(&w->image, w->values.data + chunks[i].value_offset, chunks[i].value_size);
        image_seal(w, page_begin);
    }
    g->data_size = (uint32_t)(w->image.size - begin - g->directory_size);
}

/* Lays out the whole slice in w->image. */
static void lay_slice(struct sealed_writer *w, uint64_t sequence, struct sealed_slice_header *h)
{
    uint32_t groups = (w->chunk_count + SEALED_GROUP_CHUNKS - 1) / SEALED_GROUP_CHUNKS;
    static const uint8_t zero[SEALED_SLICE_HEADER_SIZE];
    size_t table;

    writer_reset(&w->image);
    writer_append(&w->image, zero, sizeof zero);
    lay_times(w);
    *h = (struct sealed_slice_header){.index = w->slice_count,
                                      .epoch = w->file->identity.epoch,
                                      .sequence = sequence,
                                      .sample_count = w->sample_count,
                                      .chunk_count = w->chunk_count,
                                      .group_count = groups,
                                      .min_time_ms = INT64_MAX,
                                      .max_time_ms = INT64_MIN};
    for (uint32_t i = 0; i < groups && !w->image.failed; i++) {
        uint32_t first = i * SEALED_GROUP_CHUNKS, left = w->chunk_count - first;

        lay_group(w, i, w->chunks + first, left < SEALED_GROUP_CHUNKS ? left : SEALED_GROUP_CHUNKS);
        if (w->groups[i].min_time_ms < h->min_time_ms)
            h->min_time_ms = w->groups[i].min_time_ms;
        if (w->groups[i].max_time_ms > h->max_time_ms)
            h->max_time_ms = w->groups[i].max_time_ms;
    }
    if (w->image.failed)
        return;
    table = w->image.size;
    sealed_table_encode(&w->image, &w->scratch->codec, w->groups, groups);
    image_seal(w, table);
    if (w->image.failed)
        return;
    h->table_size = (uint32_t)(w->image.size - table);
    h->size = (uint32_t)w->image.size;
    h->payload_crc =
        sealed_crc(w->file->identity.epoch, w->size, w->image.data + SEALED_SLICE_HEADER_SIZE,
                   w->image.size - SEALED_SLICE_HEADER_SIZE);
    sealed_slice_header_encode(h, w->image.data);
}

static enum err groups_reserve(struct sealed_writer *w, struct errinfo *ei)
{
    size_t capacity = w->group_capacity;
    void *p = w->groups;
    bool ok = array_reserve(&p, 0, w->chunk_count / SEALED_GROUP_CHUNKS + 1, &capacity,
                            sizeof *w->groups);

    w->groups = p;
    w->group_capacity = (uint32_t)capacity;
    return ok ? ERR_OK : errinfo_set(ei, ERR_NOMEM, 0, "slice of %s", sealed_file_path(w->file));
}

enum err sealed_writer_slice(struct sealed_writer *w, uint64_t sequence, struct sealed_slice **out,
                             struct errinfo *ei)
{
    struct sealed_slice_header h;
    struct sealed_slice *slice = NULL;
    size_t table;
    enum err e = writer_usable(w, ei);

    if (e != ERR_OK)
        return e;
    *out = NULL;
    if (w->chunk_count == 0)
        return ERR_OK;
    e = groups_reserve(w, ei);
    if (e != ERR_OK)
        return e;
    lay_slice(w, sequence, &h);
    if (w->image.failed || writer_reserve(&w->footer, w->image.size) == NULL) {
        w->footer.failed = false; /* what it holds is whole */
        return errinfo_set(ei, ERR_NOMEM, 0, "slice of %s", sealed_file_path(w->file));
    }
    table = w->image.size - h.table_size;
    e = sealed_table_decode(&h, w->size, w->image.data + table, h.table_size - SEALED_CRC_SIZE,
                            &slice);
    ASSERT(e != ERR_CORRUPT); /* we made it */
    if (e != ERR_OK)
        return errinfo_set(ei, e, 0, "slice of %s", sealed_file_path(w->file));
    e = file_write_bytes(w->file->file, w->image.data, w->image.size, w->size, ei);
    if (e != ERR_OK) {
        free(slice);
        return e;
    }
    sealed_footer_add(&w->footer, w->size, w->image.data, w->image.data + table, h.table_size);
    w->size += w->image.size;
    w->slice_count++;
    sealed_writer_discard(w);
    *out = slice;
    return ERR_OK;
}

/* ---- durability ---- */

enum err sealed_writer_sync(struct sealed_writer *w, struct errinfo *ei)
{
    enum err e = writer_usable(w, ei);

    if (e != ERR_OK)
        return e;
    e = file_sync(w->file->file, ei);
    if (e == ERR_OK && !w->name_durable)
        e = fs_sync_dir(w->file->fs, w->dir, ei);
    if (e != ERR_OK) {
        w->failed = true; /* the kernel may have dropped the pages and call them clean */
        return e;
    }
    w->name_durable = true;
    w->durable_size = w->size;
    return ERR_OK;
}

uint64_t sealed_writer_durable_size(const struct sealed_writer *w)
{
    return w->durable_size;
}

enum err sealed_writer_finish(struct sealed_writer *w, struct errinfo *ei)
{
    uint8_t head[SEALED_FOOTER_HEAD_SIZE], trailer[SEALED_TRAILER_SIZE];
    struct sealed_trailer t = {.epoch = w->file->identity.epoch};
    enum err e = writer_usable(w, ei);

    if (e != ERR_OK)
        return e;
    memcpy(head, sealed_footer_magic, SEALED_MAGIC_SIZE);
    memcpy(head + SEALED_MAGIC_SIZE, &w->slice_count, sizeof w->slice_count);
    writer_reset(&w->image);
    writer_append(&w->image, head, sizeof head);
    writer_append(&w->image, w->footer.data, w->footer.size);
    if (w->image.failed)
        return errinfo_set(ei, ERR_NOMEM, 0, "footer of %s", sealed_file_path(w->file));
    if (w->image.size > SEALED_FOOTER_SIZE_MAX)
        return errinfo_set(ei, ERR_LIMIT, 0, "%s: the footer is too large",
                           sealed_file_path(w->file));
    t.footer_size = w->image.size;
    t.footer_crc = sealed_crc(w->file->identity.epoch, w->size, w->image.data, w->image.size);
    sealed_trailer_encode(&t, trailer);
    writer_append(&w->image, trailer, sizeof trailer);
    if (w->image.failed)
        return errinfo_set(ei, ERR_NOMEM, 0, "footer of %s", sealed_file_path(w->file));
    e = file_write_bytes(w->file->file, w->image.data, w->image.size, w->size, ei);
    if (e != ERR_OK)
        return e;
    w->size += w->image.size;
    e = sealed_writer_sync(w, ei);
    w->finished = e == ERR_OK;
    return e;
}
