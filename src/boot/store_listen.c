/* SPDX-License-Identifier: Apache-2.0 */
/*
 * store_listen.c: one socket for all addresses where the kernel has IPv6 (dual stack), else one for
 * IPv4; with a host given, one socket for each of its addresses, because a client may be told any.
 */
#include "boot/store_listen.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/status.h"
#include "boot/address.h"

#define BACKLOG 1024

static enum shoal_status bind_error(int cause, const struct sockaddr *address, int port)
{
    char text[BOOT_ADDRESS_TEXT_BYTES], holder[128];
    boot_address_format(address, text);
    if (cause == EADDRINUSE && boot_address_port_holder(port, holder, sizeof(holder)))
        return base_error(SHOAL_ERR_SYSTEM,
                          "cannot serve on %s: the port is in use by %s; end it or choose another "
                          "port",
                          text, holder);
    if (cause == EADDRINUSE)
        return base_error(SHOAL_ERR_SYSTEM,
                          "cannot serve on %s: the port is in use by another process; end it or "
                          "choose another port",
                          text);
    return base_error_errno(SHOAL_ERR_SYSTEM, cause, "cannot serve on %s", text);
}

/* Adds a listening socket for the address; *cause is errno on failure. */
static enum shoal_status add(struct store_listeners *listeners, const struct sockaddr *address,
                             socklen_t bytes, int *cause)
{
    int on = 1, off = 0;
    int fd = socket(address->sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0) {
        *cause = errno;
        return bind_error(*cause, address, listeners->port);
    }
    /* A server that ended a moment ago must not keep the port. */
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    if (address->sa_family == AF_INET6) {
        const struct sockaddr_in6 *six = (const void *)address;
        int only = IN6_IS_ADDR_UNSPECIFIED(&six->sin6_addr) ? off : on;
        setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &only, sizeof(only));
    }
    struct sockaddr_storage bound;
    socklen_t bound_bytes = sizeof(bound);
    if (bind(fd, address, bytes) != 0 || listen(fd, BACKLOG) != 0 ||
        getsockname(fd, (struct sockaddr *)&bound, &bound_bytes) != 0) {
        *cause = errno;
        close(fd);
        return bind_error(*cause, address, listeners->port);
    }
    listeners->port =
        ntohs(bound.ss_family == AF_INET6 ? ((struct sockaddr_in6 *)(void *)&bound)->sin6_port
                                          : ((struct sockaddr_in *)(void *)&bound)->sin_port);
    listeners->fds[listeners->count++] = fd;
    return SHOAL_OK;
}

static enum shoal_status listen_everywhere(struct store_listeners *listeners)
{
    int cause = 0;
    struct sockaddr_in6 six = {.sin6_family = AF_INET6,
                               .sin6_port = htons((uint16_t)listeners->port)};
    enum shoal_status status = add(listeners, (const struct sockaddr *)&six, sizeof(six), &cause);
    if (status == SHOAL_OK || (cause != EAFNOSUPPORT && cause != EADDRNOTAVAIL))
        return status;
    struct sockaddr_in four = {.sin_family = AF_INET, .sin_port = htons((uint16_t)listeners->port)};
    return add(listeners, (const struct sockaddr *)&four, sizeof(four), &cause);
}

static enum shoal_status listen_on_host(const char *host, struct store_listeners *listeners)
{
    struct addrinfo *found, hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE};
    int result = getaddrinfo(host, NULL, &hints, &found);
    if (result != 0)
        return base_error(SHOAL_ERR_SYSTEM, "cannot serve on %s: %s", host, gai_strerror(result));
    enum shoal_status status = SHOAL_OK;
    for (struct addrinfo *at = found; at != NULL; at = at->ai_next) {
        int cause = 0;
        if (listeners->count == STORE_LISTENERS_MAX)
            break;
        if (at->ai_family == AF_INET)
            ((struct sockaddr_in *)(void *)at->ai_addr)->sin_port =
                htons((uint16_t)listeners->port);
        else if (at->ai_family == AF_INET6)
            ((struct sockaddr_in6 *)(void *)at->ai_addr)->sin6_port =
                htons((uint16_t)listeners->port);
        else
            continue;
        enum shoal_status one = add(listeners, at->ai_addr, at->ai_addrlen, &cause);
        /* A name may have an address of a family that is switched off here. */
        if (one != SHOAL_OK && (status == SHOAL_OK || cause == EADDRINUSE))
            status = one;
        if (one != SHOAL_OK && cause == EADDRINUSE)
            break;
        if (one != SHOAL_OK)
            continue;
    }
    freeaddrinfo(found);
    return status;
}

enum shoal_status store_listen(const char *host, int port, struct store_listeners *out)
{
    struct store_listeners listeners = {.port = port};
    if (port < 0 || port > 65535)
        return base_error(SHOAL_ERR_ARGUMENT, "%d is not a port (0 to 65535)", port);
    enum shoal_status status = host == NULL || host[0] == '\0' ? listen_everywhere(&listeners)
                                                               : listen_on_host(host, &listeners);
    if (status != SHOAL_OK) {
        store_listen_close(&listeners);
        return status;
    }
    *out = listeners;
    return SHOAL_OK;
}

void store_listen_close(struct store_listeners *listeners)
{
    for (int i = 0; i < listeners->count; i++) {
        shutdown(listeners->fds[i], SHUT_RDWR); /* also where a forked child has a copy */
        close(listeners->fds[i]);
    }
    listeners->count = 0;
}
