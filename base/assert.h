/*
 * Assertions are for our own mistakes. ASSERT stays on in release builds and aborts with file,
 * line and expression; DEBUG_ASSERT is for walks that are too slow for release.
 */
#ifndef RIMSTONE_BASE_ASSERT_H
#define RIMSTONE_BASE_ASSERT_H

_Noreturn void assert_failed(const char *file, int line, const char *expression);

#define ASSERT(condition)                                                                          \
    (__builtin_expect(!!(condition), 1) ? (void)0 : assert_failed(__FILE__, __LINE__, #condition))

#ifdef NDEBUG
#define DEBUG_ASSERT(condition) ((void)sizeof(condition))
#else
#define DEBUG_ASSERT(condition) ASSERT(condition)
#endif

#define LIKELY(x) __builtin_expect(!!(x), 1)
#define UNLIKELY(x) __builtin_expect(!!(x), 0)

#endif
