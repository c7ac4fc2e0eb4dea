/* SPDX-License-Identifier: Apache-2.0 */
/*
 * value.c: values on a rank, from the first that is heard of them to the last (state.h has the
 * states).
 *
 * A value's data lies in one piece, each buffer from a multiple of 64 bytes, in one layout on all
 * ranks. Small data lies behind the descriptor and travels with it. Large data is copied, on its
 * home, to memory that the ranks of the host share: those look at it there and say when they no
 * longer do; to other hosts it is sent from there. That copy is the only one on its host.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "pipe/state.h"

#define ALIGN_BYTES   64
#define BUCKETS_FIRST 256
#define ROUTES_FIRST  4

static uint64_t round_up(uint64_t bytes)
{
    return (bytes + ALIGN_BYTES - 1) / ALIGN_BYTES * ALIGN_BYTES;
}

/* ---- the table
 * ---------------------------------------------------------------------------------------------- */

static struct pipe_value **bucket_of(const struct pipe_table *table, uint64_t id)
{
    uint64_t hash = id * UINT64_C(0x9e3779b97f4a7c15);
    return &table->buckets[(hash >> 32) & (table->bucket_count - 1)];
}

struct pipe_value *pipe_value_find(const struct pipe *pipe, uint64_t id)
{
    if (pipe->table.count == 0)
        return NULL;
    struct pipe_value *value = *bucket_of(&pipe->table, id);
    while (value && value->id != id)
        value = value->next;
    return value;
}

static enum shoal_status grow(struct pipe_table *table)
{
    struct pipe_table larger = {.bucket_count = table->bucket_count > 0 ? 2 * table->bucket_count
                                                                        : BUCKETS_FIRST,
                                .count = table->count};
    TRY(BASE_NEW_ARRAY(&larger.buckets, larger.bucket_count, "a pipe's values"));
    for (uint32_t i = 0; i < table->bucket_count; i++)
        while (table->buckets[i]) {
            struct pipe_value *value = table->buckets[i], **to = bucket_of(&larger, value->id);
            table->buckets[i] = value->next;
            value->next = *to;
            *to = value;
        }
    base_free(table->buckets);
    *table = larger;
    return SHOAL_OK;
}

enum shoal_status pipe_value_know(struct pipe *pipe, uint64_t id, uint64_t step,
                                  struct pipe_value **out)
{
    struct pipe_table *table = &pipe->table;
    struct pipe_value *value = pipe_value_find(pipe, id);
    if (!value) {
        if (table->count >= SHOAL_PIPE_VALUES_MAX)
            return base_error(SHOAL_ERR_LIMIT, "%u values are known, as many as a rank keeps",
                              table->count);
        if (table->count >= table->bucket_count)
            TRY(grow(table));
        TRY(BASE_NEW(&value, "a value"));
        struct pipe_value **bucket = bucket_of(table, id);
        value->id = id;
        value->step = step;
        value->next = *bucket;
        *bucket = value;
        table->count++;
        if (table->count > pipe->counted.values_most)
            pipe->counted.values_most = table->count;
    }
    *out = value;
    return SHOAL_OK;
}

static void free_data(struct pipe *pipe, struct pipe_value *value)
{
    if (value->kind == MEMORY_SHARED)
        comm_shared_free(pipe->place.parent->world, value->memory);
    else if (value->kind == MEMORY_OWN)
        base_free(value->memory);
    base_free(value->block);
}

static void free_value(struct pipe *pipe, struct pipe_value *value)
{
    while (value->waiters) {
        struct pipe_waiter *next = value->waiters->next;
        base_free(value->waiters);
        value->waiters = next;
    }
    free_data(pipe, value);
    base_free(value->routes);
    base_free(value);
}

static void forget(struct pipe *pipe, struct pipe_value *value)
{
    struct pipe_value **at = bucket_of(&pipe->table, value->id);
    while (*at != value)
        at = &(*at)->next;
    *at = value->next;
    pipe->table.count--;
    if (value->put)
        pipe->counted.kept_bytes -= value->memory_bytes;
    free_value(pipe, value);
}

/* Memory that another rank may still look at stays until the world ends. */
void pipe_table_release(struct pipe *pipe)
{
    for (uint32_t i = 0; i < pipe->table.bucket_count; i++)
        while (pipe->table.buckets[i]) {
            struct pipe_value *value = pipe->table.buckets[i];
            pipe->table.buckets[i] = value->next;
            if (value->views_out > 0)
                value->kind = MEMORY_NONE;
            free_value(pipe, value);
        }
    base_free(pipe->table.buckets);
}

