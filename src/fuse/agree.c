/* SPDX-License-Identifier: Apache-2.0 */
/*
 * agree.c: what the ranks compare when a fuse is made, and the order they agree about after the
 * first step.
 *
 * Lists are compared by a hash. Where it differs, the first tensor that does is found by halving:
 * each round all ranks compare the hash of the first tensors, up to the middle of what is left. So
 * a difference is named without anybody having memory for another rank's list, and all ranks,
 * which see the same numbers, say the same.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/memory.h"
#include "fuse/state.h"
#include "kernel/kernel.h"

/* What a rank says; all of it is compared with rank 0's. */
struct saying {
    uint64_t status, tensor_count, dtype, op, buffer_bytes, in_flight, tensors, order;
    uint64_t compression, feedback;
    char name[sizeof(((struct fuse *)0)->name)];
};

/* What one tensor is on a rank. */
struct saying_of_tensor {
    uint64_t count;
    char name[120];
};
_Static_assert(sizeof(struct saying) >= sizeof(struct saying_of_tensor), "one room for both");

struct comparison {
    const struct fuse *fuse;
    const struct shoal_fuse_options *options;
    void *all; /* room for one saying of each rank */
};

static uint64_t mix(uint64_t hash, uint64_t value)
{
    hash ^= value + UINT64_C(0x9e3779b97f4a7c15) + (hash << 6) + (hash >> 2);
    hash *= UINT64_C(0xff51afd7ed558ccd);
    return hash ^ hash >> 32;
}

/* Of the first `count` tensors. */
static uint64_t hash_tensors(const struct shoal_fuse_options *options, int count)
{
    uint64_t hash = 1;
    for (int i = 0; i < count; i++) {
        hash = mix(hash, options->counts[i]);
        for (const char *at = options->tensor_names ? options->tensor_names[i] : ""; *at; at++)
            hash = mix(hash, (unsigned char)*at);
    }
    return hash;
}

static uint64_t hash_order(const struct shoal_fuse_options *options)
{
    uint64_t hash = 1;
    for (int i = 0; options->order && i < options->tensor_count; i++)
        hash = mix(hash, (uint64_t)options->order[i]);
    return hash;
}

static enum shoal_status gather(const struct fuse *fuse, const void *mine, void *all, size_t bytes)
{
    struct comm_call call = {
        .kind = COLL_ALLGATHER, .dtype = SHOAL_U8, .in = mine, .out = all, .count = bytes};
    return fuse->place.submit(fuse->place.parent, &call, NULL);
}

/* ---- differences
 * ---------------------------------------------------------------------------------------------- */

static enum shoal_status differ(const struct comparison *at, int rank, const char *what,
                                const char *theirs, const char *ours)
{
    const struct comm_group *group = at->fuse->place.parent;
    char them[160], us[160];
    return base_error(SHOAL_ERR_MISMATCH,
                      "fuse '%s' differs: %s %s on %s, but %s on %s: make it alike on all ranks",
                      at->fuse->name, what, theirs, comm_rank_text(group, rank, them, sizeof(them)),
                      ours, comm_rank_text(group, 0, us, sizeof(us)));
}

static enum shoal_status differ_in_number(const struct comparison *at, int rank, const char *what,
                                          uint64_t theirs, uint64_t ours)
{
    char their_text[24], our_text[24];
    snprintf(their_text, sizeof(their_text), "%" PRIu64, theirs);
    snprintf(our_text, sizeof(our_text), "%" PRIu64, ours);
    return differ(at, rank, what, their_text, our_text);
}

/* The first tensor in which that rank's list is another one than rank 0's. */
static enum shoal_status find_tensor(const struct comparison *at, int rank, int *out)
{
    const uint64_t *hashes = at->all;
    int same = 0, other = at->options->tensor_count; /* so many first ones are the same, are not */
    while (other - same > 1) {
        int middle = same + (other - same) / 2;
        uint64_t mine = hash_tensors(at->options, middle);
        TRY(gather(at->fuse, &mine, at->all, sizeof(mine)));
        *(hashes[rank] == hashes[0] ? &same : &other) = middle;
    }
    *out = other - 1;
    return SHOAL_OK;
}

#define SAID_BYTES 160

