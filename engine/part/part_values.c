/*
 * The dictionary of a part: names and values in byte order. Values are front-coded with a whole
 * text every PART_RESTART values, so that both search and walk read little.
 */
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "engine/part/part_store_internal.h"

uint32_t part_name_find(const struct part *p, struct str name)
{
    uint32_t low = 0, high = p->footer.name_count;

    while (low < high) {
        uint32_t mid = low + (high - low) / 2;
        int c = str_compare(p->names[mid].text, name);

        if (c == 0)
            return mid;
        if (c < 0)
            low = mid + 1;
        else
            high = mid;
    }
    return PART_NO_NAME;
}

/* ---- cursor ---- */

void part_value_cursor_init(struct part_value_cursor *c, struct part *p, uint32_t name)
{
    memset(c, 0, sizeof *c);
    c->part = p;
    c->name = name;
    writer_init(&c->text);
}

void part_value_cursor_done(struct part_value_cursor *c)
{
    page_release(c->page);
    writer_done(&c->text);
    c->page = NULL;
}

static enum err cursor_corrupt(const struct part_value_cursor *c, struct errinfo *ei)
{
    return part_page_corrupt(c->part, PART_SECTION_VALUES, c->page_index, ei);
}

static uint32_t restart_count(uint32_t value_count)
{
    return part_page_count(value_count, PART_RESTART);
}

/* How many values a page must hold for the next one to begin where its key says. */
static uint32_t values_expected(const struct part_value_cursor *c, uint32_t index)
{
    const struct part_name_entry *n = &c->part->names[c->name];
    const struct part_page_entry *pages = c->part->footer.tables[PART_SECTION_VALUES].pages;
    uint32_t end =
        index + 1 < n->value_page + n->value_page_count ? pages[index + 1].key : n->value_count;

    return end > pages[index].key ? end - pages[index].key : 0;
}

/* Pins page `index` and checks its frame. */
static enum err cursor_load(struct part_value_cursor *c, uint32_t index, struct errinfo *ei)
{
    uint32_t count;
    size_t size;
    enum err e;

    page_release(c->page);
    c->page = NULL;
    c->page_index = index;
    e = part_page_get(c->part, PART_SECTION_VALUES, index, &c->page, ei);
    if (e != ERR_OK)
        return e;
    c->page_first = c->part->footer.tables[PART_SECTION_VALUES].pages[index].key;
    size = c->page->size - PART_CRC_SIZE;
    if (size < sizeof count)
        return cursor_corrupt(c, ei);
    memcpy(&count, c->page->data + size - sizeof count, sizeof count);
    if (count == 0 || count != values_expected(c, index) ||
        restart_count(count) > size / sizeof(uint32_t) - 1)
        return cursor_corrupt(c, ei);
    c->page_values = count;
    return ERR_OK;
}

/* Size of the entries in front of the restarts. */
static size_t entries_size(const struct part_value_cursor *c)
{
    return c->page->size - PART_CRC_SIZE -
           sizeof(uint32_t) * ((size_t)restart_count(c->page_values) + 1);
}

/* Goes to a restart of the page at hand. */
static enum err cursor_restart(struct part_value_cursor *c, uint32_t restart, struct errinfo *ei)
{
    size_t size = entries_size(c);
    uint32_t offset;

    memcpy(&offset, c->page->data + size + restart * sizeof offset, sizeof offset);
    if (offset > size)
        return cursor_corrupt(c, ei);
    c->entries = reader_init(c->page->data + offset, size - offset);
    c->next = c->page_first + restart * PART_RESTART;
    return ERR_OK;
}

static enum err cursor_step(struct part_value_cursor *c, struct errinfo *ei)
{
    bool whole = (c->next - c->page_first) % PART_RESTART == 0;
    uint64_t shared = whole ? 0 : reader_varint(&c->entries);
    uint64_t size = reader_varint(&c->entries);
    const uint8_t *rest =
        size > reader_left(&c->entries) ? NULL : reader_take(&c->entries, (size_t)size);

    if (rest == NULL || c->entries.failed || shared > c->text.size)
        return cursor_corrupt(c, ei);
    c->text.size = (size_t)shared;
    writer_append(&c->text, rest, (size_t)size);
    if (c->text.failed)
        return errinfo_set(ei, ERR_NOMEM, 0, "label value");
    c->next++;
    return ERR_OK;
}

static bool cursor_holds(const struct part_value_cursor *c, uint32_t index)
{
    return c->page != NULL && index >= c->page_first && index - c->page_first < c->page_values;
}

enum err part_value_cursor_get(struct part_value_cursor *c, uint32_t index, struct str *out,
                               struct errinfo *ei)
{
    const struct part_name_entry *n = &c->part->names[c->name];
    enum err e = ERR_OK;

    ASSERT(index < n->value_count);
    if (!cursor_holds(c, index)) {
        e = cursor_load(
            c,
            part_page_find(c->part, PART_SECTION_VALUES, n->value_page, n->value_page_count, index),
            ei);
        c->next = UINT32_MAX;
    }
    if (e == ERR_OK && !cursor_holds(c, index))
        e = cursor_corrupt(c, ei);
    if (e == ERR_OK && (index < c->next || index - c->next >= PART_RESTART))
        e = cursor_restart(c, (index - c->page_first) / PART_RESTART, ei);
    while (e == ERR_OK && c->next <= index)
        e = cursor_step(c, ei);
    if (e != ERR_OK) {
        page_release(c->page);
        c->page = NULL;
        return e;
    }
    *out = (struct str){(const char *)c->text.data, c->text.size};
    return ERR_OK;
}

