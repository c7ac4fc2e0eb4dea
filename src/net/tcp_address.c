/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tcp_address.c: addresses to publish and candidates to try.
 *
 * Published, numbers little-endian:
 *   0 version  1 count  2 port[2]  4 namespace[16]
 *   20 entries: family (4 or 6) + 16 * place in the list of interfaces, address (4 or 16)
 */
#include "net/tcp_address.h"

#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/status.h"
#include "net/proof.h"

#define FORMAT_VERSION  2
#define COUNT_AT        1
#define PORT_AT         2
#define NAMESPACE_AT    4
#define NAMESPACE_BYTES 16
#define ENTRIES_AT      20
#define FAMILY_BITS     15
#define PLACE_SHIFT     4

/* Preferences; what fits adds up. */
enum {
    PREFER_SAME_NAMESPACE = 100,
    PREFER_ASKED_INTERFACE = 20,
    PREFER_OWN_NETWORK = 10,
    PREFER_SAME_PLACE = 5,
    PREFER_V4 = 1,
    AVOID_NO_ROUTE = -1000,
    AVOID_OWN_ADDRESS = -2000
};

/* ---- one address ---- */

socklen_t net_tcp_address_bytes(const union net_tcp_address *address)
{
    return address->any.sa_family == AF_INET6 ? sizeof(address->v6) : sizeof(address->v4);
}

static const void *raw_bytes(const union net_tcp_address *address, size_t *count)
{
    if (address->any.sa_family == AF_INET6) {
        *count = 16;
        return &address->v6.sin6_addr;
    }
    *count = 4;
    return &address->v4.sin_addr;
}

static uint16_t port_of(const union net_tcp_address *address)
{
    return ntohs(address->any.sa_family == AF_INET6 ? address->v6.sin6_port : address->v4.sin_port);
}

void net_tcp_host_text(const union net_tcp_address *address, char text[NET_TCP_TEXT_BYTES])
{
    size_t count;

    if (inet_ntop(address->any.sa_family, raw_bytes(address, &count), text, NET_TCP_TEXT_BYTES) ==
        NULL)
        snprintf(text, NET_TCP_TEXT_BYTES, "?");
}

void net_tcp_address_text(const union net_tcp_address *address, char text[NET_TCP_TEXT_BYTES])
{
    char host[NET_TCP_TEXT_BYTES];
    const char *shown = host;

    net_tcp_host_text(address, host);
    if (strncmp(host, "::ffff:", 7) == 0 && strchr(host, '.') != NULL)
        shown = host + 7;
    snprintf(text, NET_TCP_TEXT_BYTES, strchr(shown, ':') != NULL ? "[%s]:%u" : "%s:%u", shown,
             port_of(address));
}

void net_tcp_address_simplify(union net_tcp_address *address)
{
    union net_tcp_address simple = {.any.sa_family = AF_INET};

    if (address->any.sa_family != AF_INET6 || !IN6_IS_ADDR_V4MAPPED(&address->v6.sin6_addr))
        return;
    simple.v4.sin_port = address->v6.sin6_port;
    memcpy(&simple.v4.sin_addr, address->v6.sin6_addr.s6_addr + 12, 4);
    *address = simple;
}

static bool same_host(const union net_tcp_address *a, const union net_tcp_address *b)
{
    size_t count, other_count;
    const void *bytes = raw_bytes(a, &count), *other = raw_bytes(b, &other_count);

    return a->any.sa_family == b->any.sa_family && memcmp(bytes, other, count) == 0;
}

static bool is_loopback(const union net_tcp_address *address)
{
    if (address->any.sa_family == AF_INET6)
        return IN6_IS_ADDR_LOOPBACK(&address->v6.sin6_addr);
    return (ntohl(address->v4.sin_addr.s_addr) >> 24) == 127;
}

