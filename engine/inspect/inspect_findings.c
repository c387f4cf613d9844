/*
 * What an inspection has found, collected from several threads and told in one order.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/inspect/inspect_internal.h"

void findings_init(struct findings *f)
{
    *f = (struct findings){0};
    mutex_init(&f->lock);
}

void findings_done(struct findings *f)
{
    while (f->first != NULL) {
        struct finding *next = f->first->next;

        free((void *)(uintptr_t)f->first->f.path);
        free((void *)(uintptr_t)f->first->f.what);
        free(f->first);
        f->first = next;
    }
    mutex_done(&f->lock);
}

static void fail(struct findings *f, const struct errinfo *ei)
{
    mutex_lock(&f->lock);
    if (f->failure.code == ERR_OK)
        f->failure = *ei;
    mutex_unlock(&f->lock);
}

bool findings_failed(struct findings *f)
{
    bool failed;

    mutex_lock(&f->lock);
    failed = f->failure.code != ERR_OK;
    mutex_unlock(&f->lock);
    return failed;
}

static void add(struct findings *f, const struct inspect_finding *finding)
{
    struct finding *copy = calloc(1, sizeof *copy);
    char *path = strdup(finding->path), *what = strdup(finding->what);
    struct errinfo ei = {0};

    if (copy == NULL || path == NULL || what == NULL) {
        free(copy);
        free(path);
        free(what);
        (void)errinfo_set(&ei, ERR_NOMEM, 0, "findings"); /* its code is known */
        fail(f, &ei);
        return;
    }
    copy->f = *finding;
    copy->f.path = path;
    copy->f.what = what;
    mutex_lock(&f->lock);
    copy->next = f->first;
    f->first = copy;
    f->count++;
    mutex_unlock(&f->lock);
}

PRINTF_LIKE(3, 0)
static void note(struct findings *f, struct inspect_finding finding, const char *format,
                 va_list args)
{
    char what[ERRINFO_MESSAGE_SIZE];

    /* Cut when too long. NOLINTNEXTLINE(clang-analyzer-valist*): a false alarm of clang-tidy 14 */
    (void)vsnprintf(what, sizeof what, format, args);
    finding.what = what;
    add(f, &finding);
}

void findings_note(struct findings *f, const char *path, const char *format, ...)
{
    struct inspect_finding finding = {.path = path};
    va_list args;

    va_start(args, format);
    note(f, finding, format, args);
    va_end(args);
}

void findings_note_at(struct findings *f, const char *path, uint64_t offset, const char *format,
                      ...)
{
    struct inspect_finding finding = {.path = path, .has_offset = true, .offset = offset};
    va_list args;

    va_start(args, format);
    note(f, finding, format, args);
    va_end(args);
}

/* The story without the path and the offset in front of it, which are told by themselves. */
static const char *story_of(const char *path, const struct errinfo *ei)
{
    const char *at = ei->message;
    size_t size = strlen(path);

    if (strncmp(at, path, size) != 0 || strncmp(at + size, ": ", 2) != 0)
        return at;
    at += size + 2;
    if (ei->has_offset && strncmp(at, "offset ", 7) == 0 && strstr(at, ": ") != NULL)
        at = strstr(at, ": ") + 2;
    return at;
}

void findings_error(struct findings *f, const char *path, const struct errinfo *ei)
{
    struct inspect_finding finding = {.is_damage = true,
                                      .code = ei->code,
                                      .path = path,
                                      .has_offset = ei->has_offset,
                                      .offset = ei->offset,
                                      .what = story_of(path, ei)};

    switch (ei->code) {
    case ERR_NOMEM:
    case ERR_LIMIT:
    case ERR_CANCELED:
    case ERR_INTERNAL:
        fail(f, ei);
        return;
    case ERR_NOT_FOUND:
        finding.what = "the file is missing";
        break;
    default:
        break;
    }
    add(f, &finding);
}

static int compare(const void *a, const void *b)
{
    const struct inspect_finding *x = *(const struct inspect_finding *const *)a;
    const struct inspect_finding *y = *(const struct inspect_finding *const *)b;
    int c = (int)y->is_damage - (int)x->is_damage;

    if (c == 0)
        c = strcmp(x->path, y->path);
    return c != 0 ? c : (x->offset > y->offset) - (x->offset < y->offset);
}

void findings_report(struct findings *f, void (*found)(void *ctx, const struct inspect_finding *),
                     void *ctx, struct inspect_verify_result *out)
{
    /* NOLINTNEXTLINE(bugprone-sizeof-expression): an array of pointers */
    const struct inspect_finding **sorted = calloc(f->count + 1, sizeof *sorted);
    struct errinfo ei = {0};
    size_t count = 0;

    if (sorted == NULL) {
        (void)errinfo_set(&ei, ERR_NOMEM, 0, "findings"); /* its code is known */
        fail(f, &ei);
        return;
    }
    for (const struct finding *i = f->first; i != NULL; i = i->next)
        sorted[count++] = &i->f;
    qsort((void *)sorted, count, sizeof *sorted, compare); /* NOLINT(bugprone-sizeof-expression) */
    for (size_t i = 0; i < count; i++) {
        found(ctx, sorted[i]);
        out->damaged_file_count += sorted[i]->is_damage && sorted[i]->code != ERR_UNSUPPORTED;
        out->unknown_file_count += sorted[i]->is_damage && sorted[i]->code == ERR_UNSUPPORTED;
        out->note_count += !sorted[i]->is_damage;
    }
    free((void *)sorted);
}
