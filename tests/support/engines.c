/* SPDX-License-Identifier: Apache-2.0 */
/* engines.c: see engines.h. */
#include "support/engines.h"

#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/memory.h"
#include "support/late_sent.h"

#define RING_BYTES 4096
#define ROUNDS_MAX 10000000 /* of polls that moved something: more is a livelock */

static const char *const host_names[ENGINES_MAX] = {"ant",  "bee",  "cod",  "doe", "eel",  "fox",
                                                    "gnu",  "hen",  "ibis", "jay", "koi",  "lynx",
                                                    "mole", "newt", "owl",  "pig", "quail"};

static const struct net_transport *transport_of(const struct net_endpoint *endpoint)
{
    return *(const struct net_transport *const *)endpoint;
}

int64_t engines_now_ns(const struct engines *engines)
{
    return engines->sim ? net_sim_now_ns(engines->sim) : engines->now_ns;
}

static int64_t clock_of(void *user)
{
    return engines_now_ns(user);
}

static enum shoal_status open_rank(struct engines *engines, const struct engines_options *given,
                                   int rank, unsigned char *address, size_t *address_bytes)
{
    struct comm_engine_options options = {.rank = rank,
                                          .size = engines->size,
                                          .eager_bytes = engines->eager_bytes,
                                          .now_ns = clock_of,
                                          .now_user = engines,
                                          .host_names = host_names};
    TRY(comm_engine_create(&options, &engines->engine[rank]));
    void *place = engines->sim ? (void *)engines->sim : (void *)engines->hall;
    struct late_sent_context late = {
        .inner = engines->sim ? &net_sim : &net_inproc, .context = place, .seed = given->late_seed};
    struct net_endpoint_options endpoint = {.rank = rank,
                                            .size = engines->size,
                                            .connect_timeout_ms = 1000,
                                            .context = given->late_seed ? &late : place};
    const struct net_transport *transport = given->late_seed ? &late_sent : late.inner;
    struct net_events events;
    comm_engine_events(engines->engine[rank], &events);
    TRY(transport->open(&endpoint, &events, address, address_bytes, &engines->endpoint[rank]));
    bool peers[ENGINES_MAX];
    for (int i = 0; i < engines->size; i++)
        peers[i] = i != rank;
    return comm_engine_attach(engines->engine[rank], engines->endpoint[rank], peers);
}

static enum shoal_status open_all(struct engines *engines, const struct engines_options *given)
{
    unsigned char addresses[ENGINES_MAX][NET_ADDRESS_BYTES];
    const unsigned char *at[ENGINES_MAX];
    size_t bytes[ENGINES_MAX];
    for (int i = 0; i < engines->size; i++) {
        at[i] = addresses[i];
        TRY(open_rank(engines, given, i, addresses[i], &bytes[i]));
    }
    for (int i = 0; i < engines->size; i++)
        TRY(transport_of(engines->endpoint[i])->set_peers(engines->endpoint[i], at, bytes));
    return SHOAL_OK;
}

enum shoal_status engines_open(const struct engines_options *options, struct engines **out)
{
    struct engines *engines = NULL;
    BASE_ASSERT(options->size <= ENGINES_MAX);
    TRY(BASE_NEW(&engines, "the test's engines"));
    engines->size = options->size;
    engines->eager_bytes = options->eager_bytes;
    engines->sim = options->sim;
    engines->now_ns = BASE_NS_PER_S;
    enum shoal_status status = SHOAL_OK;
    size_t ring_bytes = options->ring_bytes ? options->ring_bytes : RING_BYTES;
    if (!engines->sim)
        status = net_inproc_hall_create(options->size, ring_bytes, &engines->hall);
    if (status == SHOAL_OK)
        status = open_all(engines, options);
    if (status != SHOAL_OK) {
        engines_close(engines);
        return status;
    }
    *out = engines;
    return SHOAL_OK;
}

void engines_leave(struct engines *engines, int rank, int64_t linger_ms)
{
    struct net_endpoint *endpoint = engines->endpoint[rank];
    engines->endpoint[rank] = NULL;
    engines->dead[rank] = true;
    transport_of(endpoint)->close(endpoint, linger_ms);
}

void engines_close(struct engines *engines)
{
    if (!engines)
        return;
    for (int i = 0; i < engines->size; i++)
        if (engines->endpoint[i])
            engines_leave(engines, i, 0);
    for (int i = 0; i < engines->size; i++)
        comm_engine_free(engines->engine[i]);
    net_inproc_hall_free(engines->hall);
    base_free(engines);
}

int engines_poll(struct engines *engines)
{
    int moved = 0;
    for (int i = 0; i < engines->size; i++) {
        int rank = (engines->first + i) % engines->size;
        if (!engines->dead[rank])
            moved += comm_engine_poll(engines->engine[rank]);
    }
    engines->first = (engines->first + 1) % engines->size;
    return moved;
}

void engines_settle(struct engines *engines)
{
    int quiet = 0;
    for (int round = 0; quiet < 2; round++) {
        BASE_ASSERT(round < ROUNDS_MAX);
        quiet = engines_poll(engines) > 0 ? 0 : quiet + 1;
    }
}

void engines_kill(struct engines *engines, int rank)
{
    engines->dead[rank] = true;
    net_inproc_kill(engines->hall, rank);
}

enum shoal_status engines_group_open(struct engines *engines, const int *members, int size,
                                     const int *host_of, uint64_t context, int64_t timeout_ms,
                                     struct engines_group **out)
{
    struct engines_group *group = NULL;
    TRY(BASE_NEW(&group, "a test's group on all ranks"));
    group->engines = engines;
    group->size = size;
    group->timeout_ns = timeout_ms * BASE_NS_PER_MS;
    int host_each[ENGINES_MAX];
    for (int i = 0; i < ENGINES_MAX; i++)
        host_each[i] = i;
    for (int i = 0; i < size; i++)
        group->members[i] = members ? members[i] : i;
    char name[64];
    snprintf(name, sizeof(name), "group %llu", (unsigned long long)context);
    for (int i = 0; i < size; i++) {
        enum shoal_status status =
            comm_group_make(group->members[i], engines->size, host_of ? host_of : host_each,
                            group->members, size, name, context, &group->of[i]);
        if (status != SHOAL_OK) {
            engines_group_close(group);
            return status;
        }
        atomic_store(&group->of[i]->timeout_ms, timeout_ms);
        comm_engine_add_group(engines_of(group, i), group->of[i]);
    }
    *out = group;
    return SHOAL_OK;
}

void engines_group_close(struct engines_group *group)
{
    if (!group)
        return;
    for (int i = 0; i < group->size && group->of[i]; i++) {
        if (group->of[i]->first_task) { /* of a rank that was killed or stopped */
            comm_group_break(group->of[i], SHOAL_ERR_ABORTED, "the test ends");
            comm_engine_group_broke(engines_of(group, i), group->of[i]);
        }
        comm_engine_remove_group(engines_of(group, i), group->of[i]);
        while (group->of[i]->plans) {
            struct comm_plan *plan = group->of[i]->plans;
            group->of[i]->plans = plan->next;
            comm_plan_free(plan);
        }
        comm_group_dispose(group->of[i]);
    }
    base_free(group);
}

struct comm_engine *engines_of(const struct engines_group *group, int rank)
{
    return group->engines->engine[group->members[rank]];
}
