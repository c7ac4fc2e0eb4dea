/* SPDX-License-Identifier: Apache-2.0 */
/*
 * early.c: frames that came before their operation was ready for them.
 *
 * Collective frames lie in a hash table by (context, sequence) until their operation starts, which
 * takes them all at once; point to point frames in one list in order of arrival. Records are kept
 * for reuse; those with a slot hold one eager payload.
 */
#include <string.h>

#include "base/memory.h"
#include "base/status.h"
#include "comm/engine_state.h"

static uint32_t bucket_of(uint64_t context, uint64_t sequence)
{
    uint64_t mixed =
        (context ^ sequence * UINT64_C(0x9e3779b97f4a7c15)) * UINT64_C(0xbf58476d1ce4e5b9);
    return (uint32_t)(mixed >> 40) & (COMM_EARLY_BUCKETS - 1);
}

static enum shoal_status early_take(struct comm_engine *engine, int peer, const struct wire *wire,
                                    uint64_t payload_bytes, struct comm_early **out)
{
    bool with_slot = payload_bytes > 0;
    if (payload_bytes > engine->options.eager_bytes)
        return base_error(SHOAL_ERR_MISMATCH,
                          "it sends %llu bytes unasked, but SHOAL_EAGER_BYTES is %llu here: the "
                          "option must be the same on all ranks",
                          (unsigned long long)payload_bytes,
                          (unsigned long long)engine->options.eager_bytes);
    if (engine->early_count >= COMM_EARLY_MAX)
        return base_error(SHOAL_ERR_LIMIT,
                          "%u messages wait here for operations that were not called yet",
                          COMM_EARLY_MAX);
    struct comm_early **idle = with_slot ? &engine->idle_slots : &engine->idle_small;
    struct comm_early *early = *idle;
    if (early) {
        *idle = early->next;
    } else {
        size_t bytes = sizeof(*early) + (with_slot ? engine->options.eager_bytes : 0);
        TRY(base_alloc(bytes, "an early frame", (void **)&early));
        early->slot = with_slot ? (unsigned char *)(early + 1) : NULL;
    }
    unsigned char *slot = early->slot;
    memset(early, 0, sizeof(*early));
    early->slot = slot;
    early->wire = *wire;
    early->peer = peer;
    early->payload_bytes = payload_bytes;
    early->complete = payload_bytes == 0;
    engine->early_count++;
    *out = early;
    return SHOAL_OK;
}

/* Remembers that a group which is not made yet can't work. */
static void doom(struct comm_engine *engine, uint64_t context, enum shoal_status why)
{
    uint32_t at = engine->doomed_count++ % COMM_DOOMED_MAX;
    engine->doomed[at] = context;
    engine->doomed_why[at] = why;
}

struct comm_early *early_keep(struct comm_engine *engine, struct comm_group *group, int peer,
                              const struct wire *wire, uint64_t payload_bytes)
{
    struct comm_early *early = NULL;
    if (!group && engine_is_closed(engine, wire->context)) {
        engine_slot_free(engine, peer, wire);
        return NULL;
    }
    enum shoal_status status = early_take(engine, peer, wire, payload_bytes, &early);
    if (status != SHOAL_OK) {
        engine_slot_free(engine, peer, wire);
        if (group)
            comm_group_break(group, status,
                             "group '%s': a message that came early from rank %d to rank %d has no "
                             "place: %s",
                             group->name, group->rank_of[peer], group->rank, base_error_text());
        else
            doom(engine, wire->context, status);
        return NULL;
    }
    if (payload_bytes > 0) {
        struct comm_arrival *arrival = &engine->peers[peer].arrival;
        arrival->kind = ARRIVAL_EARLY;
        arrival->early = early;
    }
    return early;
}

void early_give_back(struct comm_engine *engine, struct comm_early *early)
{
    struct comm_early **idle = early->slot ? &engine->idle_slots : &engine->idle_small;
    early->next = *idle;
    *idle = early;
    engine->early_count--;
}

void early_drop(struct comm_engine *engine, struct comm_early *early)
{
    if (!early->complete)
        engine_divert(engine, early->peer);
    engine_slot_free(engine, early->peer, &early->wire);
    early_give_back(engine, early);
}

void early_file(struct comm_engine *engine, struct comm_early *early)
{
    struct comm_early **first =
        &engine->early[bucket_of(early->wire.context, early->wire.sequence)];
    early->next = *first;
    *first = early;
    const struct comm_serving *serving = &engine->options.serving;
    struct comm_asked asked = {.context = early->wire.context,
                               .sequence = early->wire.sequence,
                               .signature = engine_signature(&early->wire),
                               .reproducible = early->wire.reproducible,
                               .version = early->wire.version};
    if (serving->called)
        serving->called(serving->user, &asked);
}

struct comm_early *early_pull(struct comm_engine *engine, uint64_t context, uint64_t sequence)
{
    struct comm_early **at = &engine->early[bucket_of(context, sequence)];
    for (; *at; at = &(*at)->next) {
        struct comm_early *early = *at;
        if (early->wire.context != context || early->wire.sequence != sequence)
            continue;
        *at = early->next;
        return early;
    }
    return NULL;
}

/* Drops the context's records in one list. */
static void forget_in(struct comm_engine *engine, struct comm_early **at, uint64_t context)
{
    while (*at) {
        struct comm_early *early = *at;
        if (early->wire.context != context) {
            at = &early->next;
            continue;
        }
        *at = early->next;
        early_drop(engine, early);
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
