/* SPDX-License-Identifier: Apache-2.0 */
/* netlink.c: one request, one acknowledgement. See netlink.h, rtnetlink(7). */
#include "job/netlink.h"

#include <errno.h>
#include <linux/if_link.h>
#include <linux/rtnetlink.h>
#include <linux/veth.h>
#include <net/if.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define REQUEST_BYTES 512
#define REPLY_BYTES   8192

/* A message that grows; all requests here are far smaller than its memory. */
struct request {
    _Alignas(struct nlmsghdr) unsigned char bytes[REQUEST_BYTES];
};

static struct nlmsghdr *header_of(struct request *request)
{
    return (struct nlmsghdr *)request->bytes;
}

static void *request_init(struct request *request, uint16_t type, uint16_t flags, size_t body_bytes)
{
    memset(request, 0, sizeof(*request));
    struct nlmsghdr *header = header_of(request);
    header->nlmsg_type = type;
    header->nlmsg_flags = (uint16_t)(NLM_F_REQUEST | NLM_F_ACK | flags);
    header->nlmsg_len = NLMSG_LENGTH(body_bytes);
    return NLMSG_DATA(header);
}

static struct rtattr *put(struct request *request, uint16_t type, const void *data, size_t bytes)
{
    struct nlmsghdr *header = header_of(request);
    struct rtattr *attribute = (struct rtattr *)(request->bytes + NLMSG_ALIGN(header->nlmsg_len));
    attribute->rta_type = type;
    attribute->rta_len = (uint16_t)RTA_LENGTH(bytes);
    if (bytes > 0)
        memcpy(RTA_DATA(attribute), data, bytes);
    header->nlmsg_len = NLMSG_ALIGN(header->nlmsg_len) + RTA_ALIGN(attribute->rta_len);
    return attribute;
}

static void put_name(struct request *request, uint16_t type, const char *name)
{
    put(request, type, name, strlen(name) + 1);
}

/* Attributes that are put between begin and end stand inside this one. */
static struct rtattr *nest_begin(struct request *request, uint16_t type)
{
    return put(request, type, NULL, 0);
}

static void nest_end(struct request *request, struct rtattr *nest)
{
    unsigned char *end = request->bytes + header_of(request)->nlmsg_len;
    nest->rta_len = (uint16_t)(end - (unsigned char *)nest);
}

static int receive_acknowledgement(int fd)
{
    _Alignas(struct nlmsghdr) unsigned char reply[REPLY_BYTES];
    ssize_t got;
    while ((got = recv(fd, reply, sizeof(reply), 0)) < 0 && errno == EINTR)
        continue;
    if (got < 0)
        return errno;
    const struct nlmsghdr *header = (const struct nlmsghdr *)reply;
    if (!NLMSG_OK(header, (size_t)got) || header->nlmsg_type != NLMSG_ERROR)
        return EPROTO;
    return -((const struct nlmsgerr *)NLMSG_DATA(header))->error;
}

static int request_run(int fd, struct request *request)
{
    struct nlmsghdr *header = header_of(request);
    while (send(fd, header, header->nlmsg_len, 0) < 0) {
        if (errno != EINTR)
            return errno;
    }
    return receive_acknowledgement(fd);
}

int netlink_open(void)
{
    return socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE);
}

/* Without an address of its own a bridge takes the lowest one of its ports, and another when that
 * port goes: whoever has sent to it before would go on sending to nobody. */
int netlink_add_bridge(int fd, const char *name)
{
    static const unsigned char address[6] = {0x02, 0x00, 10, 77, 0, 1}; /* locally administered */
    struct request request;
    request_init(&request, RTM_NEWLINK, NLM_F_CREATE | NLM_F_EXCL, sizeof(struct ifinfomsg));
    put_name(&request, IFLA_IFNAME, name);
    put(&request, IFLA_ADDRESS, address, sizeof(address));
    struct rtattr *information = nest_begin(&request, IFLA_LINKINFO);
    put_name(&request, IFLA_INFO_KIND, "bridge");
    nest_end(&request, information);
    return request_run(fd, &request);
}

static void put_peer(struct request *request, const char *peer, pid_t pid, unsigned mtu)
{
    struct ifinfomsg body = {0};
    uint32_t pid_value = (uint32_t)pid, mtu_value = mtu;
    struct rtattr *nest = put(request, VETH_INFO_PEER, &body, sizeof(body));
    put_name(request, IFLA_IFNAME, peer);
    put(request, IFLA_MTU, &mtu_value, sizeof(mtu_value));
    put(request, IFLA_NET_NS_PID, &pid_value, sizeof(pid_value));
    nest_end(request, nest);
}

int netlink_add_port(int fd, const char *name, const char *bridge, const char *peer, pid_t pid,
                     unsigned mtu)
{
    struct request request;
    uint32_t master = if_nametoindex(bridge), mtu_value = mtu;
    if (master == 0)
        return errno;
    struct ifinfomsg *body =
        request_init(&request, RTM_NEWLINK, NLM_F_CREATE | NLM_F_EXCL, sizeof(*body));
    body->ifi_flags = body->ifi_change = IFF_UP;
    put_name(&request, IFLA_IFNAME, name);
    put(&request, IFLA_MTU, &mtu_value, sizeof(mtu_value));
    put(&request, IFLA_MASTER, &master, sizeof(master));
    struct rtattr *information = nest_begin(&request, IFLA_LINKINFO);
    put_name(&request, IFLA_INFO_KIND, "veth");
    struct rtattr *data = nest_begin(&request, IFLA_INFO_DATA);
    put_peer(&request, peer, pid, mtu);
    nest_end(&request, data);
    nest_end(&request, information);
    return request_run(fd, &request);
}

int netlink_set_up(int fd, const char *name)
{
    struct request request;
    struct ifinfomsg *body = request_init(&request, RTM_NEWLINK, 0, sizeof(*body));
    body->ifi_index = (int)if_nametoindex(name);
    if (body->ifi_index == 0)
        return errno;
    body->ifi_flags = body->ifi_change = IFF_UP;
    return request_run(fd, &request);
}

int netlink_add_address(int fd, const char *name, struct in_addr address, int prefix_bits)
{
    struct request request;
    struct ifaddrmsg *body =
        request_init(&request, RTM_NEWADDR, NLM_F_CREATE | NLM_F_EXCL, sizeof(*body));
    body->ifa_family = AF_INET;
    body->ifa_prefixlen = (uint8_t)prefix_bits;
    body->ifa_index = if_nametoindex(name);
    if (body->ifa_index == 0)
        return errno;
    put(&request, IFA_LOCAL, &address, sizeof(address));
    put(&request, IFA_ADDRESS, &address, sizeof(address));
    return request_run(fd, &request);
}
