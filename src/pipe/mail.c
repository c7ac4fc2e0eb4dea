/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mail.c: letters in and out.
 *
 * Any thread posts into the outbox and rings the doorbell, a request that is queued for the engine
 * like any other; whoever holds the token empties the outbox when the doorbell's turn comes. What
 * the engine's thread posts itself, while it reads letters, it sends at once. Small letters go out
 * with their data; the engine offers larger ones. So two letters of one rank may be here in another
 * order than they were posted: a slot whose number is not the next one is held until that has come,
 * which was matched before it, so it waits for nobody here.
 */
#include "pipe/mail.h"

#include <string.h>

#include "base/clock.h"
#include "base/memory.h"
#include "pipe/state.h"

#define SLOT_BYTES    (sizeof(struct pipe_header) + MAIL_BODY_MAX)
#define CLOSE_LOOK_MS 1

static enum shoal_status start_doorbell(struct comm_group *group, struct comm_request *request);
static const struct comm_path doorbell_path = {NULL, start_doorbell, true};

enum shoal_status pipe_mail_make(struct pipe *pipe)
{
    struct pipe_mail *mail = &pipe->mail;
    int size = pipe->place.parent->size;
    mail->arrived_end = &mail->arrived;
    pipe->outbox.end = &pipe->outbox.first;
    TRY(BASE_NEW_ARRAY(&mail->memory, MAIL_SLOTS * SLOT_BYTES, "a pipe's messages"));
    TRY(BASE_NEW_ARRAY(&mail->expected, size, "a pipe's messages"));
    TRY(BASE_NEW_ARRAY(&pipe->outbox.numbers, size, "a pipe's messages"));
    TRY(BASE_NEW_ARRAY(&pipe->outbox.tags, size, "a pipe's messages"));
    for (int i = 0; i < MAIL_SLOTS; i++) {
        mail->slots[i].pipe = pipe;
        mail->slots[i].bytes = mail->memory + (size_t)i * SLOT_BYTES;
    }
    for (int i = 0; i < size; i++)
        mail->expected[i] = 1;
    return SHOAL_OK;
}

void pipe_mail_release(struct pipe *pipe)
{
    struct pipe_letter *lists[] = {pipe->outbox.first, pipe->outbox.pool};
    for (int i = 0; i < 2; i++)
        while (lists[i]) {
            struct pipe_letter *next = lists[i]->next;
            base_free(lists[i]);
            lists[i] = next;
        }
    base_free(pipe->mail.memory);
    base_free(pipe->mail.expected);
    base_free(pipe->outbox.numbers);
    base_free(pipe->outbox.tags);
}

/* ---- out
 * ---------------------------------------------------------------------------------------------- */

static struct pipe_letter *take_letter(struct pipe *pipe, size_t body_bytes)
{
    struct pipe_outbox *outbox = &pipe->outbox;
    struct pipe_letter *letter = outbox->pool;
    size_t capacity = body_bytes < MAIL_POOL_BYTES ? MAIL_POOL_BYTES : body_bytes;
    if (letter && capacity == MAIL_POOL_BYTES) {
        outbox->pool = letter->next;
        outbox->pool_count--;
    } else if (base_alloc(sizeof(*letter) + capacity, "a pipe's message", (void **)&letter) !=
               SHOAL_OK) {
        pipe_fail(pipe, SHOAL_ERR_MEMORY, "%s", base_error_text());
        return NULL;
    }
    letter->pipe = pipe;
    letter->next = NULL;
    letter->value = NULL;
    letter->capacity = capacity;
    return letter;
}

static void give_back(struct pipe_outbox *outbox, struct pipe_letter *letter)
{
    outbox->out--;
    if (letter->capacity != MAIL_POOL_BYTES || outbox->pool_count >= MAIL_POOL_MAX) {
        base_free(letter);
        return;
    }
    letter->next = outbox->pool;
    outbox->pool = letter;
    outbox->pool_count++;
}

static void append(struct pipe_outbox *outbox, struct pipe_letter *letter)
{
    *outbox->end = letter;
    outbox->end = &letter->next;
    outbox->out++;
}

void pipe_post(struct pipe *pipe, int to, struct pipe_header header, const struct pipe_part *parts,
               int part_count)
{
    size_t bytes = 0, at = 0;
    for (int i = 0; i < part_count; i++)
        bytes += parts[i].bytes;
    struct pipe_letter *letter = take_letter(pipe, bytes);
    if (!letter)
        return;
    for (int i = 0; i < part_count; i++) {
        if (parts[i].bytes > 0)
            memcpy(letter->body + at, parts[i].data, parts[i].bytes);
        at += parts[i].bytes;
    }
    header.number = ++pipe->outbox.numbers[to];
    letter->header = header;
    letter->to = to;
    letter->tag = 0;
    letter->data = &letter->header;
    letter->bytes = sizeof(letter->header) + bytes;
    append(&pipe->outbox, letter);
    pipe->outbox.urgent |=
        header.type != LETTER_DROP && header.type != LETTER_RETURN && header.type != LETTER_OVER;
    pipe->counted.messages++;
}

