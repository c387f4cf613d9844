/*
 * Crashes and failing disks while a sealed file grows, on the simulated layer. The owner notes, as
 * a manifest would, up to where the file was synced. After every crash what was synced is there bit
 * for bit, what is read at all is right, and a file that goes on keeps what a restart read.
 */
#include <stdlib.h>
#include <string.h>

#include "tests/engine/sealed_twin.h"
#include "tests/lib/test_cmocka.h"
#include "tests/lib/test_fs.h"

#define DIR "d"
#define PATH "d/s.sealed"

enum { SLICES = 6 };

/* What survives beside the file. */
struct notes {
    bool named;            /* the manifest names the file */
    uint64_t durable_size; /* as it was when the manifest named it last */
    size_t durable_slices;
};

/* Appends the twin's slices from `first` on, syncs after every second one, finishes when asked. */
static bool append(struct sealed_writer *w, const struct twin_file *twin, size_t first, bool finish,
                   struct notes *notes)
{
    struct errinfo ei = {0};

    for (size_t i = first; i < twin->slice_count; i++) {
        struct sealed_slice *slice;
        enum err e = twin_slice_write(w, &twin->slices[i], &slice, &ei);

        if (e != ERR_OK) { /* once more: the chunks are still there */
            errinfo_clear(&ei);
            e = sealed_writer_slice(w, twin->slices[i].sequence, &slice, &ei);
        }
        if (e != ERR_OK)
            return false;
        CHECK(slice->index == i);
        free(slice);
        if (i % 2 == 0)
            continue;
        if (sealed_writer_sync(w, &ei) != ERR_OK) {
            CHECK(sealed_writer_sync(w, NULL) == ERR_IO); /* not retried */
            return false;
        }
        *notes = (struct notes){true, sealed_writer_durable_size(w), i + 1};
    }
    if (finish && sealed_writer_finish(w, &ei) != ERR_OK)
        return false;
    return true;
}

static bool create_and_append(struct fs *fs, const struct twin_file *twin, bool finish,
                              struct notes *notes)
{
    struct sealed_identity identity = twin_identity;
    struct sealed_file *f;
    struct sealed_writer *w;
    bool well;

    identity.has_histograms = twin->has_histograms;
    if (sealed_writer_create(fs, PATH, &identity, &f, &w, NULL) != ERR_OK)
        return false;
    well = append(w, twin, 0, finish, notes);
    sealed_writer_free(w);
    sealed_file_close(f);
    return well;
}

/* Opens what the manifest names; goes on with it where `grow`. Everything must be right. */
static bool restart(struct fs *fs, const struct twin_file *twin, bool grow, struct notes *notes)
{
    struct sealed_opened o;
    struct sealed_writer *w;
    struct errinfo ei = {0};
    size_t bad;
    bool well = true;
    enum err e;

    if (!notes->named)
        return true; /* debris, if it is there */
    e = sealed_open(fs, PATH, &twin_identity, notes->durable_size, &o, &ei);
    if (e == ERR_IO)
        return false;
    CHECK_OK(e, &ei);
    twin_file_compare(&o, twin, &bad);
    CHECK(bad == 0 && o.slice_count >= notes->durable_slices);
    for (size_t i = 0; i < o.slice_count; i++)
        CHECK(o.slices[i]->index == i);
    if (grow && !o.is_finished) {
        e = sealed_writer_resume(fs, &o, &w, &ei);
        CHECK(e == ERR_OK || e == ERR_IO);
        well = e == ERR_OK;
        if (well) {
            *notes = (struct notes){true, sealed_writer_durable_size(w), o.slice_count};
            well = append(w, twin, o.slice_count, true, notes);
            sealed_writer_free(w);
        }
    }
    sealed_opened_done(&o);
    return well;
}

static void restart_with_second_crash(struct fs *crashed, size_t mode, const struct notes *before,
                                      const struct twin_file *twin, uint64_t seed)
{
    bool hit = true;

    for (uint64_t op = 0; hit; op++) {
        struct fs *second = test_fs_after_crash(crashed, &test_crash_modes[mode], seed), *third;
        struct notes notes = *before;

        fs_sim_set_fault(second, FS_SIM_FAULT_CRASH, fs_sim_op_count(second) + op);
        (void)restart(second, twin, true, &notes);
        hit = fs_sim_fault_hit(second);
        third =
            test_fs_after_crash(second, &test_crash_modes[(op + seed) % TEST_CRASH_MODE_COUNT], op);
        CHECK(restart(third, twin, false, &notes));
        CHECK(restart(third, twin, true, &notes));
        CHECK(restart(third, twin, false, &notes));
        fs_free(third);
        fs_free(second);
    }
}

static void crash_everywhere(enum fs_sim_fault fault)
{
    struct test_random r = test_random_init(9);
    struct twin_file twin = {0};
    bool hit = true;

    twin.has_histograms = true;
    twin_file_fill(&r, &twin, SLICES, 8, 20);
    for (uint64_t op = 0; hit; op++) {
        struct fs *fs = test_fs_new_with(op + 1, DIR);
        struct notes notes = {0};

        fs_sim_set_fault(fs, fault, fs_sim_op_count(fs) + op);
        (void)create_and_append(fs, &twin, true, &notes);
        hit = fs_sim_fault_hit(fs);
        for (size_t m = 0; m < TEST_CRASH_MODE_COUNT; m++)
            restart_with_second_crash(fs, m, &notes, &twin, op);
        fs_free(fs);
    }
    twin_file_free(&twin);
}

static void test_power_loss_at_every_operation(void **state)
{
    (void)state;
    crash_everywhere(FS_SIM_FAULT_CRASH);
}

static void test_error_at_every_operation(void **state)
{
    (void)state;
    crash_everywhere(FS_SIM_FAULT_EIO);
}

static void test_full_disk(void **state)
{
    struct test_random r = test_random_init(10);
    struct fs *fs = test_fs_new_with(1, DIR);
    struct sealed_file *f;
    struct sealed_writer *w;
    struct sealed_slice *slice;
    struct sealed_opened o;
    struct twin_file twin = {0};
    struct errinfo ei = {0};
    size_t bad;

    (void)state;
    twin_file_fill(&r, &twin, 2, 8, 20);
    CHECK_OK(sealed_writer_create(fs, PATH, &twin_identity, &f, &w, &ei), &ei);
    CHECK_OK(twin_slice_write(w, &twin.slices[0], &slice, &ei), &ei);
    free(slice);
    fs_sim_set_fault(fs, FS_SIM_FAULT_NO_SPACE, fs_sim_op_count(fs));
    CHECK(twin_slice_write(w, &twin.slices[1], &slice, NULL) == ERR_NO_SPACE);
    CHECK(sealed_writer_slice(w, twin.slices[1].sequence, &slice, NULL) == ERR_NO_SPACE);
    fs_sim_clear_fault(fs);
    CHECK_OK(sealed_writer_slice(w, twin.slices[1].sequence, &slice, &ei), &ei);
    free(slice);
    CHECK_OK(sealed_writer_finish(w, &ei), &ei);
    sealed_writer_free(w);
    sealed_file_close(f);
    CHECK_OK(sealed_open(fs, PATH, &twin_identity, 0, &o, &ei), &ei);
    CHECK(o.is_finished && o.slice_count == 2);
    twin_file_compare(&o, &twin, &bad);
    CHECK(bad == 0);
    sealed_opened_done(&o);
    twin_file_free(&twin);
    fs_free(fs);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_power_loss_at_every_operation),
        cmocka_unit_test(test_error_at_every_operation),
        cmocka_unit_test(test_full_disk),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
