/* What people read: error stories and log lines; and the clock that dates them. */
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/log.h"
#include "tests/lib/test_cmocka.h"
#include "tests/lib/test_support.h"

static void test_first_error_wins(void **state)
{
    struct errinfo ei = {0};

    (void)state;
    CHECK(errinfo_set(&ei, ERR_IO, ENOSPC, "write %s", "00000001") == ERR_IO);
    CHECK(strcmp(ei.message, "write 00000001: No space left on device") == 0);
    CHECK(ei.code == ERR_IO && ei.sys_errno == ENOSPC);
    CHECK(errinfo_set(&ei, ERR_CORRUPT, 0, "later") == ERR_CORRUPT);
    CHECK(ei.code == ERR_IO && strstr(ei.message, "later") == NULL);
    errinfo_prefix(&ei, "wal %d", 7);
    CHECK(strcmp(ei.message, "wal 7: write 00000001: No space left on device") == 0);
    errinfo_clear(&ei);
    CHECK(ei.code == ERR_OK && ei.sys_errno == 0 && ei.message[0] == '\0');
    errinfo_prefix(&ei, "nothing to prefix");
    CHECK(ei.message[0] == '\0');
    CHECK(errinfo_set(&ei, ERR_IO, 99999, "odd") == ERR_IO);
    CHECK(strcmp(ei.message, "odd: unknown error") == 0);
    CHECK(errinfo_set(NULL, ERR_LIMIT, 0, "no story") == ERR_LIMIT);
    errinfo_clear(&ei);
    CHECK(errinfo_set_at(&ei, ERR_CORRUPT, "wal/1", 0, "page %d", 3) == ERR_CORRUPT);
    CHECK(ei.has_offset && ei.offset == 0 && strcmp(ei.message, "wal/1: offset 0: page 3") == 0);
    CHECK(errinfo_set_at(&ei, ERR_IO, "other", 9, "later") == ERR_IO && ei.offset == 0);
    errinfo_clear(&ei);
    CHECK(!ei.has_offset);
    CHECK(errinfo_set_at(NULL, ERR_CORRUPT, "wal/1", 7, "no story") == ERR_CORRUPT);
    errinfo_prefix(NULL, "x");
    errinfo_clear(NULL);
}

static void test_long_stories_are_cut(void **state)
{
    struct errinfo ei = {0};
    char text[3 * ERRINFO_MESSAGE_SIZE];

    (void)state;
    memset(text, 'x', sizeof text - 1);
    text[sizeof text - 1] = '\0';
    CHECK(errinfo_set(&ei, ERR_IO, EIO, "%s", text) == ERR_IO);
    CHECK(strlen(ei.message) == ERRINFO_MESSAGE_SIZE - 1);
    errinfo_prefix(&ei, "%s", text);
    CHECK(strlen(ei.message) == ERRINFO_MESSAGE_SIZE - 1);
}

static void test_codes(void **state)
{
    (void)state;
    CHECK(err_from_errno(ENOSPC) == ERR_NO_SPACE && err_from_errno(EDQUOT) == ERR_NO_SPACE);
    CHECK(err_from_errno(ENOMEM) == ERR_NOMEM && err_from_errno(ENOENT) == ERR_NOT_FOUND);
    CHECK(err_from_errno(EEXIST) == ERR_EXISTS && err_from_errno(EIO) == ERR_IO);
    for (int a = ERR_OK; a <= ERR_INTERNAL; a++)
        for (int b = ERR_OK; b < a; b++)
            CHECK(strcmp(err_name((enum err)a), err_name((enum err)b)) != 0);
    CHECK(strcmp(err_name(ERR_OK), "ok") == 0 && strcmp(err_name((enum err)999), "unknown") == 0);
}

static void test_clock(void **state)
{
    struct clock c;
    uint64_t before = clock_mono_ns();

    (void)state;
    clock_init_fake(&c, 1000);
    CHECK(clock_now_ms(&c) == 1000);
    clock_set_fake(&c, -5);
    CHECK(clock_now_ms(&c) == -5);
    clock_init_real(&c);
    CHECK(clock_now_ms(&c) > INT64_C(1700000000000)); /* after 2023 */
    CHECK(clock_mono_ns() >= before);
    uint64_t thread_ns = clock_thread_cpu_ns();
    CHECK(thread_ns > 0 && clock_process_cpu_ns() >= thread_ns);
}

