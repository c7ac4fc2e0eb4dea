/* SPDX-License-Identifier: Apache-2.0 */
/* reach.c: by which addresses hosts reach each other. */
#include "launch/reach.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/status.h"
#include "boot/address.h"

union address {
    struct sockaddr any;
    struct sockaddr_in v4;
    struct sockaddr_in6 v6;
};

/* The address part of a sockaddr and its length in bytes, 0 for other families. */
static size_t address_raw(const struct sockaddr *address, const unsigned char **raw)
{
    if (address == NULL)
        return 0;
    if (address->sa_family == AF_INET) {
        *raw = (const unsigned char *)&((const struct sockaddr_in *)address)->sin_addr;
        return 4;
    }
    if (address->sa_family == AF_INET6) {
        *raw = (const unsigned char *)&((const struct sockaddr_in6 *)address)->sin6_addr;
        return 16;
    }
    return 0;
}

static bool is_loopback(const struct sockaddr *address)
{
    const unsigned char *raw = NULL;
    size_t length = address_raw(address, &raw);
    if (length == 4)
        return raw[0] == 127;
    return length == 16 && IN6_IS_ADDR_LOOPBACK((const struct in6_addr *)raw);
}

/* ---- own addresses ---- */

static bool is_usable(const struct ifaddrs *entry)
{
    const unsigned char *raw = NULL;
    size_t length = address_raw(entry->ifa_addr, &raw);
    if (length == 0 || (entry->ifa_flags & IFF_UP) == 0 || is_loopback(entry->ifa_addr))
        return false;
    if (length == 4)
        return !(raw[0] == 169 && raw[1] == 254);
    return !IN6_IS_ADDR_LINKLOCAL((const struct in6_addr *)raw);
}

static bool fits(const struct ifaddrs *entry, const char *text, const char *interface)
{
    return interface == NULL || *interface == '\0' ||
           boot_address_is_named(entry->ifa_name, text, interface);
}

static enum shoal_status no_interface(const struct ifaddrs *list, const char *interface)
{
    char names[256] = "";
    for (const struct ifaddrs *entry = list; entry != NULL; entry = entry->ifa_next) {
        char text[LAUNCH_ADDRESS_BYTES] = "", item[LAUNCH_ADDRESS_BYTES + IFNAMSIZ + 8];
        const unsigned char *raw = NULL;
        if (!is_usable(entry) || address_raw(entry->ifa_addr, &raw) == 0)
            continue;
        inet_ntop(entry->ifa_addr->sa_family, raw, text, sizeof(text));
        snprintf(item, sizeof(item), "%s%s (%s)", *names ? ", " : "", entry->ifa_name, text);
        strncat(names, item, sizeof(names) - strlen(names) - 1);
    }
    return base_error(SHOAL_ERR_OPTION, "no interface or address here fits '%s'; there is %s",
                      interface, *names ? names : "none but loopback");
}

static void addresses_collect(const struct ifaddrs *list, int family, const char *interface,
                              struct launch_addresses *out)
{
    for (const struct ifaddrs *entry = list; entry != NULL; entry = entry->ifa_next) {
        const unsigned char *raw = NULL;
        if (!is_usable(entry) || entry->ifa_addr->sa_family != family ||
            out->count == LAUNCH_ADDRESSES_MAX)
            continue;
        char *text = out->text[out->count];
        address_raw(entry->ifa_addr, &raw);
        if (inet_ntop(family, raw, text, LAUNCH_ADDRESS_BYTES) != NULL &&
            fits(entry, text, interface))
            out->count++;
    }
}

enum shoal_status launch_addresses_read(const char *interface, struct launch_addresses *out)
{
    struct ifaddrs *list = NULL;
    if (getifaddrs(&list) != 0)
        return base_error_errno(SHOAL_ERR_SYSTEM, errno, "network interfaces");
    struct launch_addresses found = {.count = 0};
    addresses_collect(list, AF_INET, interface, &found);
    addresses_collect(list, AF_INET6, interface, &found);
    enum shoal_status status = SHOAL_OK;
    if (found.count == 0 && interface != NULL && *interface != '\0')
        status = no_interface(list, interface);
    else if (found.count == 0) /* then whoever can be reached is in this same network stack */
        snprintf(found.text[found.count++], LAUNCH_ADDRESS_BYTES, "127.0.0.1");
    if (status == SHOAL_OK)
        *out = found;
    freeifaddrs(list);
    return status;
}

