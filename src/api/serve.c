/* SPDX-License-Identifier: Apache-2.0 */
/*
 * serve.c: a server: a process that sums for the ranks of its job (docs/servers.md).
 *
 * It calls nothing by itself. The engine tells it of every operation whose first frame has come
 * (comm_serving): the frame says all that a server needs to know to make its part of the schedule,
 * and the context all that it needs to know of the group, since every group that has
 * servers has all ranks and all servers. A thread of its own for each world opens the groups,
 * starts the operations, and closes a group when all ranks have.
 *
 * Locks: the engine calls with the world's token held and takes `lock` for a few instructions; the
 * thread never takes the token while it holds `lock`.
 */
#include <errno.h>
#include <time.h>

#include "api/handles.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/options.h"
#include "comm/shares.h"

#define LOOK_MS 200 /* at whether ranks have left, and for operations that have ended */

#define CUTS_KEPT \
    8 /* more changes of shares are not between hearing of an operation and its start */

/* Shares that ranks have told. */
struct cut {
    uint32_t version; /* 0: none yet */
    uint32_t shares[COMM_SHARES_MEMBERS_MAX];
};

/* A group that ranks share with servers. */
struct served {
    struct served *next;
    uint64_t context;
    uint64_t heard; /* the highest operation that was asked for */
    int left;       /* ranks that have closed it */
    struct comm_group *group;
    struct asked *under_way;
    struct cut cuts[CUTS_KEPT];
};

/* What the engine has told: an operation, or that all ranks have closed the group. */
struct asked {
    struct asked *next;
    struct served *of;
    bool is_end;
    struct comm_asked what;
    shoal_request_t request;
};

struct server {
    struct comm_group *root;
    pthread_t thread;
    struct server *next;
    pthread_mutex_t lock;
    pthread_cond_t news;
    struct served *groups;
    struct asked *first, **end;
};

/* ---- what the engine tells
 * ------------------------------------------------------------------------------------------------
 */

static struct served *find(struct server *server, uint64_t context)
{
    struct served *at = server->groups;
    while (at && at->context != context)
        at = at->next;
    return at;
}

/* Lock held. Without memory nothing is told: the ranks then see their deadline. */
static void tell(struct server *server, const struct asked *what)
{
    struct asked *asked = NULL;
    if (BASE_NEW(&asked, "an operation to serve") != SHOAL_OK)
        return;
    *asked = *what;
    *server->end = asked;
    server->end = &asked->next;
    pthread_cond_signal(&server->news);
}

static struct served *find_or_add(struct server *server, uint64_t context)
{
    struct served *served = find(server, context);
    if (served || BASE_NEW(&served, "a group to serve") != SHOAL_OK)
        return served;
    served->context = context;
    served->next = server->groups;
    server->groups = served;
    return served;
}

static void on_called(void *user, const struct comm_asked *what)
{
    struct server *server = user;
    pthread_mutex_lock(&server->lock);
    struct served *served = find_or_add(server, what->context);
    if (served && what->sequence > served->heard) {
        served->heard = what->sequence;
        tell(server, &(struct asked){.of = served, .what = *what});
    }
    pthread_mutex_unlock(&server->lock);
}

/* Of each rank; they say the same. */
static void on_share(void *user, uint64_t context, uint32_t version, uint32_t host, uint32_t share)
{
    struct server *server = user;
    pthread_mutex_lock(&server->lock);
    struct served *served = find_or_add(server, context);
    if (served && host < COMM_SHARES_MEMBERS_MAX) {
        struct cut *cut = &served->cuts[version % CUTS_KEPT];
        cut->version = version;
        cut->shares[host] = share;
    }
    pthread_mutex_unlock(&server->lock);
}

static void on_left(void *user, uint64_t context)
{
    struct server *server = user;
    pthread_mutex_lock(&server->lock);
    struct served *served = find(server, context);
    if (served && ++served->left == server->root->world->rank_count)
        tell(server, &(struct asked){.of = served, .is_end = true});
    pthread_mutex_unlock(&server->lock);
}

