/*
 * `rimtool verify`: checks every byte of a data directory or a snapshot, offline and without
 * changing anything. A line names each damaged file and its first bad byte.
 *
 * Exit code 0: nothing is damaged (there may be notes); 1: something is; 2: wrong use, or it could
 * not be checked.
 */
#include <inttypes.h>
#include <stdio.h>

#include "base/json.h"
#include "engine/inspect.h"
#include "tools/data_dir_internal.h"
#include "tools/options_internal.h"
#include "tools/tools_internal.h"

struct verify_options {
    const char *dir;
    uint64_t threads;
    bool json;
};

static const char usage[] =
    "usage: rimtool verify [options] DIRECTORY\n"
    "Checks every byte of a data directory that no server uses, or of a snapshot. Changes\n"
    "nothing. Exit code 1 when a file is damaged or missing, 2 when it cannot be checked,\n"
    "such as one of a newer version.\n\n"
    "  --threads N   files checked at once (as many as cores)\n"
    "  --json        the result as one JSON object\n";

/* -1: go on; else the exit code. */
static int options_parse(int argc, char **argv, struct verify_options *o)
{
    const struct tool_option options[] = {
        {.name = "threads", .whole = &o->threads, .low = 1, .high = 1024},
        {.name = "json", .flag = &o->json},
    };
    const struct tool_command command = {usage, options, sizeof options / sizeof options[0], 1, 1};
    int operands, code;

    *o = (struct verify_options){.threads = 0};
    code = tool_options_parse(&command, argc, argv, &operands);
    if (code < 0)
        o->dir = argv[operands];
    return code;
}

/* ---- output ---- */

struct report {
    struct byte_writer damaged, notes; /* lines, or items of JSON arrays */
    bool json;
};

static void finding_text(struct byte_writer *w, const struct inspect_finding *f)
{
    char offset[40] = "";

    if (f->has_offset)
        (void)snprintf(offset, sizeof offset, "offset %" PRIu64 ": ", f->offset); /* it fits */
    json_write_raw(w, !f->is_damage                ? "note: "
                      : f->code == ERR_UNSUPPORTED ? "not checked: "
                                                   : "damaged: ");
    json_write_raw(w, f->path);
    json_write_raw(w, ": ");
    json_write_raw(w, offset);
    json_write_raw(w, f->what);
    writer_u8(w, '\n');
}

static void finding_json(struct byte_writer *w, const struct inspect_finding *f)
{
    if (w->size > 0)
        writer_u8(w, ',');
    writer_u8(w, '{');
    json_field_text(w, "path", f->path);
    if (f->has_offset)
        json_field_u64(w, "offset", f->offset);
    if (f->is_damage)
        json_field_text(w, "code", err_name(f->code));
    json_field_text(w, "what", f->what);
    writer_u8(w, '}');
}

static void found(void *ctx, const struct inspect_finding *f)
{
    struct report *r = ctx;
    struct byte_writer *w = f->is_damage ? &r->damaged : &r->notes;

    if (r->json)
        finding_json(w, f);
    else
        finding_text(w, f);
}

static void summary_json(const struct report *r, const struct inspect_verify_result *v,
                         struct byte_writer *w)
{
    writer_u8(w, '{');
    json_field(w, "damaged");
    writer_u8(w, '[');
    writer_append(w, r->damaged.data, r->damaged.size);
    writer_u8(w, ']');
    json_field(w, "notes");
    writer_u8(w, '[');
    writer_append(w, r->notes.data, r->notes.size);
    writer_u8(w, ']');
    json_field_u64(w, "damagedFiles", v->damaged_file_count);
    json_field_u64(w, "notCheckedFiles", v->unknown_file_count);
    json_field_u64(w, "files", v->file_count);
    json_field_u64(w, "bytes", v->byte_count);
    json_field_u64(w, "parts", v->part_count);
    json_field_u64(w, "sealedFiles", v->sealed_count);
    json_field_u64(w, "lateFiles", v->late_count);
    json_field_u64(w, "seriesFiles", v->series_file_count);
    json_field_u64(w, "logSegments", v->segment_count);
    json_write_raw(w, "}\n");
}

static void summary_text(const struct report *r, const struct inspect_verify_result *v,
                         struct byte_writer *w)
{
    char text[512], not_checked[48] = "";

    if (v->unknown_file_count > 0) /* it fits */
        (void)snprintf(not_checked, sizeof not_checked, " %" PRIu64 " not checked,",
                       v->unknown_file_count);
    writer_append(w, r->damaged.data, r->damaged.size);
    writer_append(w, r->notes.data, r->notes.size);
    (void)snprintf(text, sizeof text, /* it fits */
                   "%" PRIu64 " files, %" PRIu64 " bytes: %" PRIu64 " damaged,%s %" PRIu64
                   " notes (%" PRIu64 " parts, %" PRIu64 " sealed, %" PRIu64 " late, %" PRIu64
                   " series files, %" PRIu64 " log segments)\n",
                   v->file_count, v->byte_count, v->damaged_file_count, not_checked, v->note_count,
                   v->part_count, v->sealed_count, v->late_count, v->series_file_count,
                   v->segment_count);
    json_write_raw(w, text);
}

static int report_write(struct report *r, const struct inspect_verify_result *v)
{
    struct byte_writer w;
    bool good;

    writer_init(&w);
    if (r->json)
        summary_json(r, v, &w);
    else
        summary_text(r, v, &w);
    w.failed |= r->damaged.failed || r->notes.failed;
    good = tool_output("verify", &w);
    writer_done(&w);
    if (!good)
        return 2;
    if (v->damaged_file_count > 0)
        return 1;
    return v->unknown_file_count > 0 ? 2 : 0;
}

static int verify_run(const struct verify_options *o)
{
    struct inspect_options inspect = {.thread_count = (uint32_t)o->threads};
    struct report report = {.json = o->json};
    struct inspect_verify_result result;
    struct errinfo ei = {0};
    int code = 2;

    writer_init(&report.damaged);
    writer_init(&report.notes);
    if (data_dir_open(o->dir, &inspect.fs, &ei) == ERR_OK &&
        inspect_verify(&inspect, found, &report, &result, &ei) == ERR_OK)
        code = report_write(&report, &result);
    else
        data_dir_failure_print("verify", &ei);
    writer_done(&report.damaged);
    writer_done(&report.notes);
    fs_free(inspect.fs);
    return code;
}

int tool_verify(int argc, char **argv)
{
    struct verify_options o;
    int code = options_parse(argc, argv, &o);

    return code >= 0 ? code : verify_run(&o);
}
