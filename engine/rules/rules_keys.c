/*
 * Dropped keys over a restart: the file "dropped_keys", docs/formats/dropped-keys.md. Without it
 * each of them takes the slow path once, which is right but dear where there are millions. Damage
 * costs no more than that, so nothing here ever fails a start.
 *
 *   0       8         12     16    20       24         28       32       40         44
 *   | magic | version | must | may | shards | deciders | zero   | secret | crc [0,40) |
 *   | deciders * key (16) | crc |
 *   blocks: | count | crc of entries | count * entry (16): key low, word |; count 0 is the end
 */
#include <stdlib.h>
#include <string.h>

#include "base/checksum.h"
#include "base/log.h"
#include "engine/engine_internal.h"
#include "engine/rules/rules_internal.h"

enum {
    HEADER_SIZE = 44,
    VERSION = 1,
    ENTRY_SIZE = 16,
    BLOCK_ENTRIES_MAX = FRONT_SEGMENT_ENTRIES_MAX,
    BUFFER_BYTES = 1 << 20,
    SAVE_S_LEAST = 60, /* seconds between saves when much is new */
    SAVE_S = 600,
    KEY_BITS_SHIFT = 44, /* the word's key bits are at or above this one */
};

static const char magic[8] = {'R', 'I', 'M', 'D', 'R', 'O', 'P', 'K'};
static const char temp_path[] = RULES_KEYS_PATH ".tmp";

/* ---- saving ---- */

struct saving {
    struct engine *engine;
    struct file *file;
    uint64_t offset;
    struct byte_writer w;  /* what is not written yet */
    uint32_t *numbers;     /* by decider id: 1 + its number in the file; 0: not there */
    uint32_t number_count; /* ids below it were known when the file was begun */
    struct errinfo *ei;
    enum err e;
};

static void flush(struct saving *s)
{
    if (s->e == ERR_OK && s->w.failed)
        s->e = errinfo_set(s->ei, ERR_NOMEM, 0, "%s", RULES_KEYS_PATH);
    if (s->e == ERR_OK)
        s->e = file_write_bytes(s->file, s->w.data, s->w.size, s->offset, s->ei);
    s->offset += s->w.size;
    writer_reset(&s->w);
}

/* Header and keys of the deciders that a start may still know. */
static void head_write(struct saving *s)
{
    const struct rules *r = &s->engine->rules;
    uint32_t count = 0;
    size_t keys_at;

    for (uint32_t i = 0; i < s->number_count; i++) {
        if (rules_decider_at(r, i)->is_live)
            s->numbers[i] = ++count;
    }
    writer_append(&s->w, magic, sizeof magic);
    writer_le32(&s->w, VERSION);
    writer_le32(&s->w, 0); /* must understand */
    writer_le32(&s->w, 0); /* may ignore */
    writer_le32(&s->w, s->engine->shard_count);
    writer_le32(&s->w, count);
    writer_le32(&s->w, 0);
    writer_le64(&s->w, s->engine->secret.id);
    writer_le32(&s->w, s->w.failed ? 0 : crc32c(s->w.data, s->w.size));
    keys_at = s->w.size;
    for (uint32_t i = 0; i < s->number_count; i++) {
        if (s->numbers[i] != 0)
            writer_append(&s->w, rules_decider_at(r, i)->key.bytes, sizeof(struct rule_key));
    }
    writer_le32(&s->w, s->w.failed ? 0 : crc32c(s->w.data + keys_at, s->w.size - keys_at));
}

static uint64_t entry_word(const struct front_copy *c, uint32_t number)
{
    /* Key bits, then the stamp, then the number; kind and shard are not needed. */
    return c->key.high | (uint64_t)front_target_generation(c->target) << 26 | (number - 1);
}

static bool block_write(void *ctx, const struct front_copy *entries, size_t count)
{
    struct saving *s = ctx;
    size_t head_at = s->w.size, kept = 0;
    uint8_t *p;

    writer_le32(&s->w, 0);
    writer_le32(&s->w, 0);
    for (size_t i = 0; i < count; i++) {
        uint32_t id = front_target_slot(entries[i].target);

        if (front_target_kind(entries[i].target) != FRONT_DROPPED || id >= s->number_count ||
            s->numbers[id] == 0)
            continue;
        writer_le64(&s->w, entries[i].key.low);
        writer_le64(&s->w, entry_word(&entries[i], s->numbers[id]));
        kept++;
    }
    if (kept == 0) {
        s->w.size = head_at;
    } else if (!s->w.failed) {
        struct byte_writer head = {0};

        writer_init(&head);
        p = s->w.data + head_at;
        writer_le32(&head, (uint32_t)kept);
        writer_le32(&head, crc32c(p + 8, kept * ENTRY_SIZE));
        s->w.failed |= head.failed;
        if (!head.failed)
            memcpy(p, head.data, head.size);
        writer_done(&head);
    }
    if (s->w.size >= BUFFER_BYTES)
        flush(s);
    return s->e == ERR_OK && !s->w.failed;
}

