/* SPDX-License-Identifier: Apache-2.0 */
/*
 * watch.c: one list of jobs, one loop. The loop itself never blocks on anything but epoll: whatever
 * touches the disk or the database is a step, in a thread of its own, of which each job has at most
 * one. A job belongs to its step while that runs, but for stop_wanted.
 */
#include "service/watch.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/log.h"
#include "base/memory.h"
#include "base/status.h"
#include "service/leftover.h"
#include "service/queue.h"
#include "service/service_state.h"
#include "service/step.h"

#define STEPS_MAX    32
#define EVENTS_MAX   64
#define RETRY_MS     3000
#define WAIT_MS_MAX  (3600 * 1000)
#define LEAVE_MS     10000 /* steps under way at the end of the service */
#define STEP_STACK   (1u << 20)
#define STOP_COMMAND "{\"command\": \"stop\"}\n"
#define NO_TIMER     INT64_MAX

enum message_kind {
    MESSAGE_ADD,
    MESSAGE_STOP,
    MESSAGE_PRIORITY,
    MESSAGE_KEEP,
    MESSAGE_STEPPED,
    MESSAGE_CLEAN,
    MESSAGE_CLEANED
};

struct message {
    struct message *next;
    enum message_kind kind;
    struct service_job *job; /* ADD, STEPPED */
    int64_t id, number;
    enum shoal_status status; /* STEPPED */
};

struct service_watch {
    struct service *service;
    pthread_t thread;
    bool is_running;
    int epoll_fd, wake_fd;
    pthread_mutex_t lock;
    struct message *first, **last;
    bool stops;
    /* The thread's own. */
    struct service_job *jobs;
    struct job_capacity capacity;
    int working;
    bool queue_changed, is_cleaning, cleans_again;
};

/* ---- messages ---- */

static void wake(struct service_watch *watch)
{
    uint64_t one = 1;
    while (write(watch->wake_fd, &one, sizeof(one)) < 0 && errno == EINTR)
        continue;
}

static void send_message(struct service_watch *watch, struct message what)
{
    struct message *message;
    while (BASE_NEW(&message, "a message to the watcher of jobs") != SHOAL_OK)
        usleep(10000); /* it must not be lost */
    *message = what;
    pthread_mutex_lock(&watch->lock);
    *watch->last = message;
    watch->last = &message->next;
    pthread_mutex_unlock(&watch->lock);
    wake(watch);
}

void service_watch_add(struct service_watch *watch, struct service_job *job)
{
    send_message(watch, (struct message){.kind = MESSAGE_ADD, .job = job});
}

void service_watch_stop_job(struct service_watch *watch, int64_t id)
{
    send_message(watch, (struct message){.kind = MESSAGE_STOP, .id = id});
}

void service_watch_priority(struct service_watch *watch, int64_t id, int64_t priority)
{
    send_message(watch, (struct message){.kind = MESSAGE_PRIORITY, .id = id, .number = priority});
}

void service_watch_keep(struct service_watch *watch, int64_t id, int64_t until_ms)
{
    send_message(watch, (struct message){.kind = MESSAGE_KEEP, .id = id, .number = until_ms});
}

void service_watch_clean(struct service_watch *watch)
{
    send_message(watch, (struct message){.kind = MESSAGE_CLEAN});
}

/* ---- jobs ---- */

static struct service_job *job_find(struct service_watch *watch, int64_t id)
{
    struct service_job *job = watch->jobs;
    while (job != NULL && job->id != id)
        job = job->next;
    return job;
}

static void release_room(struct service_watch *watch, struct service_job *job)
{
    if (job->is_admitted)
        job_capacity_give(&watch->capacity, &job->need, job->accelerators);
    job->is_admitted = false;
    watch->queue_changed = true;
}

static void job_add(struct service_watch *watch, struct service_job *job)
{
    if (job_find(watch, job->id) != NULL) { /* created before the start, and in the database */
        service_job_free(job);
        return;
    }
    job->next = watch->jobs;
    watch->jobs = job;
    watch->queue_changed = true;
    if (job->phase == SERVICE_WAITING)
        return;
    job->is_admitted = true; /* by the service before */
    job_capacity_retake(&watch->capacity, &job->need, job->accelerators);
}

