/* SPDX-License-Identifier: Apache-2.0 */
/* step.c: a step from its first tensor to its end: add, flush, wait, finish. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "fuse/state.h"

#define WAIT_SLICE_MS 200 /* the engine keeps deadlines; this bounds one sleep */

/* ---- beginning
 * ---------------------------------------------------------------------------------------------- */

static void clear_buffer(struct fuse_buffer *buffer, const struct fuse_window *window)
{
    buffer->state = FUSE_FILLING;
    atomic_store_explicit(&buffer->is_reduced, false, memory_order_relaxed);
    buffer->named = false;
    buffer->missing = window->tensor_count;
    buffer->times = (struct shoal_fuse_times){.struct_bytes = sizeof(buffer->times),
                                              .bytes = window->bytes,
                                              .priority = window->priority,
                                              .sent_as = -1};
}

void fuse_clear_buffers(struct fuse *fuse)
{
    for (int b = 0; b < fuse->buffer_count; b++)
        clear_buffer(&fuse->buffers[b], &fuse->windows[b]);
}

/* Who waits for rank 0's word waits in truth for whoever holds up the buffers: their operation
 * names it, so it shall end first. */
static long long words_timeout_ms(long long timeout_ms)
{
    return timeout_ms + (timeout_ms / 8 < 1000 ? timeout_ms / 8 : 1000);
}

/* Lock held. */
static void begin_step(struct fuse *fuse)
{
    long long timeout_ms = atomic_load(&fuse->place.parent->timeout_ms);
    if (fuse->under_way)
        return;
    atomic_store(&fuse->data->timeout_ms, timeout_ms);
    atomic_store(&fuse->word_group->timeout_ms, words_timeout_ms(timeout_ms));
    if (fuse->gathers)
        atomic_store(&fuse->gathers->timeout_ms, timeout_ms);
    fuse->step++;
    fuse->claimed_count = fuse->ready_now = fuse->gathered = 0;
    fuse->named = fuse->named_buffers = fuse->sent = fuse->sent_buffers = 0;
    atomic_store(&fuse->added_count, 0);
    atomic_store(&fuse->reduced_count, 0);
    for (int i = 0; i < fuse->tensor_count; i++)
        fuse->tensors[i].claimed = false;
    fuse_clear_buffers(fuse);
    fuse->under_way = true;
}

/* ---- adding
 * ---------------------------------------------------------------------------------------------- */

static void note_gradient(struct fuse_buffer *buffer, int64_t now_ns)
{
    if (buffer->times.first_added_ns == 0)
        buffer->times.first_added_ns = now_ns;
    buffer->times.last_added_ns = now_ns;
}

/* The tensor is this caller's to fill; false: it was claimed before in this step. */
static bool claim(struct fuse *fuse, int tensor, void *out)
{
    const struct fuse_home *home = &fuse->homes[tensor];
    int64_t now_ns = base_now_ns();
    pthread_mutex_lock(&fuse->lock);
    begin_step(fuse);
    bool mine = !fuse->tensors[tensor].claimed;
    if (mine) {
        fuse->tensors[tensor].claimed = true;
        fuse->tensors[tensor].out = out;
        if (fuse->seen)
            fuse->seen[fuse->claimed_count] = (uint32_t)tensor;
        fuse->claimed_count++;
        for (int b = home->first_buffer; b <= home->last_buffer; b++)
            note_gradient(&fuse->buffers[b], now_ns);
    }
    pthread_mutex_unlock(&fuse->lock);
    return mine;
}

static void make_ready(struct fuse *fuse, struct fuse_buffer *buffer, int64_t now_ns)
{
    buffer->state = FUSE_READY;
    buffer->ready_as = fuse->ready_count++;
    buffer->times.packed_ns = now_ns;
    fuse->counted.held_back += fuse->meter.in_flight + fuse->ready_now >= fuse->in_flight_max;
    fuse->ready_now++;
}

/* The buffer is whole, and this caller's until it is ready. */
static void pack(struct fuse *fuse, int buffer)
{
    fuse_pack(fuse, buffer);
    int64_t now_ns = base_now_ns();
    pthread_mutex_lock(&fuse->lock);
    make_ready(fuse, &fuse->buffers[buffer], now_ns);
    pthread_mutex_unlock(&fuse->lock);
    fuse_issue(fuse); /* it leaves while the next one is packed */
}

