/* SPDX-License-Identifier: Apache-2.0 */
/*
 * agree.c: what the ranks compare when a pipe is made. All see the same numbers, so all say the
 * same.
 */
#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "pipe/state.h"

/* What a rank says; all of it is compared with rank 0's. */
struct saying {
    uint64_t status, order, active_microbatches, module_count, module_names;
    char name[sizeof(((struct pipe *)0)->name)];
};

static uint64_t hash_names(const struct shoal_pipe_options *options)
{
    uint64_t hash = UINT64_C(0xcbf29ce484222325);
    for (int i = 0; options->module_names && i < options->module_count; i++)
        for (const char *at = options->module_names[i];; at++) {
            hash = (hash ^ (unsigned char)*at) * UINT64_C(0x100000001b3);
            if (!*at)
                break;
        }
    return hash;
}

static enum shoal_status gather(const struct pipe *pipe, const void *mine, void *all, size_t bytes)
{
    struct comm_call call = {
        .kind = COLL_ALLGATHER, .dtype = SHOAL_U8, .in = mine, .out = all, .count = bytes};
    return pipe->place.submit(pipe->place.parent, &call, NULL);
}

static enum shoal_status differ(const struct pipe *pipe, int rank, const char *what)
{
    char them[PIPE_TEXT_BYTES], us[PIPE_TEXT_BYTES];
    return base_error(SHOAL_ERR_MISMATCH,
                      "pipe '%s' differs: %s on %s is another than on %s: make it alike on all "
                      "ranks",
                      pipe->name, what, pipe_rank_text(pipe, rank, them),
                      pipe_rank_text(pipe, 0, us));
}

static enum shoal_status compare_with_first(const struct pipe *pipe, const struct saying *all,
                                            int rank)
{
    const struct saying *them = &all[rank], *us = &all[0];
    if (strcmp(them->name, us->name) != 0)
        return differ(pipe, rank, "the name");
    if (them->order != us->order)
        return differ(pipe, rank, "the order");
    if (them->active_microbatches != us->active_microbatches)
        return differ(pipe, rank, "the number of active microbatches");
    if (them->module_count != us->module_count)
        return differ(pipe, rank, "the number of modules");
    if (them->module_names != us->module_names)
        return differ(pipe, rank, "the list of modules' names");
    return SHOAL_OK;
}

/* mine: how it went on this rank, whose own error is better than the others' about it. */
static enum shoal_status look_at_all(const struct pipe *pipe, const struct saying *all,
                                     enum shoal_status mine)
{
    char who[PIPE_TEXT_BYTES];
    if (mine != SHOAL_OK)
        return mine;
    for (int i = 0; i < pipe->place.parent->size; i++)
        if (all[i].status != SHOAL_OK)
            return base_error((enum shoal_status)all[i].status,
                              "%s could not make pipe '%s': its own error says why",
                              pipe_rank_text(pipe, i, who), pipe->name);
    for (int i = 1; i < pipe->place.parent->size; i++)
        TRY(compare_with_first(pipe, all, i));
    return SHOAL_OK;
}

static enum shoal_status exchange(const struct pipe *pipe, const struct saying *mine,
                                  enum shoal_status status)
{
    struct saying *all = NULL;
    char text[BASE_ERROR_TEXT_BYTES];
    snprintf(text, sizeof(text), "%s", base_error_text());
    TRY(BASE_NEW_ARRAY(&all, pipe->place.parent->size, "what ranks say of a pipe"));
    enum shoal_status gathered = gather(pipe, mine, all, sizeof(*mine));
    if (gathered == SHOAL_OK && status != SHOAL_OK)
        base_error(status, "%s", text);
    if (gathered == SHOAL_OK)
        gathered = look_at_all(pipe, all, status);
    base_free(all);
    return gathered;
}

enum shoal_status pipe_compare(const struct pipe *pipe, const struct shoal_pipe_options *options,
                               enum shoal_status mine)
{
    struct saying saying = {.status = mine,
                            .order = options->order,
                            .active_microbatches = (uint64_t)options->active_microbatches,
                            .module_count = (uint64_t)options->module_count,
                            .module_names = hash_names(options)};
    memcpy(saying.name, pipe->name, sizeof(saying.name));
    return exchange(pipe, &saying, mine);
}

enum shoal_status pipe_confirm(const struct pipe *pipe, enum shoal_status mine)
{
    struct saying saying = {.status = mine};
    return exchange(pipe, &saying, mine);
}
