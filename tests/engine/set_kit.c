#include "tests/engine/set_kit.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

enum { RUN_MAX = 256 };

/* How many samples from number `first` on are of one kind; histograms are also put into one array.
 */
static size_t run_of(const struct set_chunk *c, size_t first, struct histogram *h)
{
    bool is_float = c->histogram == NULL || c->histogram[first] == NULL;
    size_t n = 0;

    for (; first + n < c->count; n++) {
        if ((c->histogram == NULL || c->histogram[first + n] == NULL) != is_float)
            break;
        if (!is_float) {
            CHECK(n < RUN_MAX);
            h[n] = *c->histogram[first + n];
        }
    }
    return n;
}

static void sealed_put(struct sealed_writer *w, const struct set_chunk *c)
{
    struct histogram h[RUN_MAX];
    struct errinfo ei = {0};

    for (size_t i = 0, n; i < c->count; i += n) {
        n = run_of(c, i, h);
        if (c->histogram != NULL && c->histogram[i] != NULL)
            CHECK_OK(sealed_writer_histograms(w, c->slot, c->generation, c->t_ms + i, h, n, &ei),
                     &ei);
        else
            CHECK_OK(
                sealed_writer_chunk(w, c->slot, c->generation, c->t_ms + i, c->value + i, n, &ei),
                &ei);
    }
}

static void part_put(struct part_writer *w, const struct set_chunk *c)
{
    struct histogram h[RUN_MAX];
    struct errinfo ei = {0};

    for (size_t i = 0, n; i < c->count; i += n) {
        n = run_of(c, i, h);
        if (c->histogram != NULL && c->histogram[i] != NULL)
            CHECK_OK(part_writer_histograms(w, c->t_ms + i, h, n, &ei), &ei);
        else
            CHECK_OK(part_writer_samples(w, c->t_ms + i, c->value + i, n, &ei), &ei);
    }
}

struct set_sealed set_sealed_begin(struct fs *fs, enum sealed_kind kind, uint64_t number)
{
    const struct sealed_identity identity = {
        .kind = kind, .shard_count = 1, .number = number, .secret_id = 7, .has_histograms = true};
    struct errinfo ei = {0};
    struct sealed_file *file;
    struct set_sealed s = {0};
    char path[64];

    snprintf(path, sizeof path, "%d-%" PRIu64, (int)kind, number);
    CHECK_OK(sealed_writer_create(fs, path, &identity, &file, &s.writer, &ei), &ei);
    s.source = sealed_source_new(fs, NULL, file, 0);
    CHECK(s.source != NULL);
    return s;
}

void set_sealed_slice(struct set_sealed *s, const struct set_chunk *chunks, size_t count)
{
    struct errinfo ei = {0};
    struct sealed_slice *slice;

    for (size_t i = 0; i < count; i++)
        sealed_put(s->writer, &chunks[i]);
    CHECK_OK(sealed_writer_slice(s->writer, 1, &slice, &ei), &ei);
    CHECK(slice == NULL || sealed_source_append(s->source, slice));
}

void set_sealed_end(struct set_sealed *s)
{
    sealed_writer_free(s->writer);
    s->writer = NULL;
}

static int compare_chunks(const void *a, const void *b)
{
    const struct set_chunk *x = a, *y = b;
    int c = part_labels_compare(x->labels, y->labels);

    return c != 0 ? c : (x->t_ms[0] > y->t_ms[0]) - (x->t_ms[0] < y->t_ms[0]);
}

struct part_source *set_part(struct fs *fs, struct part_store *store, const struct part_key *key,
                             struct set_chunk *chunks, size_t count, bool is_foreign)
{
    const struct part_writer_options o = {.dir = "", .key = *key, .id = 1};
    struct errinfo ei = {0};
    struct part_writer *w;
    struct part_source *source;
    struct part_info info;
    struct part *part;

    if (count > 0)
        qsort(chunks, count, sizeof *chunks, compare_chunks);
    CHECK_OK(part_writer_new(store, &o, &w, &ei), &ei);
    for (size_t i = 0; i < count; i++) {
        if (i == 0 || part_labels_compare(chunks[i - 1].labels, chunks[i].labels) != 0)
            CHECK_OK(part_writer_series(w, chunks[i].labels, chunks[i].fingerprint, &ei), &ei);
        part_put(w, &chunks[i]);
    }
    CHECK_OK(part_writer_finish(w, 1, &info, &ei), &ei);
    part_writer_free(w);
    CHECK_OK(part_open(store, "", key, &part, &ei), &ei);
    source = part_source_new(fs, part, is_foreign);
    CHECK(source != NULL);
    return source;
}

struct file_set *set_with_sealed(struct file_set *base, struct sealed_source *added)
{
    const struct file_set_change change = {.sealed_add = &added, .sealed_add_count = 1};
    struct errinfo ei = {0};
    struct file_set *set;

    CHECK_OK(file_set_new(base, &change, &set, &ei), &ei);
    file_set_unref(base);
    sealed_source_unref(added);
    return set;
}

struct file_set *set_with_part(struct file_set *base, struct part_source *added)
{
    const struct file_set_change change = {.part_add = &added, .part_add_count = 1};
    struct errinfo ei = {0};
    struct file_set *set;

    CHECK_OK(file_set_new(base, &change, &set, &ei), &ei);
    file_set_unref(base);
    part_source_unref(added);
    return set;
}
