/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tcp_fork.c: a child that the program forks gets copies of all sockets. They would keep the
 * connections open after this process's death, so that peers would not hear of it, and the port
 * taken. The child, which can't use them anyway, closes its copies.
 */
#include <pthread.h>
#include <unistd.h>

#include "net/tcp.h"

static struct net_tcp *open_endpoints;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void before_fork(void)
{
    pthread_mutex_lock(&lock);
}

static void after_fork_in_parent(void)
{
    pthread_mutex_unlock(&lock);
}

static void close_copy(int fd)
{
    if (fd >= 0)
        close(fd);
}

static void close_copies(const struct net_tcp *ep)
{
    close_copy(ep->listen_fd);
    net_tcp_close_copies_of_words(ep);
    for (int i = 0; i < NET_TCP_INCOMING_MAX; i++)
        if (ep->incoming[i].step != NET_TCP_FREE)
            close_copy(ep->incoming[i].fd);
    for (int i = 0; i < ep->options.size * NET_TCP_STREAMS_MAX; i++) {
        const struct net_tcp_stream *stream =
            ep->links[i / NET_TCP_STREAMS_MAX].streams[i % NET_TCP_STREAMS_MAX];

        if (stream == NULL)
            continue;
        close_copy(stream->fd);
        if (stream->opening != NULL)
            close_copy(stream->opening->attempt.fd);
    }
}

static void after_fork_in_child(void)
{
    for (struct net_tcp *ep = open_endpoints; ep != NULL; ep = ep->next_open)
        close_copies(ep);
    open_endpoints = NULL;
    pthread_mutex_unlock(&lock);
}

static void watch_forks(void)
{
    pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child);
}

void net_tcp_note_open(struct net_tcp *ep)
{
    pthread_once(&once, watch_forks);
    pthread_mutex_lock(&lock);
    ep->next_open = open_endpoints;
    open_endpoints = ep;
    pthread_mutex_unlock(&lock);
}

void net_tcp_note_closed(const struct net_tcp *ep)
{
    pthread_mutex_lock(&lock);
    for (struct net_tcp **at = &open_endpoints; *at != NULL; at = &(*at)->next_open)
        if (*at == ep) {
            *at = ep->next_open;
            break;
        }
    pthread_mutex_unlock(&lock);
}