uint32_t pipe_next_tag(struct pipe *pipe, int to)
{
    uint32_t *tag = &pipe->outbox.tags[to];
    *tag = *tag == INT32_MAX ? 1 : *tag + 1;
    return *tag;
}

void pipe_post_data(struct pipe *pipe, int to, uint32_t tag, struct pipe_value *value)
{
    struct pipe_letter *letter = take_letter(pipe, 0);
    if (!letter)
        return;
    letter->value = value;
    letter->to = to;
    letter->tag = (int)tag;
    letter->data = value->memory;
    letter->bytes = value->memory_bytes;
    value->sends_out++;
    append(&pipe->outbox, letter);
    pipe->outbox.urgent = true;
    pipe->counted.messages++;
    pipe->counted.message_bytes += value->memory_bytes;
}

/* Token held, or the engine has nothing of the letter. */
static void letter_is_sent(struct pipe_letter *letter)
{
    struct pipe *pipe = letter->pipe;
    pthread_mutex_lock(&pipe->lock);
    struct pipe_value *value = letter->value;
    give_back(&pipe->outbox, letter);
    if (value) {
        value->sends_out--;
        pipe_value_tidy(pipe, value);
    }
    if (pipe->outbox.out == 0)
        pipe_changed(pipe); /* pipe_free waits for it */
    pthread_mutex_unlock(&pipe->lock);
    base_bell_ring(&pipe->bell);
}

static void on_sent(struct comm_task *task, enum shoal_status status)
{
    (void)status;
    letter_is_sent(task->owner);
}

static struct pipe_letter *take_posted(struct pipe *pipe)
{
    struct pipe_outbox *outbox = &pipe->outbox;
    pthread_mutex_lock(&pipe->lock);
    struct pipe_letter *letter = outbox->first;
    outbox->urgent = false;
    if (letter) {
        outbox->first = letter->next;
        if (!outbox->first)
            outbox->end = &outbox->first;
        letter->next = NULL;
    }
    pthread_mutex_unlock(&pipe->lock);
    return letter;
}

/* Token held. */
static void send_posted(struct pipe *pipe)
{
    for (struct pipe_letter *letter = take_posted(pipe); letter; letter = take_posted(pipe)) {
        struct comm_call call = {.kind = COLL_SEND,
                                 .dtype = SHOAL_U8,
                                 .in = letter->data,
                                 .count = letter->bytes,
                                 .root = letter->to,
                                 .tag = letter->tag};
        if (comm_engine_start_send(pipe->group->engine, pipe->group, &call, ++pipe->mail.sequence,
                                   BASE_NO_DEADLINE, on_sent, letter) != SHOAL_OK)
            letter_is_sent(letter);
    }
}

static enum shoal_status start_doorbell(struct comm_group *group, struct comm_request *request)
{
    (void)group;
    struct pipe *pipe = (struct pipe *)((char *)request - offsetof(struct pipe, mail.doorbell));
    atomic_store(&pipe->mail.doorbell_queued, false);
    send_posted(pipe);
    return SHOAL_OK;
}

void pipe_mail_go(struct pipe *pipe, bool here)
{
    struct comm_world *world = pipe->group->world;
    if (atomic_exchange(&pipe->mail.doorbell_queued, true))
        return;
    pipe->mail.doorbell.group = pipe->group;
    pipe->mail.doorbell.path = &doorbell_path;
    comm_progress_submit(world, &pipe->mail.doorbell);
    comm_progress_go(world, here);
}

/* ---- in
 * ---------------------------------------------------------------------------------------------- */

static void on_letter(struct comm_task *task, enum shoal_status status);

static void post_slot(struct pipe_slot *slot)
{
    struct pipe *pipe = slot->pipe;
    struct comm_call call = {.kind = COLL_RECV,
                             .dtype = SHOAL_U8,
                             .out = slot->bytes,
                             .count = SLOT_BYTES,
                             .root = SHOAL_ANY_SOURCE,
                             .info = &slot->info};
    slot->posted = true;
    if (comm_engine_start_send(pipe->group->engine, pipe->group, &call, ++pipe->mail.sequence,
                               BASE_NO_DEADLINE, on_letter, slot) != SHOAL_OK)
        slot->posted = false; /* the pipe is broken */
}

/* The slot whose letter is the next one of its rank; NULL: none. */
static struct pipe_slot *take_in_turn(struct pipe_mail *mail)
{
    for (struct pipe_slot **at = &mail->held; *at; at = &(*at)->next) {
        struct pipe_slot *slot = *at;
        const struct pipe_header *header = (const struct pipe_header *)slot->bytes;
        if (header->number == mail->expected[slot->info.source]) {
            *at = slot->next;
            return slot;
        }
    }
    return NULL;
}

