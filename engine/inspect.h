/*
 * Looking at a data directory without serving it: what `rimtool verify` and `rimtool analyze` ask.
 * Nothing on disk changes. The directory's lock is taken shared for the length of a call, so that
 * no server starts meanwhile: ERR_LOCKED while one runs. A snapshot has no lock and needs none.
 *
 * ERR_NOT_FOUND: there is no data directory. Formats: docs/formats/.
 */
#ifndef RIMSTONE_ENGINE_INSPECT_H
#define RIMSTONE_ENGINE_INSPECT_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/budget.h"
#include "base/err.h"
#include "base/file.h"
#include "base/fingerprint.h"
#include "engine/labels.h"

struct inspect_options {
    struct fs *fs;            /* borrowed; the data directory */
    struct budget *memory;    /* borrowed, may be NULL */
    uint32_t thread_count;    /* 0: all cores */
    const _Atomic bool *stop; /* ERR_CANCELED once true; may be NULL */
};

/* ---- verify ---- */

struct inspect_finding {
    /* Bytes that are wrong, a file that is missing, or one in a newer format (ERR_UNSUPPORTED),
     * which cannot be checked. Else a note: debris, a torn tail behind what counts, a file that is
     * not ours; a start of the server copes with them. */
    bool is_damage;
    enum err code;    /* ERR_OK for most notes */
    const char *path; /* within the directory */
    bool has_offset;
    uint64_t
        offset; /* of the first bad byte, as far as checksums tell: they cover some kilobytes */
    const char *what;
};

struct inspect_verify_result {
    uint64_t file_count, byte_count; /* looked at */
    uint64_t part_count, sealed_count, late_count, series_file_count, segment_count;
    uint64_t damaged_file_count, unknown_file_count /* of a newer format */, note_count;
};

/*
 * Checks every byte of every file that counts: the manifest, the parts, sealed, late and series
 * files up to what the manifest says of them, all frames of the log and what they hold; and looks
 * for files that are missing, or that nobody names. Then calls `found` for each finding, by path,
 * at most one of damage for each file. ERR_OK also when there is damage. Other errors say why it
 * could not be done.
 */
MUST_USE enum err inspect_verify(const struct inspect_options *o,
                                 void (*found)(void *ctx, const struct inspect_finding *finding),
                                 void *ctx, struct inspect_verify_result *out, struct errinfo *ei);

/* ---- analyze ---- */

enum inspect_kind {
    INSPECT_PART,
    INSPECT_SEALED,
    INSPECT_LATE,
    INSPECT_SERIES_FILE,
    INSPECT_LOG,
    INSPECT_KIND_COUNT,
};

struct inspect_chunk {
    int64_t min_time_ms, max_time_ms;
    uint64_t sample_count; /* in the log: all samples of the series that no file has yet */
    /* Its columns, its share of a timestamp column that several use, and of what pages and files
     * cost besides. 0 in the log. */
    double bytes;
    unsigned
        codec; /* enum codec_kind (engine/codec.h); 0: not looked at, or no column of doubles */
    bool is_histograms; /* native ones; false in the log */
};

/* A series in one file (or in the log): the same series comes once from each. */
struct inspect_series {
    enum inspect_kind kind;
    struct labels labels;
    struct hash128 fingerprint; /* tells series apart, in all files */
    double index_bytes;         /* its share of the file's index */
    size_t chunk_count;
    const struct inspect_chunk *chunks; /* ascending by time */
};

struct inspect_kind_total {
    uint64_t file_count, byte_count;
    uint64_t chunk_count, sample_count; /* of series that were handed out */
};
struct inspect_analyze_result {
    struct inspect_kind_total kinds[INSPECT_KIND_COUNT];
    /* In sealed files, of series that have ended: parts have them by now, the bytes go with the
     * file. And in the log, of series whose definition is lost. */
    uint64_t unnamed_chunk_count, unnamed_sample_count;
    uint64_t damaged_file_count; /* left out from their first bad byte on */
};

struct inspect_analyzer {
    /* Borrowed until it returns; an error ends the analysis. One call at a time. */
    enum err (*series)(void *ctx, const struct inspect_series *series, struct errinfo *ei);
    void (*damaged)(void *ctx, const struct inspect_finding *finding);
    void *ctx;
    bool with_codecs; /* reads the data too, not only indexes and directories */
};

/* Hands out all series, file by file. Files that turn out to be damaged are told and left out. */
MUST_USE enum err inspect_analyze(const struct inspect_options *o,
                                  const struct inspect_analyzer *analyzer,
                                  struct inspect_analyze_result *out, struct errinfo *ei);

#endif
