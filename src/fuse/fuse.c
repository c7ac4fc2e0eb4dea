/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuse.c: making and freeing a fuse, its texts and its failure.
 *
 * All that a step needs is taken here. A rank that can't take it says so where the lists are
 * compared, so the others don't wait for it.
 */
#include "fuse/fuse.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/memory.h"
#include "base/options.h"
#include "fuse/state.h"
#include "kernel/kernel.h"

/* Buffers on their way at a time, where nobody says how many; the latter with servers. */
enum { IN_FLIGHT = 2, IN_FLIGHT_SERVED = 4 };

/* Buffers that go together: how long they are at least, and all of them at most. */
#define JOIN_BYTES_MIN   (UINT64_C(16) << 10)
#define JOINED_BYTES_MAX (UINT64_C(4) << 20)
#define JOIN_HOSTS_MAX   8

/* ---- texts and failure
 * ---------------------------------------------------------------------------------------------- */

const char *fuse_tensor_text(const struct fuse *fuse, int tensor, char text[FUSE_TENSOR_TEXT_BYTES])
{
    const char *name = fuse->tensors[tensor].name;
    if (name)
        snprintf(text, FUSE_TENSOR_TEXT_BYTES, "tensor %d '%s'", tensor, name);
    else
        snprintf(text, FUSE_TENSOR_TEXT_BYTES, "tensor %d", tensor);
    return text;
}

/* ": buffer 2 of 5, tensor 7 'a' to tensor 4 'b', is not back" of what was sent first; one tensor
 * is named once. */
static void describe_late(struct fuse *fuse, char *text, size_t text_bytes)
{
    char first[FUSE_TENSOR_TEXT_BYTES], last[FUSE_TENSOR_TEXT_BYTES];
    struct fuse_stretch late = {0, 0};
    pthread_mutex_lock(&fuse->lock);
    for (int i = fuse->sent - 1; i >= 0; i--)
        if (fuse->buffers[fuse->words[i].stretch.first].state != FUSE_REDUCED)
            late = fuse->words[i].stretch;
    pthread_mutex_unlock(&fuse->lock);
    text[0] = '\0';
    if (late.count == 0)
        return;
    const struct fuse_window *windows = fuse->windows + late.first;
    int from = windows[0].first_tensor, to = windows[late.count - 1].last_tensor;
    fuse_tensor_text(fuse, from, first);
    fuse_tensor_text(fuse, to, last);
    snprintf(text, text_bytes, ": buffer %d of %d, %s%s%s, is not back", late.first,
             fuse->buffer_count, first, from == to ? "" : " to ", from == to ? "" : last);
}

/* All groups have one cause: a rank may hear of either first. */
static void fail_with(struct fuse *fuse, enum shoal_status status, const char *text)
{
    comm_group_fail(fuse->data, status, text);
    comm_group_fail(fuse->word_group, status, text);
    if (fuse->gathers)
        comm_group_fail(fuse->gathers, status, text);
    base_bell_ring(&fuse->bell);
}

/* What broke one of the groups, or the parent, breaks all that is of the fuse. */
static void spread_failure(struct fuse *fuse)
{
    struct comm_group *groups[] = {fuse->data, fuse->word_group, fuse->gathers, fuse->place.parent};
    for (int i = 0; i < 4; i++)
        if (groups[i] && comm_group_broken(groups[i])) {
            enum shoal_status why = comm_group_health(groups[i]);
            fail_with(fuse, why, base_error_text());
            return;
        }
}

enum shoal_status fuse_health(struct fuse *fuse)
{
    char late[3 * FUSE_TENSOR_TEXT_BYTES];
    bool spread = comm_group_broken(fuse->data) && comm_group_broken(fuse->word_group) &&
                  (!fuse->gathers || comm_group_broken(fuse->gathers));
    if (!spread)
        spread_failure(fuse);
    enum shoal_status status = comm_group_health(fuse->data);
    if (status == SHOAL_OK)
        return SHOAL_OK;
    describe_late(fuse, late, sizeof(late));
    return base_error_context(status, "fuse '%s'%s", fuse->name, late);
}

enum shoal_status fuse_fail(struct fuse *fuse, enum shoal_status status, const char *format, ...)
{
    char text[BASE_ERROR_TEXT_BYTES];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof(text), format, arguments);
    va_end(arguments);
    fail_with(fuse, status, text);
    return fuse_health(fuse);
}

