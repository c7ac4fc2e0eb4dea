/* SPDX-License-Identifier: Apache-2.0 */
/* failure.c: deadlines, lost peers, mismatches and aborts: see failure.h. */
#include "comm/failure.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"

#define ABORT_BYTES_MAX BASE_ERROR_TEXT_BYTES

/* ---- texts
 * ---------------------------------------------------------------------------------------------- */

const char *comm_rank_text(const struct comm_group *group, int rank, char *text, size_t text_bytes)
{
    const char *const *hosts = group->engine ? group->engine->options.host_names : NULL;
    bool is_server = rank >= comm_group_rank_count(group) && rank < group->size;
    const char *word = is_server ? "server" : "rank";
    int number = is_server ? rank - comm_group_rank_count(group) : rank;
    if (rank >= 0 && hosts)
        snprintf(text, text_bytes, "%s %d (host %s)", word, number, hosts[group->members[rank]]);
    else
        snprintf(text, text_bytes, "%s %d", word, number);
    return text;
}

void engine_mismatch(struct comm_group *group, uint64_t sequence, const struct comm_signature *mine,
                     int rank, const struct comm_signature *theirs)
{
    char my_call[128], their_call[128], me[160], them[160];
    comm_group_break(group, SHOAL_ERR_MISMATCH,
                     "operation #%" PRIu64
                     " on group '%s' differs: %s called %s, but %s called %s%s",
                     sequence, group->name, comm_rank_text(group, group->rank, me, sizeof(me)),
                     comm_signature_text(mine, my_call, sizeof(my_call)),
                     comm_rank_text(group, rank, them, sizeof(them)),
                     comm_signature_text(theirs, their_call, sizeof(their_call)),
                     comm_signature_equal(mine, theirs)
                         ? " with another algorithm or segment (do SHOAL_ALGORITHM and "
                           "SHOAL_SEGMENT_BYTES agree on all ranks?)"
                         : "");
}

/* ---- control frames
 * ----------------------------------------------------------------------------------------- */

static void post_control(struct comm_engine *engine, int peer, const struct wire *wire,
                         const void *payload, size_t payload_bytes)
{
    struct comm_peer *to = &engine->peers[peer];
    if (to->lost || to->left || !to->endpoint)
        return;
    struct comm_control *control = NULL;
    if (base_alloc(sizeof(*control) + payload_bytes, "a control frame", (void **)&control) !=
        SHOAL_OK)
        return; /* the others will see their own deadline */
    control->owner = OWNER_CONTROL;
    control->peer = peer;
    control->busy = true;
    control->next = engine->controls;
    if (engine->controls)
        engine->controls->previous = control;
    engine->controls = control;
    unsigned char *copy = (unsigned char *)(control + 1);
    if (payload_bytes > 0)
        memcpy(copy, payload, payload_bytes);
    control->frame.owner = control;
    engine_post(engine, peer, &control->frame, wire, copy, payload_bytes);
}

static void free_control(struct comm_engine *engine, struct comm_control *control)
{
    *(control->previous ? &control->previous->next : &engine->controls) = control->next;
    if (control->next)
        control->next->previous = control->previous;
    base_free(control);
}

void failure_sent(struct comm_engine *engine, struct comm_control *control)
{
    control->busy = false;
    if (!control->keep)
        free_control(engine, control);
}

void comm_engine_greet(struct comm_engine *engine, int peer)
{
    struct wire wire = {.type = WIRE_CREDIT};
    post_control(engine, peer, &wire, NULL, 0);
}

void comm_engine_leave_servers(struct comm_engine *engine, const struct comm_group *group)
{
    struct wire wire = {.type = WIRE_LEAVE, .context = group->context};
    for (int i = comm_group_rank_count(group); i < group->size; i++)
        post_control(engine, group->members[i], &wire, NULL, 0);
}

void engine_tell_shares(struct comm_engine *engine, const struct comm_group *group,
                        uint32_t version, const uint32_t *shares)
{
    struct wire wire = {.type = WIRE_SHARE, .context = group->context, .sequence = version};
    for (int i = comm_group_rank_count(group); i < group->size; i++)
        for (int host = 0; host < group->host_count; host++) {
            wire.message = (uint32_t)host;
            wire.count = shares[host];
            post_control(engine, group->members[i], &wire, NULL, 0);
        }
}

