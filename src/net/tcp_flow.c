/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tcp_flow.c: what the kernel has counted of a connection. Its times don't depend on when this
 * process gets a core, as times taken here would. A file of its own because the C library's
 * struct tcp_info ends before the numbers that are read here.
 */
#include <linux/tcp.h>
#include <stddef.h>
#include <sys/socket.h>

#include "net/tcp.h"

static bool read_stream(const struct net_tcp_stream *stream, struct net_flow *out)
{
    struct tcp_info info = {0};
    socklen_t bytes = sizeof(info), needed = offsetof(struct tcp_info, tcpi_busy_time) + 8;

    if (getsockopt(stream->fd, IPPROTO_TCP, TCP_INFO, &info, &bytes) != 0 || bytes < needed)
        return false;
    out->acked_bytes = info.tcpi_bytes_acked;
    out->busy_us = info.tcpi_busy_time;
    return true;
}

/* The streams of a link work side by side: their bytes add up, their times don't. */
bool net_tcp_flow(struct net_endpoint *endpoint, int peer, struct net_flow *out)
{
    const struct net_tcp_link *link = &((struct net_tcp *)endpoint)->links[peer];
    struct net_flow sum = {0}, one;

    if (link->state != NET_TCP_LINK_STANDING)
        return false;
    for (int i = 0; i < NET_TCP_STREAMS_MAX; i++) {
        if (link->streams[i] == NULL || link->streams[i]->fd < 0)
            continue;
        if (!read_stream(link->streams[i], &one))
            return false;
        sum.acked_bytes += one.acked_bytes;
        sum.busy_us = one.busy_us > sum.busy_us ? one.busy_us : sum.busy_us;
    }
    *out = sum;
    return true;
}
