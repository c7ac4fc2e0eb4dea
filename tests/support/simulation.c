/* SPDX-License-Identifier: Apache-2.0 */
/*
 * simulation.c: see simulation.h.
 *
 * Draw: everything the job will do is decided before it starts. Run: the network's events, the
 * ranks' own starts, and a tick that lets everyone look at deadlines, in the order of virtual time.
 * Judge: without a fault, or for groups that it does not concern, all must end well; otherwise each
 * operation ends well (then operation.c has checked its result), or with the error that the fault
 * must give, naming its rank, and not later than its deadline.
 */
#include "support/simulation.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/memory.h"
#include "kernel/kernel.h"
#include "support/engines.h"
#include "support/message.h"
#include "support/operation.h"

#define RANKS_MAX      12
#define GROUPS_MAX     3
#define OPERATIONS_MAX 12
#define MESSAGES_MAX   16
#define ACTIONS_MAX    (RANKS_MAX * OPERATIONS_MAX + 2 * MESSAGES_MAX)
#define TIMEOUT_MS     10000 /* late ends of frames add up */
#define TICK_NS        (20 * BASE_NS_PER_MS)
#define SLACK_NS       (5 * TICK_NS)
#define GIVE_UP_NS     (60 * BASE_NS_PER_S) /* far behind every deadline */

enum fault_kind {
    FAULT_NONE,
    FAULT_KILL,
    FAULT_STOP,  /* for good */
    FAULT_PAUSE, /* a stop that ends in time */
    FAULT_LATE,  /* a stop that ends after the deadlines */
    FAULT_CUT,   /* nothing passes between two ranks any more */
    FAULT_ABORT, /* a rank breaks a group */
    FAULT_KINDS
};

struct fault {
    enum fault_kind kind;
    int rank, other;
    int group;
    int64_t from_ns, to_ns;
    bool done;
};

/* One start on one world rank. */
struct action {
    int rank;
    int64_t at_ns;
    bool is_message;
    int index; /* in operations or messages */
    bool over; /* started, or the rank is gone */
};

struct planned_message {
    struct message_options options;
    int group;
    struct message *message;
};

struct simulation {
    uint64_t seed, random;
    int size;
    struct net_sim_world *world;
    struct engines *engines;
    struct engines_group *groups[GROUPS_MAX];
    int group_count;
    struct operation *operations[OPERATIONS_MAX];
    int operation_group[OPERATIONS_MAX];
    bool cached[OPERATIONS_MAX];
    int operation_count;
    struct planned_message messages[2 * MESSAGES_MAX]; /* a send, then its receive */
    int message_count;
    struct action actions[ACTIONS_MAX];
    int action_count;
    struct fault fault;
    bool leaves[RANKS_MAX]; /* when it is done with all */
    bool left[RANKS_MAX];
    char wrong[2048];
};