static bool same_network(const union net_tcp_address *a, const union net_tcp_address *b,
                         unsigned prefix_bits)
{
    size_t count, other_count;
    const unsigned char *bytes = raw_bytes(a, &count), *other = raw_bytes(b, &other_count);

    if (a->any.sa_family != b->any.sa_family || prefix_bits > count * 8)
        return false;
    for (unsigned bit = 0; bit < prefix_bits; bit++) {
        unsigned char mask = (unsigned char)(0x80 >> (bit % 8));

        if ((bytes[bit / 8] & mask) != (other[bit / 8] & mask))
            return false;
    }
    return true;
}

/* ---- the interfaces of this namespace ---- */

static bool to_address(const struct sockaddr *from, union net_tcp_address *out)
{
    memset(out, 0, sizeof(*out));
    if (from == NULL || (from->sa_family != AF_INET && from->sa_family != AF_INET6))
        return false;
    memcpy(out, from, from->sa_family == AF_INET6 ? sizeof(out->v6) : sizeof(out->v4));
    return true;
}

bool net_tcp_address_is(const union net_tcp_address *address, const struct sockaddr *other)
{
    union net_tcp_address converted;

    return to_address(other, &converted) && same_host(address, &converted);
}

/* Addresses that only mean something on one wire need the reader's interface too: left out. */
static bool is_usable(const struct ifaddrs *entry, bool with_v6, union net_tcp_address *out)
{
    if ((entry->ifa_flags & IFF_UP) == 0 || !to_address(entry->ifa_addr, out))
        return false;
    if (out->any.sa_family == AF_INET6)
        return with_v6 && !IN6_IS_ADDR_LINKLOCAL(&out->v6.sin6_addr);
    return true;
}

static bool fits_network(const union net_tcp_address *address, const char *interface)
{
    char network[INET6_ADDRSTRLEN];
    const char *slash = strchr(interface, '/');
    union net_tcp_address asked = {.any.sa_family = AF_INET6};
    char *end;
    unsigned long bits;

    if (slash == NULL || (size_t)(slash - interface) >= sizeof(network))
        return false;
    snprintf(network, sizeof(network), "%.*s", (int)(slash - interface), interface);
    bits = strtoul(slash + 1, &end, 10);
    if (*end != '\0' || end == slash + 1)
        return false;
    if (inet_pton(AF_INET6, network, &asked.v6.sin6_addr) != 1) {
        asked.any.sa_family = AF_INET;
        if (inet_pton(AF_INET, network, &asked.v4.sin_addr) != 1)
            return false;
    }
    return same_network(address, &asked, (unsigned)bits);
}

static bool fits_way(const char *name, const union net_tcp_address *address, const char *way)
{
    char host[NET_TCP_TEXT_BYTES];

    net_tcp_host_text(address, host);
    return strcmp(name, way) == 0 || strncmp(host, way, strlen(way)) == 0 ||
           fits_network(address, way);
}

static unsigned prefix_bits(const union net_tcp_address *mask)
{
    size_t count;
    const unsigned char *bytes = raw_bytes(mask, &count);
    unsigned bits = 0;

    for (size_t i = 0; i < count; i++)
        bits += (unsigned)__builtin_popcount(bytes[i]);
    return bits;
}

/* The entry that carries `address`, NULL if none does. */
static const struct ifaddrs *interface_of(const struct ifaddrs *list,
                                          const union net_tcp_address *address)
{
    union net_tcp_address own;

    for (const struct ifaddrs *entry = list; entry != NULL; entry = entry->ifa_next) {
        if (to_address(entry->ifa_addr, &own) && same_host(&own, address))
            return entry;
    }
    return NULL;
}

/* Two processes have the same identity exactly if a loopback address leads from one to the other:
 * the same boot of the same machine and the same network namespace. Where the system doesn't tell,
 * a random identity is like nobody else's. */
static enum shoal_status namespace_identity(unsigned char out[NAMESPACE_BYTES])
{
    unsigned char boot[NAMESPACE_BYTES] = {0};
    struct stat space;
    uint64_t inode;
    size_t digits = 0;
    FILE *file = fopen("/proc/sys/kernel/random/boot_id", "re");