static void job_remove(struct service_watch *watch, struct service_job *job)
{
    struct service_job **at = &watch->jobs;
    while (*at != job)
        at = &(*at)->next;
    *at = job->next;
    release_room(watch, job);
    service_job_free(job);
}

/* ---- supervisors ---- */

static void supervisor_ended(struct service_watch *watch, struct service_job *job)
{
    epoll_ctl(watch->epoll_fd, EPOLL_CTL_DEL, job->supervisor_fd, NULL);
    close(job->supervisor_fd);
    job->supervisor_fd = -1; /* the next step finds out how it ended */
}

static void supervisor_watch(struct service_watch *watch, struct service_job *job)
{
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = job};
    if (epoll_ctl(watch->epoll_fd, EPOLL_CTL_ADD, job->supervisor_fd, &event) != 0) {
        close(job->supervisor_fd);
        job->supervisor_fd = -1;
        job->not_before_ms = service_now_ms() + RETRY_MS;
    }
}

/* Answers to commands are not wanted; the end is. */
static void supervisor_read(struct service_watch *watch, struct service_job *job)
{
    char text[4096];
    ssize_t got = recv(job->supervisor_fd, text, sizeof(text), MSG_DONTWAIT);
    if (got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR))
        supervisor_ended(watch, job);
}

static void stop_send(struct service_job *job)
{
    size_t bytes = strlen(STOP_COMMAND);
    if (job->supervisor_fd < 0 || job->stop_sent)
        return;
    ssize_t sent = send(job->supervisor_fd, STOP_COMMAND, bytes, MSG_DONTWAIT | MSG_NOSIGNAL);
    job->stop_sent = sent == (ssize_t)bytes; /* else it has ended, which is seen by reading */
}

/* ---- steps ---- */

struct step {
    struct service_watch *watch;
    struct service_job *job;
};

static void *step_main(void *user)
{
    struct step step = *(struct step *)user;
    base_free(user);
    enum shoal_status status = service_step(step.watch->service, step.job);
    if (status != SHOAL_OK && status != SHOAL_ERR_ABORTED) /* the service ends */
        base_log(BASE_LOG_WARN, "training job %s: %s; it is tried again", step.job->name,
                 base_error_text());
    send_message(step.watch,
                 (struct message){.kind = MESSAGE_STEPPED, .job = step.job, .status = status});
    return NULL;
}

static bool thread_start(void *(*function)(void *user), void *user)
{
    pthread_attr_t attributes;
    pthread_t thread;
    pthread_attr_init(&attributes);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    pthread_attr_setstacksize(&attributes, STEP_STACK);
    int status = pthread_create(&thread, &attributes, function, user);
    pthread_attr_destroy(&attributes);
    return status == 0;
}

/* A step of no job, when the service starts and when jobs are deleted. */
static void *cleaning_main(void *user)
{
    struct service_watch *watch = user;
    service_leftovers_remove(watch->service);
    send_message(watch, (struct message){.kind = MESSAGE_CLEANED});
    return NULL;
}

/* One at a time. */
static void clean(struct service_watch *watch)
{
    watch->cleans_again = watch->is_cleaning;
    if (watch->is_cleaning || !thread_start(cleaning_main, watch))
        return;
    watch->is_cleaning = true;
    watch->working++;
}

static void cleaned(struct service_watch *watch)
{
    watch->is_cleaning = false;
    watch->working--;
    if (watch->cleans_again)
        clean(watch);
}

static void step_begin(struct service_watch *watch, struct service_job *job, int64_t now_ms)
{
    struct step *step;
    job->not_before_ms = now_ms + RETRY_MS; /* unless it begins */
    if (BASE_NEW(&step, "a step of a job") != SHOAL_OK)
        return;
    *step = (struct step){watch, job};
    if (!thread_start(step_main, step)) {
        base_free(step);
        return;
    }
    job->is_working = true;
    watch->working++;
}

static bool needs_step(const struct service_job *job)
{
    if (job->is_working)
        return false;
    switch (job->phase) {
    case SERVICE_WAITING:
        return job->is_admitted || atomic_load(&job->stop_wanted) || !job->has_need ||
               (job->is_passed_over && !job->is_pending);
    case SERVICE_RUNNING: return job->supervisor_fd < 0;
    case SERVICE_ENDED: return atomic_load(&job->stop_wanted); /* its pool */
    default: return true;
    }
}