/* ---- memory
 * ---------------------------------------------------------------------------------------------- */

/* Padding is summed too, so it must hold numbers: zeros. */
static enum shoal_status take_arena(struct fuse *fuse)
{
    void *arena = NULL;
    if (!fuse->shared)
        return base_alloc(fuse->arena_bytes, "a fuse's tensors", (void **)&fuse->arena);
    TRY(comm_shared_alloc(fuse->place.parent->world, fuse->arena_bytes, &arena));
    memset(arena, 0, fuse->arena_bytes);
    fuse->arena = arena;
    return SHOAL_OK;
}

static void give_arena(struct fuse *fuse)
{
    if (fuse->arena && fuse->shared)
        comm_shared_free(fuse->place.parent->world, fuse->arena);
    else
        base_free(fuse->arena);
}

static enum shoal_status copy_names(struct fuse *fuse, const char *const *names)
{
    size_t bytes = 0;
    for (int i = 0; names && i < fuse->tensor_count; i++)
        bytes += strlen(names[i]) + 1;
    TRY(base_alloc(bytes, "a fuse's names", (void **)&fuse->names));
    char *at = fuse->names;
    for (int i = 0; names && i < fuse->tensor_count; i++) {
        fuse->tensors[i].name = at;
        at = stpcpy(at, names[i]) + 1;
    }
    return SHOAL_OK;
}

static enum shoal_status take_tensors(struct fuse *fuse, const struct shoal_fuse_options *options)
{
    TRY(BASE_NEW_ARRAY(&fuse->tensors, fuse->tensor_count, "a fuse's tensors"));
    TRY(BASE_NEW_ARRAY(&fuse->homes, fuse->tensor_count, "a fuse's homes"));
    TRY(BASE_NEW_ARRAY(&fuse->order, fuse->tensor_count, "a fuse's order"));
    if (!options->order) {
        TRY(BASE_NEW_ARRAY(&fuse->seen, fuse->tensor_count, "a fuse's order"));
        TRY(BASE_NEW_ARRAY(&fuse->agreed, fuse->tensor_count, "a fuse's order"));
    }
    for (int i = 0; i < fuse->tensor_count; i++) {
        fuse->tensors[i].count = options->counts[i];
        fuse->homes[i].bytes = options->counts[i] > UINT64_MAX / fuse->elem_bytes
                                   ? UINT64_MAX
                                   : options->counts[i] * fuse->elem_bytes;
        int backward = fuse->tensor_count - 1 - i;
        fuse->order[i] = (uint32_t)(options->order ? options->order[i] : backward);
    }
    return copy_names(fuse, options->tensor_names);
}

static uint64_t choose_buffer_bytes(const struct shoal_fuse_options *options, uint64_t arena_bytes)
{
    uint64_t bytes = options->buffer_bytes > 0 ? options->buffer_bytes
                                               : (uint64_t)base_option_int(OPTION_FUSE_BYTES);
    if (bytes == 0)
        return fuse_layout_buffer_bytes(arena_bytes);
    return (bytes + FUSE_ALIGN_BYTES - 1) / FUSE_ALIGN_BYTES * FUSE_ALIGN_BYTES;
}

/* Nothing shows but in the time whether buffers go together, so each element's sum must have one
 * order: of several ranks on a host it has (two levels), of others where the group promises it,
 * which costs nothing among few. docs/fuse.md. */
static int join_max(const struct fuse *fuse)
{
    const struct comm_group *group = fuse->place.parent;
    const char *forced = base_option_text(OPTION_ALGORITHM);
    if (fuse->compression != SHOAL_COMPRESSION_NONE || group->served ||
        (forced && strcmp(forced, "auto") != 0) || group->host_count < 2 ||
        group->host_count > JOIN_HOSTS_MAX || fuse->buffer_bytes < JOIN_BYTES_MIN ||
        fuse->buffer_bytes > JOINED_BYTES_MAX / 2)
        return 1;
    uint64_t count = JOINED_BYTES_MAX / fuse->buffer_bytes;
    return count < FUSE_JOIN_MAX ? (int)count : FUSE_JOIN_MAX;
}

