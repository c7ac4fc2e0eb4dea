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
#include "comm/steer.h"
#include "fuse/state.h"

/* What was chosen to be submitted. */
struct move {
    enum { MOVE_NOTHING, MOVE_SEND, MOVE_LISTEN, MOVE_GATHER } kind;
    int place; /* in words */
};

static bool chooses(const struct fuse *fuse)
{
    return fuse->data->rank == 0;
}

/* Whether some are left that are not named, and which is next is not known. If one is left, it
 * needs no word. */
static bool needs_word(const struct fuse *fuse)
{
    return fuse->data->size > 1 && fuse->named_buffers < fuse->buffer_count - 1;
}

static bool may_send(const struct fuse *fuse)
{
    return fuse->meter.in_flight < fuse->in_flight_max;
}

static void name_buffers(struct fuse *fuse, struct fuse_stretch stretch, bool long_messages)
{
    struct fuse_word *word = &fuse->words[fuse->named++];
    word->stretch = stretch;
    word->long_messages = long_messages;
    for (int b = stretch.first; b < stretch.first + stretch.count; b++)
        fuse->buffers[b].named = true;
    fuse->named_buffers += stretch.count;
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

/* Where links are fast what costs time are messages, so buffers that are ready and lie side by side
 * go together. The last one, which may be shorter, goes alone: sums of few bytes have other
 * algorithms. */
static bool may_join(const struct fuse *fuse, int buffer)
{
    return buffer >= 0 && buffer < fuse->buffer_count &&
           fuse->windows[buffer].bytes == fuse->buffer_bytes &&
           fuse->buffers[buffer].state == FUSE_READY;
}

/* With up to as many beside it. */
static struct fuse_stretch grow(const struct fuse *fuse, struct fuse_stretch stretch)
{
    int wanted = 2 * stretch.count;
    while (stretch.count < wanted && may_join(fuse, stretch.first - 1)) {
        stretch.first--;
        stretch.count++;
    }
    while (stretch.count < wanted && may_join(fuse, stretch.first + stretch.count))
        stretch.count++;
    return stretch;
}

/* Powers of two, since each length is a plan with memory of its own. */
static struct fuse_stretch join(const struct fuse *fuse, int buffer)
{
    struct fuse_stretch stretch = {buffer, 1};
    if (!fuse->fast || !may_join(fuse, buffer))
        return stretch;
    while (2 * stretch.count <= fuse->join_max) {
        struct fuse_stretch more = grow(fuse, stretch);
        if (more.count < 2 * stretch.count)
            break;
        stretch = more;
    }
    return stretch;
}

/* On rank 0. */
static void choose(struct fuse *fuse)
{
    int buffer = most_urgent(fuse);
    if (buffer < 0)
        return;
    bool says = needs_word(fuse);
    struct fuse_word *word = &fuse->words[fuse->named];
    name_buffers(fuse, join(fuse, buffer), says ? fuse->fast : as_before(fuse));
    word->is_said = says;
}

static void name_what_is_left(struct fuse *fuse)
{
    for (int b = 0; b < fuse->buffer_count; b++)
        if (!fuse->buffers[b].named) {
            name_buffers(fuse, (struct fuse_stretch){b, 1}, as_before(fuse));
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

static void note_buffer(struct fuse *fuse, int b, int64_t now_ns)
{
    struct fuse_buffer *buffer = &fuse->buffers[b];
    buffer->state = FUSE_SENT;
    fuse->ready_now--;
    buffer->times.sent_as = fuse->sent_buffers++;
    buffer->times.sent_ns = now_ns;
    fuse->counted.buffers++;
    fuse->counted.bytes += fuse->windows[b].bytes;
    fuse->counted.wire_bytes += fuse_wire_bytes(fuse, b);
    fuse->counted.overtakings += overtakes(fuse, buffer);
}

static void note_sending(struct fuse *fuse, int place)
{
    struct fuse_stretch stretch = fuse->words[place].stretch;
    int64_t now_ns = base_now_ns();
    for (int b = stretch.first; b < stretch.first + stretch.count; b++)
        note_buffer(fuse, b, now_ns);
    fuse->counted.joined += (uint64_t)stretch.count - 1;
    fuse_meter_turn(&fuse->meter, now_ns);
    fuse->meter.in_flight++;
}

static bool is_ready(const struct fuse *fuse, struct fuse_stretch stretch)
{
    for (int b = stretch.first; b < stretch.first + stretch.count; b++)
        if (fuse->buffers[b].state != FUSE_READY)
            return false;
    return true;
}

/* What can go now, marked as gone. */
static struct move next_move(struct fuse *fuse)
{
    if (!fuse->under_way || comm_group_broken(fuse->data))
        return (struct move){MOVE_NOTHING, 0};
    bool listens = !chooses(fuse);
    if (fuse->gathered < fuse->sent &&
        fuse->buffers[fuse->words[fuse->gathered].stretch.first].state == FUSE_SUMMED)
        return (struct move){MOVE_GATHER, fuse->gathered++};
    if (!listens && fuse->named == fuse->sent && may_send(fuse))
        choose(fuse);
    if (listens && fuse->named_buffers == fuse->buffer_count - 1)
        name_what_is_left(fuse);
    if (fuse->sent < fuse->named && may_send(fuse) &&
        is_ready(fuse, fuse->words[fuse->sent].stretch)) {
        note_sending(fuse, fuse->sent);
        return (struct move){MOVE_SEND, fuse->sent++};
    }
    if (listens && !fuse->listening && needs_word(fuse)) {
        fuse->listening = true;
        return (struct move){MOVE_LISTEN, fuse->named};
    }
    return (struct move){MOVE_NOTHING, 0};
}

/* A buffer alone on its way needs short messages to fill the wire. Sums don't depend on it, so it
 * may follow a measurement. */
void fuse_judge_pace(struct fuse *fuse)
{
    if (!chooses(fuse) || fuse->in_flight_max == 1 || fuse->data->host_count == 1)
        return;
    struct comm_carried carried = comm_steer_carried(fuse->data);
    pthread_mutex_lock(&fuse->lock);
    uint64_t wire_bytes = fuse->counted.wire_bytes;
    double pace = fuse_meter_pace(&fuse->meter, wire_bytes - fuse->paced_bytes);
    double links = fuse_meter_links(&fuse->meter, carried.bytes, carried.busy_us, carried.links);
    bool was_fast = fuse->fast, fast = fuse_meter_is_fast(pace, links, was_fast);
    fuse->paced_bytes = wire_bytes;
    fuse->fast = fast;
    pthread_mutex_unlock(&fuse->lock);
    if (fast != was_fast)
        base_log(BASE_LOG_INFO,
                 "fuse '%s': %.0f MB/s of buffers, links carry %.0f: buffers travel %s now",
                 fuse->name, pace / 1e6, links / 1e6,
                 fast ? "together and in long messages" : "one by one and in short messages");
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
    word->said = (uint32_t)word->stretch.first |
                 (uint32_t)(word->stretch.count - 1) << FUSE_WORD_MORE_AT |
                 (word->long_messages ? FUSE_WORD_LONG : 0);
    return submit_word(fuse, place);
}

/* False: no buffers that can be next. */
static bool take_word(struct fuse *fuse)
{
    uint32_t said = fuse->words[fuse->named].said;
    struct fuse_stretch stretch = {
        (int)(said & FUSE_WORD_BUFFER),
        (int)((said & ~FUSE_WORD_LONG) >> FUSE_WORD_MORE_AT) + 1,
    };
    fuse->listening = false;
    if (stretch.first + stretch.count > fuse->buffer_count || stretch.count > fuse->join_max)
        return false;
    for (int b = stretch.first; b < stretch.first + stretch.count; b++)
        if (fuse->buffers[b].named)
            return false;
    name_buffers(fuse, stretch, said & FUSE_WORD_LONG);
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
static void note_reduced(struct fuse *fuse, struct fuse_stretch stretch)
{
    int64_t now_ns = base_now_ns();
    pthread_mutex_lock(&fuse->lock);
    for (int b = stretch.first; b < stretch.first + stretch.count; b++) {
        struct fuse_buffer *buffer = &fuse->buffers[b];
        buffer->state = FUSE_REDUCED;
        buffer->times.reduced_ns = now_ns;
        atomic_store_explicit(&buffer->is_reduced, true, memory_order_release);
    }
    atomic_fetch_add_explicit(&fuse->reduced_count, stretch.count, memory_order_release);
    bool wakes = fuse_someone_is_back(fuse);
    pthread_mutex_unlock(&fuse->lock);
    if (wakes)
        base_bell_ring(&fuse->bell);
}

/* The next one leaves before this one is unpacked, which takes its time. */
static void on_reduced(void *user, enum shoal_status status)
{
    const struct fuse_word *word = user;
    struct fuse *fuse = word->fuse;
    bool packed = fuse->compression != SHOAL_COMPRESSION_NONE;
    leave_wire(fuse);
    if (packed)
        fuse_issue(fuse);
    if (packed && status == SHOAL_OK)
        fuse_unpack(fuse, word->stretch.first);
    if (status == SHOAL_OK)
        note_reduced(fuse, word->stretch);
    else
        base_bell_ring(&fuse->bell);
    if (!packed)
        fuse_issue(fuse);
}

/* Sums are gathered in the order in which buffers were sent, whichever was summed first here. */
static void on_exchanged(void *user, enum shoal_status status)
{
    const struct fuse_word *word = user;
    struct fuse *fuse = word->fuse;
    if (status != SHOAL_OK) {
        base_bell_ring(&fuse->bell);
        return;
    }
    fuse_sum_blocks(fuse, word->stretch.first);
    pthread_mutex_lock(&fuse->lock);
    fuse->buffers[word->stretch.first].state = FUSE_SUMMED;
    pthread_mutex_unlock(&fuse->lock);
    fuse_issue(fuse);
}

static void on_gathered(void *user, enum shoal_status status)
{
    const struct fuse_word *word = user;
    if (status != SHOAL_OK)
        fuse_health(word->fuse); /* breaks the rest, with the cause of the gathers' group */
    on_reduced(user, status);
}

static enum shoal_status send_buffers(struct fuse *fuse, int place)
{
    struct fuse_word *word = &fuse->words[place];
    struct comm_call call = fuse_send_call(fuse, word->stretch);
    call.long_messages = word->long_messages;
    if (word->is_said)
        TRY(say_word(fuse, place));
    TRY(fuse->place.submit(fuse->data, &call, &word->send_request));
    return comm_request_on_done((struct comm_request *)word->send_request,
                                fuse_has_blocks(fuse) ? on_exchanged : on_reduced, word);
}

static enum shoal_status gather_sums(struct fuse *fuse, int place)
{
    struct fuse_word *word = &fuse->words[place];
    struct comm_call call = fuse_gather_call(fuse, word->stretch.first);
    call.long_messages = word->long_messages;
    TRY(fuse->place.submit(fuse->gathers, &call, &word->gather_request));
    return comm_request_on_done((struct comm_request *)word->gather_request, on_gathered, word);
}

static void carry_out(struct fuse *fuse, struct move move)
{
    enum shoal_status status = move.kind == MOVE_SEND     ? send_buffers(fuse, move.place)
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
