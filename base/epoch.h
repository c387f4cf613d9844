/*
 * Epoch-based reclamation: readers of a lock-free structure announce themselves, and memory that a
 * writer has unlinked is freed once every reader that could still see it has left.
 * Readers never block and never wait; a reader section is short (one request, one slice).
 */
#ifndef RIMSTONE_BASE_EPOCH_H
#define RIMSTONE_BASE_EPOCH_H

#include <stdint.h>

#include "base/err.h"

struct epoch_domain;

MUST_USE enum err epoch_domain_new(struct epoch_domain **out, struct errinfo *ei);
/* No reader may be inside. Frees everything retired. */
void epoch_domain_free(struct epoch_domain *d);
/* Enters a read section; the token goes to epoch_leave(). At most 1,024 sections at once: when all
 * are taken it spins until one is free. Sections may be left by another thread. */
uint32_t epoch_enter(struct epoch_domain *d);
void epoch_leave(struct epoch_domain *d, uint32_t token);
/* Hands over unlinked memory; `release(object)` runs later, on some thread that calls
 * epoch_retire() or epoch_collect(). On allocation failure it waits for readers instead: so do not
 * call it inside a read section. */
void epoch_retire(struct epoch_domain *d, void *object, void (*release)(void *object));
void epoch_collect(struct epoch_domain *d);
/* Waits until every section that is open now has been left; not inside one. */
void epoch_wait(struct epoch_domain *d);

#endif