static void steps_begin(struct service_watch *watch, int64_t now_ms)
{
    for (struct service_job *job = watch->jobs; job != NULL; job = job->next) {
        if (watch->working == STEPS_MAX)
            return;
        if (needs_step(job) && job->not_before_ms <= now_ms)
            step_begin(watch, job, now_ms);
    }
}

/* The pool that the job was to take over is its own now, or goes back to whom it was taken from. */
static void pool_settle(struct service_watch *watch, struct service_job *job)
{
    struct service_job *pool = job->pool;
    job->pool = NULL;
    if (job->pool_is_taken) {
        job_remove(watch, pool);
        return;
    }
    pool->is_working = false;
    pool->is_admitted = job->is_admitted;
    job->is_admitted = false;
}

static void stepped(struct service_watch *watch, struct service_job *job, enum shoal_status status)
{
    job->is_working = false;
    watch->working--;
    if (status != SHOAL_OK)
        job->not_before_ms = service_now_ms() + RETRY_MS;
    if (job->pool != NULL)
        pool_settle(watch, job);
    if (job->phase == SERVICE_ENDED && status == SHOAL_OK) {
        watch->queue_changed = true; /* somebody may have waited for its pool */
        if (atomic_load(&job->pool_until_ms) == 0)
            job_remove(watch, job);
        return;
    }
    if (job->phase == SERVICE_WAITING)
        release_room(watch, job); /* it begins again */
    if (job->phase == SERVICE_RUNNING && job->supervisor_fd >= 0) {
        supervisor_watch(watch, job);
        watch->queue_changed = true; /* a spot job may be interrupted from now on */
        if (atomic_load(&job->stop_wanted))
            stop_send(job);
    }
}

/* ---- the queue and the limits ---- */

static bool is_queued(const struct service_job *job)
{
    return !job->is_working && !job->is_admitted && job->phase == SERVICE_WAITING;
}

static struct service_room room_of(const struct job_share *share)
{
    return (struct service_room){.core_thousands = (int64_t)share->core_thousands,
                                 .memory_bytes = (int64_t)share->memory_bytes,
                                 .accelerators = share->accelerator_count};
}

static struct service_room room_free(const struct job_capacity *capacity)
{
    struct service_room room = room_of(&capacity->machine);
    room.core_thousands -= (int64_t)capacity->core_thousands;
    room.memory_bytes -= (int64_t)capacity->memory_bytes;
    room.accelerators -= __builtin_popcountll(capacity->accelerators);
    return room;
}

/* The queue has found that it fits, or that it must wait. */
static void queue_decided(struct service_watch *watch, struct service_job *job, bool starts,
                          int64_t now_ms)
{
    if (job->is_admitted)
        return; /* to a pool */
    if (starts && job->not_before_ms > now_ms)
        watch->queue_changed = true; /* a restart, whose time has not come */
    else if (starts && job_capacity_take(&watch->capacity, &job->need, &job->accelerators))
        job->is_admitted = true;
    else
        job->is_passed_over = true;
}

static struct service_queued queued_of(struct service_job *job)
{
    return (struct service_queued){.id = job->id,
                                   .priority = job->priority,
                                   .is_spot = job->is_spot,
                                   .need = room_of(&job->need.all),
                                   .user = job};
}

/* It has ended, and its instances wait for another one. */
static bool has_pool(const struct service_job *job)
{
    return !job->is_working && job->phase == SERVICE_ENDED;
}

/* As spot jobs do, a pool leaves for others, but only for those that are more important. */
static struct service_queued leaver_of(struct service_job *job)
{
    struct service_queued out = queued_of(job);
    out.is_spot |= has_pool(job);
    out.priority += has_pool(job);
    return out;
}

static bool may_leave(const struct service_job *job)
{
    return has_pool(job) ||
           (!job->is_working && job->phase == SERVICE_RUNNING && job->supervisor_fd >= 0);
}

static void leave_ask(struct service_job *job)
{
    if (!has_pool(job)) {
        stop_send(job);
        return;
    }
    job->is_outbid = job->stop_sent = true;
    service_job_stop(job);
}