static bool is_home(const struct pipe *pipe, const struct pipe_value *value)
{
    return pipe_id_home(value->id) == pipe->group->rank;
}

/* Whether nothing is wanted of it here any more, but that others give back what is the home's. */
static bool is_done(const struct pipe *pipe, const struct pipe_value *value)
{
    if (value->promised)
        return false;
    if (!is_home(pipe, value) && !value->dropped) /* only its maker was here, and has dropped it */
        return value->needed == 0 && !value->block;
    return value->dropped && value->here && value->released == value->needed_in_all;
}

void pipe_value_tidy(struct pipe *pipe, struct pipe_value *value)
{
    if (!is_done(pipe, value) || value->views_out > 0 || value->sends_out > 0)
        return;
    if (value->kind == MEMORY_VIEW)
        pipe_post(pipe, pipe_id_home(value->id),
                  (struct pipe_header){.type = LETTER_RETURN, .id = value->id}, NULL, 0);
    forget(pipe, value);
}

/* Its maker may still name it, or somebody may look at it: for as long as they like. */
static bool is_held(const struct pipe_value *value)
{
    return value->promised || value->here;
}

static const char *lack_of(const struct pipe *pipe, const struct pipe_value *value)
{
    return is_home(pipe, value) ? "was never put" : "has not come";
}

uint32_t pipe_values_left(const struct pipe *pipe, uint64_t step, bool counts_held, char *text,
                          size_t text_bytes)
{
    char which[PIPE_TEXT_BYTES];
    uint32_t left = 0;
    for (uint32_t i = 0; i < pipe->table.bucket_count; i++)
        for (const struct pipe_value *value = pipe->table.buckets[i]; value; value = value->next) {
            if (value->step >= step || is_done(pipe, value) || (is_held(value) && !counts_held))
                continue;
            if (left++ == 0 && text)
                snprintf(text, text_bytes, "%s, whose home is rank %d, %s",
                         pipe_value_text(value->id, which), pipe_id_home(value->id),
                         lack_of(pipe, value));
        }
    return left;
}

/* ---- its data
 * ---------------------------------------------------------------------------------------------- */

/* Bytes of the data in the layout that all ranks use. */
static uint64_t data_bytes(const uint64_t *sizes, int count)
{
    uint64_t bytes = 0;
    for (int i = 0; i < count; i++)
        bytes += round_up(sizes[i]);
    return bytes;
}

/* In one block: buffers, their sizes, the descriptor, and `room_bytes` for small data. */
static enum shoal_status take_block(struct pipe_value *value, const uint64_t *sizes, int count,
                                    const void *descriptor, uint32_t descriptor_bytes,
                                    uint64_t room_bytes, void **room)
{
    unsigned char *block = NULL;
    uint64_t buffers_bytes = round_up((uint64_t)count * sizeof(struct shoal_pipe_buffer));
    TRY(base_alloc(buffers_bytes + round_up(descriptor_bytes) + room_bytes, "a value",
                   (void **)&block));
    value->block = block;
    value->buffers = (struct shoal_pipe_buffer *)block;
    value->buffer_count = count;
    for (int i = 0; i < count; i++)
        value->buffers[i].bytes = sizes[i];
    value->descriptor = block + buffers_bytes;
    value->descriptor_bytes = descriptor_bytes;
    if (descriptor_bytes > 0)
        memcpy(value->descriptor, descriptor, descriptor_bytes);
    *room = block + buffers_bytes + round_up(descriptor_bytes);
    return SHOAL_OK;
}

static void place_buffers(struct pipe_value *value, void *memory, uint64_t bytes)
{
    unsigned char *at = memory;
    value->memory = memory;
    value->memory_bytes = bytes;
    for (int i = 0; i < value->buffer_count; i++) {
        value->buffers[i].data = at;
        at += round_up(value->buffers[i].bytes);
    }
}

/* Memory of the region is not cleared first, and is warm when it was used before; so it holds what
 * comes from other hosts too. */
static enum shoal_status take_memory(struct pipe *pipe, uint64_t bytes, struct pipe_value *value,
                                     void **out)
{
    value->kind = MEMORY_SHARED;
    if (comm_shared_alloc(pipe->place.parent->world, bytes, out) == SHOAL_OK)
        return SHOAL_OK;
    value->kind = MEMORY_NONE;
    TRY(base_alloc(bytes, "a value's data", out));
    value->kind = MEMORY_OWN;
    return SHOAL_OK;
}

