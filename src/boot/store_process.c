/* SPDX-License-Identifier: Apache-2.0 */
/* store_process.c: see store_process.h. */
#include "boot/store_process.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct store_listed *servers;
static pthread_mutex_t servers_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_once_t process_once = PTHREAD_ONCE_INIT;

static void before_fork(void)
{
    pthread_mutex_lock(&servers_lock);
}

static void after_fork_in_parent(void)
{
    pthread_mutex_unlock(&servers_lock);
}

/* A child has no thread that serves, and must not keep the port after its parent's death. */
static void after_fork_in_child(void)
{
    for (struct store_listed *server = servers; server != NULL; server = server->next) {
        for (int i = 0; i < server->listeners->count; i++)
            close(server->listeners->fds[i]);
        server->listeners->count = 0;
    }
    servers = NULL;
    pthread_mutex_unlock(&servers_lock);
}

/* At exit: no thread may run on while the libraries are taken down. */
static void stop_all(void)
{
    while (servers != NULL)
        servers->stop(servers);
}

static void watch_process(void)
{
    pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child);
    atexit(stop_all);
}

void store_process_add(struct store_listed *listed)
{
    pthread_once(&process_once, watch_process);
    pthread_mutex_lock(&servers_lock);
    listed->next = servers;
    servers = listed;
    pthread_mutex_unlock(&servers_lock);
}

void store_process_remove(const struct store_listed *listed)
{
    pthread_mutex_lock(&servers_lock);
    struct store_listed **at = &servers;
    while (*at != NULL && *at != listed)
        at = &(*at)->next;
    if (*at != NULL)
        *at = listed->next;
    pthread_mutex_unlock(&servers_lock);
}

struct store_listed *store_process_find(const char *address)
{
    pthread_mutex_lock(&servers_lock);
    struct store_listed *server = servers;
    while (server != NULL &&
           (server->lasting_address == NULL || strcmp(server->lasting_address, address) != 0))
        server = server->next;
    pthread_mutex_unlock(&servers_lock);
    return server;
}