static enum err file_fill(struct saving *s)
{
    head_write(s);
    if (!front_table_each(s->engine->front, block_write, s) && s->e == ERR_OK)
        s->e = errinfo_set(s->ei, ERR_NOMEM, 0, "%s", RULES_KEYS_PATH);
    writer_le32(&s->w, 0);
    writer_le32(&s->w, 0);
    flush(s);
    return s->e;
}

static enum err file_replace(struct saving *s)
{
    struct fs *fs = s->engine->fs;
    enum err e = fs_create_anew(fs, temp_path, &s->file, s->ei);

    if (e == ERR_OK)
        e = file_fill(s);
    if (e == ERR_OK)
        e = file_sync(s->file, s->ei);
    file_close(s->file);
    return e == ERR_OK ? fs_put_in_place(fs, temp_path, RULES_KEYS_PATH, s->ei) : e;
}

/* Without a dropped key there is no file. */
static enum err file_remove(struct fs *fs, struct errinfo *ei)
{
    bool exists = false;
    enum err e = fs_exists(fs, RULES_KEYS_PATH, &exists, ei);

    return e == ERR_OK && exists ? fs_unlink(fs, RULES_KEYS_PATH, ei) : e;
}

enum err rules_keys_save(struct engine *e, struct errinfo *ei)
{
    struct rules *r = &e->rules;
    struct saving s = {.engine = e, .number_count = r->decider_end, .ei = ei};
    enum err err;

    r->saved.mono_ns = clock_mono_ns();
    r->saved.added = atomic_load_explicit(&r->keys_added, memory_order_relaxed);
    if (atomic_load_explicit(&r->dropped_keys, memory_order_relaxed) <= 0)
        return file_remove(e->fs, ei);
    s.numbers = calloc((size_t)s.number_count + 1, sizeof *s.numbers);
    if (s.numbers == NULL)
        return errinfo_set(ei, ERR_NOMEM, 0, "%s", RULES_KEYS_PATH);
    writer_init(&s.w);
    err = file_replace(&s);
    writer_done(&s.w);
    free(s.numbers);
    return err;
}

bool rules_keys_save_due(const struct engine *e)
{
    const struct rules *r = &e->rules;
    uint64_t added = atomic_load_explicit(&r->keys_added, memory_order_relaxed) - r->saved.added;
    uint64_t seconds = (clock_mono_ns() - r->saved.mono_ns) / 1000000000U;
    int64_t keys = atomic_load_explicit(&r->dropped_keys, memory_order_relaxed);

    return added > 0 && (seconds >= SAVE_S ||
                         (seconds >= SAVE_S_LEAST && keys > 0 && added >= (uint64_t)keys / 4));
}

/* ---- loading ---- */

struct loading {
    struct engine *engine;
    struct file *file;
    uint64_t offset, size, loaded, max;
    struct decider **deciders; /* by number in the file; NULL: no rule in effect drops by it */
    uint32_t decider_count;
    uint8_t *block;
    struct errinfo *ei;
};

static enum err damaged(const struct loading *l, const char *what)
{
    return errinfo_set_at(l->ei, ERR_CORRUPT, RULES_KEYS_PATH, l->offset, "%s", what);
}

static enum err take(struct loading *l, void *out, size_t size)
{
    if (size > l->size - l->offset)
        return damaged(l, "it ends too early");
    enum err e = file_read(l->file, out, size, l->offset, l->ei);

    l->offset += size;
    return e;
}

static struct decider *decider_find(const struct engine *e, const struct rule_key *key)
{
    const struct rule_set *set = atomic_load_explicit(&e->rules.current, memory_order_relaxed);

    for (uint32_t i = 0; i < set->rule_count; i++) {
        if (set->deciders[i] != NULL && rule_key_equal(&set->deciders[i]->key, key))
            return set->deciders[i];
    }
    return NULL;
}

static enum err head_read(struct loading *l)
{
    uint8_t head[HEADER_SIZE];
    enum err e = take(l, head, sizeof head);
    struct byte_reader r = reader_init(head + sizeof magic, sizeof head - sizeof magic);
    uint32_t version, must, shards;
    uint64_t secret;