static bool fits_in_letter(const struct pipe *pipe, int count, uint64_t descriptor_bytes,
                           uint64_t bytes)
{
    return sizeof(struct pipe_header) + (uint64_t)count * sizeof(uint64_t) + descriptor_bytes +
               bytes <=
           pipe->inline_bytes;
}

/* ---- to its routes
 * ---------------------------------------------------------------------------------------------- */

static bool shares_host(const struct pipe *pipe, int rank)
{
    const struct comm_group *group = pipe->group;
    return group->host_of[rank] == group->host_of[group->rank];
}

static void send_value(struct pipe *pipe, struct pipe_value *value, struct pipe_route *route)
{
    uint64_t sizes[SHOAL_PIPE_BUFFERS_MAX];
    bool is_small =
        fits_in_letter(pipe, value->buffer_count, value->descriptor_bytes, value->memory_bytes);
    struct pipe_header header = {.type = LETTER_VALUE,
                                 .id = value->id,
                                 .count = (uint32_t)value->buffer_count,
                                 .small_bytes = value->descriptor_bytes,
                                 .way = WAY_INLINE};
    for (int i = 0; i < value->buffer_count; i++)
        sizes[i] = value->buffers[i].bytes;
    if (!is_small && value->kind == MEMORY_SHARED && shares_host(pipe, route->rank)) {
        header.way = WAY_SHARED;
        header.offset = (uint64_t)((char *)value->memory -
                                   (char *)pipe->place.parent->world->region.shared->address);
        value->views_out++;
        pipe->counted.shared_bytes += value->memory_bytes;
    } else if (!is_small) {
        header.way = WAY_MESSAGE;
        header.tag = pipe_next_tag(pipe, route->rank);
    } else {
        pipe->counted.message_bytes += value->memory_bytes;
    }
    struct pipe_part parts[MAIL_PARTS_MAX] = {{sizes, sizeof(*sizes) * (size_t)value->buffer_count},
                                              {value->descriptor, value->descriptor_bytes},
                                              {value->memory, is_small ? value->memory_bytes : 0}};
    pipe_post(pipe, route->rank, header, parts, MAIL_PARTS_MAX);
    if (header.way == WAY_MESSAGE)
        pipe_post_data(pipe, route->rank, header.tag, value);
    route->sent = true;
}

static void tell_routes_end(struct pipe *pipe, const struct pipe_value *value)
{
    for (int i = 0; i < value->route_count; i++)
        pipe_post(pipe, value->routes[i].rank,
                  (struct pipe_header){
                      .type = LETTER_DROP, .id = value->id, .count = value->routes[i].needs},
                  NULL, 0);
}

static struct pipe_route *find_route(struct pipe_value *value, int rank)
{
    for (int i = 0; i < value->route_count; i++)
        if (value->routes[i].rank == rank)
            return &value->routes[i];
    return NULL;
}

static enum shoal_status add_route(struct pipe_value *value, int rank, struct pipe_route **out)
{
    if (value->route_count == value->route_capacity) {
        int capacity = value->route_capacity > 0 ? 2 * value->route_capacity : ROUTES_FIRST;
        struct pipe_route *more = NULL;
        TRY(BASE_NEW_ARRAY(&more, capacity, "a value's routes"));
        if (value->route_count > 0)
            memcpy(more, value->routes, sizeof(*more) * (size_t)value->route_count);
        base_free(value->routes);
        value->routes = more;
        value->route_capacity = capacity;
    }
    *out = &value->routes[value->route_count++];
    **out = (struct pipe_route){.rank = rank};
    return SHOAL_OK;
}

enum shoal_status pipe_value_route(struct pipe *pipe, struct pipe_value *value, int rank)
{
    struct pipe_route *route = find_route(value, rank);
    if (!route)
        TRY(add_route(value, rank, &route));
    route->needs++;
    if (value->put && !route->sent)
        send_value(pipe, value, route);
    return SHOAL_OK;
}

/* ---- its life
 * ---------------------------------------------------------------------------------------------- */

enum shoal_status pipe_value_need(struct pipe_value *value, struct pipe_task *task)
{
    if (!value->here) {
        struct pipe_waiter *waiter = NULL;
        TRY(BASE_NEW(&waiter, "a task that waits"));
        waiter->task = task;
        waiter->next = value->waiters;
        value->waiters = waiter;
        task->missing++;
    }
    value->needed++;
    return SHOAL_OK;
}

