/* SPDX-License-Identifier: Apache-2.0 */
/*
 * issue.c: which buffer goes next, and its way out and back.
 *
 * There is no thread for it. Whoever may have made a buffer able to go calls fuse_issue: a caller
 * that has added a tensor, or the engine's thread at the end of a request. What can go is chosen
 * under the lock and submitted without it, because a submission may run the end of another request
 * on this very thread. So that submissions keep the order in which they were chosen, one thread at
 * a time submits (`moving`), and goes on until nothing can go; one that comes meanwhile leaves at
 * once, since the other looks again, under the lock, before it stops.
 */
#include "base/clock.h"
#include "base/log.h"
#include "fuse/state.h"

/* Of buffers. From FAST on what a message costs the processors is more than what short ones gain at
 * the ends of an operation; links that were fast once are not slow because processors are busy. */
#define FAST_BYTES_A_SECOND 130e6
#define SLOW_BYTES_A_SECOND 65e6

/* What was chosen to be submitted. */
struct move {
    enum { MOVE_NOTHING, MOVE_SEND, MOVE_LISTEN, MOVE_GATHER } kind;
    int place; /* in words */
};

static bool chooses(const struct fuse *fuse)
{
    return fuse->data->rank == 0;
}

/* The buffer at the last place is the one that is left, so it needs no word. */
static bool has_word(const struct fuse *fuse, int place)
{
    return fuse->data->size > 1 && place < fuse->buffer_count - 1;
}

static bool may_send(const struct fuse *fuse)
{
    return fuse->meter.in_flight < fuse->in_flight_max;
}

static void name_buffer(struct fuse *fuse, int buffer, bool long_messages)
{
    struct fuse_word *word = &fuse->words[fuse->named++];
    word->buffer = (uint32_t)buffer;
    word->long_messages = long_messages;
    fuse->buffers[buffer].named = true;
}

/* What needs no word travels as the one before it. */
static bool as_before(const struct fuse *fuse)
{
    return fuse->named > 0 && fuse->words[fuse->named - 1].long_messages;
}

/* Of those that are ready, the one that is needed first; -1: none is. */
static int most_urgent(const struct fuse *fuse)
{
    int best = -1;
    for (int b = 0; b < fuse->buffer_count; b++)
        if (fuse->buffers[b].state == FUSE_READY &&
            (best < 0 || fuse->windows[b].priority < fuse->windows[best].priority))
            best = b;
    return best;
}

static void name_what_is_left(struct fuse *fuse)
{
    for (int b = 0; b < fuse->buffer_count; b++)
        if (!fuse->buffers[b].named) {
            name_buffer(fuse, b, as_before(fuse));
            return;
        }
}

static bool overtakes(const struct fuse *fuse, const struct fuse_buffer *buffer)
{
    for (int b = 0; b < fuse->buffer_count; b++)
        if (fuse->buffers[b].state == FUSE_READY && fuse->buffers[b].ready_as < buffer->ready_as)
            return true;
    return false;
}

static void note_sending(struct fuse *fuse, int place)
{
    struct fuse_buffer *buffer = &fuse->buffers[fuse->words[place].buffer];
    int64_t now_ns = base_now_ns();
    buffer->state = FUSE_SENT;
    fuse->ready_now--;
    buffer->times.sent_as = place;
    buffer->times.sent_ns = now_ns;
    fuse->counted.buffers++;
    fuse->counted.bytes += fuse->windows[buffer - fuse->buffers].bytes;
    fuse->counted.wire_bytes += fuse_wire_bytes(fuse, (int)(buffer - fuse->buffers));
    fuse->counted.overtakings += overtakes(fuse, buffer);
    fuse_meter_turn(&fuse->meter, now_ns);
    fuse->meter.in_flight++;
}

