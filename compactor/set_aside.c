/*
 * Damaged parts. A merge that meets one would meet it again and again, so it is set aside: named in
 * the log, and left out of plans as long as it lives. Parts whose windows overlap with its are left
 * out as well, since a merge of them could jump over its generation.
 */
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "compactor/compactor_internal.h"

bool part_is_set_aside(const struct shard_work *s, const struct part_key *key)
{
    for (size_t i = 0; i < s->damaged_count; i++) {
        if (part_key_equal(&s->damaged[i], key))
            return true;
    }
    return false;
}

static void set_aside(struct compactor *c, struct shard_work *s, const struct part_key *key,
                      const char *why)
{
    char name[PART_NAME_SIZE];

    if (part_is_set_aside(s, key))
        return;
    if (s->damaged_count == s->damaged_capacity) {
        size_t capacity = s->damaged_capacity == 0 ? 8 : s->damaged_capacity * 2;
        struct part_key *grown = realloc(s->damaged, capacity * sizeof *grown);

        if (grown == NULL)
            return; /* the merge fails again, later */
        s->damaged = grown;
        s->damaged_capacity = capacity;
    }
    s->damaged[s->damaged_count++] = *key;
    metric_gauge_add(c->metrics.parts_damaged, 1);
    part_name_format(key, PART_FILE_INDEX, false, name);
    LOG_ERROR("a damaged part is set aside: it is not merged any more", LOG_STR("part", name),
              LOG_STR("error", why));
}

/* Whether an error's story names one of the part's files. */
static bool is_named(const struct part_key *key, const char *story)
{
    char name[PART_NAME_SIZE];

    part_name_format(key, PART_FILE_INDEX, false, name);
    if (strstr(story, name) != NULL)
        return true;
    part_name_format(key, PART_FILE_CHUNKS, false, name);
    return strstr(story, name) != NULL;
}

void parts_set_aside(struct compactor *c, struct shard_work *s, const struct engine_part *parts,
                     const bool *chosen, size_t count, const struct errinfo *why)
{
    bool found = false;

    for (size_t i = 0; i < count; i++)
        found = found || (chosen[i] && is_named(&parts[i].key, why->message));
    for (size_t i = 0; i < count; i++) {
        if (chosen[i] && (!found || is_named(&parts[i].key, why->message)))
            set_aside(c, s, &parts[i].key, why->message);
    }
}

void set_aside_refresh(struct compactor *c, struct shard_work *s, const struct engine_part *parts,
                       size_t count)
{
    size_t kept = 0;

    for (size_t i = 0; i < s->damaged_count; i++) {
        bool lives = false;

        for (size_t k = 0; k < count && !lives; k++)
            lives = part_key_equal(&s->damaged[i], &parts[k].key);
        if (lives)
            s->damaged[kept++] = s->damaged[i];
    }
    metric_gauge_add(c->metrics.parts_damaged, (double)kept - (double)s->damaged_count);
    s->damaged_count = kept;
}

void parts_usable(const struct shard_work *s, const struct engine_part *parts, size_t count,
                  bool *usable)
{
    bool spreads = s->damaged_count > 0;

    for (size_t i = 0; i < count; i++)
        usable[i] = !part_is_set_aside(s, &parts[i].key);
    while (spreads) {
        spreads = false;
        for (size_t i = 0; i < count; i++) {
            for (size_t k = 0; k < count && usable[i]; k++) {
                if (!usable[k] && part_key_meets(&parts[i].key, &parts[k].key)) {
                    usable[i] = false;
                    spreads = true;
                }
            }
        }
    }
}