/* A list of those that `wanted` holds for; base_free. */
static enum shoal_status list_make(struct service_watch *watch,
                                   bool (*wanted)(const struct service_job *job),
                                   struct service_queued (*make)(struct service_job *job),
                                   struct service_queued **out, size_t *count)
{
    *count = 0;
    for (struct service_job *job = watch->jobs; job != NULL; job = job->next)
        *count += wanted(job);
    TRY(BASE_NEW_ARRAY(out, *count, "the queue of jobs"));
    size_t at = 0;
    for (struct service_job *job = watch->jobs; job != NULL; job = job->next)
        if (wanted(job))
            (*out)[at++] = make(job);
    return SHOAL_OK;
}

/* The jobs, which are in order, take the pools that are like them, and need no other room. */
static void pools_give(struct service_watch *watch, struct service_queued *queued, size_t count,
                       int64_t now_ms)
{
    for (size_t i = 0; i < count; i++) {
        struct service_job *job = queued[i].user, *pool = watch->jobs;
        if (job->pool_key == NULL || job->pool_cache != 0 || job->not_before_ms > now_ms)
            continue;
        while (pool != NULL && (!has_pool(pool) || atomic_load(&pool->stop_wanted) ||
                                strcmp(pool->pool_key, job->pool_key) != 0))
            pool = pool->next;
        if (pool == NULL)
            continue;
        pool->is_working = true; /* until that is committed, or has failed */
        pool->is_admitted = false;
        job->pool = pool;
        job->accelerators = pool->accelerators;
        job->is_admitted = true;
        queued[i].need = (struct service_room){0};
    }
}

/* Its end, with a pool, is committed or about to be: its step only has a folder to remove. */
static bool leaves_pool(const struct service_job *job)
{
    return job->is_working && job->is_admitted && atomic_load(&job->pool_until_ms) > 0 &&
           !atomic_load(&job->stop_wanted);
}

static bool has_any(const struct service_watch *watch,
                    bool (*wanted)(const struct service_job *job))
{
    const struct service_job *job = watch->jobs;
    while (job != NULL && !wanted(job))
        job = job->next;
    return job != NULL;
}

/* Whether a job like it is about to leave it a pool. */
static bool pool_comes(const struct service_watch *watch, const struct service_job *job)
{
    const struct service_job *other = watch->jobs;
    if (job->pool_key == NULL || job->pool_cache != 0 || job->is_admitted)
        return false;
    while (other != NULL && (!leaves_pool(other) || strcmp(other->pool_key, job->pool_key) != 0))
        other = other->next;
    return other != NULL;
}

/* Spot jobs and pools leave what the first of the others that wait needs. Spot jobs' supervisors
 * stop them, and that nobody asked for it tells the next step that they were interrupted. */
static void room_make(struct service_watch *watch, const struct service_queued *waiting)
{
    struct service_queued *running;
    size_t count;
    struct service_room room = room_free(&watch->capacity);
    if (list_make(watch, may_leave, leaver_of, &running, &count) != SHOAL_OK)
        return;
    for (size_t i = 0; i < count; i++) {
        struct service_job *job = running[i].user;
        if (!job->stop_sent)
            continue;
        service_room_give(&room, &running[i].need); /* soon */
        running[i].need = (struct service_room){0};
    }
    if (service_queue_interrupt(running, count, room, waiting))
        for (size_t i = 0; i < count; i++)
            if (running[i].ends)
                leave_ask(running[i].user);
    base_free(running);
}

static void queue_look(struct service_watch *watch, int64_t now_ms)
{
    struct service_queued *queued;
    size_t count, first = 0;
    if (!watch->queue_changed ||
        list_make(watch, is_queued, queued_of, &queued, &count) != SHOAL_OK)
        return;
    watch->queue_changed = false;
    service_queue_sort(queued, count);
    bool pools_come = has_any(watch, leaves_pool);
    if (has_any(watch, has_pool))
        pools_give(watch, queued, count, now_ms);
    service_queue_admit(queued, count, room_free(&watch->capacity));
    for (size_t i = 0; i < count; i++)
        if (!pools_come || !pool_comes(watch, queued[i].user))
            queue_decided(watch, queued[i].user, queued[i].starts, now_ms);
    while (first < count && (queued[first].starts || queued[first].is_spot))
        first++;
    if (first < count)
        room_make(watch, &queued[first]);
    base_free(queued);
}

