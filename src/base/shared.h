/* SPDX-License-Identifier: Apache-2.0 */
/*
 * shared.h: memory that several processes map: memfd, sized once, physical pages taken piece by
 * piece. It has no name in any file system, so nothing is left behind however a process ends, and
 * the size of /dev/shm doesn't matter.
 */
#ifndef SHOAL_BASE_SHARED_H
#define SHOAL_BASE_SHARED_H

#include <stdbool.h>
#include <stddef.h>

#include "shoal.h"

struct base_shared {
    int fd;        /* -1: none */
    void *address; /* NULL: not mapped */
    size_t bytes;  /* of address space; pages are taken by base_shared_commit */
};

/* What a child made by fork finds where the region was. */
enum base_on_fork {
    BASE_FORK_DROPS,  /* nothing */
    BASE_FORK_SHARES, /* the region */
    BASE_FORK_COPIES  /* what the region holds, for itself: its writes are nobody else's */
};

/* A new region of `bytes` (rounded up to pages), mapped. No pages are taken yet. SHOAL_ERR_MEMORY,
 * SHOAL_ERR_SYSTEM. */
enum shoal_status base_shared_create(const char *name, size_t bytes, enum base_on_fork on_fork,
                                     struct base_shared *out);
/* Maps a region whose descriptor came from a peer; takes the descriptor over. */
enum shoal_status base_shared_map(int fd, struct base_shared *out);
/* Closes the descriptor; the mapping stays. For regions of peers: nothing can be committed, but
 * populated. */
void base_shared_keep_mapping(struct base_shared *shared);
/* Takes pages [offset, offset+bytes) now, so that no later write can fail: SHOAL_ERR_MEMORY instead
 * of SIGBUS. */
enum shoal_status base_shared_commit(const struct base_shared *shared, size_t offset, size_t bytes);
/* The same for memory whose descriptor is not at hand, such as a peer's: the pages that hold any of
 * it. SHOAL_ERR_MEMORY. Does nothing on a kernel that can't (before Linux 5.14). */
enum shoal_status base_shared_populate(void *address, size_t bytes);
bool base_shared_can_populate(void);
/* Unmaps and closes. Safe on a zeroed or released struct whose fd is -1 or address NULL. */
void base_shared_release(struct base_shared *shared);

#endif