/* One more tensor that lies in the buffer is at home. */
static void fill(struct fuse *fuse, int buffer)
{
    bool packs = fuse->compression != SHOAL_COMPRESSION_NONE;
    int64_t now_ns = base_now_ns();
    pthread_mutex_lock(&fuse->lock);
    bool whole = --fuse->buffers[buffer].missing == 0;
    if (whole && !packs)
        make_ready(fuse, &fuse->buffers[buffer], now_ns);
    pthread_mutex_unlock(&fuse->lock);
    if (whole && packs)
        pack(fuse, buffer);
}

/* The claimed tensor is at home. */
static void settle(struct fuse *fuse, int tensor, uint64_t copied_bytes)
{
    const struct fuse_home *home = &fuse->homes[tensor];
    pthread_mutex_lock(&fuse->lock);
    fuse->counted.copied += copied_bytes;
    pthread_mutex_unlock(&fuse->lock);
    for (int b = home->first_buffer; b <= home->last_buffer; b++)
        fill(fuse, b);
    pthread_mutex_lock(&fuse->lock);
    bool last = atomic_fetch_add(&fuse->added_count, 1) + 1 == fuse->tensor_count;
    pthread_mutex_unlock(&fuse->lock);
    if (last)
        base_bell_ring(&fuse->bell);
}

/* The number of the step under way, or of the next one. */
static uint64_t step_now(struct fuse *fuse)
{
    pthread_mutex_lock(&fuse->lock);
    uint64_t step = fuse->step + !fuse->under_way;
    pthread_mutex_unlock(&fuse->lock);
    return step;
}

static enum shoal_status refuse_count(struct fuse *fuse, int tensor, uint64_t count)
{
    char me[160], what[FUSE_TENSOR_TEXT_BYTES];
    const struct comm_group *group = fuse->data;
    return fuse_fail(fuse, SHOAL_ERR_MISMATCH,
                     "%s added %s to fuse '%s' with %" PRIu64 " elements in step %" PRIu64
                     "; it was made with %" PRIu64 ": make a new fuse if the model has changed",
                     comm_rank_text(group, group->rank, me, sizeof(me)),
                     fuse_tensor_text(fuse, tensor, what), fuse->name, count, step_now(fuse),
                     fuse->tensors[tensor].count);
}

static enum shoal_status refuse_second(struct fuse *fuse, int tensor)
{
    char me[160], what[FUSE_TENSOR_TEXT_BYTES];
    const struct comm_group *group = fuse->data;
    return fuse_fail(fuse, SHOAL_ERR_MISMATCH,
                     "%s added %s to fuse '%s' a second time in step %" PRIu64
                     ": add each tensor once, and call shoal_fuse_finish before the next step",
                     comm_rank_text(group, group->rank, me, sizeof(me)),
                     fuse_tensor_text(fuse, tensor, what), fuse->name, step_now(fuse));
}

enum shoal_status fuse_add(struct fuse *fuse, int tensor, const void *in, void *out, uint64_t count)
{
    TRY(fuse_health(fuse));
    if (count != fuse->tensors[tensor].count)
        return refuse_count(fuse, tensor, count);
    void *home = fuse_home_of(fuse, tensor);
    uint64_t bytes = fuse->homes[tensor].bytes;
    bool comes = in && in != home && bytes > 0, goes = out && out != home && bytes > 0;
    if (!claim(fuse, tensor, goes ? out : NULL))
        return refuse_second(fuse, tensor);
    if (comes)
        memcpy(home, in, bytes);
    settle(fuse, tensor, comes ? bytes : 0);
    fuse_issue(fuse);
    return SHOAL_OK;
}

enum shoal_status fuse_flush(struct fuse *fuse)
{
    TRY(fuse_health(fuse));
    for (int tensor = fuse->tensor_count - 1; tensor >= 0; tensor--) {
        if (!claim(fuse, tensor, NULL))
            continue;
        memset(fuse_home_of(fuse, tensor), 0, fuse->homes[tensor].bytes);
        settle(fuse, tensor, 0);
    }
    fuse_issue(fuse);
    return SHOAL_OK;
}

/* ---- waiting
 * ---------------------------------------------------------------------------------------------- */

static bool lacks_tensors(const struct fuse *fuse)
{
    return atomic_load_explicit(&fuse->added_count, memory_order_acquire) < fuse->tensor_count;
}