/* The transport has let go of the frames to a lost peer. */
static void drop_controls(struct comm_engine *engine, int peer)
{
    struct comm_control *next = NULL;
    for (struct comm_control *at = engine->controls; at; at = next) {
        next = at->next;
        if (at->peer == peer)
            free_control(engine, at);
    }
}

void failure_free_controls(struct comm_engine *engine)
{
    while (engine->controls)
        free_control(engine, engine->controls);
}

/* ---- deadlines
 * ---------------------------------------------------------------------------------------------- */

/* How long before the deadline the members are asked: at most a second, which is time enough for an
 * answer from a machine that stands still for a moment, and still recent. */
static int64_t ask_early_ns(const struct comm_task *task)
{
    int64_t timeout_ms = atomic_load(&task->group->timeout_ms);
    int64_t half_ns = timeout_ms * BASE_NS_PER_MS / 2;
    return half_ns < BASE_NS_PER_S ? half_ns : BASE_NS_PER_S;
}

/* Of a collective all members are asked, of a message those who could send or receive it. */
static void ask_members(struct comm_engine *engine, struct comm_task *task, int64_t now_ns)
{
    struct comm_group *group = task->group;
    bool *whom = NULL;
    task->asked_ns = now_ns;
    if (task->class->advance)
        return; /* it looks at the others itself */
    if (BASE_NEW_ARRAY(&whom, group->size, "a question to the members") != SHOAL_OK)
        return; /* the error will name the neighbours only */
    if (task->call.kind >= COLL_SEND)
        task->class->late(task, whom);
    else if (BASE_NEW_ARRAY(&task->answers, group->size, "the members' answers") == SHOAL_OK)
        memset(whom, true, (size_t)group->size);
    const struct comm_signature *mine = &task->signature;
    struct wire wire = {.type = WIRE_ASK,
                        .kind = mine->kind,
                        .dtype = mine->dtype,
                        .op = mine->op,
                        .root = mine->root,
                        .count = mine->count,
                        .plan = task->plan_hash,
                        .context = group->context,
                        .sequence = task->sequence};
    for (int i = 0; i < group->size; i++)
        if (whom[i] && i != group->rank)
            post_control(engine, group->members[i], &wire, NULL, 0);
    base_free(whom);
}

static bool is_active(const struct comm_group *group, uint64_t sequence)
{
    for (struct comm_task *task = group->first_task; task; task = task->next)
        if (task->call.kind < COLL_SEND && task->sequence == sequence)
            return true;
    return false;
}

void failure_asked(struct comm_engine *engine, struct comm_group *group, int peer,
                   const struct wire *wire)
{
    const struct comm_called *mine = NULL;
    if (group && wire->kind < COLL_SEND)
        mine = engine_called(group, wire->sequence);
    if (mine && !engine_agrees(mine, wire)) {
        struct comm_signature theirs = engine_signature(wire);
        engine_mismatch(group, wire->sequence, &mine->signature, group->rank_of[peer], &theirs);
        return;
    }
    struct wire answer = {.type = WIRE_TELL,
                          .context = wire->context,
                          .sequence = group ? group->started : 0,
                          .message = mine && !is_active(group, wire->sequence),
                          .count = wire->sequence};
    post_control(engine, peer, &answer, NULL, 0);
}

void failure_told(struct comm_group *group, int peer, const struct wire *wire)
{
    if (!group)
        return;
    for (struct comm_task *task = group->first_task; task; task = task->next) {
        if (!task->answers || task->sequence != wire->count)
            continue;
        struct comm_answer *answer = &task->answers[group->rank_of[peer]];
        answer->came = true;
        answer->not_started = wire->sequence < task->sequence;
        answer->ended = wire->message != 0;
    }
}

/* Who is to blame: those that answered that they have not come, and those that did not answer; else
 * those this rank waits for. Returns a word for what they did. */