/* Standard error into a pipe while `log_all` runs; the text comes back without its time stamps. */
static size_t capture(void (*log_all)(void), char *out, size_t size)
{
    int fds[2], saved = dup(STDERR_FILENO);

    CHECK(saved >= 0 && pipe(fds) == 0);
    CHECK(dup2(fds[1], STDERR_FILENO) >= 0);
    log_all();
    CHECK(dup2(saved, STDERR_FILENO) >= 0);
    (void)close(saved);
    (void)close(fds[1]);
    ssize_t n = read(fds[0], out, size - 1);
    (void)close(fds[0]);
    CHECK(n >= 0);
    out[n] = '\0';
    return (size_t)n;
}

static void log_samples(void)
{
    LOG_DEBUG("hidden");
    LOG_INFO("plain");
    LOG_WARN("a \"message\"", LOG_STR("dir", "a b"), LOG_STR("empty", ""), LOG_STR("null", NULL),
             LOG_I64("i", -5), LOG_U64("u", UINT64_MAX), LOG_F64("f", 0.25), LOG_F64("nan", NAN),
             LOG_BOOL("yes", true), LOG_BOOL("no", false), LOG_STR("ctl", "x\n\x1b="));
}

static void check_log(const char *text, const char *want)
{
    const char *got = strstr(text, "level");

    CHECK_MSG(got != NULL && strncmp(got, want, strlen(want)) == 0, "%s", text);
}

static void test_logfmt(void **state)
{
    char text[4096];

    (void)state;
    log_configure(LOG_LEVEL_INFO, LOG_FORMAT_LOGFMT);
    CHECK(!log_enabled(LOG_LEVEL_DEBUG) && log_enabled(LOG_LEVEL_ERROR));
    (void)capture(log_samples, text, sizeof text);
    CHECK(strncmp(text, "ts=20", 5) == 0 && strstr(text, "hidden") == NULL);
    check_log(text, "level=info msg=plain\nts=20");
    check_log(strstr(text, "plain"),
              "level=warn msg=\"a \\\"message\\\"\" dir=\"a b\" empty=\"\" null=\"\" i=-5 "
              "u=18446744073709551615 f=0.25 nan=NaN yes=true no=false ctl=\"x\\n\\u001b=\"\n");
}

static void test_json(void **state)
{
    char text[4096];

    (void)state;
    log_configure(LOG_LEVEL_DEBUG, LOG_FORMAT_JSON);
    (void)capture(log_samples, text, sizeof text);
    CHECK(strncmp(text, "{\"ts\":\"20", 9) == 0);
    check_log(text, "level\":\"debug\",\"msg\":\"hidden\"}\n{\"ts\":");
    check_log(strstr(text, "plain"),
              "level\":\"warn\",\"msg\":\"a \\\"message\\\"\",\"dir\":\"a b\",\"empty\":\"\","
              "\"null\":\"\",\"i\":-5,\"u\":18446744073709551615,\"f\":0.25,\"nan\":\"NaN\","
              "\"yes\":true,\"no\":false,\"ctl\":\"x\\n\\u001b=\"}\n");
    log_configure(LOG_LEVEL_INFO, LOG_FORMAT_LOGFMT);
}

static void log_too_much(void)
{
    char text[10000];

    memset(text, '"', sizeof text - 1);
    text[sizeof text - 1] = '\0';
    LOG_ERROR("short", LOG_STR("long", text), LOG_STR("after", "x"));
}

static void test_long_lines_stay_lines(void **state)
{
    static char text[32768];

    (void)state;
    log_configure(LOG_LEVEL_INFO, LOG_FORMAT_JSON);
    size_t n = capture(log_too_much, text, sizeof text);
    CHECK(n > 20 && text[n - 1] == '\n' && text[n - 2] == '}');
    check_log(text, "level\":\"error\",\"msg\":\"short\"}\n"); /* whole fields only */
    log_configure(LOG_LEVEL_INFO, LOG_FORMAT_LOGFMT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_first_error_wins),
        cmocka_unit_test(test_long_stories_are_cut),
        cmocka_unit_test(test_codes),
        cmocka_unit_test(test_clock),
        cmocka_unit_test(test_logfmt),
        cmocka_unit_test(test_json),
        cmocka_unit_test(test_long_lines_stay_lines),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
