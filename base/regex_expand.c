/*
 * Templates of replacements, as Go's Regexp.Expand reads them.
 */
#include "base/regex.h"
#include "base/unicode.h"

/* The group a template's name stands for: a number, or a name. SIZE_MAX: none. */
static size_t template_group(const struct regex *re, struct str name)
{
    size_t number = 0, group;

    for (size_t i = 0; i < name.size; i++) {
        if (name.data[i] < '0' || name.data[i] > '9' || number >= 100000000)
            goto by_name;
        number = number * 10 + (size_t)(name.data[i] - '0');
    }
    if (name.size == 1 || name.data[0] != '0')
        return number;
by_name:
    group = regex_group_index(re, name);
    return group == 0 ? SIZE_MAX : group;
}

/* Letters, digits and underscores at the beginning of a text. */
static size_t name_size(struct str text)
{
    size_t size = 0;

    while (size < text.size) {
        unsigned width = 0;
        uint32_t c = utf8_decode((struct str){text.data + size, text.size - size}, &width);

        if (c != '_' && !unicode_is_letter_or_digit(c))
            break;
        size += width;
    }
    return size;
}

/* Reads `name` or `{name}` behind a `$`. False: the `$` is plain text. */
static bool template_name(struct str rest, struct str *name, size_t *used)
{
    size_t start = rest.size > 0 && rest.data[0] == '{', i = start;

    i += name_size((struct str){rest.data + i, rest.size - i});
    *name = (struct str){rest.data + start, i - start};
    if (name->size == 0)
        return false;
    if (start == 1) {
        if (i == rest.size || rest.data[i] != '}')
            return false;
        i++;
    }
    *used = i;
    return true;
}

void regex_expand(const struct regex *re, struct str template, struct str source,
                  const struct regex_span *spans, size_t span_count, struct byte_writer *out)
{
    for (size_t i = 0; i < template.size;) {
        struct str rest = {template.data + i + 1, template.size - i - 1}, name;
        size_t used, group;

        if (template.data[i] != '$') {
            writer_u8(out, (uint8_t) template.data[i++]);
        } else if (rest.size > 0 && rest.data[0] == '$') {
            writer_u8(out, '$');
            i += 2;
        } else if (!template_name(rest, &name, &used)) {
            writer_u8(out, '$');
            i++;
        } else {
            group = template_group(re, name);
            if (group < span_count && spans[group].begin < spans[group].end) /* SIZE_MAX: none */
                writer_append(out, source.data + spans[group].begin,
                              spans[group].end - spans[group].begin);
            i += 1 + used;
        }
    }
}