static const char *find_late(struct comm_task *task, bool *late)
{
    struct comm_group *group = task->group;
    bool any_told = false, any_silent = false;
    for (int i = 0; task->answers && i < group->size; i++) {
        if (i == group->rank)
            continue;
        bool not_called = task->answers[i].not_started && i < comm_group_rank_count(group);
        any_told |= not_called; /* a server calls nothing, and hears of some operations only */
        any_silent |= !task->answers[i].came;
        late[i] = not_called || !task->answers[i].came;
    }
    if (any_silent)
        return any_told ? "have not come or do not answer" : "does not answer";
    if (any_told)
        return "has not called it";
    task->class->late(task, late);
    return task->call.kind == COLL_SEND   ? "has not received it"
           : task->call.kind == COLL_RECV ? "has not sent it"
                                          : "is late";
}

/* Who has ended a collective while this rank waits for it: everything it sent has come, so the two
 * disagree in something that the signature does not show, such as the counts of a v form. */
static int find_ended(struct comm_task *task, bool *late)
{
    int ended = -1;
    task->class->late(task, late);
    for (int i = 0; task->answers && i < task->group->size; i++)
        if (late[i] && task->answers[i].ended)
            ended = i;
    for (int i = 0; i < task->group->size; i++)
        late[i] = false;
    return ended;
}

static void break_by_disagreement(struct comm_task *task, int ended)
{
    struct comm_group *group = task->group;
    char what[128], who[160], me[160];
    comm_group_break(group, SHOAL_ERR_MISMATCH,
                     "%s #%" PRIu64 " on group '%s': %s has ended it, but %s still waits for it: "
                     "their counts disagree",
                     comm_signature_text(&task->signature, what, sizeof(what)), task->sequence,
                     group->name, comm_rank_text(group, ended, who, sizeof(who)),
                     comm_rank_text(group, group->rank, me, sizeof(me)));
}

static void break_by_timeout(struct comm_engine *engine, struct comm_task *task)
{
    struct comm_group *group = task->group;
    char what[128], who[256] = "rank ?", me[160], first[160] = "";
    bool *late = NULL;
    const char *did = "is late";
    if (BASE_NEW_ARRAY(&late, group->size, "a list of ranks") == SHOAL_OK) {
        int ended = find_ended(task, late);
        if (ended >= 0)
            break_by_disagreement(task, ended); /* first, so it is the cause */
        did = find_late(task, late);
        comm_ranks_text(group, late, who, sizeof(who));
        for (int i = group->size - 1; i >= 0; i--)
            if (late[i])
                snprintf(first, sizeof(first), " (host %s)",
                         engine->options.host_names ? engine->options.host_names[group->members[i]]
                                                    : "?");
    }
    base_free(late);
    comm_group_break(group, SHOAL_ERR_TIMEOUT,
                     "%s #%" PRIu64 " on group '%s' took longer than %lld ms at %s: %s%s %s",
                     comm_signature_text(&task->signature, what, sizeof(what)), task->sequence,
                     group->name, (long long)atomic_load(&group->timeout_ms),
                     comm_rank_text(group, group->rank, me, sizeof(me)), who, first, did);
}

/* ---- aborts
 * ------------------------------------------------------------------------------------------------
 */

static void tell_why(struct comm_engine *engine, struct comm_group *group, int rank)
{
    const char *text = group->failure.text;
    struct wire wire = {
        .type = WIRE_ABORT, .context = group->context, .count = (uint64_t)group->failure.status};
    group->knows_why[rank] = true;
    post_control(engine, group->members[rank], &wire, text, strlen(text) + 1);
}

/* Members at a distance of 1, 2, 4 … ranks: so all hear of it, by way of others, though there may
 * be no links yet, and nobody opens many. */
static bool is_neighbour(const struct comm_group *group, int rank)
{
    int ahead = (rank - group->rank + group->size) % group->size;
    int behind = group->size - ahead;
    return (ahead & (ahead - 1)) == 0 || (behind & (behind - 1)) == 0;
}

/* Tells every member that a link leads to, those on this host and some more; they pass it on. All
 * ranks have links to servers, which have none to each other. */