    if (e != ERR_OK)
        return e;
    version = reader_le32(&r);
    must = reader_le32(&r);
    (void)reader_le32(&r);
    shards = reader_le32(&r);
    l->decider_count = reader_le32(&r);
    (void)reader_le32(&r);
    secret = reader_le64(&r);
    if (memcmp(head, magic, sizeof magic) != 0)
        return damaged(l, "magic");
    if (reader_le32(&r) != crc32c(head, HEADER_SIZE - 4))
        return damaged(l, "checksum of the header");
    if (version > VERSION || must != 0)
        return errinfo_set(l->ei, ERR_UNSUPPORTED, 0, "%s is of a newer version", RULES_KEYS_PATH);
    if (shards != l->engine->shard_count || secret != l->engine->secret.id)
        return errinfo_set(l->ei, ERR_NOT_FOUND, 0, "%s is of another number of shards",
                           RULES_KEYS_PATH);
    return l->decider_count > DECIDERS_PER_PAGE * DECIDER_PAGE_MAX ? damaged(l, "too many rules")
                                                                   : ERR_OK;
}

static enum err deciders_read(struct loading *l)
{
    size_t size = l->decider_count * sizeof(struct rule_key);
    uint8_t *bytes = malloc(size + 4);
    enum err e;

    l->deciders = calloc((size_t)l->decider_count + 1, sizeof(void *));
    if (bytes == NULL || l->deciders == NULL) {
        free(bytes);
        return errinfo_set(l->ei, ERR_NOMEM, 0, "%s", RULES_KEYS_PATH);
    }
    e = take(l, bytes, size + 4);
    struct byte_reader crc = reader_init(bytes + size, 4);
    if (e == ERR_OK && reader_le32(&crc) != crc32c(bytes, size))
        e = damaged(l, "checksum of the rules");
    for (uint32_t i = 0; e == ERR_OK && i < l->decider_count; i++) {
        struct rule_key key;

        memcpy(key.bytes, bytes + i * sizeof key, sizeof key);
        l->deciders[i] = decider_find(l->engine, &key);
    }
    free(bytes);
    return e;
}

static void entry_put(struct loading *l, uint64_t low, uint64_t word)
{
    struct rules *rules = &l->engine->rules;
    uint64_t key_bits = word & ~(((uint64_t)l->engine->shard_count << KEY_BITS_SHIFT) - 1);
    uint32_t number = (uint32_t)word & 0x3ffffff;
    struct decider *d = number < l->decider_count ? l->deciders[number] : NULL;
    front_target before = 0;

    if (d == NULL || l->loaded >= l->max ||
        !front_table_exchange(l->engine->front, (struct hash128){low, key_bits},
                              rules_target(d, (uint16_t)(word >> 26)), &before) ||
        before != 0)
        return;
    atomic_fetch_add_explicit(&d->keys, 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&rules->dropped_keys, 1, memory_order_relaxed);
    l->loaded++;
}

static enum err blocks_read(struct loading *l)
{
    for (;;) {
        uint8_t head[8];
        enum err e = take(l, head, sizeof head);
        struct byte_reader r = reader_init(head, sizeof head);
        uint32_t count = reader_le32(&r), crc = reader_le32(&r);
        size_t size;

        if (e != ERR_OK || count == 0)
            return e;
        if (count > BLOCK_ENTRIES_MAX)
            return damaged(l, "a block that is too large");
        size = (size_t)count * ENTRY_SIZE;
        e = take(l, l->block, size);
        if (e != ERR_OK)
            return e;
        if (crc != crc32c(l->block, size))
            return damaged(l, "checksum of a block");
        r = reader_init(l->block, size);
        for (uint32_t i = 0; i < count; i++) {
            uint64_t low = reader_le64(&r), word = reader_le64(&r);

            entry_put(l, low, word);
        }
    }
}

static enum err file_load(struct loading *l)
{
    enum err e = file_open(l->engine->fs, RULES_KEYS_PATH, FILE_READ, &l->file, l->ei);

    if (e == ERR_OK)
        e = file_size(l->file, &l->size, l->ei);
    if (e == ERR_OK)
        e = head_read(l);
    if (e == ERR_OK)
        e = deciders_read(l);
    if (e == ERR_OK && (l->block = malloc((size_t)BLOCK_ENTRIES_MAX * ENTRY_SIZE)) == NULL)
        e = errinfo_set(l->ei, ERR_NOMEM, 0, "%s", RULES_KEYS_PATH);
    return e == ERR_OK ? blocks_read(l) : e;
}

void rules_keys_load(struct engine *e)
{
    struct errinfo ei = {0};
    struct loading l = {.engine = e, .max = rules_keys_max(e), .ei = &ei};
    bool exists = false;
    enum err err = fs_exists(e->fs, RULES_KEYS_PATH, &exists, &ei);

    e->rules.saved.mono_ns = clock_mono_ns();
    if (err == ERR_OK && exists)
        err = file_load(&l);
    if (err != ERR_OK)
        LOG_WARN("some dropped series are judged anew", LOG_STR("error", ei.message));
    file_close(l.file);
    free(l.deciders);
    free(l.block);
}
