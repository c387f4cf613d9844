/* Lists of drop rules: whatever the text is, it is refused or compiled, what is compiled judges
 * label sets without fault, and its JSON reads back as the same rules. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "api/config.h"
#include "api/rule_book.h"
#include "api/rules/drop_rule_json_internal.h"
#include "base/assert.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size); /* NOLINT: libFuzzer's name */

static const struct label gpu[] = {{{"DCGM", 4}, {"x", 1}},
                                   {{"__name__", 8}, {"DCGM_FI_DEV_GPU_UTIL", 20}},
                                   {{"gpu", 3}, {"7", 1}},
                                   {{"node", 4}, {"node-0042.example", 17}}};
static const struct label odd[] = {{{"", 0}, {"empty name", 10}},
                                   {{"a", 1}, {"\xc3\x84;B", 4}},
                                   {{"\xf0\x9f\x98\x80", 4}, {"$1", 2}}};

static void judge(const struct rule_set *set, const struct label *items, size_t count)
{
    const struct labels labels = {count, items};
    struct rule_verdict v;
    struct arena arena;

    arena_init(&arena, NULL);
    ASSERT(rule_set_judge(set, &labels, &arena, &v));
    ASSERT(v.dropped_by == RULE_NONE || v.dropped_by < rule_set_count(set));
    for (size_t i = 1; v.dropped_by == RULE_NONE && i < v.labels.count; i++)
        ASSERT(str_compare(v.labels.items[i - 1].name, v.labels.items[i].name) < 0);
    arena_done(&arena);
}

static void json_write(const struct config *c, struct byte_writer *w)
{
    writer_printf(w, "[");
    for (size_t i = 0; i < c->drop_rule_count; i++) {
        writer_printf(w, i == 0 ? "" : ",\n");
        drop_rule_write(w, &c->drop_rules[i]);
    }
    writer_printf(w, "]");
}

static void check_json(const struct config *c)
{
    struct byte_writer first, second;
    struct config again;
    struct errinfo ei = {0};

    writer_init(&first);
    writer_init(&second);
    config_init(&again);
    json_write(c, &first);
    ASSERT(!first.failed);
    ASSERT(config_rules_parse(&again, "json", (struct str){(const char *)first.data, first.size},
                              DROP_RULE_API, &ei) == ERR_OK);
    json_write(&again, &second);
    ASSERT(first.size == second.size && memcmp(first.data, second.data, first.size) == 0);
    config_done(&again);
    writer_done(&first);
    writer_done(&second);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct config c;
    struct rule_set *set = NULL;
    struct errinfo ei = {0};

    config_init(&c);
    if (config_rules_read(&c, "fuzz", (struct str){(const char *)data, size}, &ei) == ERR_OK) {
        check_json(&c);
        if (rule_set_new(c.drop_rules, c.drop_rule_count, &set, &ei) == ERR_OK) {
            judge(set, gpu, sizeof gpu / sizeof gpu[0]);
            judge(set, odd, sizeof odd / sizeof odd[0]);
            judge(set, NULL, 0);
            if (rule_list_check_purges(set, &ei) != ERR_OK)
                ASSERT(ei.message[0] != '\0');
        }
        rule_set_free(set);
    }
    config_done(&c);
    return 0;
}
