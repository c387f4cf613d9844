/*
 * The preview's figures of what a request's rules with `purge` are about to delete.
 */
#include "api/rules/rule_figures_internal.h"

#include <inttypes.h>
#include <stdlib.h>

#include "api/http/json_internal.h"
#include "api/rules/rule_selector_internal.h"
#include "base/log.h"
#include "engine/querier.h"

static enum err preview_run(struct http_request *r, const struct drop_rule *rules, size_t count,
                            struct arena *arena, struct rule_figures *out, struct errinfo *ei)
{
    struct preview_options o = {.limit = 1};
    struct preview *ignored = NULL;
    struct querier *q = NULL;
    struct rule_set *set = NULL;
    enum err e = rule_set_new(rules, count, &set, ei);

    if (e == ERR_OK)
        e = querier_open(server_engine(r->server), &q, ei);
    if (e == ERR_OK) {
        querier_set_stop(q, &r->hangup.stop);
        querier_set_deadline(q, r->deadline_mono_ns);
        o.rules = set;
        e = querier_preview(q, &o, arena, &out->preview, &ignored, ei);
    }
    querier_close(q);
    rule_set_free(set);
    return e;
}

/* The rules that purge, as selectors where they are as good as one: when all are, files are asked
 * for all their series. */
static enum err purging_run(struct http_request *r, const struct config *config,
                            struct arena *arena, struct rule_figures *out, struct errinfo *ei)
{
    size_t count = config->drop_rule_count;
    struct drop_rule *purging = ARENA_ARRAY(arena, count + 1, struct drop_rule);
    struct rule_selector *selectors = ARENA_ARRAY(arena, count + 1, struct rule_selector);
    enum err e = purging == NULL || selectors == NULL ? arena_error(arena, ei) : ERR_OK;

    for (size_t i = 0; i < count && e == ERR_OK; i++) {
        const struct drop_rule *rule = &config->drop_rules[i];
        struct rule_selector *s = &selectors[out->rule_count];

        if (!rule->purge || rule_selector_obstacle(rule) != NULL)
            continue;
        e = rule_selector_init(s, rule, arena, ei);
        if (e != ERR_OK)
            break;
        purging[out->rule_count] = *rule;
        if (s->filter == NULL) {
            purging[out->rule_count].selector = s->text;
            purging[out->rule_count].matchers = s->matchers;
            purging[out->rule_count].matcher_count = s->matcher_count;
        }
        out->rule_count++;
    }
    if (e == ERR_OK && out->rule_count > 0)
        e = preview_run(r, purging, out->rule_count, arena, out, ei);
    for (size_t i = 0; i < out->rule_count; i++)
        rule_selector_done(&selectors[i]);
    return e;
}

enum err rule_figures_get(struct http_request *r, struct str text, struct rule_figures *out,
                          struct errinfo *ei)
{
    struct budget memory;
    struct arena arena;
    struct config config;
    enum err e = ERR_OK;

    *out = (struct rule_figures){0};
    config_init(&config);
    query_memory_begin(r->server, &memory);
    arena_init(&arena, &memory);
    /* What is wrong with the text is for the change to say. */
    if (config_rules_read(&config, "rules", text, NULL) == ERR_OK)
        e = purging_run(r, &config, &arena, out, ei);
    out->preview.metrics = out->preview.label_values = (struct explore_list){0};
    out->preview.examples = NULL;
    arena_done(&arena);
    query_memory_end(&memory);
    config_done(&config);
    return e;
}

void rule_figures_write(const struct rule_figures *f, struct byte_writer *w)
{
    const struct preview_result *x = &f->preview;

    writer_printf(w, ",\"purge\":{\"rules\":%zu,\"series\":%" PRIu64 ",\"samples_per_second\":",
                  f->rule_count, x->series);
    json_write_number(w, x->samples_per_second);
    writer_printf(w, ",\"memory_bytes\":%.0f,\"disk_bytes\":%.0f,\"disk_is_whole\":%s}",
                  x->memory_bytes, x->disk_bytes, x->disk_is_whole ? "true" : "false");
}

void rule_figures_log(const struct rule_figures *f)
{
    const struct preview_result *x = &f->preview;

    LOG_INFO("drop rules purge what is stored", LOG_U64("rules", f->rule_count),
             LOG_U64("series", x->series), LOG_F64("samples_per_second", x->samples_per_second),
             LOG_F64("memory_bytes", x->memory_bytes), LOG_F64("disk_bytes", x->disk_bytes));
}