static bool take_arrived(struct pipe *pipe)
{
    struct pipe_mail *mail = &pipe->mail;
    struct pipe_slot *slot = mail->arrived;
    if (!slot)
        return false;
    mail->arrived = slot->next;
    if (!mail->arrived)
        mail->arrived_end = &mail->arrived;
    if (mail->closing) {
        slot->next = NULL; /* this rank's own, to end the receive */
    } else if (slot->info.bytes < sizeof(struct pipe_header)) {
        pipe_fail(pipe, SHOAL_ERR_FORMAT, "a message of %llu bytes came from rank %d of the pipe",
                  (unsigned long long)slot->info.bytes, slot->info.source);
    } else {
        slot->next = mail->held;
        mail->held = slot;
    }
    return true;
}

/* Not from within itself: a receive that is posted may be done before that returns. */
static void read_letters(struct pipe *pipe)
{
    struct pipe_mail *mail = &pipe->mail;
    if (mail->reading)
        return;
    mail->reading = true;
    while (take_arrived(pipe))
        for (struct pipe_slot *slot = take_in_turn(mail); slot; slot = take_in_turn(mail)) {
            const struct pipe_header *header = (const struct pipe_header *)slot->bytes;
            mail->expected[slot->info.source]++;
            pipe_receive(pipe, slot->info.source, header, slot->bytes + sizeof(*header),
                         slot->info.bytes - sizeof(*header));
            post_slot(slot);
        }
    mail->reading = false;
    send_posted(pipe);
}

static void on_letter(struct comm_task *task, enum shoal_status status)
{
    struct pipe_slot *slot = task->owner;
    struct pipe *pipe = slot->pipe;
    struct pipe_mail *mail = &pipe->mail;
    slot->posted = false;
    if (status != SHOAL_OK) {
        pthread_mutex_lock(&pipe->lock);
        pipe_changed(pipe);
        pthread_mutex_unlock(&pipe->lock);
        base_bell_ring(&pipe->bell);
        return;
    }
    slot->next = NULL;
    *mail->arrived_end = slot;
    mail->arrived_end = &slot->next;
    read_letters(pipe);
    base_bell_ring(&pipe->bell);
}

/* ---- data
 * ---------------------------------------------------------------------------------------------- */

struct expected_data {
    struct pipe *pipe;
    struct pipe_value *value;
};

static void on_data(struct comm_task *task, enum shoal_status status)
{
    struct expected_data *data = task->owner;
    struct pipe *pipe = data->pipe;
    pthread_mutex_lock(&pipe->lock);
    if (status == SHOAL_OK)
        pipe_value_complete(pipe, data->value);
    pthread_mutex_unlock(&pipe->lock);
    base_free(data);
    base_bell_ring(&pipe->bell);
}

void pipe_mail_expect(struct pipe *pipe, int from, uint32_t tag, struct pipe_value *value)
{
    struct expected_data *data = NULL;
    struct comm_call call = {.kind = COLL_RECV,
                             .dtype = SHOAL_U8,
                             .out = value->memory,
                             .count = value->memory_bytes,
                             .root = from,
                             .tag = (int)tag};
    if (BASE_NEW(&data, "a value's message") != SHOAL_OK) {
        pipe_fail(pipe, SHOAL_ERR_MEMORY, "%s", base_error_text());
        return;
    }
    *data = (struct expected_data){pipe, value};
    if (comm_engine_start_send(pipe->group->engine, pipe->group, &call, ++pipe->mail.sequence,
                               BASE_NO_DEADLINE, on_data, data) != SHOAL_OK)
        base_free(data);
}

/* ---- life
 * ---------------------------------------------------------------------------------------------- */

void pipe_mail_open(struct pipe *pipe)
{
    comm_progress_take(pipe->group->world);
    for (int i = 0; i < MAIL_SLOTS; i++)
        post_slot(&pipe->mail.slots[i]);
    comm_progress_release(pipe->group->world);
}

static void on_closed(struct comm_task *task, enum shoal_status status)
{
    (void)task;
    (void)status;
}

/* Messages to itself end the receives, and nobody hears of it. */
static void end_receives(struct pipe *pipe)
{
    struct comm_group *group = pipe->group;
    struct comm_call call = {.kind = COLL_SEND, .dtype = SHOAL_U8, .root = group->rank};
    int posted = 0;
    pipe->mail.closing = true;
    for (int i = 0; i < MAIL_SLOTS; i++)
        posted += pipe->mail.slots[i].posted;
    for (int i = 0; i < posted && !comm_group_broken(group); i++)
        comm_engine_start_send(group->engine, group, &call, ++pipe->mail.sequence, BASE_NO_DEADLINE,
                               on_closed, NULL);
}

void pipe_mail_close(struct pipe *pipe)
{
    struct comm_world *world = pipe->group->world;
    while (atomic_load(&pipe->mail.doorbell_queued)) {
        comm_progress_kick(world);
        base_sleep_ms(CLOSE_LOOK_MS);
    }
    comm_progress_take(world);
    end_receives(pipe);
    comm_progress_release(world);
}
