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

/* The streams of a link work side by side: their bytes add up, their times don't. Since the flow
 * was last read the link was busy for as long as the busiest of them. */
bool net_tcp_flow(struct net_endpoint *endpoint, int peer, struct net_flow *out)
{
    struct net_tcp_link *link = &((struct net_tcp *)endpoint)->links[peer];
    struct net_flow sum = {0}, one;
    uint64_t longest_us = 0;

    if (link->state != NET_TCP_LINK_STANDING)
        return false;
    for (int i = 0; i < NET_TCP_STREAMS_MAX; i++) {
        struct net_tcp_stream *stream = link->streams[i];

        if (stream == NULL || stream->fd < 0)
            continue;
        if (!read_stream(stream, &one))
            return false;
        sum.acked_bytes += one.acked_bytes;
        if (one.busy_us - stream->busy_us > longest_us)
            longest_us = one.busy_us - stream->busy_us;
        stream->busy_us = one.busy_us;
    }
    link->busy_us += longest_us;
    sum.busy_us = link->busy_us;
    *out = sum;
    return true;
}