/* When its next limit passes. */
static int64_t limit_ms(const struct service_job *job)
{
    int64_t at_ms = NO_TIMER;
    if (job->is_working || atomic_load(&job->stop_wanted))
        return at_ms;
    if (job->phase == SERVICE_ENDED)
        return atomic_load(&job->pool_until_ms);
    if (job->wait_until_ms > 0)
        at_ms = job->wait_until_ms;
    if (job->phase == SERVICE_WAITING && job->pending_until_ms > 0 && job->pending_until_ms < at_ms)
        at_ms = job->pending_until_ms;
    return at_ms;
}

/* Stops jobs whose limits have passed. */
static void limits_look(struct service_watch *watch, int64_t now_ms)
{
    for (struct service_job *job = watch->jobs; job != NULL; job = job->next)
        if (limit_ms(job) <= now_ms) {
            service_job_stop(job);
            stop_send(job);
        }
}

/* The next moment at which something is to be done for a job that nothing else wakes: a limit
 * passes, or what had no memory or no thread is tried again. */
static int64_t next_look_ms(struct service_watch *watch, int64_t now_ms)
{
    int64_t next_ms = watch->queue_changed ? now_ms + RETRY_MS : NO_TIMER;
    for (struct service_job *job = watch->jobs; job != NULL; job = job->next) {
        int64_t at_ms = limit_ms(job);
        if (at_ms > now_ms && at_ms < next_ms)
            next_ms = at_ms;
        if (!job->is_working && job->not_before_ms > now_ms && job->not_before_ms < next_ms)
            next_ms = job->not_before_ms;
    }
    return next_ms;
}

/* ---- the loop ---- */

static void message_take(struct service_watch *watch, const struct message *message)
{
    struct service_job *job = message->job;
    if (message->kind == MESSAGE_ADD) {
        job_add(watch, job);
        return;
    }
    if (message->kind == MESSAGE_STEPPED) {
        stepped(watch, job, message->status);
        return;
    }
    if (message->kind == MESSAGE_CLEAN)
        clean(watch);
    if (message->kind == MESSAGE_CLEANED)
        cleaned(watch);
    job = job_find(watch, message->id);
    if (job == NULL)
        return;
    if (message->kind == MESSAGE_STOP) {
        service_job_stop(job);
        if (!job->is_working)
            stop_send(job);
    } else if (message->kind == MESSAGE_KEEP) {
        atomic_store(&job->pool_until_ms, message->number);
    } else {
        job->priority = message->number;
        watch->queue_changed = true;
    }
}

static bool messages_take(struct service_watch *watch)
{
    pthread_mutex_lock(&watch->lock);
    struct message *message = watch->first;
    watch->first = NULL;
    watch->last = &watch->first;
    bool stops = watch->stops;
    pthread_mutex_unlock(&watch->lock);
    while (message != NULL) {
        struct message *next = message->next;
        message_take(watch, message);
        base_free(message);
        message = next;
    }
    return !stops;
}

static void events_wait(struct service_watch *watch, int timeout_ms)
{
    struct epoll_event events[EVENTS_MAX];
    int count = epoll_wait(watch->epoll_fd, events, EVENTS_MAX, timeout_ms);
    for (int i = 0; i < count; i++) {
        uint64_t ignored;
        if (events[i].data.ptr != NULL)
            supervisor_read(watch, events[i].data.ptr);
        else if (read(watch->wake_fd, &ignored, sizeof(ignored)) < 0)
            continue; /* somebody else's wake was enough */
    }
}

static void leave(struct service_watch *watch)
{
    int64_t until_ms = service_now_ms() + LEAVE_MS;
    watch->cleans_again = false;
    for (struct service_job *job = watch->jobs; job != NULL; job = job->next) {
        atomic_store(&job->preparing.is_cancelled, true);
        atomic_store(&job->collecting.is_cancelled, true);
    }
    while (watch->working > 0 && service_now_ms() < until_ms) {
        events_wait(watch, 100);
        messages_take(watch);
    }
}