/* ---- search ---- */

/* The last of `count` restarts of the page at `first` whose value is not above `text`; 0 if all
 * are. */
static enum err last_not_above(struct part_value_cursor *c, uint32_t first, uint32_t count,
                               struct str text, uint32_t *out, struct errinfo *ei)
{
    uint32_t low = 1, high = count;

    while (low < high) {
        uint32_t mid = low + (high - low) / 2;
        struct str at;
        enum err e = part_value_cursor_get(c, first + mid * PART_RESTART, &at, ei);

        if (e != ERR_OK)
            return e;
        if (str_compare(at, text) <= 0)
            low = mid + 1;
        else
            high = mid;
    }
    *out = low - 1;
    return ERR_OK;
}

/* The first value of the block that would hold `text`: page by page, then restart by restart. */
static enum err find_block(struct part_value_cursor *c, struct str text, uint32_t *first,
                           struct errinfo *ei)
{
    const struct part_name_entry *n = &c->part->names[c->name];
    const struct part_page_entry *pages =
        c->part->footer.tables[PART_SECTION_VALUES].pages + n->value_page;
    uint32_t low = 0, high = n->value_page_count, block = 0;
    struct str at;
    enum err e;

    while (low + 1 < high) {
        uint32_t mid = low + (high - low) / 2;

        if (pages[mid].key >= n->value_count)
            return part_page_corrupt(c->part, PART_SECTION_VALUES, n->value_page + mid, ei);
        if ((e = part_value_cursor_get(c, pages[mid].key, &at, ei)) != ERR_OK)
            return e;
        if (str_compare(at, text) <= 0)
            low = mid;
        else
            high = mid;
    }
    if (pages[low].key >= n->value_count)
        return part_page_corrupt(c->part, PART_SECTION_VALUES, n->value_page + low, ei);
    if ((e = part_value_cursor_get(c, pages[low].key, &at, ei)) != ERR_OK)
        return e;
    e = last_not_above(c, pages[low].key, restart_count(c->page_values), text, &block, ei);
    *first = pages[low].key + block * PART_RESTART;
    return e;
}

/* The first value that is not below `text`, and whether it is it. */
static enum err find_first(struct part *p, uint32_t name, struct str text, uint32_t *out,
                           bool *is_equal, struct errinfo *ei)
{
    struct part_value_cursor c;
    uint32_t index = 0, count = p->names[name].value_count;
    int order = 1;
    enum err e;

    part_value_cursor_init(&c, p, name);
    e = find_block(&c, text, &index, ei);
    for (; e == ERR_OK && index < count; index++) {
        struct str at;

        e = part_value_cursor_get(&c, index, &at, ei);
        if (e == ERR_OK && (order = str_compare(at, text)) >= 0)
            break;
    }
    part_value_cursor_done(&c);
    *out = index;
    *is_equal = index < count && order == 0;
    return e;
}

enum err part_value_lower_bound(struct part *p, uint32_t name, struct str text, uint32_t *out,
                                struct errinfo *ei)
{
    bool is_equal;

    return find_first(p, name, text, out, &is_equal, ei);
}

enum err part_value_find(struct part *p, uint32_t name, struct str text, uint32_t *out,
                         struct errinfo *ei)
{
    uint32_t index = 0;
    bool is_equal;
    enum err e = find_first(p, name, text, &index, &is_equal, ei);

    *out = e == ERR_OK && is_equal ? index : PART_NO_VALUE;
    return e;
}

/* ---- lists ---- */

static enum err copy_text(struct arena *arena, struct str from, struct str *out, struct errinfo *ei)
{
    char *copy = arena_memdup0(arena, from.data, from.size);

    if (copy == NULL)
        return arena_error(arena, ei);
    *out = (struct str){copy, from.size};
    return ERR_OK;
}

enum err part_label_names(struct part *p, struct arena *arena, struct str_list *out,
                          struct errinfo *ei)
{
    struct str *items = ARENA_ARRAY(arena, p->footer.name_count, struct str);
    enum err e = ERR_OK;

    if (items == NULL)
        return arena_error(arena, ei);
    for (uint32_t i = 0; i < p->footer.name_count && e == ERR_OK; i++)
        e = copy_text(arena, p->names[i].text, &items[i], ei);
    if (e == ERR_OK)
        *out = (struct str_list){p->footer.name_count, items};
    return e;
}

enum err part_label_values(struct part *p, struct str name, struct arena *arena,
                           struct str_list *out, struct errinfo *ei)
{
    uint32_t number = part_name_find(p, name), count;
    struct part_value_cursor c;
    struct str *items = NULL;
    size_t capacity = 0;
    enum err e = ERR_OK;

    *out = (struct str_list){0, NULL};
    if (number == PART_NO_NAME)
        return ERR_OK;
    count = p->names[number].value_count;
    part_value_cursor_init(&c, p, number);
    for (uint32_t i = 0; i < count && e == ERR_OK; i++) {
        struct str text;

        if (i == capacity) { /* the count is not trusted before the values have been seen */
            size_t grown = capacity == 0 ? 64 : capacity * 2;

            items = arena_grow_array(arena, items, capacity, grown, sizeof *items);
            if (items == NULL) {
                e = arena_error(arena, ei);
                break;
            }
            capacity = grown;
        }
        e = part_value_cursor_get(&c, i, &text, ei);
        if (e == ERR_OK)
            e = copy_text(arena, text, &items[i], ei);
    }
    part_value_cursor_done(&c);
    if (e == ERR_OK)
        *out = (struct str_list){count, items};
    return e;
}
