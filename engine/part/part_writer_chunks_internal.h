/*
 * The chunk side of the part writer: data pages, timestamp columns, the chunk index.
 */
#ifndef RIMSTONE_ENGINE_PART_PART_WRITER_CHUNKS_INTERNAL_H
#define RIMSTONE_ENGINE_PART_PART_WRITER_CHUNKS_INTERNAL_H

#include "engine/part/part_writer_internal.h"

/* Gives the pending series its number: it is about to get its first chunk. */
MUST_USE enum err part_writer_series_commit(struct part_writer *w, struct errinfo *ei);
/* Writes the chunk entries of the group at hand. */
MUST_USE enum err part_group_end(struct part_writer *w, struct errinfo *ei);
void part_group_done(struct part_writer *w);
/* Writes what is buffered: data page, group, timestamp columns. */
MUST_USE enum err part_chunks_end(struct part_writer *w, struct errinfo *ei);

#endif