static enum shoal_status take_buffers(struct fuse *fuse, const struct shoal_fuse_options *options)
{
    fuse->arena_bytes = fuse_layout_bytes(fuse->homes, fuse->tensor_count);
    fuse->buffer_bytes = choose_buffer_bytes(options, fuse->arena_bytes);
    uint64_t count = fuse_layout_buffers(fuse->arena_bytes, fuse->buffer_bytes);
    if (fuse->arena_bytes == UINT64_MAX || count > FUSE_BUFFERS_MAX)
        return base_error(SHOAL_ERR_LIMIT,
                          "fuse '%s' would have more than %d buffers of %" PRIu64
                          " bytes: set buffer_bytes or SHOAL_FUSE_BYTES higher",
                          fuse->name, FUSE_BUFFERS_MAX, fuse->buffer_bytes);
    fuse->buffer_count = (int)count;
    TRY(BASE_NEW_ARRAY(&fuse->windows, count, "a fuse's buffers"));
    TRY(BASE_NEW_ARRAY(&fuse->buffers, count, "a fuse's buffers"));
    TRY(BASE_NEW_ARRAY(&fuse->words, count, "a fuse's order"));
    for (int i = 0; i < fuse->buffer_count; i++)
        fuse->words[i].fuse = fuse;
    fuse->join_max = join_max(fuse);
    fuse_layout(fuse->homes, fuse->tensor_count, fuse->order, fuse->windows, fuse->buffer_bytes);
    TRY(take_arena(fuse));
    if (fuse->compression != SHOAL_COMPRESSION_NONE && options->error_feedback)
        TRY(base_alloc(fuse->arena_bytes, "a fuse's residuals", (void **)&fuse->residual));
    if (fuse_has_blocks(fuse))
        TRY(fuse_take_blocks(fuse, options->error_feedback));
    return fuse->seen ? base_alloc(fuse->arena_bytes, "a fuse's spare", (void **)&fuse->spare)
                      : SHOAL_OK;
}

/* ---- life
 * ---------------------------------------------------------------------------------------------- */

/* A buffer's way over servers is two messages longer, and short buffers wait for these. */
static int in_flight_by_default(const struct comm_group *group)
{
    int64_t wanted = base_option_int(OPTION_FUSE_IN_FLIGHT);
    if (wanted > 0)
        return (int)wanted;
    return group->served ? IN_FLIGHT_SERVED : IN_FLIGHT;
}

static void set_up(struct fuse *fuse, const struct fuse_place *place,
                   const struct shoal_fuse_options *options)
{
    fuse->place = *place;
    fuse->dtype = options->dtype;
    fuse->op = options->op;
    fuse->compression = options->compression;
    fuse->elem_bytes = kernel_dtype_bytes(options->dtype);
    fuse->tensor_count = options->tensor_count;
    fuse->in_flight_max =
        options->in_flight > 0 ? options->in_flight : in_flight_by_default(place->parent);
    fuse->shared = place->parent->local_size > 1;
    fuse->meter.since_ns = base_now_ns();
    snprintf(fuse->name, sizeof(fuse->name), "%s", options->name ? options->name : "gradients");
    pthread_mutex_init(&fuse->lock, NULL);
}

/* Of closed groups, which live on for these. They are done, but for the engine's last word. */
static void give_back_requests(struct fuse *fuse)
{
    for (int i = 0; i < fuse->buffer_count && fuse->words; i++) {
        struct fuse_word *word = &fuse->words[i];
        if (word->request)
            comm_request_wait((struct comm_request **)&word->request, -1);
        if (word->send_request)
            comm_request_wait((struct comm_request **)&word->send_request, -1);
        if (word->gather_request)
            comm_request_wait((struct comm_request **)&word->gather_request, -1);
    }
}

/* Also of a fuse that is only half made. */
static void release(struct fuse *fuse)
{
    if (fuse->word_group)
        comm_group_close(fuse->word_group); /* first: its ends look at the other one */
    if (fuse->gathers)
        comm_group_close(fuse->gathers);
    if (fuse->data)
        comm_group_close(fuse->data);
    give_back_requests(fuse);
    pthread_mutex_destroy(&fuse->lock);
    give_arena(fuse);
    base_free(fuse->spare);
    base_free(fuse->residual);
    fuse_give_blocks(fuse);
    base_free(fuse->names);
    base_free(fuse->order);
    base_free(fuse->seen);
    base_free(fuse->agreed);
    base_free(fuse->homes);
    base_free(fuse->windows);
    base_free(fuse->tensors);
    base_free(fuse->buffers);
    base_free(fuse->words);
    base_free(fuse);
}