/* ---- operations
 * ------------------------------------------------------------------------------------------------
 */

/* What the ranks asked first says whether they promise the same bits, as all that they ask will. */
static enum shoal_status open_group(struct server *server, struct served *served,
                                    const struct comm_asked *first)
{
    struct comm_world *world = server->root->world;
    int *members = NULL;
    TRY(BASE_NEW_ARRAY(&members, world->size, "a group's members"));
    for (int i = 0; i < world->size; i++)
        members[i] = i;
    enum shoal_status status = comm_group_open(world, members, world->size, "ranks and servers",
                                               served->context, &served->group);
    base_free(members);
    if (status != SHOAL_OK)
        return status;
    served->group->reproducible = first->reproducible;
    atomic_store(&served->group->timeout_ms, -1); /* the ranks have a deadline */
    return SHOAL_OK;
}

/* The shares of a version, which the rank that asked by them had told before. */
static enum shoal_status find_shares(struct server *server, const struct served *served,
                                     uint32_t version, struct cut *out)
{
    pthread_mutex_lock(&server->lock);
    *out = served->cuts[version % CUTS_KEPT];
    pthread_mutex_unlock(&server->lock);
    if (out->version == version)
        return SHOAL_OK;
    return base_error(SHOAL_ERR_INTERNAL, "a server does not know the shares of version %u",
                      version);
}

/* Only a sum can be asked for. */
static enum shoal_status start(struct server *server, struct asked *asked)
{
    struct served *served = asked->of;
    struct comm_signature signature = asked->what.signature;
    struct comm_call call = {.kind = signature.kind,
                             .dtype = signature.dtype,
                             .op = signature.op,
                             .count = signature.count};
    if (call.kind != COLL_ALLREDUCE)
        return base_error(SHOAL_ERR_INTERNAL, "a server was asked for %s",
                          comm_kind_name(call.kind));
    struct cut cut;
    call.version = asked->what.version;
    if (call.version > 0) {
        TRY(find_shares(server, served, call.version, &cut));
        call.shares = cut.shares;
    }
    if (!served->group)
        TRY(open_group(server, served, &asked->what));
    served->group->sequence = asked->what.sequence - 1;
    return api_submit_served(served->group, &call, &asked->request);
}

/* Takes `asked` over. */
static void serve(struct server *server, struct asked *asked)
{
    enum shoal_status status = start(server, asked);
    if (status == SHOAL_OK) {
        asked->next = asked->of->under_way;
        asked->of->under_way = asked;
        return;
    }
    base_log(BASE_LOG_INFO, "an operation is not served: %s", base_error_text());
    if (asked->of->group)
        comm_group_fail(asked->of->group, status, base_error_text());
    base_free(asked);
}

/* Gives back what has ended; `wait`: all of it. How it ended the ranks know. */
static void reap(struct served *served, bool wait)
{
    struct asked **at = &served->under_way;
    while (*at) {
        struct asked *asked = *at;
        struct comm_request **request = (struct comm_request **)&asked->request;
        enum shoal_status status =
            wait ? comm_request_wait(request, -1) : comm_request_test(request);
        if (status == SHOAL_IN_PROGRESS) {
            at = &asked->next;
            continue;
        }
        *at = asked->next;
        base_free(asked);
    }
}

/* The ranks have all their results when they close a group, so nothing here waits for them. */
static void close_group(struct server *server, struct served *served)
{
    reap(served, true);
    if (served->group)
        comm_group_close(served->group);
    pthread_mutex_lock(&server->lock);
    struct served **at = &server->groups;
    while (*at != served)
        at = &(*at)->next;
    *at = served->next;
    pthread_mutex_unlock(&server->lock);
    base_free(served);
}

/* The engine adds groups in front of it. */
static struct served *first_group(struct server *server)
{
    pthread_mutex_lock(&server->lock);
    struct served *first = server->groups;
    pthread_mutex_unlock(&server->lock);
    return first;
}