static void announce(struct comm_engine *engine, struct comm_group *group)
{
    bool is_server = group->rank >= comm_group_rank_count(group);
    for (int i = 0; i < (is_server ? comm_group_rank_count(group) : group->size); i++)
        if (i != group->rank &&
            (engine->peers[group->members[i]].linked ||
             group->host_of[i] == group->host_of[group->rank] || is_neighbour(group, i)))
            tell_why(engine, group, i);
}

/* Members without a link are told when they are first heard of; who asks may have been told before
 * it had the group, and is told again. */
void failure_heard(struct comm_engine *engine, struct comm_group *group, int peer,
                   const struct wire *wire)
{
    int rank = group->rank_of[peer];
    bool wants = wire->type != WIRE_ABORT && wire->type != WIRE_CREDIT && wire->type != WIRE_TELL;
    if (group->announced && wants && (!group->knows_why[rank] || wire->type == WIRE_ASK))
        tell_why(engine, group, rank);
}

/* What a same-host task needs may all be there, though the group has broken. */
static void end_task(struct comm_engine *engine, struct comm_task *task)
{
    if (task->class->advance && task->class->advance(task))
        engine_task_end(engine, task, SHOAL_OK);
    else
        engine_task_cancel(engine, task);
}

void comm_engine_group_broke(struct comm_engine *engine, struct comm_group *group)
{
    while (atomic_load_explicit(&group->failure.state, memory_order_acquire) != 2)
        ; /* another thread is writing the text: microseconds */
    if (!group->announced) {
        group->announced = true;
        base_log(BASE_LOG_INFO, "%s", group->failure.text);
        announce(engine, group);
        atomic_store(&group->told_why, true);
        if (group->local)
            group->local_fail(group->local);
    }
    while (group->first_task)
        end_task(engine, group->first_task);
}

void *failure_arriving(struct comm_engine *engine, struct comm_group *group, int peer,
                       const struct wire *wire, uint64_t payload_bytes)
{
    if (payload_bytes > ABORT_BYTES_MAX)
        return NULL;
    struct comm_arrival *arrival = &engine->peers[peer].arrival;
    if (base_alloc(ABORT_BYTES_MAX + 1, "an abort's text", (void **)&arrival->control) !=
        SHOAL_OK) {
        char who[160];
        if (group)
            comm_group_break(group, (enum shoal_status)wire->count,
                             "group '%s' broke at %s; there is no memory for its text", group->name,
                             comm_rank_text(group, group->rank_of[peer], who, sizeof(who)));
        return NULL;
    }
    arrival->kind = ARRIVAL_CONTROL;
    return arrival->control;
}

void failure_received(struct comm_engine *engine, int peer, const struct wire *wire,
                      unsigned char *payload, uint64_t payload_bytes)
{
    struct comm_group *group = comm_engine_find_group(engine, wire->context);
    payload[payload_bytes] = '\0';
    if (group && group->rank_of[peer] >= 0)
        comm_group_break(group, (enum shoal_status)wire->count, "%s", (const char *)payload);
    base_free(payload);
}

/* ---- peers that are gone
 * --------------------------------------------------------------------------------------- */

/* The number of the oldest operation that is under way here; 0: none is. */
static uint64_t under_way(const struct comm_group *group, struct comm_signature *signature)
{
    const struct comm_task *task = group->first_task;
    if (!task && group->served)
        task = group->served->first_task;
    uint64_t blocking = atomic_load_explicit(&group->blocking, memory_order_acquire);
    uint64_t packed = atomic_load_explicit(&group->blocking_signature, memory_order_relaxed);
    *signature = task ? task->signature : comm_signature_unpack(packed);
    return task ? task->sequence : blocking;
}

static void break_by_loss(struct comm_group *group, int peer, enum shoal_status why,
                          const char *text)
{
    struct comm_signature signature;
    uint64_t sequence = under_way(group, &signature);
    char who[160], what[128], during[192] = "";
    int rank = group->rank_of[peer];
    if (rank < 0)
        return;
    if (sequence > 0)
        snprintf(during, sizeof(during), " during %s #%" PRIu64,
                 comm_signature_text(&signature, what, sizeof(what)), sequence);
    comm_group_break(group, why, "%s of group '%s' is lost%s: %s",
                     comm_rank_text(group, rank, who, sizeof(who)), group->name, during, text);
}