/* On all ranks or on none, so they agree about the number. */
static enum shoal_status take_groups(struct fuse *fuse)
{
    struct comm_group *parent = fuse->place.parent;
    uint64_t number = parent->split_number++;
    char of_data[72], of_words[72], of_gathers[72];
    snprintf(of_data, sizeof(of_data), "%s (fuse)", fuse->name);
    snprintf(of_words, sizeof(of_words), "%s (order of the fuse)", fuse->name);
    snprintf(of_gathers, sizeof(of_gathers), "%s (sums of the fuse)", fuse->name);
    if (fuse_has_blocks(fuse))
        TRY(fuse->place.twin(parent, of_gathers, comm_split_context(parent, number, 2),
                             &fuse->gathers));
    TRY(fuse->place.twin(parent, of_data, comm_split_context(parent, number, 0), &fuse->data));
    if (fuse->join_max > 1 && parent->host_count == parent->size)
        fuse->data->reproducible = true;
    return fuse->place.twin(parent, of_words, comm_split_context(parent, number, 1),
                            &fuse->word_group);
}

enum shoal_status fuse_create(const struct fuse_place *place,
                              const struct shoal_fuse_options *options, struct fuse **out)
{
    struct fuse *fuse = NULL;
    TRY(BASE_NEW(&fuse, "a fuse"));
    set_up(fuse, place, options);
    enum shoal_status status = take_tensors(fuse, options);
    if (status == SHOAL_OK)
        status = take_buffers(fuse, options);
    status = fuse_compare(fuse, options, status);
    if (status == SHOAL_OK)
        status = fuse_confirm(fuse, take_groups(fuse));
    if (status != SHOAL_OK) {
        release(fuse);
        return status;
    }
    fuse_clear_buffers(fuse);
    *out = fuse;
    return SHOAL_OK;
}

/* Others may wait for what will not come; closing the groups alone would tell them less. */
static void leave_step(struct fuse *fuse)
{
    char me[160];
    const struct comm_group *data = fuse->data;
    if (fuse_health(fuse) == SHOAL_OK && fuse->under_way)
        fuse_fail(fuse, SHOAL_ERR_ABORTED, "%s freed fuse '%s' in step %" PRIu64 " before its end",
                  comm_rank_text(data, data->rank, me, sizeof(me)), fuse->name, fuse->step);
}

/* The caller's last error stays what it was. */
void fuse_free(struct fuse *fuse)
{
    char text[BASE_ERROR_TEXT_BYTES];
    snprintf(text, sizeof(text), "%s", base_error_text());
    leave_step(fuse);
    release(fuse);
    base_error(SHOAL_OK, "%s", text);
}

/* ---- questions
 * ---------------------------------------------------------------------------------------------- */

void *fuse_home(struct fuse *fuse, int tensor)
{
    return fuse_home_of(fuse, tensor);
}

int fuse_tensor_count(const struct fuse *fuse)
{
    return fuse->tensor_count;
}

int fuse_buffer_count(const struct fuse *fuse)
{
    return fuse->buffer_count;
}

struct comm_group *fuse_parent(const struct fuse *fuse)
{
    return fuse->place.parent;
}

struct comm_group *fuse_data_group(const struct fuse *fuse)
{
    return fuse->data;
}

struct comm_group *fuse_gather_group(const struct fuse *fuse)
{
    return fuse->gathers;
}

void fuse_counters(struct fuse *fuse, struct shoal_fuse_counters *out)
{
    pthread_mutex_lock(&fuse->lock);
    fuse_meter_turn(&fuse->meter, base_now_ns());
    *out = fuse->counted;
    out->struct_bytes = sizeof(*out);
    out->in_flight = (uint64_t)fuse->in_flight_max;
    out->flight_ns = (uint64_t)fuse->meter.flight_ns;
    out->waited_ns = (uint64_t)fuse->meter.waited_ns;
    out->exposed_ns = (uint64_t)fuse->meter.exposed_ns;
    pthread_mutex_unlock(&fuse->lock);
}

void fuse_times(struct fuse *fuse, int buffer, struct shoal_fuse_times *out)
{
    pthread_mutex_lock(&fuse->lock);
    *out = fuse->buffers[buffer].times;
    pthread_mutex_unlock(&fuse->lock);
}
