/*
 * What the kernel says of a process: CPU time, memory, descriptors.
 */
#ifndef RIMSTONE_BASE_PROCESS_H
#define RIMSTONE_BASE_PROCESS_H

#include <stdint.h>

struct process_usage {
    double cpu_seconds;   /* user + system, all threads, in the kernel's ticks (10 ms) */
    double start_seconds; /* since boot */
    uint64_t resident_bytes, virtual_bytes;
    uint64_t open_fd_count;
};

/* Reads /proc; pid 0 is this process. All zeros for a process that is gone. Any thread. */
struct process_usage process_usage_get(int64_t pid);

/* Gives freed memory back to the kernel, which the allocator keeps when it lies between memory in
 * use. Takes milliseconds; for the end of what held much. Any thread. */
void process_memory_trim(void);
/* Once, before threads start: large blocks go back to the machine when they are freed. */
void process_memory_setup(void);

#endif
