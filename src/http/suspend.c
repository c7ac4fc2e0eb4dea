/* SPDX-License-Identifier: Apache-2.0 */
/*
 * suspend.c: requests that wait for another thread.
 *
 * Who resumes may come before the connection's thread has suspended, or after the server has given
 * the request up because it is being stopped. One lock decides: a resume that comes first is kept
 * (may_go_on), one that comes last finds the request ended by nobody but itself (is_held), because
 * what it resumes for may still be written to. The lock is the room's, not the server's, which may
 * be gone by then.
 */
#include <pthread.h>

#include "base/status.h"
#include "http/request.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct http_request *suspended_first;

static void insert(struct http_request *request)
{
    request->previous = NULL;
    request->next = suspended_first;
    if (suspended_first != NULL)
        suspended_first->previous = request;
    suspended_first = request;
}

static void withdraw(struct http_request *request)
{
    if (request->previous != NULL)
        request->previous->next = request->next;
    else
        suspended_first = request->next;
    if (request->next != NULL)
        request->next->previous = request->previous;
}

/* Under the lock: lets the connection's thread have it again. */
static void go_on(struct http_request *request)
{
    withdraw(request);
    request->is_suspended = false;
    MHD_resume_connection(request->connection);
}

/* Under the lock: suspends unless it may go on at once. */
static bool try_suspend(struct http_request *request)
{
    request->is_given_up |= server_gives_up(request->server);
    if (request->may_go_on || request->is_given_up)
        return false;
    request->is_suspended = true;
    insert(request);
    MHD_suspend_connection(request->connection);
    return true;
}

void http_request_suspend(struct http_request *request)
{
    pthread_mutex_lock(&lock);
    request->wants_suspension = true;
    request->is_held = true;
    pthread_mutex_unlock(&lock);
}

bool suspend_settle(struct http_request *request)
{
    pthread_mutex_lock(&lock);
    request->wants_suspension = false;
    bool suspended = try_suspend(request);
    pthread_mutex_unlock(&lock);
    return suspended;
}

bool suspend_source(struct http_request *request)
{
    pthread_mutex_lock(&lock);
    bool suspended = try_suspend(request);
    request->may_go_on = false;
    pthread_mutex_unlock(&lock);
    return suspended;
}

bool suspend_resumed(struct http_request *request)
{
    pthread_mutex_lock(&lock);
    bool came = request->may_go_on;
    request->may_go_on = false;
    pthread_mutex_unlock(&lock);
    return came;
}

void http_request_resume(struct http_request *request)
{
    pthread_mutex_lock(&lock);
    bool is_over = request->is_over;
    request->is_held = false;
    request->may_go_on = true;
    if (!is_over && request->is_suspended)
        go_on(request);
    pthread_mutex_unlock(&lock);
    if (is_over)
        request_end(request);
}

void http_source_wake(struct http_request *request)
{
    pthread_mutex_lock(&lock);
    if (request->is_suspended)
        go_on(request);
    else
        request->may_go_on = true;
    pthread_mutex_unlock(&lock);
}

void suspend_give_up(struct http_server *server)
{
    pthread_mutex_lock(&lock);
    for (struct http_request *request = suspended_first, *next; request != NULL; request = next) {
        next = request->next;
        if (request->server != server)
            continue;
        request->is_given_up = true;
        go_on(request);
    }
    pthread_mutex_unlock(&lock);
}

bool suspend_over(struct http_request *request)
{
    pthread_mutex_lock(&lock);
    bool is_held = request->is_held;
    request->is_over = true;
    pthread_mutex_unlock(&lock);
    return !is_held;
}
