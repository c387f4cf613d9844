/* cmocka.h does not include what it uses, and clang-format would sort its needs behind it. */
#ifndef RIMSTONE_TESTS_TEST_CMOCKA_H
#define RIMSTONE_TESTS_TEST_CMOCKA_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#endif