    for (int c; file != NULL && (c = fgetc(file)) != EOF && digits < 2 * sizeof(boot);) {
        if (c == '-')
            continue;
        boot[digits / 2] =
            (unsigned char)(boot[digits / 2] * 16 + (c <= '9' ? c - '0' : c - 'a' + 10));
        digits++;
    }
    if (file != NULL)
        fclose(file);
    if (digits < 2 * sizeof(boot) || stat("/proc/self/ns/net", &space) != 0)
        return net_random(out, NAMESPACE_BYTES);
    memcpy(out, boot, sizeof(boot));
    inode = ((uint64_t)space.st_dev << 32) ^ (uint64_t)space.st_ino;
    for (int i = 0; i < 8; i++)
        out[i] ^= (unsigned char)(inode >> (8 * i));
    return SHOAL_OK;
}

/* ---- which interfaces ---- */

static enum shoal_status split_option(const char *option, struct net_tcp_interfaces *out)
{
    for (const char *word = option; word != NULL;) {
        size_t bytes = strcspn(word, ",");

        if (bytes == 0 || bytes >= NET_TCP_TEXT_BYTES)
            return base_error(SHOAL_ERR_OPTION,
                              "SHOAL_INTERFACE=%s: write an interface's name or the beginning of "
                              "an address, or several with commas: eth0,eth1",
                              option);
        if (out->way_count == NET_TCP_WAYS_MAX)
            return base_error(SHOAL_ERR_OPTION, "SHOAL_INTERFACE=%s: more than %d interfaces",
                              option, NET_TCP_WAYS_MAX);
        snprintf(out->ways[out->way_count++], NET_TCP_TEXT_BYTES, "%.*s", (int)bytes, word);
        word = word[bytes] == ',' ? word + bytes + 1 : NULL;
    }
    return SHOAL_OK;
}

/* The address's place in the list; -1: it isn't asked for. */
static int place_of(const struct net_tcp_interfaces *interfaces, const char *name,
                    const union net_tcp_address *address)
{
    for (int i = 0; i < interfaces->way_count; i++)
        if (fits_way(name, address, interfaces->ways[i]))
            return i;
    return interfaces->way_count == 0 ? 0 : -1;
}

static void add_address(struct net_tcp_interfaces *interfaces, const char *name, int place,
                        const union net_tcp_address *address)
{
    struct net_tcp_own_address *own = &interfaces->addresses[interfaces->address_count];

    if (interfaces->address_count == NET_TCP_CANDIDATES_MAX)
        return;
    interfaces->address_count++;
    own->address = *address;
    own->place = place;
    snprintf(own->name, sizeof(own->name), "%s", name);
}

/* Loopback after the others, so that it is what a limit cuts off. */
static void add_addresses(struct net_tcp_interfaces *interfaces, const struct ifaddrs *list,
                          bool with_v6)
{
    union net_tcp_address address;

    for (int loopback = 0; loopback < 2; loopback++) {
        for (const struct ifaddrs *entry = list; entry != NULL; entry = entry->ifa_next) {
            int place;

            if (!is_usable(entry, with_v6, &address) || is_loopback(&address) != (loopback == 1))
                continue;
            place = place_of(interfaces, entry->ifa_name, &address);
            if (place >= 0)
                add_address(interfaces, entry->ifa_name, place, &address);
        }
    }
}

static bool has_usable_address(const struct ifaddrs *list, const char *name, bool with_v6)
{
    union net_tcp_address address;

    for (const struct ifaddrs *entry = list; entry != NULL; entry = entry->ifa_next)
        if (strcmp(entry->ifa_name, name) == 0 && is_usable(entry, with_v6, &address))
            return true;
    return false;
}

/* "eth0 10.0.0.2", or why an interface can't be used; the kernel lists each once by its hardware.
 */