static void wake_waiters(struct pipe *pipe, struct pipe_value *value)
{
    while (value->waiters) {
        struct pipe_waiter *waiter = value->waiters;
        value->waiters = waiter->next;
        if (--waiter->task->missing == 0)
            pipe_queue_ready(&pipe->queue, waiter->task);
        base_free(waiter);
    }
    pipe_changed(pipe);
}

void pipe_value_complete(struct pipe *pipe, struct pipe_value *value)
{
    value->here = true;
    wake_waiters(pipe, value);
    pipe_value_tidy(pipe, value);
}

enum shoal_status pipe_value_end(struct pipe *pipe, struct pipe_value *value, uint32_t needs)
{
    char what[PIPE_TEXT_BYTES];
    if (value->dropped)
        return base_error(SHOAL_ERR_MISMATCH, "%s was dropped twice",
                          pipe_value_text(value->id, what));
    value->dropped = true;
    value->needed_in_all = is_home(pipe, value) ? value->needed : needs;
    if (value->put)
        tell_routes_end(pipe, value);
    pipe_value_tidy(pipe, value);
    return SHOAL_OK;
}

enum shoal_status pipe_value_arrives(struct pipe *pipe, int home, const struct pipe_header *header,
                                     const unsigned char *body, struct pipe_value **data)
{
    struct pipe_value *value = NULL;
    const struct comm_world *world = pipe->place.parent->world;
    const uint64_t *sizes = (const uint64_t *)body;
    const unsigned char *descriptor = body + sizeof(*sizes) * header->count;
    uint64_t bytes = data_bytes(sizes, (int)header->count);
    void *memory = NULL;
    TRY(pipe_value_know(pipe, header->id, pipe_step_of(pipe, home), &value));
    if (value->block)
        return base_error(SHOAL_ERR_INTERNAL, "a value came twice");
    TRY(take_block(value, sizes, (int)header->count, descriptor, header->small_bytes,
                   header->way == WAY_INLINE ? bytes : 0, &memory));
    if (header->way == WAY_SHARED) {
        int local = world->local_index[pipe->group->members[home]];
        memory = (char *)world->host->regions[local].address + header->offset;
        value->kind = MEMORY_VIEW;
    } else if (header->way == WAY_MESSAGE) {
        TRY(take_memory(pipe, bytes, value, &memory));
    } else if (bytes > 0) {
        memcpy(memory, descriptor + header->small_bytes, bytes);
    }
    place_buffers(value, memory, bytes);
    if (header->way == WAY_MESSAGE)
        *data = value;
    else
        pipe_value_complete(pipe, value);
    return SHOAL_OK;
}

/* ---- calls
 * ---------------------------------------------------------------------------------------------- */

enum shoal_status pipe_promise(struct pipe *pipe, int home, uint64_t *id)
{
    struct pipe_value *value = NULL;
    pthread_mutex_lock(&pipe->lock);
    uint64_t new_id = pipe_id_make(home, pipe->group->rank, ++pipe->promises);
    enum shoal_status status = pipe_value_know(pipe, new_id, pipe->step, &value);
    if (status == SHOAL_OK)
        value->promised = true;
    pthread_mutex_unlock(&pipe->lock);
    if (status == SHOAL_OK)
        *id = new_id;
    return status;
}

/* What is put, before the value is known: outside of the lock, since it is copied. */
static enum shoal_status keep(struct pipe *pipe, const struct shoal_pipe_value *in,
                              struct pipe_value *kept)
{
    uint64_t sizes[SHOAL_PIPE_BUFFERS_MAX];
    void *memory = NULL;
    for (int i = 0; i < in->buffer_count; i++)
        sizes[i] = in->buffers[i].bytes;
    uint64_t bytes = data_bytes(sizes, in->buffer_count);
    bool is_small = fits_in_letter(pipe, in->buffer_count, in->descriptor_bytes, bytes);
    TRY(take_block(kept, sizes, in->buffer_count, in->descriptor, (uint32_t)in->descriptor_bytes,
                   is_small ? bytes : 0, &memory));
    if (!is_small)
        TRY(take_memory(pipe, bytes, kept, &memory));
    place_buffers(kept, memory, bytes);
    for (int i = 0; i < in->buffer_count; i++)
        if (sizes[i] > 0)
            memcpy((void *)kept->buffers[i].data, in->buffers[i].data, sizes[i]);
    return SHOAL_OK;
}

