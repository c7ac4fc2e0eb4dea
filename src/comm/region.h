/* SPDX-License-Identifier: Apache-2.0 */
/*
 * region.h: the shared region of each rank, as comm lays it out, and the allocator over its rest.
 *
 *   control page(s): bell, whether the owner has left, directory of group slots
 *   shm transport's part
 *   heap: slots of same-host groups and shoal_alloc
 *
 * Only the owner allocates; peers read by offset. Pages are taken before they are
 * written (base_shared_commit), so a write never fails.
 */
#ifndef SHOAL_COMM_REGION_H
#define SHOAL_COMM_REGION_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/shared.h"
#include "base/wait.h"
#include "shoal.h"

#define COMM_LOCAL_MAX     256 /* ranks of one host */
#define COMM_DIRECTORY_MAX 512 /* same-host groups of one rank at a time */

struct region_entry {
    atomic_ullong context; /* 0: free; written last */
    atomic_ullong offset;
};

struct region_control {
    _Alignas(64) struct base_bell bell;
    _Alignas(64) atomic_uint left;         /* the owner leaves in good order */
    _Alignas(64) atomic_int directory_end; /* entries from here on were never used; only grows */
    struct region_entry directory[COMM_DIRECTORY_MAX];
};

#define REGION_CONTROL_BYTES (((sizeof(struct region_control)) + 4095) / 4096 * 4096)

struct region_block;
struct region_retired;

/* The owner's allocator. Not thread-safe: under the world's lock. */
struct comm_region {
    struct base_shared *shared; /* borrowed */
    size_t heap_offset;
    size_t taken_end;               /* nothing behind it was ever allocated */
    size_t unchecked_bytes;         /* taken since it was last looked how much memory is left */
    struct region_block *blocks;    /* by offset; used and free */
    struct region_retired *retired; /* slots that peers may still read */
    bool keeps_freed; /* a peer may still write somewhere: nothing freed is used again */
};

enum shoal_status comm_region_open(struct base_shared *shared, size_t heap_offset,
                                   struct comm_region *out);
void comm_region_close(struct comm_region *region);
/* Not zeroed, 64-byte aligned (4096 for 4096 bytes and more); *offset from the region's start. */
enum shoal_status comm_region_alloc(struct comm_region *region, size_t bytes, size_t *offset);
/* The same, but only the first `taken_bytes` are there, and they are zeroed; the owner takes of the
 * rest what it writes (base_shared_commit). */
enum shoal_status comm_region_reserve(struct comm_region *region, size_t bytes, size_t taken_bytes,
                                      size_t *offset);
/* SHOAL_ERR_ARGUMENT if offset is no block in use. */
enum shoal_status comm_region_free(struct comm_region *region, size_t offset);

/* Gives a slot back that peers may still use: it is free once none of them that lives has the
 * context in its directory, which comm_region_reclaim looks at. Its own entry was withdrawn before,
 * so nobody finds it who has not done so. peers[count] are indexes into the host's regions. */
enum shoal_status comm_region_retire(struct comm_region *region, size_t offset, uint64_t context,
                                     const int *peers, int count);
void comm_region_reclaim(struct comm_region *region, const struct base_shared *regions,
                         const atomic_bool *dead);

/* Directory: a rank has a context in it from before it looks for its peers' slots until it uses
 * none of them any more. Entries are changed and read in one order on which all ranks agree: who
 * has withdrawn an entry sees those that found it before in their own directories. */
enum shoal_status comm_region_publish(struct base_shared *own, uint64_t context, size_t offset);
void comm_region_withdraw(struct base_shared *own, uint64_t context);
/* 0 if it is not there (yet). */
size_t comm_region_find(const struct base_shared *shared, uint64_t context);

static inline struct region_control *comm_region_control_of(const struct base_shared *shared)
{
    return shared->address;
}

#endif
