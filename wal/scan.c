/*
 * Frame scanner. A frame with a valid header is stepped over by its length, whatever its payload:
 * so a damaged payload costs exactly its frame. Where no valid header stands, the scanner goes on
 * byte by byte to the next place that has the magic and a header whose checksum, segment number,
 * start epoch and shard all fit; everything between is one bad region.
 */
#include "wal/scan_internal.h"

#include <string.h>

#include "base/assert.h"

void frame_scan_init(struct frame_scan *s, const struct scan_identity *identity, uint64_t file_size)
{
    *s = (struct frame_scan){.identity = *identity, .file_size = file_size};
    s->window_offset = file_size < SEGMENT_HEADER_SIZE ? file_size : SEGMENT_HEADER_SIZE;
}

void frame_scan_window(struct frame_scan *s, const uint8_t *data, size_t size)
{
    s->window_offset += s->pos;
    ASSERT(size <= s->file_size - s->window_offset);
    s->data = data;
    s->size = size;
    s->pos = 0;
}

uint64_t frame_scan_offset(const struct frame_scan *s)
{
    return s->window_offset + s->pos;
}

static bool header_fits(const struct frame_scan *s, const struct frame_header *h)
{
    const struct scan_identity *id = &s->identity;

    return h->segment_number == id->segment_number && h->shard < id->shard_count &&
           (!id->epoch_known || h->start_epoch == id->start_epoch);
}

static void enter_bad_region(struct frame_scan *s)
{
    if (!s->in_bad_region)
        s->bad_region_offset = frame_scan_offset(s);
    s->in_bad_region = true;
}

/* Steps to the next place the magic could stand at, from one byte further on. */
static void skip_to_magic(struct frame_scan *s)
{
    const uint8_t *hit;

    enter_bad_region(s);
    s->pos++;
    hit = memmem(s->data + s->pos, s->size - s->pos, frame_magic, FRAME_MAGIC_SIZE);
    if (hit != NULL)
        s->pos = (size_t)(hit - s->data);
    else if (s->size - s->pos >= FRAME_MAGIC_SIZE)
        s->pos = s->size - (FRAME_MAGIC_SIZE - 1); /* a magic may straddle the window's end */
}

enum scan_result frame_scan_next(struct frame_scan *s, struct scan_frame *frame, size_t *need)
{
    for (;;) {
        size_t left = s->size - s->pos;
        uint64_t file_left = s->file_size - frame_scan_offset(s);
        struct frame_header h;

        if (file_left < FRAME_HEADER_SIZE) {
            if (file_left > 0)
                enter_bad_region(s);
            return SCAN_END;
        }
        if (left < FRAME_HEADER_SIZE) {
            *need = FRAME_HEADER_SIZE;
            return SCAN_MORE;
        }
        if (!frame_header_decode(s->data + s->pos, &h) || !header_fits(s, &h)) {
            skip_to_magic(s);
            continue;
        }
        *frame = (struct scan_frame){.header = h, .offset = frame_scan_offset(s)};
        if (h.stored_size > file_left - FRAME_HEADER_SIZE) {
            skip_to_magic(s);
            return SCAN_BROKEN;
        }
        if (left - FRAME_HEADER_SIZE < h.stored_size) {
            *need = FRAME_HEADER_SIZE + (size_t)h.stored_size;
            return SCAN_MORE;
        }
        if (s->in_bad_region) {
            s->in_bad_region = false;
            s->bad_region_count++;
        }
        s->identity.start_epoch = h.start_epoch;
        s->identity.epoch_known = true;
        frame->payload = s->data + s->pos + FRAME_HEADER_SIZE;
        s->pos += FRAME_HEADER_SIZE + (size_t)h.stored_size;
        return SCAN_FRAME;
    }
}