void launch_address_join(const char *address, int port, char *out, size_t capacity)
{
    const char *form = strchr(address, ':') != NULL ? "[%s]:%d" : "%s:%d";
    snprintf(out, capacity, form, address, port);
}

/* ---- ports ---- */

static enum shoal_status listen_any(int family, int wanted, int *fd, int *port)
{
    union address address = {.any.sa_family = (sa_family_t)family};
    socklen_t length = family == AF_INET6 ? sizeof(address.v6) : sizeof(address.v4);
    in_port_t *place = family == AF_INET6 ? &address.v6.sin6_port : &address.v4.sin_port;
    int off = 0, on = 1;
    int opened = socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (opened < 0)
        return base_error_errno(SHOAL_ERR_SYSTEM, errno, "a socket for port %d", wanted);
    *place = htons((uint16_t)wanted);
    if (family == AF_INET6)
        setsockopt(opened, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off));
    setsockopt(opened, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    if (bind(opened, &address.any, length) != 0 || listen(opened, SOMAXCONN) != 0 ||
        getsockname(opened, &address.any, &length) != 0) {
        enum shoal_status status =
            base_error_errno(SHOAL_ERR_SYSTEM, errno, "port %d cannot be opened", wanted);
        close(opened);
        return status;
    }
    *fd = opened;
    *port = ntohs(*place);
    return SHOAL_OK;
}

enum shoal_status launch_port_open(int wanted, int *fd, int *port)
{
    if (listen_any(AF_INET6, wanted, fd, port) == SHOAL_OK)
        return SHOAL_OK;
    return listen_any(AF_INET, wanted, fd, port);
}

/* ---- probing ---- */

struct probe {
    int fd;    /* -1: done */
    int error; /* 0: it answered */
    bool near; /* in a network of this host */
};

/* Splits "address:port" and reads both. */
static enum shoal_status address_parse(const char *text, union address *out, socklen_t *length)
{
    char host[LAUNCH_ADDRESS_BYTES + 16];
    snprintf(host, sizeof(host), "%s", text);
    char *colon = strrchr(host, ':');
    if (colon == NULL)
        return base_error(SHOAL_ERR_FORMAT, "'%s' is not address:port", text);
    *colon = '\0';
    uint16_t port = htons((uint16_t)atoi(colon + 1));
    char *inner = host;
    *out = (union address){.any.sa_family = AF_UNSPEC};
    if (host[0] == '[') {
        inner++;
        char *end = inner + strlen(inner) - 1;
        *end = *end == ']' ? '\0' : '?';
    }
    if (inet_pton(AF_INET, inner, &out->v4.sin_addr) == 1) {
        out->v4.sin_family = AF_INET;
        out->v4.sin_port = port;
        *length = sizeof(out->v4);
        return SHOAL_OK;
    }
    if (inet_pton(AF_INET6, inner, &out->v6.sin6_addr) != 1)
        return base_error(SHOAL_ERR_FORMAT, "'%s' is not a numeric address with a port", text);
    out->v6.sin6_family = AF_INET6;
    out->v6.sin6_port = port;
    *length = sizeof(out->v6);
    return SHOAL_OK;
}

static bool is_near(const struct ifaddrs *list, const struct sockaddr *address)
{
    const unsigned char *theirs = NULL;
    size_t length = address_raw(address, &theirs);
    for (const struct ifaddrs *entry = list; entry != NULL; entry = entry->ifa_next) {
        const unsigned char *ours = NULL, *mask = NULL;
        if (entry->ifa_addr == NULL || entry->ifa_addr->sa_family != address->sa_family ||
            address_raw(entry->ifa_addr, &ours) != length)
            continue;
        if (address_raw(entry->ifa_netmask, &mask) != length)
            continue;
        size_t same = 0;
        while (same < length && ((ours[same] ^ theirs[same]) & mask[same]) == 0)
            same++;
        if (same == length)
            return true;
    }
    return false;
}