static bool is_back(const struct fuse_await *await)
{
    const struct fuse *fuse = await->fuse;
    if (await->tensor == FUSE_ALL_TENSORS)
        return !lacks_tensors(fuse) &&
               atomic_load_explicit(&fuse->reduced_count, memory_order_acquire) ==
                   fuse->buffer_count;
    const struct fuse_home *home = &fuse->homes[await->tensor];
    for (int b = home->first_buffer; b <= home->last_buffer; b++)
        if (!atomic_load_explicit(&fuse->buffers[b].is_reduced, memory_order_acquire))
            return false;
    return true;
}

bool fuse_someone_is_back(const struct fuse *fuse)
{
    for (const struct fuse_await *await = fuse->awaits; await; await = await->next)
        if (is_back(await))
            return true;
    return false;
}

static bool is_over(void *user)
{
    const struct fuse_await *await = user;
    return is_back(await) || comm_group_broken(await->fuse->data);
}

static void fail_lacking(struct fuse *fuse)
{
    char me[160], what[FUSE_TENSOR_TEXT_BYTES], more[64] = "";
    const struct comm_group *group = fuse->data;
    int first = -1, lacking = 0;
    pthread_mutex_lock(&fuse->lock);
    for (int i = fuse->tensor_count - 1; i >= 0; i--)
        if (!fuse->tensors[i].claimed) {
            first = i;
            lacking++;
        }
    pthread_mutex_unlock(&fuse->lock);
    if (first < 0)
        return; /* they were added at this moment */
    if (lacking > 1)
        snprintf(more, sizeof(more), " and %d more of %d", lacking - 1, fuse->tensor_count);
    fuse_fail(fuse, SHOAL_ERR_TIMEOUT,
              "%s has not added %s%s to fuse '%s' in step %" PRIu64
              ", and waited %lld ms for the end of the step: add every tensor in every step, or "
              "call shoal_fuse_flush, which counts the others as zeros",
              comm_rank_text(group, group->rank, me, sizeof(me)),
              fuse_tensor_text(fuse, first, what), more, fuse->name, step_now(fuse),
              (long long)atomic_load(&group->timeout_ms));
}

/* So long before the operations' deadline a rank that lacks tensors says so, so that its error
 * comes before the others'. */
static int64_t lacking_deadline_ns(const struct fuse *fuse)
{
    int64_t timeout_ms = atomic_load(&fuse->data->timeout_ms);
    return base_deadline_ns(timeout_ms - (timeout_ms / 2 < 1000 ? timeout_ms / 2 : 1000));
}

/* Over links a buffer takes longer than a spin, and whoever spins takes the core from those who
 * move it. */
static const struct base_wait_policy *policy_of(const struct comm_group *group)
{
    static const struct base_wait_policy sleeps_at_once = {0, 0};
    return group->host_count > 1 ? &sleeps_at_once : &group->world->policy;
}

static void wait_a_slice(struct fuse *fuse, struct fuse_await *await)
{
    struct comm_group *group = fuse->data;
    int64_t slice_ns = base_deadline_ns(WAIT_SLICE_MS);
    if (lacks_tensors(fuse) && await->deadline_ns < slice_ns)
        slice_ns = await->deadline_ns;
    uint64_t slept = base_wait_sleeps();
    bool over = base_wait(&fuse->bell, policy_of(group), is_over, await, slice_ns);
    comm_count_sleeps(&group->counters, base_wait_sleeps() - slept);
    if (over || comm_interrupted(group) || fuse_health(fuse) != SHOAL_OK)
        return;
    if (lacks_tensors(fuse) && base_now_ns() >= await->deadline_ns)
        fail_lacking(fuse);
}

static void begin_waiting(struct fuse *fuse, struct fuse_await *await)
{
    pthread_mutex_lock(&fuse->lock);
    fuse_meter_turn(&fuse->meter, base_now_ns());
    fuse->meter.waiting++;
    await->next = fuse->awaits;
    fuse->awaits = await;
    pthread_mutex_unlock(&fuse->lock);
}

static void end_waiting(struct fuse *fuse, struct fuse_await *await)
{
    pthread_mutex_lock(&fuse->lock);
    fuse_meter_turn(&fuse->meter, base_now_ns());
    fuse->meter.waiting--;
    struct fuse_await **at = &fuse->awaits;
    while (*at != await)
        at = &(*at)->next;
    *at = await->next;
    pthread_mutex_unlock(&fuse->lock);
}

static enum shoal_status await_tensor(struct fuse *fuse, int tensor, int64_t deadline_ns)
{
    struct fuse_await await = {.fuse = fuse, .tensor = tensor, .deadline_ns = deadline_ns};
    if (is_back(&await))
        return SHOAL_OK;
    begin_waiting(fuse, &await);
    while (!is_over(&await))
        wait_a_slice(fuse, &await);
    end_waiting(fuse, &await);
    return is_back(&await) ? SHOAL_OK : fuse_health(fuse);
}

