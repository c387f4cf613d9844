/*
 * The C interface of the C++ shim over RE2. Plain types only, since C++ cannot read our other
 * headers.
 */
#ifndef RIMSTONE_BASE_REGEX_SHIM_INTERNAL_H
#define RIMSTONE_BASE_REGEX_SHIM_INTERNAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct regex_shim;

enum regex_shim_result {
    REGEX_SHIM_OK,
    REGEX_SHIM_INVALID,
    REGEX_SHIM_TOO_LARGE,
    REGEX_SHIM_NOMEM
};

/* On REGEX_SHIM_INVALID, error[] gets RE2's reason. */
enum regex_shim_result regex_shim_new(const char *pattern, size_t size, int64_t memory_max,
                                      struct regex_shim **out, char *error, size_t error_size);
void regex_shim_free(struct regex_shim *re);
/* Whether the whole text matches. */
bool regex_shim_match(const struct regex_shim *re, const char *text, size_t size);
/* bounds[2 * i] and bounds[2 * i + 1]: begin and end of group i, SIZE_MAX where it took no part. */
bool regex_shim_captures(const struct regex_shim *re, const char *text, size_t size, size_t *bounds,
                         size_t span_count);
size_t regex_shim_group_count(const struct regex_shim *re);
size_t regex_shim_group_index(const struct regex_shim *re, const char *name, size_t size);
/* Instructions of the compiled program and of its reverse. */
size_t regex_shim_program_size(const struct regex_shim *re);

#ifdef __cplusplus
}
#endif

#endif
