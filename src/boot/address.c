/* SPDX-License-Identifier: Apache-2.0 */
/* address.c: reading and writing of network addresses, and which of them this host has. */
#include "boot/address.h"

#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/options.h"
#include "base/status.h"

enum shoal_status boot_address_split(const char *text, char host[BOOT_ADDRESS_HOST_BYTES],
                                     int *port)
{
    const char *colon = strrchr(text, ':');
    const char *from = text, *to = colon;
    if (colon == NULL || colon[1] == '\0')
        return base_error(SHOAL_ERR_ARGUMENT, "\"%.200s\" has no port: write host:port", text);
    char *end;
    errno = 0;
    long number = strtol(colon + 1, &end, 10);
    if (*end != '\0' || errno != 0 || colon[1] == '-' || colon[1] == '+' || number > 65535)
        return base_error(SHOAL_ERR_ARGUMENT, "\"%.200s\": \"%.40s\" is not a port (0 to 65535)",
                          text, colon + 1);
    if (text[0] == '[' && colon > text && colon[-1] == ']') {
        from++;
        to--;
    } else if (memchr(from, ':', (size_t)(to - from)) != NULL) {
        return base_error(SHOAL_ERR_ARGUMENT, "\"%.200s\": write an IPv6 address as [address]:port",
                          text);
    }
    size_t bytes = (size_t)(to - from);
    if (bytes >= BOOT_ADDRESS_HOST_BYTES)
        return base_error(SHOAL_ERR_ARGUMENT, "\"%.200s…\": the host's name is too long", text);
    memcpy(host, from, bytes);
    host[bytes] = '\0';
    *port = (int)number;
    return SHOAL_OK;
}

void boot_address_format(const struct sockaddr *address, char text[BOOT_ADDRESS_TEXT_BYTES])
{
    char number[INET6_ADDRSTRLEN] = "?";
    if (address->sa_family == AF_INET6) {
        const struct sockaddr_in6 *six = (const void *)address;
        inet_ntop(AF_INET6, &six->sin6_addr, number, sizeof(number));
        snprintf(text, BOOT_ADDRESS_TEXT_BYTES, "[%s]:%d", number, ntohs(six->sin6_port));
    } else if (address->sa_family == AF_INET) {
        const struct sockaddr_in *four = (const void *)address;
        inet_ntop(AF_INET, &four->sin_addr, number, sizeof(number));
        snprintf(text, BOOT_ADDRESS_TEXT_BYTES, "%s:%d", number, ntohs(four->sin_port));
    } else {
        snprintf(text, BOOT_ADDRESS_TEXT_BYTES, "address of family %d", address->sa_family);
    }
}

static bool four_is_loopback(struct in_addr number)
{
    return ntohl(number.s_addr) >> 24 == 127;
}

bool boot_address_is_loopback(const struct sockaddr *address)
{
    if (address->sa_family == AF_INET)
        return four_is_loopback(((const struct sockaddr_in *)(const void *)address)->sin_addr);
    const struct sockaddr_in6 *six = (const void *)address;
    return address->sa_family == AF_INET6 && IN6_IS_ADDR_LOOPBACK(&six->sin6_addr);
}

bool boot_address_host_is_loopback(const char *host)
{
    struct in_addr four;
    struct in6_addr six;
    if (inet_pton(AF_INET, host, &four) == 1)
        return four_is_loopback(four);
    if (inet_pton(AF_INET6, host, &six) == 1)
        return IN6_IS_ADDR_LOOPBACK(&six);
    return strcasecmp(host, "localhost") == 0;
}

/* ---- this host's addresses ------------------------------------------------------------------- */

static void set_port(struct sockaddr *address, int port)
{
    if (address->sa_family == AF_INET6)
        ((struct sockaddr_in6 *)(void *)address)->sin6_port = htons((uint16_t)port);
    else
        ((struct sockaddr_in *)(void *)address)->sin_port = htons((uint16_t)port);
}

/* Whether an interface's address may be listed at all. Link-local IPv6 needs a scope that other
 * hosts don't know. */
static bool usable(const struct ifaddrs *entry)
{
    const struct sockaddr *address = entry->ifa_addr;
    if (address == NULL || !(entry->ifa_flags & IFF_UP))
        return false;
    if (address->sa_family == AF_INET6)
        return !IN6_IS_ADDR_LINKLOCAL(
            &((const struct sockaddr_in6 *)(const void *)address)->sin6_addr);
    return address->sa_family == AF_INET;
}

bool boot_address_is_named(const char *interface, const char *text, const char *words)
{
    for (size_t bytes; *words != '\0'; words += bytes + (words[bytes] == ',')) {
        bytes = strcspn(words, ",");
        bool named = strlen(interface) == bytes && strncmp(interface, words, bytes) == 0;
        if (bytes > 0 && (named || strncmp(text, words, bytes) == 0))
            return true;
    }
    return false;
}

/* 0: named by the option, 1: others, 2: loopback. IPv4 and IPv6 keep the system's order. */
static int order(const struct ifaddrs *entry, const char *text)
{
    const char *wanted = base_option_text(OPTION_INTERFACE);
    if (wanted != NULL && boot_address_is_named(entry->ifa_name, text + (text[0] == '['), wanted))
        return 0;
    return boot_address_is_loopback(entry->ifa_addr) ? 2 : 1;
}

enum shoal_status boot_address_list_local(int port, char *list, size_t bytes)
{
    struct ifaddrs *entries;
    if (getifaddrs(&entries) != 0)
        return base_error_errno(SHOAL_ERR_SYSTEM, errno, "cannot list this host's addresses");
    size_t used = 0;
    for (int round = 0; round < 3; round++) {
        for (struct ifaddrs *entry = entries; entry != NULL; entry = entry->ifa_next) {
            char text[BOOT_ADDRESS_TEXT_BYTES];
            if (!usable(entry))
                continue;
            set_port(entry->ifa_addr, port);
            boot_address_format(entry->ifa_addr, text);
            size_t more = strlen(text) + (used > 0);
            if (order(entry, text) != round || used + more >= bytes)
                continue;
            snprintf(list + used, bytes - used, "%s%s", used > 0 ? "," : "", text);
            used += more;
        }
    }
    freeifaddrs(entries);
    if (used == 0)
        return base_error(SHOAL_ERR_SYSTEM,
                          "this host has no network address, not even loopback: is the interface "
                          "lo up?");
    return SHOAL_OK;
}