static const char *said_text(const struct saying_of_tensor *said, char text[SAID_BYTES])
{
    if (said->name[0])
        snprintf(text, SAID_BYTES, "'%.119s' of %" PRIu64 " elements", said->name, said->count);
    else
        snprintf(text, SAID_BYTES, "of %" PRIu64 " elements", said->count);
    return text;
}

static enum shoal_status differ_in_tensor(const struct comparison *at, int rank)
{
    const struct saying_of_tensor *all = at->all;
    struct saying_of_tensor mine = {0};
    char what[32], theirs[SAID_BYTES], ours[SAID_BYTES];
    int tensor = 0;
    TRY(find_tensor(at, rank, &tensor));
    mine.count = at->options->counts[tensor];
    if (at->options->tensor_names)
        snprintf(mine.name, sizeof(mine.name), "%s", at->options->tensor_names[tensor]);
    TRY(gather(at->fuse, &mine, at->all, sizeof(mine)));
    snprintf(what, sizeof(what), "tensor %d is", tensor);
    return differ(at, rank, what, said_text(&all[rank], theirs), said_text(&all[0], ours));
}

static enum shoal_status compare_with_first(const struct comparison *at, int rank)
{
    const struct saying *all = at->all, *them = &all[rank], *us = &all[0];
    if (strcmp(them->name, us->name) != 0)
        return differ(at, rank, "the name is", them->name, us->name);
    if (them->tensor_count != us->tensor_count)
        return differ_in_number(at, rank, "the number of tensors is", them->tensor_count,
                                us->tensor_count);
    if (them->dtype != us->dtype)
        return differ(at, rank, "the dtype is", kernel_dtype_name((enum shoal_dtype)them->dtype),
                      kernel_dtype_name((enum shoal_dtype)us->dtype));
    if (them->op != us->op)
        return differ(at, rank, "the op is", kernel_op_name((enum shoal_op)them->op),
                      kernel_op_name((enum shoal_op)us->op));
    if (them->compression != us->compression)
        return differ(at, rank, "the compression is",
                      fuse_compression_name((enum shoal_compression)them->compression),
                      fuse_compression_name((enum shoal_compression)us->compression));
    if (them->feedback != us->feedback)
        return differ(at, rank, "error feedback is", them->feedback ? "on" : "off",
                      us->feedback ? "on" : "off");
    if (them->tensors != us->tensors)
        return differ_in_tensor(at, rank);
    if (them->buffer_bytes != us->buffer_bytes)
        return differ_in_number(at, rank, "the size of its buffers is", them->buffer_bytes,
                                us->buffer_bytes);
    if (them->in_flight != us->in_flight)
        return differ_in_number(at, rank, "the number of buffers in flight is", them->in_flight,
                                us->in_flight);
    if (them->order != us->order)
        return differ(at, rank, "options.order is", "one order", "another");
    return SHOAL_OK;
}

/* Gathers what all say. SHOAL_OK if all are well; who is not keeps its own text. */
static enum shoal_status exchange(const struct comparison *at, const struct saying *saying)
{
    const struct comm_group *group = at->fuse->place.parent;
    const struct saying *all = at->all;
    char text[BASE_ERROR_TEXT_BYTES], who[160];
    snprintf(text, sizeof(text), "%s", base_error_text());
    TRY(gather(at->fuse, saying, at->all, sizeof(*saying)));
    if (saying->status != SHOAL_OK)
        return base_error((enum shoal_status)saying->status, "%s", text);
    for (int i = 0; i < group->size; i++)
        if (all[i].status != SHOAL_OK)
            return base_error((enum shoal_status)all[i].status, "%s %s fuse '%s'",
                              comm_rank_text(group, i, who, sizeof(who)),
                              all[i].status == SHOAL_ERR_MEMORY ? "has no memory for"
                                                                : "could not make",
                              at->fuse->name);
    return SHOAL_OK;
}

static enum shoal_status take_room(struct comparison *at)
{
    return base_alloc_array((size_t)at->fuse->place.parent->size, sizeof(struct saying),
                            "a comparison of fuses", &at->all);
}

