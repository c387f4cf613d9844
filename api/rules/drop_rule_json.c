#include "api/rules/drop_rule_json_internal.h"

#include <inttypes.h>

#include "base/json.h"

static void text_field(struct byte_writer *w, const char *name, struct str text)
{
    writer_printf(w, ",\"%s\":", name);
    json_write_string(w, text);
}

/* The fields without the brace before and after; the first is always there. */
static void what_write(struct byte_writer *w, const struct drop_rule *r)
{
    const struct relabel_config *c = &r->relabel;
    struct relabel_config fallback;

    if (r->selector.size > 0) {
        json_write_raw(w, "\"drop\":");
        json_write_string(w, r->selector);
        return;
    }
    relabel_config_init(&fallback);
    writer_printf(w, "\"action\":\"%s\"", relabel_action_name(c->action));
    if (c->has_source_labels || c->source_label_count > 0) {
        json_write_raw(w, ",\"source_labels\":[");
        for (size_t i = 0; i < c->source_label_count; i++) {
            json_write_raw(w, i == 0 ? "" : ",");
            json_write_string(w, c->source_labels[i]);
        }
        json_write_raw(w, "]");
    }
    if (!str_equal(c->separator, fallback.separator))
        text_field(w, "separator", c->separator);
    if (c->has_regex || !str_equal(c->regex, fallback.regex))
        text_field(w, "regex", c->regex);
    if (c->modulus != 0)
        writer_printf(w, ",\"modulus\":%" PRIu64, c->modulus);
    if (c->target_label.size > 0)
        text_field(w, "target_label", c->target_label);
    if (!str_equal(c->replacement, fallback.replacement))
        text_field(w, "replacement", c->replacement);
}

void drop_rule_write(struct byte_writer *w, const struct drop_rule *r)
{
    json_write_raw(w, "{\"name\":");
    json_write_string(w, r->name);
    if (r->comment.size > 0)
        text_field(w, "comment", r->comment);
    if (r->purge)
        json_write_raw(w, ",\"purge\":true");
    json_write_raw(w, ",");
    what_write(w, r);
    json_write_raw(w, "}");
}

void drop_rule_write_what(struct byte_writer *w, const struct drop_rule *r)
{
    json_write_raw(w, "{");
    what_write(w, r);
    json_write_raw(w, "}");
}
