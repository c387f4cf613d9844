/*
 * Relabelling rules as they are written: names of actions, defaults, and what is refused, with
 * Prometheus's texts.
 */
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "engine/relabel.h"

static const char *const action_names[] = {
    [RELABEL_REPLACE] = "replace",     [RELABEL_KEEP] = "keep",
    [RELABEL_DROP] = "drop",           [RELABEL_KEEPEQUAL] = "keepequal",
    [RELABEL_DROPEQUAL] = "dropequal", [RELABEL_HASHMOD] = "hashmod",
    [RELABEL_LABELMAP] = "labelmap",   [RELABEL_LABELDROP] = "labeldrop",
    [RELABEL_LABELKEEP] = "labelkeep", [RELABEL_LOWERCASE] = "lowercase",
    [RELABEL_UPPERCASE] = "uppercase",
};

enum { ACTION_COUNT = sizeof action_names / sizeof action_names[0] };

void relabel_config_init(struct relabel_config *c)
{
    *c = (struct relabel_config){
        .action = RELABEL_REPLACE,
        .separator = STR_LITERAL(";"),
        .regex = STR_LITERAL("(.*)"),
        .replacement = STR_LITERAL("$1"),
    };
}

bool relabel_action_parse(struct str name, enum relabel_action *out)
{
    for (size_t i = 0; i < ACTION_COUNT; i++) {
        if (strlen(action_names[i]) == name.size &&
            strncasecmp(action_names[i], name.data, name.size) == 0) {
            *out = (enum relabel_action)i;
            return true;
        }
    }
    return false;
}

const char *relabel_action_name(enum relabel_action action)
{
    return action_names[action];
}

bool relabel_action_filters(enum relabel_action action)
{
    return action == RELABEL_KEEP || action == RELABEL_DROP || action == RELABEL_KEEPEQUAL ||
           action == RELABEL_DROPEQUAL;
}

static bool needs_target(enum relabel_action action)
{
    return action == RELABEL_REPLACE || action == RELABEL_HASHMOD || action == RELABEL_LOWERCASE ||
           action == RELABEL_UPPERCASE || action == RELABEL_KEEPEQUAL ||
           action == RELABEL_DROPEQUAL;
}

static bool is_label_name(struct str name)
{
    return name.size > 0 && utf8_is_valid(name);
}

/* `"text" <what>`, the text as Go quotes it. */
static enum err invalid_text(struct str text, const char *what, struct errinfo *ei)
{
    struct byte_writer quoted;
    enum err e;

    writer_init(&quoted);
    str_quote(&quoted, text);
    e = errinfo_set(ei, ERR_INVALID, 0, "%.*s %s", (int)quoted.size,
                    quoted.data == NULL ? "" : (const char *)quoted.data, what);
    writer_done(&quoted);
    return e;
}

static enum err invalid_field(struct str text, const char *field, enum relabel_action action,
                              struct errinfo *ei)
{
    char what[64];

    (void)snprintf(what, sizeof what, "is invalid '%s' for %s action", field,
                   relabel_action_name(action)); /* cannot be cut */
    return invalid_text(text, what, ei);
}

static bool is_default(struct str value, struct str fallback)
{
    return str_equal(value, fallback);
}

/* Fields that an action has no use for. */
static enum err check_unused(const struct relabel_config *c, const struct relabel_config *fallback,
                             struct errinfo *ei)
{
    bool plain = c->modulus == 0 && is_default(c->separator, fallback->separator) &&
                 is_default(c->replacement, fallback->replacement);

    if ((c->action == RELABEL_DROPEQUAL || c->action == RELABEL_KEEPEQUAL) &&
        (c->has_regex || !plain))
        return errinfo_set(ei, ERR_INVALID, 0,
                           "%s action requires only 'source_labels' and `target_label`, and no "
                           "other fields",
                           relabel_action_name(c->action));
    if ((c->action == RELABEL_LABELDROP || c->action == RELABEL_LABELKEEP) &&
        (c->has_source_labels || c->target_label.size > 0 || !plain))
        return errinfo_set(ei, ERR_INVALID, 0,
                           "%s action requires only 'regex', and no other fields",
                           relabel_action_name(c->action));
    return ERR_OK;
}

enum err relabel_config_check(const struct relabel_config *c, struct errinfo *ei)
{
    const char *name = relabel_action_name(c->action);
    struct relabel_config fallback;
    struct regex *re = NULL;
    enum err e;

    relabel_config_init(&fallback);
    for (size_t i = 0; i < c->source_label_count; i++) {
        if (!is_label_name(c->source_labels[i]))
            return invalid_text(c->source_labels[i], "is not a valid label name", ei);
    }
    e = regex_compile(c->regex, &re, ei);
    regex_free(re);
    if (e != ERR_OK)
        return e;
    if (c->modulus == 0 && c->action == RELABEL_HASHMOD)
        return errinfo_set(ei, ERR_INVALID, 0,
                           "relabel configuration for hashmod requires non-zero modulus");
    if (needs_target(c->action) && c->target_label.size == 0)
        return errinfo_set(ei, ERR_INVALID, 0,
                           "relabel configuration for %s action requires 'target_label' value",
                           name);
    /* With UTF-8 names a template such as ${1}_total is itself a name. */
    if (needs_target(c->action) && !is_label_name(c->target_label))
        return invalid_field(c->target_label, "target_label", c->action, ei);
    if ((c->action == RELABEL_LOWERCASE || c->action == RELABEL_UPPERCASE ||
         c->action == RELABEL_KEEPEQUAL || c->action == RELABEL_DROPEQUAL) &&
        !is_default(c->replacement, fallback.replacement))
        return errinfo_set(ei, ERR_INVALID, 0, "'replacement' can not be set for %s action", name);
    if (c->action == RELABEL_LABELMAP && !is_label_name(c->replacement))
        return invalid_field(c->replacement, "replacement", c->action, ei);
    return check_unused(c, &fallback, ei);
}