enum shoal_status fuse_compare(const struct fuse *fuse, const struct shoal_fuse_options *options,
                               enum shoal_status mine)
{
    struct comparison at = {.fuse = fuse, .options = options};
    struct saying saying = {.status = (uint64_t)mine,
                            .tensor_count = (uint64_t)options->tensor_count,
                            .dtype = options->dtype,
                            .op = options->op,
                            .compression = options->compression,
                            .feedback = options->error_feedback != 0,
                            .buffer_bytes = fuse->buffer_bytes,
                            .in_flight = (uint64_t)fuse->in_flight_max,
                            .tensors = hash_tensors(options, options->tensor_count),
                            .order = hash_order(options)};
    memcpy(saying.name, fuse->name, sizeof(saying.name));
    TRY(take_room(&at));
    enum shoal_status status = exchange(&at, &saying);
    for (int i = 1; i < fuse->place.parent->size && status == SHOAL_OK; i++)
        status = compare_with_first(&at, i);
    base_free(at.all);
    return status;
}

enum shoal_status fuse_confirm(const struct fuse *fuse, enum shoal_status mine)
{
    struct comparison at = {.fuse = fuse};
    struct saying saying = {.status = (uint64_t)mine};
    TRY(take_room(&at));
    enum shoal_status status = exchange(&at, &saying);
    base_free(at.all);
    return status;
}

/* ---- the order
 * ---------------------------------------------------------------------------------------------- */

/* By way of the spare memory, which was zeroed and so keeps padding zero. */
static void move_values(struct fuse *fuse, unsigned char *memory)
{
    uint64_t offset = 0;
    for (int i = 0; i < fuse->tensor_count; i++) {
        const struct fuse_home *home = &fuse->homes[fuse->agreed[i]];
        memcpy(fuse->spare + offset, memory + home->offset, home->bytes);
        offset += fuse_layout_room(home->bytes);
    }
    memcpy(memory, fuse->spare, fuse->arena_bytes);
}

/* Values, what rounding has lost of them, and homes. */
static void move_tensors(struct fuse *fuse)
{
    move_values(fuse, fuse->arena);
    if (fuse->residual)
        move_values(fuse, fuse->residual);
    fuse_clear_blocks(fuse);
    memcpy(fuse->order, fuse->agreed, sizeof(*fuse->order) * (size_t)fuse->tensor_count);
    fuse_layout(fuse->homes, fuse->tensor_count, fuse->order, fuse->windows, fuse->buffer_bytes);
}

static enum shoal_status hear_order(struct fuse *fuse)
{
    struct comm_call call = {.kind = COLL_BROADCAST,
                             .dtype = SHOAL_U32,
                             .in = fuse->agreed,
                             .out = fuse->agreed,
                             .count = (uint64_t)fuse->tensor_count,
                             .in_place = true};
    if (fuse->data->rank == 0)
        memcpy(fuse->agreed, fuse->seen, sizeof(*fuse->seen) * (size_t)fuse->tensor_count);
    return fuse->place.submit(fuse->data, &call, NULL);
}

/* Right results in any case, but less overlap on this rank. */
static void log_difference(const struct fuse *fuse)
{
    char here[FUSE_TENSOR_TEXT_BYTES], there[FUSE_TENSOR_TEXT_BYTES];
    int i = 0;
    while (i < fuse->tensor_count && fuse->seen[i] == fuse->agreed[i])
        i++;
    if (i < fuse->tensor_count)
        base_log(BASE_LOG_INFO,
                 "fuse '%s': gradients were ready in another order than on rank 0, which all go "
                 "by: as number %d %s here and %s there",
                 fuse->name, i, fuse_tensor_text(fuse, (int)fuse->seen[i], here),
                 fuse_tensor_text(fuse, (int)fuse->agreed[i], there));
}

enum shoal_status fuse_agree_order(struct fuse *fuse)
{
    TRY(hear_order(fuse));
    log_difference(fuse);
    size_t bytes = sizeof(*fuse->order) * (size_t)fuse->tensor_count;
    if (memcmp(fuse->agreed, fuse->order, bytes) != 0)
        move_tensors(fuse);
    base_free(fuse->spare);
    base_free(fuse->seen);
    base_free(fuse->agreed);
    fuse->spare = NULL;
    fuse->seen = fuse->agreed = NULL;
    return SHOAL_OK;
}
