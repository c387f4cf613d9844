#include "tests/compactor/life_states.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FOLDERS_MAX = 64, SLOTS_MIN = 1024 };

struct walk {
    const struct hash_secret *secret;
    struct fs *fs;
    char folders[FOLDERS_MAX][MANIFEST_PATH_SIZE]; /* found, and not listed yet from `next` on */
    size_t folder_count, next;
    struct hash128 sum; /* over all entries, in any order */
};

static void sum_add(struct hash128 *sum, struct hash128 more)
{
    sum->low += more.low;
    sum->high += more.high;
}

/* Path and content; `content` NULL: of a folder. */
static void add_entry(struct walk *w, const char *path, const void *content, size_t size)
{
    struct hash128 parts[2] = {hash128_bytes(w->secret, path, strlen(path)),
                               hash128_bytes(w->secret, content == NULL ? "" : content, size)};

    parts[1].low += content == NULL;
    sum_add(&w->sum, hash128_bytes(w->secret, parts, sizeof parts));
}

static enum err visit(void *ctx, const char *name, struct errinfo *ei)
{
    struct walk *w = ctx;
    const char *folder = w->folders[w->next];
    bool is_root = strcmp(folder, ".") == 0;
    char *path = w->folders[w->folder_count];
    struct file *f;
    uint8_t *data;
    size_t size;

    CHECK(w->folder_count < FOLDERS_MAX);
    (void)snprintf(path, MANIFEST_PATH_SIZE, "%.80s%s%.80s", is_root ? "" : folder,
                   is_root ? "" : "/", name);
    if (file_open(w->fs, path, FILE_READ, &f, ei) != ERR_OK) { /* a folder; listed in its turn */
        add_entry(w, path, NULL, 0);
        w->folder_count++;
        return ERR_OK;
    }
    file_close(f);
    data = test_file_read(w->fs, path, &size);
    add_entry(w, path, data, size);
    free(data);
    return ERR_OK;
}

static struct hash128 hash_disk(const struct hash_secret *secret, struct fs *fs)
{
    struct walk w = {.secret = secret, .fs = fs, .folders = {"."}, .folder_count = 1};
    struct errinfo ei = {0};

    for (; w.next < w.folder_count; w.next++)
        CHECK_OK(fs_list(fs, w.folders[w.next], visit, &w, &ei), &ei);
    return w.sum;
}

/* Field by field: structures have holes. */
static struct hash128 hash_sample(const struct hash_secret *secret, uint32_t series,
                                  const struct life_sample *s)
{
    const uint64_t fields[] = {series,   (uint64_t)s->t_ms, s->bits,      s->is_pending,
                               s->maybe, s->any_value,      s->has_rival, s->was_contested};

    return hash128_bytes(secret, fields, sizeof fields);
}

static struct hash128 hash_model(const struct hash_secret *secret, const struct life *l)
{
    const uint64_t start[] = {(uint64_t)l->now_ms, l->shard_count,     l->snapshot_count,
                              l->model.is_hiding,  l->purge_is_unsure, l->purge_is_worn};
    struct hash128 sum = hash128_bytes(secret, start, sizeof start);

    for (uint32_t n = 0; n < l->model.count; n++) {
        const struct life_series *s = &l->model.series[n];

        for (size_t i = 0; i < s->count; i++)
            sum_add(&sum, hash_sample(secret, n, &s->items[i]));
        for (size_t i = 0; i < s->hidden_count; i++)
            sum_add(&sum, hash_sample(secret, ~n, &s->hidden[i]));
        sum.low += (s->was_named ? n + 1 : 0) + (s->is_purged ? UINT64_C(1) << 32 : 0);
    }
    return sum;
}

void life_states_init(struct life_states *s)
{
    *s = (struct life_states){.slot_count = SLOTS_MIN};
    s->slots = calloc(s->slot_count, sizeof *s->slots);
    CHECK(s->slots != NULL);
    hash_secret_init(&s->secret, 1);
}

void life_states_done(struct life_states *s)
{
    free(s->slots);
}

/* The slot that holds it, or where it belongs. */
static struct hash128 *find(struct life_states *s, struct hash128 state)
{
    static const struct hash128 none;
    size_t at = state.low % s->slot_count;

    while (!hash128_equal(s->slots[at], none) && !hash128_equal(s->slots[at], state))
        at = (at + 1) % s->slot_count;
    return &s->slots[at];
}

static void grow(struct life_states *s)
{
    struct life_states larger = *s;

    larger.slot_count = 2 * s->slot_count;
    larger.slots = calloc(larger.slot_count, sizeof *larger.slots);
    CHECK(larger.slots != NULL);
    for (size_t i = 0; i < s->slot_count; i++)
        *find(&larger, s->slots[i]) = s->slots[i];
    free(s->slots);
    *s = larger;
}

bool life_states_add(struct life_states *s, const struct life *l)
{
    struct hash128 state = hash_disk(&s->secret, l->fs);
    struct hash128 *slot;

    CHECK(!l->is_open);
    sum_add(&state, hash_model(&s->secret, l));
    slot = find(s, state);
    if (hash128_equal(*slot, state))
        return false;
    *slot = state;
    s->count++;
    if (2 * s->count > s->slot_count)
        grow(s);
    return true;
}
