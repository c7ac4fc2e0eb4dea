/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuse.h: the room's face to api: fusion buffers, as shoal.h and docs/fuse.md say.
 *
 * Calls are what the public ones are, with arguments that were checked: tensor numbers in range,
 * pointers where they are needed.
 */
#ifndef SHOAL_FUSE_FUSE_H
#define SHOAL_FUSE_FUSE_H

#include "comm/comm.h"

#define FUSE_TENSORS_MAX (1 << 24)
#define FUSE_BUFFERS_MAX (1 << 20)

struct fuse;

/* What the room above lends. */
struct fuse_place {
    struct comm_group *parent; /* outlives the fuse */
    /* Carries out a call; request NULL: and waits. */
    enum shoal_status (*submit)(struct comm_group *group, struct comm_call *call,
                                shoal_request_t *request);
    /* A sub-group of all ranks, which comm_group_close closes. */
    enum shoal_status (*twin)(struct comm_group *parent, const char *name, uint64_t context,
                              struct comm_group **out);
};

/* NULL: there is no such compression. */
const char *fuse_compression_name(enum shoal_compression compression);

/* Collective. */
enum shoal_status fuse_create(const struct fuse_place *place,
                              const struct shoal_fuse_options *options, struct fuse **out);
void fuse_free(struct fuse *fuse);

void *fuse_home(struct fuse *fuse, int tensor);
enum shoal_status fuse_add(struct fuse *fuse, int tensor, const void *in, void *out,
                           uint64_t count);
enum shoal_status fuse_flush(struct fuse *fuse);
enum shoal_status fuse_wait(struct fuse *fuse, int tensor);
enum shoal_status fuse_finish(struct fuse *fuse);

int fuse_tensor_count(const struct fuse *fuse);
int fuse_buffer_count(const struct fuse *fuse);
struct comm_group *fuse_parent(const struct fuse *fuse);
/* Where buffers are sent, and where sums are gathered apart from that; NULL: they are not. */
struct comm_group *fuse_data_group(const struct fuse *fuse);
struct comm_group *fuse_gather_group(const struct fuse *fuse);
void fuse_counters(struct fuse *fuse, struct shoal_fuse_counters *out);
void fuse_times(struct fuse *fuse, int buffer, struct shoal_fuse_times *out);

#endif