/* Lock held. Takes over what was kept. */
static enum shoal_status attach(struct pipe *pipe, uint64_t id, const struct pipe_value *kept)
{
    struct pipe_value *value = NULL;
    char what[PIPE_TEXT_BYTES];
    TRY(pipe_value_know(pipe, id, pipe->step, &value));
    if (value->put)
        return base_error(SHOAL_ERR_MISMATCH, "%s was put twice", pipe_value_text(id, what));
    value->block = kept->block;
    value->buffers = kept->buffers;
    value->buffer_count = kept->buffer_count;
    value->descriptor = kept->descriptor;
    value->descriptor_bytes = kept->descriptor_bytes;
    value->kind = kept->kind;
    value->memory = kept->memory;
    value->memory_bytes = kept->memory_bytes;
    value->put = true;
    pipe->counted.values++;
    pipe->counted.kept_bytes += value->memory_bytes;
    if (pipe->counted.kept_bytes > pipe->counted.kept_most)
        pipe->counted.kept_most = pipe->counted.kept_bytes;
    for (int i = 0; i < value->route_count; i++)
        send_value(pipe, value, &value->routes[i]);
    if (value->dropped)
        tell_routes_end(pipe, value);
    pipe_value_complete(pipe, value);
    return SHOAL_OK;
}

enum shoal_status pipe_put(struct pipe *pipe, uint64_t id, const struct shoal_pipe_value *in)
{
    struct pipe_value kept = {0};
    char what[PIPE_TEXT_BYTES], me[PIPE_TEXT_BYTES];
    pipe_value_text(id, what);
    if (pipe_id_home(id) != pipe->group->rank)
        return base_error(SHOAL_ERR_ARGUMENT, "%s is put by rank %d, its home, and this is rank %d",
                          what, pipe_id_home(id), pipe->group->rank);
    TRY(pipe_health(pipe));
    enum shoal_status status = keep(pipe, in, &kept);
    pthread_mutex_lock(&pipe->lock);
    if (status == SHOAL_OK)
        status = attach(pipe, id, &kept);
    if (status != SHOAL_OK)
        status = pipe_fail(pipe, status, "%s, put on %s: %s", what,
                           pipe_rank_text(pipe, pipe->group->rank, me), base_error_text());
    pipe_unlock(pipe);
    if (status != SHOAL_OK)
        free_data(pipe, &kept);
    return status;
}

enum shoal_status pipe_value(struct pipe *pipe, uint64_t id, struct shoal_pipe_value *out)
{
    char what[PIPE_TEXT_BYTES];
    pthread_mutex_lock(&pipe->lock);
    const struct pipe_value *value = pipe_value_find(pipe, id);
    bool here = value && value->here;
    if (here)
        *out = (struct shoal_pipe_value){sizeof(*out), value->descriptor, value->descriptor_bytes,
                                         value->buffers, value->buffer_count};
    pthread_mutex_unlock(&pipe->lock);
    return here ? SHOAL_OK
                : base_error(SHOAL_ERR_STATE, "%s is not on this rank", pipe_value_text(id, what));
}

enum shoal_status pipe_release(struct pipe *pipe, uint64_t id)
{
    char what[PIPE_TEXT_BYTES];
    pthread_mutex_lock(&pipe->lock);
    struct pipe_value *value = pipe_value_find(pipe, id);
    bool held = value && value->released < value->given;
    if (held) {
        value->released++;
        pipe_value_tidy(pipe, value);
    }
    pipe_unlock(pipe);
    return held ? SHOAL_OK
                : base_error(SHOAL_ERR_STATE, "%s is no need of a task here that is not released",
                             pipe_value_text(id, what));
}

enum shoal_status pipe_drop(struct pipe *pipe, uint64_t id)
{
    char what[PIPE_TEXT_BYTES];
    enum shoal_status status = SHOAL_OK;
    pthread_mutex_lock(&pipe->lock);
    struct pipe_value *value = pipe_value_find(pipe, id);
    bool promised = value && value->promised;
    if (promised && is_home(pipe, value)) {
        value->promised = false;
        status = pipe_value_end(pipe, value, 0);
    } else if (promised) {
        value->promised = false;
        pipe_post(pipe, pipe_id_home(id), (struct pipe_header){.type = LETTER_DROP, .id = id}, NULL,
                  0);
        pipe_value_tidy(pipe, value);
    }
    pipe_unlock(pipe);
    if (!promised)
        return base_error(SHOAL_ERR_STATE,
                          "%s was dropped before, or this rank is not its maker: only who has "
                          "promised a value drops it, once",
                          pipe_value_text(id, what));
    return status;
}