static void *watch_main(void *user)
{
    struct service_watch *watch = user;
    clean(watch);
    while (messages_take(watch)) {
        int64_t now_ms = service_now_ms();
        queue_look(watch, now_ms);
        limits_look(watch, now_ms);
        steps_begin(watch, now_ms);
        int64_t wait_ms = next_look_ms(watch, now_ms) - now_ms;
        events_wait(watch, wait_ms > WAIT_MS_MAX ? WAIT_MS_MAX : (int)wait_ms);
    }
    leave(watch);
    return NULL;
}

/* ---- life ---- */

static enum shoal_status job_take_over(struct service_watch *watch, struct sql_database *reader,
                                       const struct service_row *row)
{
    json_t *request;
    struct service_job *job;
    TRY(service_request_get(reader, row->id, &request, NULL));
    enum shoal_status status = service_job_create(watch->service, row, request, &job);
    json_decref(request);
    if (status == SHOAL_OK)
        job_add(watch, job);
    return status;
}

static enum shoal_status jobs_read(struct service_watch *watch, struct sql_database *reader,
                                   enum service_sql which)
{
    struct service_row row;
    bool found = true;
    sqlite3_stmt *open_ones = sql_statement(reader, (int)which);
    for (;;) {
        TRY(sql_step(reader, open_ones, &found));
        if (!found)
            return SHOAL_OK;
        service_row_take(open_ones, &row);
        enum shoal_status status = job_take_over(watch, reader, &row);
        if (status != SHOAL_OK) {
            sql_reset(open_ones);
            return status;
        }
    }
}

static enum shoal_status jobs_take_over(struct service_watch *watch)
{
    struct sql_database *reader;
    TRY(sql_reader_take(&watch->service->readers, &reader));
    enum shoal_status status = jobs_read(watch, reader, SERVICE_SQL_JOB_OPEN);
    if (status == SHOAL_OK)
        status = jobs_read(watch, reader, SERVICE_SQL_POOL_OPEN);
    sql_reader_give(&watch->service->readers, reader);
    return status;
}

static void watch_free(struct service_watch *watch)
{
    messages_take(watch); /* what nobody waits for any more */
    while (watch->jobs != NULL) {
        struct service_job *job = watch->jobs;
        watch->jobs = job->next;
        if (job->supervisor_fd >= 0)
            close(job->supervisor_fd);
        service_job_free(job);
    }
    if (watch->epoll_fd >= 0)
        close(watch->epoll_fd);
    if (watch->wake_fd >= 0)
        close(watch->wake_fd);
    base_free(watch);
}

static enum shoal_status descriptors_make(struct service_watch *watch)
{
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = NULL};
    watch->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    watch->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    if (watch->wake_fd < 0 || watch->epoll_fd < 0 ||
        epoll_ctl(watch->epoll_fd, EPOLL_CTL_ADD, watch->wake_fd, &event) != 0)
        return base_error_errno(SHOAL_ERR_SYSTEM, errno, "making the descriptors of the watcher");
    return SHOAL_OK;
}

enum shoal_status service_watch_create(struct service *service, struct service_watch **out)
{
    struct service_watch *watch;
    TRY(BASE_NEW(&watch, "the watcher of jobs"));
    watch->service = service;
    watch->epoll_fd = watch->wake_fd = -1;
    watch->last = &watch->first;
    pthread_mutex_init(&watch->lock, NULL);
    watch->capacity.machine = service->machine;
    enum shoal_status status = descriptors_make(watch);
    if (status != SHOAL_OK)
        watch_free(watch);
    else
        *out = watch;
    return status;
}

enum shoal_status service_watch_start(struct service_watch *watch)
{
    TRY(jobs_take_over(watch));
    int status = pthread_create(&watch->thread, NULL, watch_main, watch);
    if (status != 0)
        return base_error_errno(SHOAL_ERR_SYSTEM, status, "no thread that watches jobs");
    watch->is_running = true;
    return SHOAL_OK;
}

bool service_watch_free(struct service_watch *watch)
{
    if (watch == NULL)
        return true;
    if (watch->is_running) {
        pthread_mutex_lock(&watch->lock);
        watch->stops = true;
        pthread_mutex_unlock(&watch->lock);
        wake(watch);
        pthread_join(watch->thread, NULL);
    }
    if (watch->working > 0)
        return false;
    watch_free(watch);
    return true;
}
