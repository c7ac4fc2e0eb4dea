/* SPDX-License-Identifier: Apache-2.0 */
/*
 * early.c: frames that came before their operation was ready for them.
 *
 * Collective frames are found by (context, sequence) in a hash table, point to point frames in one
 * list in order of arrival. Records are kept for reuse; those with a slot hold one eager payload.
 */
#include <string.h>

#include "base/memory.h"
#include "comm/engine_state.h"

static uint32_t bucket_of(uint64_t context, uint64_t sequence)
{
    uint64_t mixed =
        (context ^ sequence * UINT64_C(0x9e3779b97f4a7c15)) * UINT64_C(0xbf58476d1ce4e5b9);
    return (uint32_t)(mixed >> 40) & (COMM_EARLY_BUCKETS - 1);
}

struct comm_early *early_take(struct comm_engine *engine, bool with_slot)
{
    if (engine->early_count >= COMM_EARLY_MAX)
        return NULL;
    struct comm_early **idle = with_slot ? &engine->idle_slots : &engine->idle_small;
    struct comm_early *early = *idle;
    if (early) {
        *idle = early->next;
    } else {
        size_t bytes = sizeof(*early) + (with_slot ? engine->options.eager_bytes : 0);
        if (base_alloc(bytes, "an early frame", (void **)&early) != SHOAL_OK)
            return NULL;
        early->slot = with_slot ? (unsigned char *)(early + 1) : NULL;
    }
    unsigned char *slot = early->slot;
    memset(early, 0, sizeof(*early));
    early->slot = slot;
    engine->early_count++;
    return early;
}

void early_give_back(struct comm_engine *engine, struct comm_early *early)
{
    struct comm_early **idle = early->slot ? &engine->idle_slots : &engine->idle_small;
    early->next = *idle;
    *idle = early;
    engine->early_count--;
}

void early_file(struct comm_engine *engine, struct comm_early *early)
{
    struct comm_early **at = &engine->early[bucket_of(early->wire.context, early->wire.sequence)];
    while (*at)
        at = &(*at)->next;
    early->next = NULL;
    *at = early;
}

struct comm_early *early_find(struct comm_engine *engine, uint64_t context, uint64_t sequence,
                              int peer, uint32_t message, uint32_t type_mask)
{
    struct comm_early **at = &engine->early[bucket_of(context, sequence)];
    for (; *at; at = &(*at)->next) {
        struct comm_early *early = *at;
        if (early->wire.context != context || early->wire.sequence != sequence ||
            early->peer != peer || early->wire.message != message ||
            !(type_mask >> early->wire.type & 1))
            continue;
        *at = early->next;
        return early;
    }
    return NULL;
}

struct comm_early *early_look(struct comm_engine *engine, uint64_t context, uint64_t sequence,
                              struct comm_early *after)
{
    struct comm_early *at = after ? after->next : engine->early[bucket_of(context, sequence)];
    while (at && (at->wire.context != context || at->wire.sequence != sequence))
        at = at->next;
    return at;
}

/* Takes the context's records out of one list. */
static void forget_in(struct comm_engine *engine, struct comm_early **at, uint64_t context)
{
    while (*at) {
        struct comm_early *early = *at;
        if (early->wire.context != context) {
            at = &early->next;
            continue;
        }
        *at = early->next;
        if (!early->complete)
            engine_divert(engine, early->peer);
        early_give_back(engine, early);
    }
}

void early_forget(struct comm_engine *engine, uint64_t context)
{
    for (int i = 0; i < COMM_EARLY_BUCKETS; i++)
        forget_in(engine, &engine->early[i], context);
    forget_in(engine, &engine->early_sends, context);
    engine->early_sends_end = &engine->early_sends;
    while (*engine->early_sends_end)
        engine->early_sends_end = &(*engine->early_sends_end)->next;
}

static void free_list(struct comm_early *list)
{
    while (list) {
        struct comm_early *next = list->next;
        base_free(list);
        list = next;
    }
}

void early_free_all(struct comm_engine *engine)
{
    for (int i = 0; i < COMM_EARLY_BUCKETS; i++)
        free_list(engine->early[i]);
    free_list(engine->early_sends);
    free_list(engine->idle_small);
    free_list(engine->idle_slots);
}
