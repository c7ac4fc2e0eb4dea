/* SPDX-License-Identifier: Apache-2.0 */
/*
 * steer.c: exchanges of what was measured, and which operation goes by which.
 *
 * Period e has the counted operations e P to (e+1) P - 1. An exchange begins after the last one of
 * each period, and operations go by it from the first one of the period after next on: exchange e
 * is used before operation (e+2) P. A request that comes before its exchange has ended is held, and
 * with it all collectives of the group behind it, since the engine starts them in their order; the
 * end of the exchange, or of the group, lets them go.
 *
 * An exchange's end is a callback on the thread that moves the engine. It takes the group's door,
 * as the user's callbacks may: while an exchange is pending nobody carries out an operation under
 * the door, so it is never kept for long.
 */
#include "comm/steer.h"

#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/options.h"
#include "comm/shares.h"
#include "comm/streams.h"

#define FINISH_MS      5000
#define FINISH_LOOK_MS 1

struct exchange {
    struct exchange *next;
    struct comm_group *group;
    struct comm_request *request;
    bool has_ended;
    struct comm_streams_period period; /* the one behind it */
    uint64_t *own;                     /* [words] this rank's report */
    uint64_t *all;                     /* [size * words] */
};

struct comm_steering {
    comm_make_plan *make;
    bool has_shares, has_streams; /* what is chosen by the measurements */
    int words;                    /* of a report */
    struct comm_shares shares;
    struct comm_streams streams;
    struct comm_streams_period period;  /* what the next exchange reports of */
    struct comm_streams_window carried; /* by all flows up to the last one */
    uint64_t carried_us;                /* when that was, by rank 0's clock; 0: there was none */
    uint32_t version, last_version;     /* in use; given so far */
    uint64_t number;                    /* of the next operation */
    uint64_t turned;                    /* the last one whose exchange was used */
    struct exchange *first, **end;      /* not used yet, oldest first */
    struct exchange *used;              /* whose requests are still to be given back */
    struct comm_request *held, **held_end;
    uint64_t held_number; /* of the first held one */
};

/* ---- life ---------------------------------------------------------------------------------- */

static struct comm_sites sites_of(const struct comm_group *group)
{
    return (struct comm_sites){.host_of = group->host_of,
                               .rank_count = comm_group_rank_count(group),
                               .member_count = group->size,
                               .rank_hosts = comm_group_rank_hosts(group),
                               .host_count = group->host_count};
}

bool comm_steer_can(const struct comm_group *group)
{
    struct comm_sites sites = sites_of(group);
    return sites.rank_hosts > 1 && comm_shares_matter(&sites) &&
           sites.member_count <= COMM_SHARES_MEMBERS_MAX && group->world && group->world->tcp &&
           strcmp(base_option_text(OPTION_SHARES), "auto") == 0;
}

static bool tries_streams(const struct comm_group *group)
{
    return group->is_root && group->server_count == 0 && group->host_count > 1 && group->world &&
           group->world->tcp && base_option_int(OPTION_STREAMS) == 0;
}

bool comm_steer_measures(const struct comm_group *group)
{
    return comm_steer_can(group) || tries_streams(group);
}

static void steering_free(struct comm_steering *steering)
{
    comm_shares_release(&steering->shares);
    base_free(steering);
}

static enum shoal_status steering_create(struct comm_group *group, comm_make_plan *make)
{
    struct comm_steering *steering;
    TRY(BASE_NEW(&steering, "a group's steering"));
    steering->make = make;
    steering->end = &steering->first;
    steering->held_end = &steering->held;
    struct comm_sites sites = sites_of(group);
    steering->has_shares = comm_steer_can(group);
    steering->has_streams = tries_streams(group);
    steering->words = steering->has_shares ? comm_shares_words(group->size) : 3;
    steering->shares.even = true;
    comm_streams_init(&steering->streams);
    steering->period = comm_streams_plan(&steering->streams);
    enum shoal_status status = SHOAL_OK;
    if (steering->has_shares)
        status = comm_shares_init(&sites, &steering->shares);
    if (status != SHOAL_OK) {
        base_free(steering);
        return status;
    }
    group->steering = steering;
    return SHOAL_OK;
}