/* What can go now, marked as gone. */
static struct move next_move(struct fuse *fuse)
{
    if (!fuse->under_way || comm_group_broken(fuse->data))
        return (struct move){MOVE_NOTHING, 0};
    bool listens = !chooses(fuse);
    if (fuse->gathered < fuse->sent &&
        fuse->buffers[fuse->words[fuse->gathered].buffer].state == FUSE_SUMMED)
        return (struct move){MOVE_GATHER, fuse->gathered++};
    if (!listens && fuse->named == fuse->sent && may_send(fuse) && most_urgent(fuse) >= 0)
        name_buffer(fuse, most_urgent(fuse),
                    has_word(fuse, fuse->named) ? fuse->fast : as_before(fuse));
    if (listens && fuse->named == fuse->buffer_count - 1)
        name_what_is_left(fuse);
    if (fuse->sent < fuse->named && may_send(fuse) &&
        fuse->buffers[fuse->words[fuse->sent].buffer].state == FUSE_READY) {
        note_sending(fuse, fuse->sent);
        return (struct move){MOVE_SEND, fuse->sent++};
    }
    if (listens && !fuse->listening && has_word(fuse, fuse->named)) {
        fuse->listening = true;
        return (struct move){MOVE_LISTEN, fuse->named};
    }
    return (struct move){MOVE_NOTHING, 0};
}

/* A buffer alone on its way needs short messages to fill the wire. Sums don't depend on it, so it
 * may follow a measurement. */
void fuse_judge_pace(struct fuse *fuse)
{
    pthread_mutex_lock(&fuse->lock);
    uint64_t wire_bytes = fuse->counted.wire_bytes;
    double pace = fuse_meter_pace(&fuse->meter, wire_bytes - fuse->paced_bytes);
    bool was_fast = fuse->fast;
    double least = was_fast ? SLOW_BYTES_A_SECOND : FAST_BYTES_A_SECOND;
    bool fast = fuse->in_flight_max > 1 && pace > least;
    fuse->paced_bytes = wire_bytes;
    fuse->fast = fast;
    pthread_mutex_unlock(&fuse->lock);
    if (chooses(fuse) && fast != was_fast)
        base_log(BASE_LOG_INFO, "fuse '%s': %.0f MB/s of buffers, which travel in %s messages now",
                 fuse->name, pace / 1e6, fast ? "long" : "short");
}

/* ---- words
 * ---------------------------------------------------------------------------------------------- */

/* From rank 0 to the others. */
static enum shoal_status submit_word(struct fuse *fuse, int place)
{
    struct fuse_word *word = &fuse->words[place];
    struct comm_call call = {.kind = COLL_BROADCAST,
                             .dtype = SHOAL_U32,
                             .in = &word->said,
                             .out = &word->said,
                             .count = 1,
                             .in_place = true};
    return fuse->place.submit(fuse->word_group, &call, &word->request);
}

static enum shoal_status say_word(struct fuse *fuse, int place)
{
    struct fuse_word *word = &fuse->words[place];
    word->said = word->buffer | (word->long_messages ? FUSE_WORD_LONG : 0);
    return submit_word(fuse, place);
}

/* False: no buffer that can be next. */
static bool take_word(struct fuse *fuse)
{
    uint32_t said = fuse->words[fuse->named].said, buffer = said & ~FUSE_WORD_LONG;
    fuse->listening = false;
    if (buffer >= (uint32_t)fuse->buffer_count || fuse->buffers[buffer].named)
        return false;
    name_buffer(fuse, (int)buffer, said & FUSE_WORD_LONG);
    return true;
}

static void on_word(void *user, enum shoal_status status)
{
    struct fuse *fuse = user;
    if (status != SHOAL_OK) {
        fuse_health(fuse); /* breaks the rest, with the cause of the order's group */
        return;
    }
    pthread_mutex_lock(&fuse->lock);
    bool good = take_word(fuse);
    pthread_mutex_unlock(&fuse->lock);
    if (!good)
        fuse_fail(fuse, SHOAL_ERR_INTERNAL, "rank 0 named a buffer of fuse '%s' that can't be next",
                  fuse->name);
    fuse_issue(fuse);
}

static enum shoal_status listen_for_word(struct fuse *fuse, int place)
{
    TRY(submit_word(fuse, place));
    return comm_request_on_done((struct comm_request *)fuse->words[place].request, on_word, fuse);
}

/* ---- buffers
 * ---------------------------------------------------------------------------------------------- */

static void leave_wire(struct fuse *fuse)
{
    int64_t now_ns = base_now_ns();
    pthread_mutex_lock(&fuse->lock);
    fuse_meter_turn(&fuse->meter, now_ns);
    fuse->meter.in_flight--;
    pthread_mutex_unlock(&fuse->lock);
}