static enum shoal_status probe_start(const struct ifaddrs *list, const char *text,
                                     struct probe *probe)
{
    union address address;
    socklen_t length = 0;
    *probe = (struct probe){.fd = -1, .error = EINPROGRESS};
    TRY(address_parse(text, &address, &length));
    probe->near = is_near(list, &address.any);
    probe->fd = socket(address.any.sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (probe->fd >= 0 && connect(probe->fd, &address.any, length) == 0)
        probe->error = 0;
    else
        probe->error = errno;
    if (probe->fd >= 0 && probe->error != EINPROGRESS) {
        close(probe->fd);
        probe->fd = -1;
    }
    return SHOAL_OK;
}

static void probe_look(struct probe *probe)
{
    socklen_t length = sizeof(probe->error);
    if (getsockopt(probe->fd, SOL_SOCKET, SO_ERROR, &probe->error, &length) != 0)
        probe->error = errno;
    close(probe->fd);
    probe->fd = -1;
}

static void probes_wait(struct probe *probes, int count, int64_t deadline_ns)
{
    for (;;) {
        struct pollfd polled[LAUNCH_ADDRESSES_MAX];
        int pending = 0;
        for (int i = 0; i < count; i++) {
            polled[i] = (struct pollfd){probes[i].fd, POLLOUT, 0};
            pending += probes[i].fd >= 0;
        }
        if (pending == 0 || poll(polled, (nfds_t)count, base_left_ms(deadline_ns)) <= 0)
            break;
        for (int i = 0; i < count; i++)
            if (probes[i].fd >= 0 && polled[i].revents != 0)
                probe_look(&probes[i]);
    }
    for (int i = 0; i < count; i++) {
        if (probes[i].fd < 0)
            continue;
        close(probes[i].fd);
        probes[i].fd = -1;
        probes[i].error = ETIMEDOUT;
    }
}

static enum shoal_status probes_start(const char *const *addresses, int count, struct probe *probes)
{
    struct ifaddrs *list = NULL;
    enum shoal_status status = SHOAL_OK;
    if (getifaddrs(&list) != 0)
        list = NULL;
    for (int i = 0; i < count; i++) {
        enum shoal_status started = probe_start(list, addresses[i], &probes[i]);
        status = status == SHOAL_OK ? started : status;
    }
    freeifaddrs(list);
    return status;
}

enum shoal_status launch_probe(const char *const *addresses, int count, int64_t timeout_ms,
                               int *reached, int *reached_count, char *why, size_t why_bytes)
{
    struct probe probes[LAUNCH_ADDRESSES_MAX];
    if (count > LAUNCH_ADDRESSES_MAX)
        return base_error(SHOAL_ERR_LIMIT, "%d addresses to try; at most %d", count,
                          LAUNCH_ADDRESSES_MAX);
    enum shoal_status status = probes_start(addresses, count, probes);
    probes_wait(probes, count, base_deadline_ns(status == SHOAL_OK ? timeout_ms : 0));
    TRY(status);
    int found = 0;
    for (int near = 1; near >= 0; near--)
        for (int i = 0; i < count; i++)
            if (probes[i].error == 0 && probes[i].near == (near == 1))
                reached[found++] = i;
    for (int i = 0; i < count && why != NULL; i++)
        if (probes[i].error != 0)
            snprintf(why, why_bytes, "%s: %s", addresses[i], strerror(probes[i].error));
    *reached_count = found;
    return SHOAL_OK;
}

/* ---- names ---- */

static bool is_own_name(const char *name)
{
    char own[256] = "";
    if (strcasecmp(name, "localhost") == 0)
        return true;
    gethostname(own, sizeof(own) - 1);
    if (*own == '\0')
        return false;
    if (strcasecmp(name, own) == 0)
        return true;
    size_t length = strcspn(own, ".");
    return strchr(name, '.') == NULL && strlen(name) == length &&
           strncasecmp(name, own, length) == 0;
}

static bool is_own_address(const struct sockaddr *address)
{
    struct ifaddrs *list = NULL;
    const unsigned char *theirs = NULL, *ours = NULL;
    size_t length = address_raw(address, &theirs);
    bool own = false;
    if (getifaddrs(&list) != 0)
        return false;
    for (const struct ifaddrs *entry = list; entry != NULL && !own; entry = entry->ifa_next)
        own = address_raw(entry->ifa_addr, &ours) == length && memcmp(ours, theirs, length) == 0 &&
              entry->ifa_addr->sa_family == address->sa_family;
    freeifaddrs(list);
    return own;
}

enum launch_nearness launch_nearness(const char *name, bool look_up)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = look_up ? 0 : AI_NUMERICHOST};
    struct addrinfo *list = NULL;
    if (is_own_name(name))
        return LAUNCH_LOCAL;
    if (getaddrinfo(name, NULL, &hints, &list) != 0)
        return LAUNCH_REMOTE;
    enum launch_nearness nearness = LAUNCH_REMOTE;
    if (is_loopback(list->ai_addr))
        nearness = LAUNCH_LOOPBACK;
    else if (is_own_address(list->ai_addr))
        nearness = LAUNCH_LOCAL;
    freeaddrinfo(list);
    return nearness;
}