static bool describe(const struct ifaddrs *list, const struct ifaddrs *entry, bool with_v6,
                     char *text, size_t bytes)
{
    char host[NET_TCP_TEXT_BYTES];
    union net_tcp_address address;

    if (is_usable(entry, with_v6, &address)) {
        net_tcp_host_text(&address, host);
        snprintf(text, bytes, "%s %s", entry->ifa_name, host);
        return true;
    }
    if (entry->ifa_addr == NULL || entry->ifa_addr->sa_family != AF_PACKET ||
        has_usable_address(list, entry->ifa_name, with_v6))
        return false;
    snprintf(text, bytes, "%s (%s)", entry->ifa_name,
             (entry->ifa_flags & IFF_UP) != 0 ? "without an address" : "down");
    return true;
}

static enum shoal_status nothing_fits(const struct ifaddrs *list, const char *way, bool with_v6)
{
    char known[512] = "", text[IF_NAMESIZE + NET_TCP_TEXT_BYTES + 24];
    size_t used = 0;

    for (const struct ifaddrs *entry = list; entry != NULL; entry = entry->ifa_next) {
        if (used < sizeof(known) && describe(list, entry, with_v6, text, sizeof(text)))
            used += (size_t)snprintf(known + used, sizeof(known) - used, "%s%s",
                                     used > 0 ? ", " : "", text);
    }
    return base_error(SHOAL_ERR_OPTION,
                      "SHOAL_INTERFACE=%s: no interface or address here fits; there are: %s", way,
                      known);
}

/* Why no address is left for the word: an earlier one took them, or none fits. */
static enum shoal_status no_address(const struct net_tcp_interfaces *interfaces,
                                    const struct ifaddrs *list, int way, bool with_v6)
{
    for (int i = 0; i < interfaces->address_count; i++) {
        const struct net_tcp_own_address *own = &interfaces->addresses[i];

        if (fits_way(own->name, &own->address, interfaces->ways[way]))
            return base_error(SHOAL_ERR_OPTION, "SHOAL_INTERFACE: %s and %s both mean %s",
                              interfaces->ways[own->place], interfaces->ways[way], own->name);
    }
    return nothing_fits(list, interfaces->ways[way], with_v6);
}

static enum shoal_status check_interfaces(const struct net_tcp_interfaces *interfaces,
                                          const struct ifaddrs *list, bool with_v6)
{
    if (interfaces->address_count == 0 && interfaces->way_count == 0)
        return base_error(SHOAL_ERR_SYSTEM, "no network interface is up, not even loopback");
    for (int way = 0; way < interfaces->way_count; way++) {
        bool found = false;

        for (int i = 0; i < interfaces->address_count; i++)
            found |= interfaces->addresses[i].place == way;
        if (!found)
            return no_address(interfaces, list, way, with_v6);
    }
    return SHOAL_OK;
}

enum shoal_status net_tcp_read_interfaces(const char *option, bool with_v6,
                                          struct net_tcp_interfaces *out)
{
    struct net_tcp_interfaces found = {0};
    enum shoal_status status;
    struct ifaddrs *list;

    TRY(split_option(option != NULL && option[0] != '\0' ? option : NULL, &found));
    if (getifaddrs(&list) != 0)
        return base_error_errno(SHOAL_ERR_SYSTEM, errno, "cannot list the network interfaces");
    add_addresses(&found, list, with_v6);
    status = check_interfaces(&found, list, with_v6);
    freeifaddrs(list);
    if (status == SHOAL_OK)
        *out = found;
    return status;
}

const char *net_tcp_interface_name(const struct net_tcp_interfaces *interfaces,
                                   const union net_tcp_address *own)
{
    for (int i = 0; i < interfaces->address_count; i++)
        if (same_host(&interfaces->addresses[i].address, own))
            return interfaces->addresses[i].name;
    return "";
}

/* ---- publishing ---- */

