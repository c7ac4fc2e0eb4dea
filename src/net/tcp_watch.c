/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tcp_watch.c: interfaces of this host that vanish.
 *
 * TCP takes an interface that is gone for one that loses packets, and repeats for minutes. The
 * kernel tells of changes by a netlink socket; what exactly changed is not read from there but
 * looked up, a second later, because a restart of the network takes addresses away for a moment and
 * links outlive that.
 */
#include <errno.h>
#include <ifaddrs.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <net/if.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "net/tcp.h"

#define GRACE_NS BASE_NS_PER_S

void net_tcp_watch_interfaces(struct net_tcp *ep)
{
    struct sockaddr_nl address = {.nl_family = AF_NETLINK,
                                  .nl_groups =
                                      RTMGRP_LINK | RTMGRP_IPV4_IFADDR | RTMGRP_IPV6_IFADDR};
    int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, NETLINK_ROUTE);

    if (fd < 0)
        return;
    if (bind(fd, (struct sockaddr *)&address, sizeof(address)) != 0) {
        close(fd);
        return;
    }
    ep->interfaces_fd = fd;
    net_tcp_watch(ep, fd, NET_TCP_INTERFACES, 0, EPOLLIN, true);
}

void net_tcp_interfaces_changed(struct net_tcp *ep)
{
    char news[8192];

    /* Some may be lost when there are many at once: then the error is news enough. */
    while (recv(ep->interfaces_fd, news, sizeof(news), MSG_DONTWAIT) > 0 || errno == ENOBUFS)
        continue;
    if (ep->look_ns == BASE_NO_DEADLINE)
        ep->look_ns = base_now_ns() + GRACE_NS;
    net_tcp_timer_at(ep, ep->look_ns);
}

static bool is_there(const struct ifaddrs *list, const struct net_tcp_stream *stream)
{
    for (const struct ifaddrs *entry = list; entry != NULL; entry = entry->ifa_next) {
        if ((entry->ifa_flags & IFF_UP) != 0 && net_tcp_address_is(&stream->own, entry->ifa_addr))
            return true;
    }
    return false;
}

/* Ends the link; the peer can't see this host's interfaces and is told. */
static void lose_interface(struct net_tcp *ep, struct net_tcp_stream *stream)
{
    char text[NET_TCP_REASON_BYTES], host[65] = "?", address[NET_TCP_TEXT_BYTES];

    (void)gethostname(host, sizeof(host) - 1);
    net_tcp_host_text(&stream->own, address);
    snprintf(text, sizeof(text), "interface %s (%s) of host %s is gone or down", stream->interface,
             address, host);
    net_tcp_say_words(ep, stream->link, stream, text);
    net_tcp_lose(ep, stream->link, SHOAL_ERR_PEER_LOST, text);
}

static void look_at_link(struct net_tcp *ep, const struct net_tcp_link *link,
                         const struct ifaddrs *list)
{
    for (int i = 0; i < NET_TCP_STREAMS_MAX; i++) {
        struct net_tcp_stream *stream = link->streams[i];

        if (stream == NULL || stream->fd < 0 || stream->interface[0] == '\0' ||
            is_there(list, stream))
            continue;
        lose_interface(ep, stream);
        return;
    }
}

void net_tcp_look_at_interfaces(struct net_tcp *ep, int64_t now_ns, int64_t *next_ns)
{
    struct ifaddrs *list;

    if (ep->look_ns == BASE_NO_DEADLINE)
        return;
    if (now_ns < ep->look_ns) {
        if (ep->look_ns < *next_ns)
            *next_ns = ep->look_ns;
        return;
    }
    ep->look_ns = BASE_NO_DEADLINE;
    if (getifaddrs(&list) != 0)
        return;
    for (int i = 0; i < ep->options.size; i++)
        if (ep->links[i].state == NET_TCP_LINK_STANDING)
            look_at_link(ep, &ep->links[i], list);
    freeifaddrs(list);
}