static void note_back(struct fuse_buffer *buffer, int64_t now_ns)
{
    if (buffer->times.back_ns == 0)
        buffer->times.back_ns = now_ns;
}

/* The tensor's result is at home: copies it to where else it was wanted. */
static void give_back(struct fuse *fuse, int tensor)
{
    const struct fuse_home *home = &fuse->homes[tensor];
    pthread_mutex_lock(&fuse->lock);
    void *out = fuse->tensors[tensor].out;
    fuse->tensors[tensor].out = NULL;
    fuse->counted.copied += out ? home->bytes : 0;
    pthread_mutex_unlock(&fuse->lock);
    if (out)
        memcpy(out, fuse_home_of(fuse, tensor), home->bytes);
    int64_t now_ns = base_now_ns();
    pthread_mutex_lock(&fuse->lock);
    for (int b = home->first_buffer; b <= home->last_buffer; b++)
        note_back(&fuse->buffers[b], now_ns);
    pthread_mutex_unlock(&fuse->lock);
}

static enum shoal_status take_back(struct fuse *fuse, int tensor, int64_t deadline_ns)
{
    TRY(await_tensor(fuse, tensor, deadline_ns));
    give_back(fuse, tensor);
    return SHOAL_OK;
}

enum shoal_status fuse_wait(struct fuse *fuse, int tensor)
{
    TRY(fuse_health(fuse));
    pthread_mutex_lock(&fuse->lock);
    bool under_way = fuse->under_way;
    pthread_mutex_unlock(&fuse->lock);
    return under_way ? take_back(fuse, tensor, lacking_deadline_ns(fuse)) : SHOAL_OK;
}

/* ---- the end
 * ---------------------------------------------------------------------------------------------- */

/* They are done, or will be at once: a word has come where a buffer that it named is back. */
static enum shoal_status give_up_requests(struct fuse *fuse)
{
    for (int i = 0; i < fuse->named; i++) {
        struct comm_request **sum = (struct comm_request **)&fuse->words[i].send_request;
        struct comm_request **gather = (struct comm_request **)&fuse->words[i].gather_request;
        struct comm_request **word = (struct comm_request **)&fuse->words[i].request;
        if (*sum)
            TRY(comm_request_wait(sum, -1));
        if (*gather)
            TRY(comm_request_wait(gather, -1));
        if (*word)
            TRY(comm_request_wait(word, -1));
    }
    return SHOAL_OK;
}

/* Or may be, where the tensor is not added yet. */
static bool is_wanted_elsewhere(struct fuse *fuse, int tensor)
{
    pthread_mutex_lock(&fuse->lock);
    bool wanted = !fuse->tensors[tensor].claimed || fuse->tensors[tensor].out;
    pthread_mutex_unlock(&fuse->lock);
    return wanted;
}

static void note_all_back(struct fuse *fuse)
{
    int64_t now_ns = base_now_ns();
    pthread_mutex_lock(&fuse->lock);
    for (int b = 0; b < fuse->buffer_count; b++)
        note_back(&fuse->buffers[b], now_ns);
    pthread_mutex_unlock(&fuse->lock);
}

enum shoal_status fuse_finish(struct fuse *fuse)
{
    TRY(fuse_health(fuse));
    pthread_mutex_lock(&fuse->lock);
    begin_step(fuse);
    pthread_mutex_unlock(&fuse->lock);
    fuse_issue(fuse);
    int64_t deadline_ns = lacking_deadline_ns(fuse);
    for (int i = 0; i < fuse->tensor_count; i++)
        if (is_wanted_elsewhere(fuse, (int)fuse->order[i]))
            TRY(take_back(fuse, (int)fuse->order[i], deadline_ns));
    TRY(await_tensor(fuse, FUSE_ALL_TENSORS, deadline_ns));
    note_all_back(fuse);
    TRY(give_up_requests(fuse));
    enum shoal_status agreed = fuse->seen ? fuse_agree_order(fuse) : SHOAL_OK;
    if (agreed != SHOAL_OK)
        return fuse_fail(fuse, agreed, "%s", base_error_text());
    fuse_judge_pace(fuse);
    pthread_mutex_lock(&fuse->lock);
    fuse->counted.steps++;
    fuse->under_way = false;
    pthread_mutex_unlock(&fuse->lock);
    return SHOAL_OK;
}