enum shoal_status net_tcp_publish(const struct net_tcp_interfaces *interfaces, uint16_t port,
                                  unsigned char out[NET_ADDRESS_BYTES], size_t *bytes)
{
    size_t used = ENTRIES_AT;

    memset(out, 0, ENTRIES_AT);
    out[0] = FORMAT_VERSION;
    out[COUNT_AT] = (unsigned char)interfaces->address_count;
    out[PORT_AT] = (unsigned char)port;
    out[PORT_AT + 1] = (unsigned char)(port >> 8);
    TRY(namespace_identity(out + NAMESPACE_AT));
    for (int i = 0; i < interfaces->address_count; i++) {
        const struct net_tcp_own_address *own = &interfaces->addresses[i];
        size_t count;
        const void *raw = raw_bytes(&own->address, &count);

        out[used++] = (unsigned char)((own->address.any.sa_family == AF_INET6 ? 6 : 4) |
                                      own->place << PLACE_SHIFT);
        memcpy(out + used, raw, count);
        used += count;
    }
    *bytes = used;
    return SHOAL_OK;
}

/* ---- candidates ---- */

static enum shoal_status read_entries(const unsigned char *published, size_t bytes,
                                      struct net_tcp_candidate *candidates, int *count)
{
    uint16_t port;
    size_t at = ENTRIES_AT;

    if (bytes < ENTRIES_AT || published[0] != FORMAT_VERSION ||
        published[COUNT_AT] > NET_TCP_CANDIDATES_MAX)
        return base_error(SHOAL_ERR_FORMAT, "an address of %zu bytes can't be understood", bytes);
    port = (uint16_t)(published[PORT_AT] | published[PORT_AT + 1] << 8);
    for (int i = 0; i < published[COUNT_AT]; i++) {
        union net_tcp_address *address = &candidates[i].address;
        size_t length = at < bytes && (published[at] & FAMILY_BITS) == 6 ? 16 : 4;

        if (at + 1 + length > bytes)
            return base_error(SHOAL_ERR_FORMAT, "an address is cut off at %zu bytes", bytes);
        memset(&candidates[i], 0, sizeof(candidates[i]));
        candidates[i].place = published[at] >> PLACE_SHIFT;
        if (length == 16) {
            address->v6.sin6_family = AF_INET6;
            address->v6.sin6_port = htons(port);
            memcpy(&address->v6.sin6_addr, published + at + 1, length);
        } else {
            address->v4.sin_family = AF_INET;
            address->v4.sin_port = htons(port);
            memcpy(&address->v4.sin_addr, published + at + 1, length);
        }
        at += 1 + length;
    }
    *count = published[COUNT_AT];
    return SHOAL_OK;
}