static void note_wrong(struct simulation *job, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
static void note_wrong(struct simulation *job, const char *format, ...)
{
    if (job->wrong[0])
        return;
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(job->wrong, sizeof(job->wrong), format, arguments);
    va_end(arguments);
}

/* ---- drawing
 * ---------------------------------------------------------------------------------------- */

static uint64_t draw(struct simulation *job, uint64_t limit)
{
    uint64_t x = job->random += UINT64_C(0x9e3779b97f4a7c15);
    x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
    return (x ^ x >> 31) % limit;
}

static int draw_int(struct simulation *job, int limit)
{
    return (int)draw(job, (uint64_t)limit);
}

static bool draw_chance(struct simulation *job, int percent)
{
    return draw_int(job, 100) < percent;
}

static enum shoal_status draw_network(struct simulation *job)
{
    static const uint32_t pieces[] = {0, 40, 200, 3000};
    static const double rates[] = {0, 0.05, 1};
    static const uint64_t eager_sizes[] = {0, 16, 64, 300, 4096};
    struct net_sim_options options = {.size = job->size,
                                      .seed = job->seed,
                                      .latency_min_ns = 1000,
                                      .bytes_per_ns = rates[draw(job, 3)],
                                      .piece_bytes_max = pieces[draw(job, 4)]};
    options.latency_max_ns = options.latency_min_ns + (int64_t)draw(job, 2000000);
    TRY(net_sim_world_create(&options, &job->world));
    struct engines_options engines = {
        .size = job->size, .eager_bytes = eager_sizes[draw(job, 5)], .sim = job->world};
    return engines_open(&engines, &job->engines);
}

/* The first group is the world, the others have some of its ranks in any order. */
static enum shoal_status draw_group(struct simulation *job, int number)
{
    int members[RANKS_MAX], size = job->size;
    for (int i = 0; i < size; i++)
        members[i] = i;
    for (int i = size - 1; number > 0 && i > 0; i--) {
        int other = draw_int(job, i + 1), swapped = members[i];
        members[i] = members[other];
        members[other] = swapped;
    }
    if (number > 0)
        size = 1 + draw_int(job, size);
    TRY(engines_group_open(job->engines, members, size, NULL, (uint64_t)(70 + number), TIMEOUT_MS,
                           &job->groups[number]));
    job->group_count++;
    return SHOAL_OK;
}

static void draw_type(struct simulation *job, struct operation_options *options)
{
    enum coll_kind kind = options->coll.algorithm->kind;
    bool reduces = kind == COLL_ALLREDUCE || kind == COLL_REDUCE || kind == COLL_REDUCE_SCATTER;
    do {
        options->dtype = (enum shoal_dtype)draw_int(job, SHOAL_DTYPE_COUNT);
        options->op = reduces ? (enum shoal_op)draw_int(job, SHOAL_OP_COUNT) : SHOAL_SUM;
        if (options->op == SHOAL_PREMUL_SUM && kind == COLL_REDUCE)
            options->op = SHOAL_SUM;
    } while (!kernel_supports(options->dtype, options->op));
    if (kernel_dtype_is_half(options->dtype) && options->op != SHOAL_PREMUL_SUM)
        options->values = VALUES_HALVES;
}

static struct operation_options draw_options(struct simulation *job, int size, bool cached)
{
    int algorithm_count = 0;
    while (coll_algorithms()[algorithm_count])
        algorithm_count++;
    struct operation_options options = {
        .coll = {.algorithm = coll_algorithms()[draw_int(job, algorithm_count)],
                 .size = size,
                 .root = draw_int(job, size),
                 .count = draw_chance(job, 15) ? draw(job, 2) : draw(job, 150),
                 .segment_count = 1 + draw(job, 60),
                 .hosts = (enum case_hosts)draw(job, HOSTS_LAYOUTS)},
        .seed = draw(job, 1u << 30)};
    enum coll_kind kind = options.coll.algorithm->kind;
    if (case_has_in_place(kind))
        options.coll.in_place = (enum case_in_place)draw(job, PLACE_COUNT);
    options.coll.is_v = case_has_v(kind) && draw_chance(job, 30);
    if (options.coll.is_v)
        options.coll.count %= 20;
    draw_type(job, &options);
    if (cached) { /* the cache does not tell algorithms apart: one of each kind, few shapes */
        options.coll.algorithm = coll_find(kind, "direct");
        options.coll.segment_count = 25;
        options.coll.is_v = false;
        options.coll.hosts = HOSTS_EACH;
        options.coll.root = 0;
        options.coll.count = 60;
    }
    return options;
}

static enum shoal_status draw_operations(struct simulation *job)
{
    job->operation_count = 1 + draw_int(job, OPERATIONS_MAX);
    for (int i = 0; i < job->operation_count; i++) {
        bool fits = false;
        job->operation_group[i] = draw_int(job, job->group_count);
        job->cached[i] = draw_chance(job, 25);
        struct engines_group *group = job->groups[job->operation_group[i]];
        while (!fits) {
            struct operation_options options = draw_options(job, group->size, job->cached[i]);
            TRY(operation_create(&options, group, &fits, &job->operations[i]));
        }
    }
    return SHOAL_OK;
}

static void draw_messages(struct simulation *job)
{
    static const uint64_t counts[] = {1, 20, 100, 2000};
    job->message_count = 2 * draw_int(job, MESSAGES_MAX);
    for (int i = 0; i < job->message_count; i += 2) {
        int number = draw_int(job, job->group_count);
        int size = job->groups[number]->size;
        struct message_options send = {.rank = draw_int(job, size),
                                       .peer = draw_int(job, size),
                                       .tag = i,
                                       .dtype = SHOAL_U8,
                                       .count = draw(job, counts[draw(job, 4)]),
                                       .seed = draw(job, 1000)};
        struct message_options receive = {.rank = send.peer,
                                          .receives = true,
                                          .peer =
                                              draw_chance(job, 30) ? SHOAL_ANY_SOURCE : send.rank,
                                          .tag = i,
                                          .dtype = SHOAL_U8,
                                          .count = send.count + draw(job, 3)};
        job->messages[i] = (struct planned_message){.options = send, .group = number};
        job->messages[i + 1] = (struct planned_message){.options = receive, .group = number};
    }
}

static int group_rank(const struct engines_group *group, int rank)
{
    for (int i = 0; i < group->size; i++)
        if (group->members[i] == rank)
            return i;
    return -1;
}

static void add_action(struct simulation *job, int rank, int64_t *at_ns, bool is_message, int index)
{
    static const uint64_t pauses_ns[] = {1, 1000, 100000, 10000000};
    bool slow = draw_chance(job, 20);
    *at_ns += (int64_t)draw(job, pauses_ns[slow ? 3 : draw(job, 3)]);
    job->actions[job->action_count++] =
        (struct action){.rank = rank, .at_ns = *at_ns, .is_message = is_message, .index = index};
}

/* Each rank starts the operations of every group in their order; messages come anywhere. */
static void draw_actions(struct simulation *job, int rank)
{
    int64_t at_ns = draw_chance(job, 20) ? (int64_t)draw(job, 30000000) : 0;
    int next_message = 0;
    for (int i = 0; i <= job->operation_count; i++) {
        bool rest = i == job->operation_count;
        while (next_message < job->message_count && (rest || draw_chance(job, 60))) {
            const struct planned_message *planned = &job->messages[next_message];
            if (job->groups[planned->group]->members[planned->options.rank] == rank)
                add_action(job, rank, &at_ns, true, next_message);
            next_message++;
        }
        if (!rest && group_rank(job->groups[job->operation_group[i]], rank) >= 0)
            add_action(job, rank, &at_ns, false, i);
    }
}

static void draw_fault(struct simulation *job)
{
    struct fault *fault = &job->fault;
    if (draw_chance(job, 35))
        return;
    fault->kind = (enum fault_kind)draw_int(job, FAULT_KINDS);
    fault->rank = draw_int(job, job->size);
    fault->other = (fault->rank + 1 + draw_int(job, job->size - 1)) % job->size;
    fault->group = draw_int(job, job->group_count);
    fault->from_ns = (int64_t)draw(job, draw_chance(job, 50) ? 3000000 : 60000000);
    fault->to_ns = fault->kind == FAULT_PAUSE  ? fault->from_ns + (int64_t)draw(job, 300000000)
                   : fault->kind == FAULT_LATE ? fault->from_ns + 15 * BASE_NS_PER_S
                                               : GIVE_UP_NS * 2;
    if (fault->kind == FAULT_ABORT) {
        const struct engines_group *group = job->groups[fault->group];
        fault->rank = group->members[draw_int(job, group->size)];
    }
}

static enum shoal_status draw_job(struct simulation *job)
{
    job->size = 2 + draw_int(job, RANKS_MAX - 1);
    TRY(draw_network(job));
    int group_count = 1 + draw_int(job, GROUPS_MAX);
    for (int i = 0; i < group_count; i++)
        TRY(draw_group(job, i));
    TRY(draw_operations(job));
    draw_messages(job);
    for (int rank = 0; rank < job->size; rank++)
        draw_actions(job, rank);
    draw_fault(job);
    bool well = job->fault.kind == FAULT_NONE || job->fault.kind == FAULT_PAUSE;
    bool leave = well && draw_chance(job, 50); /* else the others' errors would be of two kinds */
    for (int rank = 0; rank < job->size; rank++)
        job->leaves[rank] = leave && draw_chance(job, 70);
    return SHOAL_OK;
}

/* ---- running
 * ---------------------------------------------------------------------------------------- */

static int64_t now_of(const struct simulation *job)
{
    return net_sim_now_ns(job->world);
}

static bool is_killed(const struct simulation *job, int rank)
{
    return job->fault.kind == FAULT_KILL && job->fault.rank == rank &&
           now_of(job) >= job->fault.from_ns;
}

static bool is_stopped(const struct simulation *job, int rank)
{
    const struct fault *fault = &job->fault;
    bool stops =
        fault->kind == FAULT_STOP || fault->kind == FAULT_PAUSE || fault->kind == FAULT_LATE;
    return stops && fault->rank == rank && now_of(job) >= fault->from_ns &&
           now_of(job) < fault->to_ns;
}

static bool can_move(const struct simulation *job, int rank)
{
    return !is_killed(job, rank) && !is_stopped(job, rank) && !job->left[rank];
}

static void place_fault(struct simulation *job)
{
    struct fault *fault = &job->fault;
    switch (fault->kind) {
    case FAULT_KILL: net_sim_kill(job->world, fault->rank, fault->from_ns); break;
    case FAULT_STOP:
    case FAULT_PAUSE:
    case FAULT_LATE: net_sim_stop(job->world, fault->rank, fault->from_ns, fault->to_ns); break;
    case FAULT_CUT: net_sim_cut(job->world, fault->rank, fault->other, fault->from_ns); break;
    default: break;
    }
}

static void do_action(struct simulation *job, struct action *action)
{
    enum shoal_status status;
    action->over = true;
    if (action->is_message) {
        struct planned_message *planned = &job->messages[action->index];
        status = message_start(job->groups[planned->group], &planned->options, &planned->message);
    } else {
        struct engines_group *group = job->groups[job->operation_group[action->index]];
        status = operation_start(job->operations[action->index], group_rank(group, action->rank),
                                 job->cached[action->index]);
    }
    if (status != SHOAL_OK)
        note_wrong(job, "rank %d could not start: %s", action->rank, base_error_text());
}

/* Starts what is due; returns when the next one is. */
static int64_t do_actions(struct simulation *job)
{
    int64_t next_ns = INT64_MAX;
    for (int i = 0; i < job->action_count; i++) {
        struct action *action = &job->actions[i];
        if (action->over)
            continue;
        if (is_killed(job, action->rank)) {
            action->over = true;
        } else if (action->at_ns > now_of(job)) {
            if (action->at_ns < next_ns)
                next_ns = action->at_ns;
        } else if (can_move(job, action->rank)) {
            do_action(job, action);
        }
    }
    return next_ns;
}

static void do_abort(struct simulation *job)
{
    struct fault *fault = &job->fault;
    if (fault->kind != FAULT_ABORT || fault->done || now_of(job) < fault->from_ns ||
        job->left[fault->rank])
        return;
    fault->done = true;
    struct engines_group *group = job->groups[fault->group];
    int rank = group_rank(group, fault->rank);
    comm_group_break(group->of[rank], SHOAL_ERR_ABORTED, "aborted by rank %d (test)", rank);
}

/* Whether the rank has started and ended everything. */
static bool is_done(const struct simulation *job, int rank)
{
    for (int i = 0; i < job->action_count; i++)
        if (job->actions[i].rank == rank && !job->actions[i].over)
            return false;
    for (int i = 0; i < job->operation_count; i++) {
        int at = group_rank(job->groups[job->operation_group[i]], rank);
        if (at >= 0 && job->operations[i]->rank[at].started && !job->operations[i]->rank[at].done)
            return false;
    }
    for (int i = 0; i < job->message_count; i++) {
        const struct planned_message *planned = &job->messages[i];
        if (planned->message && !planned->message->done &&
            job->groups[planned->group]->members[planned->options.rank] == rank)
            return false;
    }
    return true;
}

static void leave(struct simulation *job, int rank)
{
    comm_engine_poll(job->engines->engine[rank]); /* says what is to be said */
    engines_leave(job->engines, rank, 100);
    job->left[rank] = true;
}

/* Everybody looks at the clock. True: nothing is left to do. */
static bool tick(struct simulation *job)
{
    bool over = true;
    do_abort(job);
    for (int rank = 0; rank < job->size; rank++) {
        if (can_move(job, rank))
            comm_engine_poll(job->engines->engine[rank]);
        bool gone = is_killed(job, rank) || job->left[rank] ||
                    (job->fault.kind == FAULT_STOP && is_stopped(job, rank));
        bool done = gone || is_done(job, rank);
        if (done && !gone && job->leaves[rank] && can_move(job, rank))
            leave(job, rank);
        over &= done;
    }
    return over;
}

static void run(struct simulation *job)
{
    int64_t next_tick_ns = TICK_NS, next_action_ns = do_actions(job);
    place_fault(job);
    while (now_of(job) < GIVE_UP_NS) {
        int64_t until_ns = next_tick_ns < next_action_ns ? next_tick_ns : next_action_ns;
        int rank = net_sim_step(job->world, until_ns);
        if (rank >= 0) {
            if (can_move(job, rank))
                comm_engine_poll(job->engines->engine[rank]);
            continue;
        }
        next_action_ns = do_actions(job);
        if (now_of(job) < next_tick_ns)
            continue;
        next_tick_ns = now_of(job) + TICK_NS;
        if (tick(job))
            return;
    }
    note_wrong(job, "it has not ended");
}

/* ---- judging
 * ---------------------------------------------------------------------------------------- */

/* Whether the list "0, 2-4" at the text's begin has the rank. */
static bool list_has(const char *list, int rank)
{
    int first, last, used;
    while (sscanf(list, "%d%n", &first, &used) == 1) {
        list += used;
        last = first;
        if (*list == '-' && sscanf(list, "-%d%n", &last, &used) == 1)
            list += used;
        if (rank >= first && rank <= last)
            return true;
        if (strncmp(list, ", ", 2) != 0)
            return false;
        list += 2;
    }
    return false;
}

/* Whether it is among the ranks that the text names. */
static bool has_rank(const char *text, int rank)
{
    for (const char *at = strstr(text, "rank "); at; at = strstr(at + 1, "rank "))
        if (list_has(at + strlen("rank "), rank))
            return true;
    return false;
}

/* Whether the fault may end operations of the group. */
static bool concerns(const struct simulation *job, const struct engines_group *group)
{
    const struct fault *fault = &job->fault;
    bool first = group_rank(group, fault->rank) >= 0;
    switch (fault->kind) {
    case FAULT_KILL:
    case FAULT_STOP:
    case FAULT_LATE: return first;
    case FAULT_CUT: return first && group_rank(group, fault->other) >= 0;
    case FAULT_ABORT: return job->groups[fault->group] == group;
    default: return false;
    }
}

static enum shoal_status expected_status(enum fault_kind kind)
{
    switch (kind) {
    case FAULT_KILL: return SHOAL_ERR_PEER_LOST;
    case FAULT_ABORT: return SHOAL_ERR_ABORTED;
    default: return SHOAL_ERR_TIMEOUT;
    }
}

/* One end of one rank; who: for messages. */
static void judge_end(struct simulation *job, const struct engines_group *group, int rank,
                      enum shoal_status status, const char *text, int64_t late_ns, const char *who)
{
    const struct fault *fault = &job->fault;
    if (status == SHOAL_OK)
        return;
    if (!concerns(job, group)) {
        note_wrong(job, "%s: rank %d: the fault does not concern it, but: %s", who, rank, text);
        return;
    }
    if (status != expected_status(fault->kind))
        note_wrong(job, "%s: rank %d: status %d: %s", who, rank, (int)status, text);
    bool named = has_rank(text, group_rank(group, fault->rank));
    if (fault->kind == FAULT_CUT) /* whoever sees it first may only see who waits for them */
        named = strstr(text, "rank ") != NULL;
    if (!named)
        note_wrong(job, "%s: rank %d: the text does not name rank %d: %s", who, rank,
                   group_rank(group, fault->rank), text);
    bool excused = fault->kind == FAULT_LATE && group->members[rank] == fault->rank;
    if (late_ns > SLACK_NS && !excused)
        note_wrong(job, "%s: rank %d ended %lld ms after its deadline: %s", who, rank,
                   (long long)(late_ns / BASE_NS_PER_MS), text);
}

static bool is_judged(const struct simulation *job, int rank)
{
    bool gone = job->fault.kind == FAULT_KILL || job->fault.kind == FAULT_STOP;
    return !gone || job->fault.rank != rank;
}

static void judge_operation(struct simulation *job, int index, struct simulation_tally *tally)
{
    const struct operation *operation = job->operations[index];
    const struct engines_group *group = operation->group;
    const char *who = operation_text(&operation->options);
    for (int i = 0; i < group->size; i++) {
        const struct operation_rank *one = &operation->rank[i];
        if (!is_judged(job, group->members[i]))
            continue;
        if (!one->started || !one->done)
            note_wrong(job, "%s: rank %d hangs (started %d)", who, i, one->started);
        judge_end(job, group, i, one->status, one->text, one->done_ns - one->deadline_ns, who);
        tally->good_ends += one->status == SHOAL_OK;
        tally->errors += one->status != SHOAL_OK;
    }
    tally->operations++;
}

static void judge_message(struct simulation *job, int index, struct simulation_tally *tally)
{
    const struct planned_message *planned = &job->messages[index];
    const struct message *message = planned->message;
    const struct engines_group *group = job->groups[planned->group];
    int rank = planned->options.rank;
    char who[80];
    if (!is_judged(job, group->members[rank]))
        return;
    snprintf(who, sizeof(who), "%s with tag %d", planned->options.receives ? "receive" : "send",
             planned->options.tag);
    if (!message || !message->done) {
        note_wrong(job, "%s: rank %d hangs", who, rank);
        return;
    }
    judge_end(job, group, rank, message->status, message->text,
              message->done_ns - message->deadline_ns, who);
    if (planned->options.receives && message->status == SHOAL_OK &&
        !message_got(message, &job->messages[index - 1].options))
        note_wrong(job, "%s: rank %d got something else", who, rank);
    tally->messages++;
}

/* ---- the whole
 * --------------------------------------------------------------------------------------- */

static void close_job(struct simulation *job)
{
    char text[512];
    for (int i = 0; i < GROUPS_MAX; i++)
        engines_group_close(job->groups[i]);
    for (int i = 0; i < OPERATIONS_MAX; i++)
        if (job->operations[i] && !operation_end(job->operations[i], text, sizeof(text)))
            note_wrong(job, "%s", text);
    for (int i = 0; i < job->message_count; i++)
        if (job->messages[i].message && !message_end(job->messages[i].message))
            note_wrong(job, "message %d was touched after it was done", i);
    engines_close(job->engines);
    net_sim_world_free(job->world);
}

bool simulation_run(uint64_t seed, struct simulation_tally *tally, char *text, size_t text_bytes)
{
    static const char *const fault_names[FAULT_KINDS] = {"none", "kill", "stop", "pause",
                                                         "late", "cut",  "abort"};
    static struct simulation job;
    size_t blocks = base_memory_blocks();
    job = (struct simulation){.seed = seed, .random = seed * UINT64_C(0xd1342543de82ef95)};
    if (draw_job(&job) == SHOAL_OK)
        run(&job);
    else
        note_wrong(&job, "%s", base_error_text());
    for (int i = 0; i < job.operation_count; i++)
        judge_operation(&job, i, tally);
    for (int i = 0; i < job.message_count; i++)
        judge_message(&job, i, tally);
    close_job(&job);
    if (base_memory_blocks() != blocks)
        note_wrong(&job, "%zd blocks leak", base_memory_blocks() - blocks);
    tally->jobs++;
    tally->faults[job.fault.kind]++;
    snprintf(text, text_bytes, "%d ranks, fault %s of rank %d (and %d) at %lld us: %s", job.size,
             fault_names[job.fault.kind], job.fault.rank, job.fault.other,
             (long long)(job.fault.from_ns / 1000), job.wrong);
    return !job.wrong[0];
}
