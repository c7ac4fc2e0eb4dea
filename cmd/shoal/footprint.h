/* SPDX-License-Identifier: Apache-2.0 */
/* footprint.h: what this process holds, as the kernel counts it. */
#ifndef SHOAL_CMD_FOOTPRINT_H
#define SHOAL_CMD_FOOTPRINT_H

#include <stdint.h>

struct footprint {
    uint64_t mapped_bytes;     /* address space of shared regions, peers' included */
    uint64_t shared_bytes;     /* memory that the own shared regions have taken */
    uint64_t private_bytes;    /* anonymous memory: heap, stacks, data that was written */
    uint64_t page_table_bytes; /* the kernel's, for all mappings */
    int64_t descriptors, threads;
};

/* What can't be read stays 0. */
void footprint_read(struct footprint *out);

#endif