/* The address that packets to the candidate would leave from; false: no route. */
static bool find_source(struct net_tcp_candidate *candidate)
{
    socklen_t bytes = sizeof(candidate->source);
    int fd = socket(candidate->address.any.sa_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    bool found;

    if (fd < 0)
        return false;
    found = connect(fd, &candidate->address.any, net_tcp_address_bytes(&candidate->address)) == 0 &&
            getsockname(fd, &candidate->source.any, &bytes) == 0;
    close(fd);
    if (!found)
        candidate->source.any.sa_family = AF_UNSPEC;
    return found;
}

/* The kernel chooses the way. `asked`: the interface that the option names, NULL: none. */
static void prefer_by_route(struct net_tcp_candidate *candidate, const struct ifaddrs *list,
                            const char *asked)
{
    const struct ifaddrs *entry;
    union net_tcp_address mask;

    if (!find_source(candidate)) {
        candidate->preference += AVOID_NO_ROUTE;
        return;
    }
    entry = interface_of(list, &candidate->source);
    if (entry == NULL)
        return;
    if (asked != NULL && fits_way(entry->ifa_name, &candidate->source, asked))
        candidate->preference += PREFER_ASKED_INTERFACE;
    if (to_address(entry->ifa_netmask, &mask) &&
        same_network(&candidate->source, &candidate->address, prefix_bits(&mask)))
        candidate->preference += PREFER_OWN_NETWORK;
}

/* Ties the candidate to an address of the interface that `way` names, on the candidate's network if
 * there is such a one. */
static void prefer_by_way(struct net_tcp_candidate *candidate, const struct ifaddrs *list,
                          const char *way)
{
    bool found = false, on_network = false;
    union net_tcp_address own, mask;

    candidate->tied = true;
    candidate->source.any.sa_family = AF_UNSPEC;
    for (const struct ifaddrs *entry = list; entry != NULL && !on_network;
         entry = entry->ifa_next) {
        if (!is_usable(entry, true, &own) || !fits_way(entry->ifa_name, &own, way) ||
            own.any.sa_family != candidate->address.any.sa_family)
            continue;
        on_network = to_address(entry->ifa_netmask, &mask) &&
                     same_network(&own, &candidate->address, prefix_bits(&mask));
        if (found && !on_network)
            continue;
        found = true;
        candidate->source = own;
        snprintf(candidate->interface, sizeof(candidate->interface), "%s", entry->ifa_name);
    }
    candidate->preference += !found ? AVOID_NO_ROUTE : on_network ? PREFER_OWN_NETWORK : 0;
}

static bool is_own(const struct ifaddrs *list, const struct net_tcp_candidate *candidate)
{
    return is_loopback(&candidate->address) || interface_of(list, &candidate->address) != NULL;
}

static void prefer(struct net_tcp_candidate *candidate, const struct ifaddrs *list,
                   const struct net_tcp_interfaces *interfaces, int stream, bool same_namespace)
{
    int ways = interfaces->way_count, way = ways > 0 ? stream % ways : 0;

    candidate->preference = candidate->address.any.sa_family == AF_INET ? PREFER_V4 : 0;
    if (ways > 1) {
        candidate->preference += candidate->place == way ? PREFER_SAME_PLACE : 0;
        prefer_by_way(candidate, list, interfaces->ways[way]);
    } else {
        prefer_by_route(candidate, list, ways == 1 ? interfaces->ways[0] : NULL);
    }
    if (is_own(list, candidate))
        candidate->preference += same_namespace ? PREFER_SAME_NAMESPACE : AVOID_OWN_ADDRESS;
}

/* Insertion: stable, and there are at most 32. */
static void sort_by_preference(struct net_tcp_candidate *candidates, int count)
{
    for (int i = 1; i < count; i++) {
        struct net_tcp_candidate moved = candidates[i];
        int at = i;

        for (; at > 0 && candidates[at - 1].preference < moved.preference; at--)
            candidates[at] = candidates[at - 1];
        candidates[at] = moved;
    }
}

/* Loopback of another namespace leads nowhere; it stays only if there is nothing else. */
static int drop_foreign_loopback(struct net_tcp_candidate *candidates, int count)
{
    int kept = 0;

    for (int i = 0; i < count; i++) {
        if (!is_loopback(&candidates[i].address))
            candidates[kept++] = candidates[i];
    }
    return kept > 0 ? kept : count;
}

enum shoal_status
net_tcp_read_candidates(const unsigned char *published, size_t bytes,
                        const struct net_tcp_interfaces *interfaces, int stream,
                        struct net_tcp_candidate candidates[NET_TCP_CANDIDATES_MAX], int *count)
{
    unsigned char identity[NAMESPACE_BYTES];
    struct ifaddrs *list;
    bool same_namespace;
    int found = 0;

    TRY(read_entries(published, bytes, candidates, &found));
    TRY(namespace_identity(identity));
    same_namespace = memcmp(identity, published + NAMESPACE_AT, NAMESPACE_BYTES) == 0;
    if (!same_namespace)
        found = drop_foreign_loopback(candidates, found);
    if (getifaddrs(&list) != 0)
        return base_error_errno(SHOAL_ERR_SYSTEM, errno, "cannot list the network interfaces");
    for (int i = 0; i < found; i++)
        prefer(&candidates[i], list, interfaces, stream, same_namespace);
    freeifaddrs(list);
    sort_by_preference(candidates, found);
    *count = found;
    return SHOAL_OK;
}