const uint32_t *comm_steer_shares(const struct comm_group *group, const struct comm_call *call)
{
    if (!call->steered)
        return call->shares;
    return group->steering->shares.even ? NULL : group->steering->shares.now;
}

uint32_t comm_steer_version(const struct comm_group *group, const struct comm_call *call)
{
    return call->steered ? group->steering->version : call->version;
}

/* ---- use of an exchange -------------------------------------------------------------------- */

/* Rank 0 says it for all, who come to the same. */
static void report_shares(const struct comm_group *group)
{
    const struct comm_shares *shares = &group->steering->shares;
    char text[COMM_SHARES_MEMBERS_MAX * 24] = "";
    if (group->rank != 0)
        return;
    if (shares->even) {
        base_log(BASE_LOG_INFO, "group '%s': links are alike again, so all hosts sum equal parts",
                 group->name);
        return;
    }
    for (int i = 0, used = 0; i < shares->sites.host_count; i++)
        used += snprintf(text + used, sizeof(text) - (size_t)used, "%s%.0f %% at %.1f",
                         i ? ", " : "", 100.0 * shares->now[i] / SCHEDULE_SHARES_WHOLE,
                         (double)shares->rates[i] / 1000);
    base_log(BASE_LOG_INFO,
             "group '%s': links differ, so large allreduces are cut by them: hosts sum %s MB/s a "
             "flow",
             group->name, text);
}

static void report_streams(const struct comm_group *group)
{
    const struct comm_streams *streams = &group->steering->streams;
    bool more = streams->tried != 0 || streams->best == COMM_STREAMS_MAX;
    int fewer = streams->best / (more ? 2 : 1);
    if (group->rank == 0)
        base_log(BASE_LOG_INFO,
                 "group '%s': %d connections to a peer carry %.1f MB/s a flow, %d carry %.1f: "
                 "large messages go over %d",
                 group->name, 2 * fewer, (double)streams->more_rate / 1000, fewer,
                 (double)streams->fewer_rate / 1000, streams->best);
}

static void judge_streams(struct comm_group *group, const struct exchange *exchange)
{
    struct comm_steering *steering = group->steering;
    struct comm_streams_window now = {0}, before = steering->carried;
    uint64_t now_us = exchange->all[0], before_us = steering->carried_us;
    struct comm_streams_period period = steering->period;
    for (int rank = 0; rank < group->size; rank++) {
        const uint64_t *report = exchange->all + (size_t)rank * (size_t)steering->words;
        for (int i = 1; i < steering->words; i += 2) {
            now.bytes += report[i];
            now.busy_us += report[i + 1];
        }
    }
    steering->carried = now;
    steering->carried_us = now_us;
    steering->period = exchange->period;
    now.bytes -= before.bytes;
    now.busy_us -= before.busy_us;
    if (before_us != 0 && comm_streams_judge(&steering->streams, period, now_us - before_us, now))
        report_streams(group);
}

static void use(struct comm_group *group, struct exchange *exchange)
{
    struct comm_steering *steering = group->steering;
    steering->first = exchange->next;
    if (!steering->first)
        steering->end = &steering->first;
    exchange->next = steering->used;
    steering->used = exchange;
    if (steering->has_streams)
        judge_streams(group, exchange);
    if (!steering->has_shares || !comm_shares_judge(&steering->shares, exchange->all))
        return;
    steering->version = steering->shares.even ? 0 : ++steering->last_version;
    comm_plan_drop_versions(group, steering->version);
    report_shares(group);
}

/* Streams are settled after a while, shares never. */
static bool has_exchange(const struct comm_steering *steering, uint64_t period)
{
    return steering->has_shares || period < COMM_STREAMS_PERIODS;
}

