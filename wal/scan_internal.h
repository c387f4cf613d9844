/*
 * Finds frames in a window of a segment's bytes and resynchronises behind bad ones. Pure: the
 * replay reader moves the window, tests and the fuzz target feed whole images.
 */
#ifndef RIMSTONE_WAL_SCAN_INTERNAL_H
#define RIMSTONE_WAL_SCAN_INTERNAL_H

#include "wal/format_internal.h"

/* What a frame must say to belong to the segment. */
struct scan_identity {
    uint32_t segment_number;
    uint32_t shard_count;
    uint64_t start_epoch;
    /* False behind a damaged segment header: then the first frame that verifies sets the epoch. */
    bool epoch_known;
};

struct frame_scan {
    struct scan_identity identity;
    uint64_t file_size; /* where the segment ends */
    /* The window: `size` bytes at file offset `window_offset`. Set by frame_scan_window(). */
    const uint8_t *data;
    size_t size;
    uint64_t window_offset;
    size_t pos; /* next byte to look at */
    bool in_bad_region;
    uint64_t bad_region_offset; /* of the open one, or of the last that was closed */
    uint64_t bad_region_count;  /* closed by a frame behind them; an open one shows in_bad_region */
};

enum scan_result {
    SCAN_FRAME,  /* header and payload stand whole in the window; the payload is not verified */
    SCAN_BROKEN, /* a valid header whose payload runs past the end of the file: its sequence
                  * numbers are taken, its content is gone */
    SCAN_MORE,   /* the window must be moved to frame_scan_offset() and hold *need bytes or more */
    SCAN_END,
};

struct scan_frame {
    struct frame_header header;
    uint64_t offset;        /* of the header, in the file */
    const uint8_t *payload; /* borrowed from the window */
};

void frame_scan_init(struct frame_scan *s, const struct scan_identity *identity,
                     uint64_t file_size);
/* Gives the scan a window that begins at frame_scan_offset(). */
void frame_scan_window(struct frame_scan *s, const uint8_t *data, size_t size);
/* File offset of the first byte that is still needed. */
uint64_t frame_scan_offset(const struct frame_scan *s);
/* `frame` is filled for SCAN_FRAME and SCAN_BROKEN, *need for SCAN_MORE. */
enum scan_result frame_scan_next(struct frame_scan *s, struct scan_frame *frame, size_t *need);

#endif