/* ---- a world
 * ------------------------------------------------------------------------------------------------
 */

/* All that was told since the last time; waits a while for it. */
static struct asked *hear(struct server *server)
{
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_nsec += LOOK_MS * 1000000L;
    until.tv_sec += until.tv_nsec / 1000000000L;
    until.tv_nsec %= 1000000000L;
    pthread_mutex_lock(&server->lock);
    int why = 0;
    while (!server->first && why != ETIMEDOUT)
        why = pthread_cond_timedwait(&server->news, &server->lock, &until);
    struct asked *all = server->first;
    server->first = NULL;
    server->end = &server->first;
    pthread_mutex_unlock(&server->lock);
    return all;
}

static void carry_out(struct server *server, struct asked *all)
{
    while (all) {
        struct asked *asked = all;
        all = asked->next;
        asked->next = NULL;
        if (!asked->is_end) {
            serve(server, asked);
            continue;
        }
        close_group(server, asked->of);
        base_free(asked);
    }
}

static bool all_are_gone(const struct server *server)
{
    struct comm_world *world = server->root->world;
    bool gone = true;
    comm_progress_take(world);
    for (int rank = 0; rank < world->rank_count; rank++)
        gone = gone && comm_engine_peer_is_gone(world->engine, rank);
    comm_progress_release(world);
    return gone;
}

/* So that ranks and server see each other's end, also before there is anything to sum. */
static void greet(const struct server *server)
{
    struct comm_world *world = server->root->world;
    comm_progress_take(world);
    for (int rank = 0; rank < world->rank_count; rank++)
        comm_engine_greet(world->engine, rank);
    comm_progress_release(world);
}

static void *serve_world(void *user)
{
    struct server *server = user;
    greet(server);
    bool gone = false;
    while (!gone) {
        gone = all_are_gone(server); /* nothing is told after that */
        carry_out(server, hear(server));
        for (struct served *served = first_group(server); served; served = served->next)
            reap(served, false);
    }
    for (struct served *first = first_group(server); first; first = first_group(server))
        close_group(server, first);
    comm_group_close(server->root);
    return NULL;
}

/* ---- the job
 * ------------------------------------------------------------------------------------------------
 */

static enum shoal_status server_create(struct server **out)
{
    struct server *server = NULL;
    pthread_condattr_t monotonic;
    TRY(BASE_NEW(&server, "a server"));
    server->end = &server->first;
    pthread_mutex_init(&server->lock, NULL);
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&server->news, &monotonic);
    pthread_condattr_destroy(&monotonic);
    *out = server;
    return SHOAL_OK;
}

static void server_free(struct server *server)
{
    pthread_cond_destroy(&server->news);
    pthread_mutex_destroy(&server->lock);
    base_free(server);
}

/* Joins the next world of the job. */
static enum shoal_status join(struct server *server)
{
    struct comm_serving serving = {server, on_called, on_share, on_left};
    TRY(comm_world_create_server(&serving, &server->root));
    int error = pthread_create(&server->thread, NULL, serve_world, server);
    if (error == 0)
        return SHOAL_OK;
    comm_group_close(server->root);
    return base_error_errno(SHOAL_ERR_SYSTEM, error, "a thread for a server");
}

enum shoal_status shoal_serve(void)
{
    struct server *all = NULL;
    enum shoal_status status = base_options_load();
    while (status == SHOAL_OK) {
        struct server *server = NULL;
        status = server_create(&server);
        if (status == SHOAL_OK)
            status = join(server);
        if (status == SHOAL_OK) {
            server->next = all;
            all = server;
        } else if (server) {
            server_free(server);
        }
    }
    bool store_is_gone = status == SHOAL_ERR_PEER_LOST || status == SHOAL_ERR_PEER_UNREACHABLE;
    if (all && store_is_gone)
        status = SHOAL_OK; /* so is the job */
    while (all) {
        struct server *server = all;
        all = server->next;
        pthread_join(server->thread, NULL);
        server_free(server);
    }
    return api_end(NULL, status);
}