/* The results are at home. */
static void note_reduced(struct fuse_buffer *buffer)
{
    struct fuse *fuse = buffer->fuse;
    int64_t now_ns = base_now_ns();
    pthread_mutex_lock(&fuse->lock);
    buffer->state = FUSE_REDUCED;
    buffer->times.reduced_ns = now_ns;
    atomic_store_explicit(&buffer->is_reduced, true, memory_order_release);
    atomic_fetch_add_explicit(&fuse->reduced_count, 1, memory_order_release);
    pthread_mutex_unlock(&fuse->lock);
}

/* The next one leaves before this one is unpacked, which takes its time. */
static void on_reduced(void *user, enum shoal_status status)
{
    struct fuse_buffer *buffer = user;
    struct fuse *fuse = buffer->fuse;
    bool packed = fuse->compression != SHOAL_COMPRESSION_NONE;
    leave_wire(fuse);
    if (packed)
        fuse_issue(fuse);
    if (packed && status == SHOAL_OK)
        fuse_unpack(fuse, (int)(buffer - fuse->buffers));
    if (status == SHOAL_OK)
        note_reduced(buffer);
    base_bell_ring(&fuse->bell);
    if (!packed)
        fuse_issue(fuse);
}

/* Sums are gathered in the order in which buffers were sent, whichever was summed first here. */
static void on_exchanged(void *user, enum shoal_status status)
{
    struct fuse_buffer *buffer = user;
    struct fuse *fuse = buffer->fuse;
    if (status != SHOAL_OK) {
        base_bell_ring(&fuse->bell);
        return;
    }
    fuse_sum_blocks(fuse, (int)(buffer - fuse->buffers));
    pthread_mutex_lock(&fuse->lock);
    buffer->state = FUSE_SUMMED;
    pthread_mutex_unlock(&fuse->lock);
    fuse_issue(fuse);
}

static void on_gathered(void *user, enum shoal_status status)
{
    struct fuse_buffer *buffer = user;
    if (status != SHOAL_OK)
        fuse_health(buffer->fuse); /* breaks the rest, with the cause of the gathers' group */
    on_reduced(user, status);
}

static enum shoal_status send_buffer(struct fuse *fuse, int place)
{
    int b = (int)fuse->words[place].buffer;
    struct fuse_buffer *buffer = &fuse->buffers[b];
    struct comm_call call = fuse_send_call(fuse, b);
    call.long_messages = fuse->words[place].long_messages;
    if (chooses(fuse) && has_word(fuse, place))
        TRY(say_word(fuse, place));
    TRY(fuse->place.submit(fuse->data, &call, &buffer->request));
    return comm_request_on_done((struct comm_request *)buffer->request,
                                fuse_has_blocks(fuse) ? on_exchanged : on_reduced, buffer);
}

static enum shoal_status gather_sums(struct fuse *fuse, int place)
{
    int b = (int)fuse->words[place].buffer;
    struct fuse_buffer *buffer = &fuse->buffers[b];
    struct comm_call call = fuse_gather_call(fuse, b);
    call.long_messages = fuse->words[place].long_messages;
    TRY(fuse->place.submit(fuse->gathers, &call, &buffer->gather_request));
    return comm_request_on_done((struct comm_request *)buffer->gather_request, on_gathered, buffer);
}

static void carry_out(struct fuse *fuse, struct move move)
{
    enum shoal_status status = move.kind == MOVE_SEND     ? send_buffer(fuse, move.place)
                               : move.kind == MOVE_GATHER ? gather_sums(fuse, move.place)
                                                          : listen_for_word(fuse, move.place);
    if (status != SHOAL_OK)
        fuse_fail(fuse, status, "%s", base_error_text());
}

void fuse_issue(struct fuse *fuse)
{
    pthread_mutex_lock(&fuse->lock);
    if (fuse->moving) {
        pthread_mutex_unlock(&fuse->lock);
        return;
    }
    fuse->moving = true;
    for (struct move move = next_move(fuse); move.kind != MOVE_NOTHING; move = next_move(fuse)) {
        pthread_mutex_unlock(&fuse->lock);
        carry_out(fuse, move);
        pthread_mutex_lock(&fuse->lock);
    }
    fuse->moving = false;
    pthread_mutex_unlock(&fuse->lock);
}
