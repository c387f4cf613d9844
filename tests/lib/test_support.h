/*
 * What every test shares. CHECK works outside cmocka's state machine (threads, helpers) and prints
 * the seed that replays a failure.
 */
#ifndef RIMSTONE_TESTS_TEST_SUPPORT_H
#define RIMSTONE_TESTS_TEST_SUPPORT_H

#include <stddef.h>
#include <stdint.h>

/* Seeded generator (splitmix64): the same sequence on every machine. One draw an expression: C does
 * not say in which order two would be made. */
struct test_random {
    uint64_t state, seed;
};

/* Seeds from the environment variable TEST_SEED when set, else from `seed`; the seed is remembered
 * and printed by a failing CHECK. */
struct test_random test_random_init(uint64_t seed);
uint64_t test_random_u64(struct test_random *r);
uint64_t test_random_below(struct test_random *r, uint64_t bound); /* bound > 0 */
/* 64 bits less 0 to shift_bound - 1 of them: small and large numbers alike. */
uint64_t test_random_wide(struct test_random *r, unsigned shift_bound);
double test_random_unit(struct test_random *r); /* [0, 1) */

_Noreturn void test_check_failed(const char *file, int line, const char *expression,
                                 const char *format, ...) __attribute__((format(printf, 4, 5)));

#define CHECK(condition)                                                                           \
    ((condition) ? (void)0 : test_check_failed(__FILE__, __LINE__, #condition, "%s", ""))
#define CHECK_MSG(condition, ...)                                                                  \
    ((condition) ? (void)0 : test_check_failed(__FILE__, __LINE__, #condition, __VA_ARGS__))
/* For functions that return enum err: prints the story. */
#define CHECK_OK(call, ei)                                                                         \
    do {                                                                                           \
        enum err check_e_ = (call);                                                                \
        if (check_e_ != ERR_OK)                                                                    \
            test_check_failed(__FILE__, __LINE__, #call, "%s: %s", err_name(check_e_),             \
                              (ei)->message);                                                      \
    } while (0)

/* A new empty directory under TMPDIR; removed with test_dir_remove(). */
char *test_dir_new(void);
void test_dir_remove(char *dir);

#endif