/* The transport has let go of all frames to the peer. Of one that left in good order only those
 * are concerned who still need it: look_at_left() finds them. */
void comm_engine_peer_lost(struct comm_engine *engine, int peer, enum shoal_status why,
                           const char *text)
{
    struct comm_peer *gone = &engine->peers[peer];
    engine->events++;
    engine->next_look_ns = 0;
    if (!gone->lost) {
        gone->lost = true;
        gone->why = why;
        snprintf(gone->why_text, sizeof(gone->why_text), "%s", text);
        if (gone->arrival.kind == ARRIVAL_CONTROL) {
            base_free(gone->arrival.control);
            gone->arrival.kind = ARRIVAL_NONE;
        }
    }
    drop_controls(engine, peer);
    for (struct comm_group *group = engine->groups; group && !gone->left;
         group = group->next_in_engine)
        break_by_loss(group, peer, gone->why, gone->why_text);
}

void failure_group_added(struct comm_engine *engine, struct comm_group *group)
{
    for (uint32_t i = 0; i < engine->doomed_count && i < COMM_DOOMED_MAX; i++)
        if (engine->doomed[i] == group->context)
            comm_group_break(group, engine->doomed_why[i],
                             "group '%s': a message that came before rank %d had made it had no "
                             "place",
                             group->name, group->rank);
    for (int i = 0; i < group->size; i++) {
        const struct comm_peer *peer = &engine->peers[group->members[i]];
        if (peer->lost && !peer->left)
            break_by_loss(group, group->members[i], peer->why, peer->why_text);
    }
}

void comm_group_break_by_leaving(struct comm_group *group, int rank,
                                 const struct comm_signature *signature, uint64_t sequence)
{
    char who[160], what[128];
    comm_group_break(group, SHOAL_ERR_PEER_LOST,
                     "%s left group '%s' (it freed it, or its process came to its end), but %s "
                     "#%" PRIu64 " needs it",
                     comm_rank_text(group, rank, who, sizeof(who)), group->name,
                     comm_signature_text(signature, what, sizeof(what)), sequence);
}

bool comm_engine_peer_is_gone(const struct comm_engine *engine, int peer)
{
    return engine->peers[peer].lost || engine->peers[peer].left;
}

void failure_peer_left(struct comm_engine *engine, int peer)
{
    engine->peers[peer].left = true;
    engine->any_left = true;
    engine->next_look_ns = 0;
    engine->events++;
}

/* A task that waits for a rank which has left waits in vain: all that the rank sent before has
 * come. A receive from any source waits in vain when all have left. */
static void look_at_left(struct comm_engine *engine, struct comm_task *task)
{
    struct comm_group *group = task->group;
    bool *late = NULL;
    int gone = -1, here = 0;
    if (BASE_NEW_ARRAY(&late, group->size, "a list of ranks") != SHOAL_OK)
        return;
    task->class->late(task, late);
    for (int i = 0; i < group->size; i++) {
        if (late[i] && engine->peers[group->members[i]].left)
            gone = i;
        else if (late[i])
            here++;
    }
    base_free(late);
    bool any_source = task->call.kind == COLL_RECV && task->call.root == SHOAL_ANY_SOURCE;
    if (gone >= 0 && (!any_source || here == 0))
        comm_group_break_by_leaving(group, gone, &task->signature, task->sequence);
}

/* ---- looking
 * ------------------------------------------------------------------------------------------------
 */

static void look_at_task(struct comm_engine *engine, struct comm_task *task, int64_t now_ns)
{
    if (engine->any_left)
        look_at_left(engine, task);
    if (task->deadline_ns == BASE_NO_DEADLINE)
        return;
    if (now_ns >= task->deadline_ns)
        break_by_timeout(engine, task);
    else if (task->asked_ns == 0 && now_ns >= task->deadline_ns - ask_early_ns(task))
        ask_members(engine, task, now_ns);
}

void failure_look_at_tasks(struct comm_engine *engine, int64_t now_ns)
{
    for (struct comm_group *group = engine->groups; group; group = group->next_in_engine)
        for (struct comm_task *task = group->first_task; task; task = task->next)
            if (!comm_group_broken(group))
                look_at_task(engine, task, now_ns);
}
