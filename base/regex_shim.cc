#include "base/regex_shim_internal.h"

#include <re2/re2.h>

#include <cstdio>
#include <new>
#include <string>
#include <vector>

struct regex_shim {
    RE2 re;

    regex_shim(const re2::StringPiece &pattern, const RE2::Options &options) : re(pattern, options)
    {
    }
};

static regex_shim_result result_of(const RE2 &re)
{
    if (re.ok())
        return REGEX_SHIM_OK;
    return re.error_code() == RE2::ErrorPatternTooLarge ? REGEX_SHIM_TOO_LARGE : REGEX_SHIM_INVALID;
}

regex_shim_result regex_shim_new(const char *pattern, size_t size, int64_t memory_max,
                                 struct regex_shim **out, char *error, size_t error_size)
{
    try {
        RE2::Options options;

        options.set_max_mem(memory_max);
        options.set_log_errors(false);
        options.set_dot_nl(true);
        auto *made = new regex_shim(re2::StringPiece(pattern, size), options);
        regex_shim_result result = result_of(made->re);
        const char *reason = made->re.error().c_str();
        // RE2 lets two groups share a name; Go does not.
        if (result == REGEX_SHIM_OK &&
            made->re.NamedCapturingGroups().size() != made->re.CapturingGroupNames().size()) {
            result = REGEX_SHIM_INVALID;
            reason = "duplicate capture group name";
        }
        if (result == REGEX_SHIM_OK) {
            *out = made;
        } else {
            (void)std::snprintf(error, error_size, "%s", reason); // may be cut
            delete made;
        }
        return result;
    } catch (const std::bad_alloc &) {
        return REGEX_SHIM_NOMEM;
    }
}

void regex_shim_free(struct regex_shim *re)
{
    delete re;
}

bool regex_shim_match(const struct regex_shim *re, const char *text, size_t size)
{
    return re->re.Match(re2::StringPiece(text, size), 0, size, RE2::ANCHOR_BOTH, nullptr, 0);
}

bool regex_shim_captures(const struct regex_shim *re, const char *text, size_t size, size_t *bounds,
                         size_t span_count)
{
    std::vector<re2::StringPiece> groups(span_count);

    if (!re->re.Match(re2::StringPiece(text, size), 0, size, RE2::ANCHOR_BOTH, groups.data(),
                      static_cast<int>(span_count)))
        return false;
    for (size_t i = 0; i < span_count; i++) {
        bool took_part = groups[i].data() != nullptr;
        size_t begin = took_part ? static_cast<size_t>(groups[i].data() - text) : SIZE_MAX;

        bounds[2 * i] = begin;
        bounds[2 * i + 1] = took_part ? begin + groups[i].size() : SIZE_MAX;
    }
    return true;
}

size_t regex_shim_group_count(const struct regex_shim *re)
{
    return static_cast<size_t>(re->re.NumberOfCapturingGroups());
}

size_t regex_shim_group_index(const struct regex_shim *re, const char *name, size_t size)
{
    const auto &groups = re->re.NamedCapturingGroups();
    auto found = groups.find(std::string(name, size));

    return found == groups.end() ? 0 : static_cast<size_t>(found->second);
}

size_t regex_shim_program_size(const struct regex_shim *re)
{
    int forward = re->re.ProgramSize(), reverse = re->re.ReverseProgramSize();

    return static_cast<size_t>(forward > 0 ? forward : 0) +
           static_cast<size_t>(reverse > 0 ? reverse : 0);
}
