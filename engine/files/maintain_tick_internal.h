/*
 * How a long maintenance call is stopped and gives way, between its slices.
 */
#ifndef RIMSTONE_ENGINE_FILES_MAINTAIN_TICK_INTERNAL_H
#define RIMSTONE_ENGINE_FILES_MAINTAIN_TICK_INTERNAL_H

#include <stdatomic.h>

#include "base/err.h"
#include "engine/maintain.h"

/* ERR_CANCELED with the message `stopped` once the caller's stop flag is set; gives way otherwise.
 * No lock may be held. `control` may be NULL. */
MUST_USE static inline enum err maintain_tick(const struct maintain_control *control,
                                              const char *stopped, struct errinfo *ei)
{
    if (control == NULL)
        return ERR_OK;
    /* relaxed: a flag that is set once; nothing is read by it */
    if (control->stop != NULL && atomic_load_explicit(control->stop, memory_order_relaxed))
        return errinfo_set(ei, ERR_CANCELED, 0, "%s", stopped);
    if (control->yield != NULL)
        control->yield(control->yield_ctx);
    return ERR_OK;
}

#endif