/* Puts the shares in place for the operation of that number. False: they are not known yet. */
static bool turn_to(struct comm_group *group, uint64_t number)
{
    struct comm_steering *steering = group->steering;
    bool begins = number % COMM_STEER_PERIOD == 0 && number >= 2 * COMM_STEER_PERIOD &&
                  has_exchange(steering, number / COMM_STEER_PERIOD - 2);
    if (!begins || steering->turned == number)
        return true;
    if (!steering->first || !steering->first->has_ended)
        return false;
    use(group, steering->first);
    steering->turned = number;
    return true;
}

enum shoal_status comm_steer_next(struct comm_group *group, comm_make_plan *make, bool *known)
{
    if (!group->steering)
        TRY(steering_create(group, make));
    *known = !group->steering->held && turn_to(group, group->steering->number);
    return SHOAL_OK;
}

bool comm_steer_holds(const struct comm_group *group)
{
    return group->steering && group->steering->held;
}

void comm_steer_hold(struct comm_group *group, struct comm_request *request)
{
    struct comm_steering *steering = group->steering;
    if (!steering->held)
        steering->held_number = steering->number;
    request->next = NULL;
    *steering->held_end = request;
    steering->held_end = &request->next;
}

/* ---- requests ------------------------------------------------------------------------------ */

struct comm_carried comm_steer_carried(struct comm_group *group)
{
    struct comm_carried carried = {0};
    comm_progress_take(group->world);
    for (int peer = 0; peer < group->size; peer++) {
        struct net_flow flow = {0};
        if (group->host_of[peer] == group->host_of[group->rank] ||
            !comm_engine_flow(group->engine, group->members[peer], &flow))
            continue;
        carried.bytes += flow.acked_bytes;
        carried.busy_us += flow.busy_us;
        carried.links++;
    }
    comm_progress_release(group->world);
    return carried;
}

/* Where the kernel does not count, it stays zero, and nothing will be known of that flow. */
static void fill_report(const struct comm_group *group, uint64_t *report)
{
    bool each = group->steering->has_shares;
    memset(report, 0, sizeof(*report) * (size_t)group->steering->words);
    report[0] = (uint64_t)base_now_ns() / 1000;
    for (int peer = 0; peer < group->size; peer++) {
        struct net_flow flow = {0};
        if (peer != group->rank)
            comm_engine_flow(group->engine, group->members[peer], &flow);
        report[1 + (each ? 2 * peer : 0)] += flow.acked_bytes;
        report[2 + (each ? 2 * peer : 0)] += flow.busy_us;
    }
}

/* Token held. */
static enum shoal_status start_exchange(struct comm_group *group, struct comm_request *request)
{
    struct exchange *exchange = request->callback_user;
    fill_report(group, exchange->own);
    if (group->steering->has_streams)
        comm_engine_use_streams(group->engine, exchange->period.count);
    return comm_path_plan.start(group, request);
}

static const struct comm_path exchange_path = {NULL, start_exchange, true};

/* When an exchange leaves for the engine: on all ranks after the same ones have been used. */
static void plan_streams(struct comm_steering *steering, struct exchange *exchange)
{
    exchange->period = comm_streams_plan(&steering->streams);
}

/* Gives the first held request its plan, if it has none. False: its shares are not known yet. */
static bool cut_held(struct comm_group *group, struct comm_request *request)
{
    struct comm_steering *steering = group->steering;
    if (!request->call.counted || comm_group_broken(group))
        return true;
    if (!turn_to(group, steering->held_number))
        return false;
    steering->held_number++;
    enum shoal_status status =
        comm_plan_take(group, &request->call, steering->make, &request->plan);
    if (status != SHOAL_OK)
        comm_group_break(group, status, "%s", base_error_text());
    return true;
}

/* Queues those that need not be held any more; of a broken group all, which then end with its
 * cause. */
static void let_go(struct comm_group *group)
{
    struct comm_steering *steering = group->steering;
    while (steering->held && cut_held(group, steering->held)) {
        struct comm_request *request = steering->held;
        steering->held = request->next;
        if (!steering->held)
            steering->held_end = &steering->held;
        if (request->path == &exchange_path)
            plan_streams(steering, request->callback_user);
        comm_progress_submit(group->world, request);
    }
}

