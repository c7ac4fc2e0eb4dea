/* SPDX-License-Identifier: Apache-2.0 */
/* message.c: see message.h. */
#include "support/message.h"

#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "kernel/kernel.h"

#define GUARD_BYTES 64
#define GUARD       0xa5
#define AFTER       0xee

static unsigned char pattern(uint64_t seed, uint64_t byte)
{
    return (unsigned char)(seed * 29 + byte * 13 + (byte >> 8) * 7 + 1);
}

static void on_done(struct comm_task *task, enum shoal_status status)
{
    struct message *message = task->owner;
    BASE_ASSERT(!message->done);
    message->done = true;
    message->done_ns = engines_now_ns(message->group->engines);
    message->status = status;
    if (status != SHOAL_OK)
        snprintf(message->text, sizeof(message->text), "%s", task->group->failure.text);
    memcpy(message->got, message->memory, message->memory_bytes);
    memset(message->memory, AFTER, message->memory_bytes);
}

static void message_free(struct message *message)
{
    base_free(message->memory);
    base_free(message->got);
    base_free(message);
}

static enum shoal_status take_memory(struct message *message)
{
    const struct message_options *options = &message->options;
    uint64_t bytes = options->count * kernel_dtype_bytes(options->dtype);
    message->memory_bytes = bytes + 2 * GUARD_BYTES;
    TRY(base_alloc(message->memory_bytes, "a test's message", (void **)&message->memory));
    TRY(base_alloc(message->memory_bytes, "a test's message", (void **)&message->got));
    memset(message->memory, GUARD, message->memory_bytes);
    for (uint64_t i = 0; !options->receives && i < bytes; i++)
        message->memory[GUARD_BYTES + i] = pattern(options->seed, i);
    return SHOAL_OK;
}

enum shoal_status message_start(struct engines_group *group, const struct message_options *options,
                                struct message **out)
{
    struct message *message = NULL;
    TRY(BASE_NEW(&message, "a test's message"));
    message->options = *options;
    message->group = group;
    enum shoal_status status = take_memory(message);
    struct comm_call call = {.kind = options->receives ? COLL_RECV : COLL_SEND,
                             .dtype = options->dtype,
                             .count = options->count,
                             .root = options->peer,
                             .tag = options->tag};
    if (status == SHOAL_OK && options->receives) {
        call.out = message->memory + GUARD_BYTES;
        call.info = &message->info;
    } else if (status == SHOAL_OK) {
        call.in = message->memory + GUARD_BYTES;
    }
    message->deadline_ns = engines_now_ns(group->engines) + group->timeout_ns;
    *out = message; /* before the start: it may be done within */
    if (status == SHOAL_OK)
        status = comm_engine_start_send(engines_of(group, options->rank), group->of[options->rank],
                                        &call, ++group->send_sequence[options->rank],
                                        message->deadline_ns, on_done, message);
    if (status != SHOAL_OK) {
        *out = NULL;
        message_free(message);
    }
    return status;
}

bool message_got(const struct message *message, const struct message_options *from)
{
    uint64_t bytes = from->count * kernel_dtype_bytes(from->dtype);
    if (!message->done || message->status != SHOAL_OK || message->info.bytes != bytes ||
        message->info.source != from->rank || message->info.tag != from->tag)
        return false;
    for (uint64_t i = 0; i < message->memory_bytes; i++) {
        bool inside = i >= GUARD_BYTES && i < GUARD_BYTES + bytes;
        unsigned char expected = inside ? pattern(from->seed, i - GUARD_BYTES) : GUARD;
        if (message->got[i] != expected)
            return false;
    }
    return true;
}

bool message_end(struct message *message)
{
    bool untouched = true;
    for (size_t i = 0; message->done && i < message->memory_bytes; i++)
        untouched &= message->memory[i] == AFTER;
    message_free(message);
    return untouched;
}