/* ---- exchanges ----------------------------------------------------------------------------- */

static void on_end(void *user, enum shoal_status status)
{
    struct exchange *exchange = user;
    struct comm_group *group = exchange->group;
    comm_door_take(group);
    exchange->has_ended = status == SHOAL_OK;
    let_go(group);
    comm_door_leave(group);
}

static void exchange_free(struct exchange *exchange)
{
    base_free(exchange->own);
    base_free(exchange);
}

static enum shoal_status exchange_create(struct comm_group *group, struct exchange **out)
{
    struct exchange *exchange;
    int words = group->steering->words;
    TRY(BASE_NEW(&exchange, "an exchange of rates"));
    exchange->group = group;
    enum shoal_status status = BASE_NEW_ARRAY(
        &exchange->own, (comm_group_rank_count(group) + 1) * words, "an exchange of rates");
    if (status != SHOAL_OK) {
        base_free(exchange);
        return status;
    }
    exchange->all = exchange->own + words;
    *out = exchange;
    return SHOAL_OK;
}

/* Gives back the requests of exchanges that were used, if nobody touches them any more. */
static void free_used(struct comm_steering *steering)
{
    for (struct exchange **at = &steering->used; *at;) {
        struct exchange *exchange = *at;
        if (atomic_load_explicit(&exchange->request->state, memory_order_acquire) !=
            REQUEST_LEFT_ALONE) {
            at = &exchange->next;
            continue;
        }
        *at = exchange->next;
        comm_request_put(exchange->request);
        exchange_free(exchange);
    }
}

static enum shoal_status begin_exchange(struct comm_group *group)
{
    struct comm_steering *steering = group->steering;
    struct comm_plan *plan = NULL;
    struct exchange *exchange = NULL;
    TRY(exchange_create(group, &exchange));
    struct comm_call call = {.kind = COLL_ALLGATHER,
                             .dtype = SHOAL_U64,
                             .in = exchange->own,
                             .out = exchange->all,
                             .count = (uint64_t)steering->words};
    enum shoal_status status = comm_plan_take(group, &call, steering->make, &plan);
    if (status == SHOAL_OK)
        status = comm_request_begin(group, &exchange_path, &call, plan, &exchange->request);
    if (status != SHOAL_OK) {
        exchange_free(exchange);
        return status;
    }
    *steering->end = exchange;
    steering->end = &exchange->next;
    status = comm_request_on_done(exchange->request, on_end, exchange);
    if (steering->held) {
        comm_steer_hold(group, exchange->request);
    } else {
        plan_streams(steering, exchange);
        comm_progress_submit(group->world, exchange->request);
    }
    comm_progress_kick(group->world);
    return status;
}

void comm_steer_count(struct comm_group *group)
{
    uint64_t number = ++group->steering->number;
    if (number % COMM_STEER_PERIOD != 0 ||
        !has_exchange(group->steering, number / COMM_STEER_PERIOD - 1))
        return;
    free_used(group->steering);
    enum shoal_status status = begin_exchange(group);
    if (status != SHOAL_OK) /* the others wait for it */
        comm_group_break(group, status, "%s", base_error_text());
}

/* ---- the end ------------------------------------------------------------------------------- */

void comm_steer_finish(struct comm_group *group)
{
    int64_t deadline_ns = base_deadline_ns(FINISH_MS);
    while (group->steering && !comm_group_broken(group) && base_now_ns() < deadline_ns &&
           atomic_load_explicit(&group->pending, memory_order_acquire) > 0) {
        comm_progress_kick(group->world);
        base_sleep_ms(FINISH_LOOK_MS);
    }
}

void comm_steer_end(struct comm_group *group)
{
    struct comm_steering *steering = group->steering;
    if (!steering)
        return;
    *steering->end = steering->used;
    steering->used = steering->first;
    comm_door_take(group);
    while (steering->used) {
        free_used(steering);
        if (steering->used)
            base_sleep_ms(FINISH_LOOK_MS); /* one is between its last two stores */
    }
    comm_door_leave(group);
    steering_free(steering);
    group->steering = NULL;
}
