/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tcp_address.h: what a rank publishes about where it can be reached, and in which order a peer
 * tries it.
 *
 * A rank publishes every usable address of its interfaces, or only those that SHOAL_INTERFACE
 * names, with its port and the identity of its network namespace. Loopback addresses are among
 * them, and a peer uses them only if it lives in the same namespace, or if there is nothing else.
 *
 * The connector asks the kernel for the route to each candidate (a connected UDP socket sends
 * nothing) and tries first what is directly on a network of its own, last what has no route or is
 * an address of its own: container bridges have the same address on every host.
 *
 * Where SHOAL_INTERFACE names several interfaces, a stream is tied to one of them, its way: it
 * leaves from there or not at all, and the peer's address on the same network, or else that of the
 * peer's interface at the same place in its list, is tried first.
 */
#ifndef SHOAL_NET_TCP_ADDRESS_H
#define SHOAL_NET_TCP_ADDRESS_H

#include <net/if.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "net/transport.h"

#define NET_TCP_CANDIDATES_MAX 32
#define NET_TCP_TEXT_BYTES     64
#define NET_TCP_STREAMS_MAX    8
#define NET_TCP_WAYS_MAX       NET_TCP_STREAMS_MAX

union net_tcp_address {
    struct sockaddr any;
    struct sockaddr_in v4;
    struct sockaddr_in6 v6;
};

struct net_tcp_candidate {
    union net_tcp_address address;
    union net_tcp_address source; /* by the route or the way; family AF_UNSPEC: there is none */
    bool tied;                    /* to the source and its interface */
    char interface[IF_NAMESIZE];
    int place;      /* of the peer's interface in its list */
    int preference; /* higher is tried earlier */
    int failure;    /* of the last attempt: enum net_tcp_failure, or an errno */
};

/* What SHOAL_INTERFACE says, and what it means on this host. */
struct net_tcp_interfaces {
    int way_count; /* interfaces that were named; 0: all may be used */
    char ways[NET_TCP_WAYS_MAX][NET_TCP_TEXT_BYTES]; /* each as written */
    int address_count;
    struct net_tcp_own_address {
        union net_tcp_address address;
        char name[IF_NAMESIZE];
        int place;
    } addresses[NET_TCP_CANDIDATES_MAX]; /* that are published */
};

socklen_t net_tcp_address_bytes(const union net_tcp_address *address);
/* "10.0.0.2:4000", "[fd00::2]:4000". Addresses of IPv4 in IPv6 are shown as IPv4. */
void net_tcp_address_text(const union net_tcp_address *address, char text[NET_TCP_TEXT_BYTES]);

/* "10.0.0.2" */
void net_tcp_host_text(const union net_tcp_address *address, char text[NET_TCP_TEXT_BYTES]);
/* Whether both are the same host's, whatever the ports; `other` may be of any family or NULL. */
bool net_tcp_address_is(const union net_tcp_address *address, const struct sockaddr *other);
/* IPv4 in IPv6, as a socket for both shows it, becomes IPv4. */
void net_tcp_address_simplify(union net_tcp_address *address);

/* Reads the option: up to 8 words with commas, each an interface's name, an address, the beginning
 * of one, or address/prefix length; NULL or "": all interfaces. Finds this host's addresses that
 * fit. with_v6: whether the socket takes IPv6. SHOAL_ERR_OPTION if nothing fits one of the words,
 * with a list of what there is; SHOAL_ERR_SYSTEM. */
enum shoal_status net_tcp_read_interfaces(const char *option, bool with_v6,
                                          struct net_tcp_interfaces *out);
/* The name of the interface that has the address; "" if it isn't one that is published. */
const char *net_tcp_interface_name(const struct net_tcp_interfaces *interfaces,
                                   const union net_tcp_address *own);

/* Writes this process's addresses. SHOAL_ERR_SYSTEM. */
enum shoal_status net_tcp_publish(const struct net_tcp_interfaces *interfaces, uint16_t port,
                                  unsigned char out[NET_ADDRESS_BYTES], size_t *bytes);

/* Reads what a peer published, in the order to try it, for a stream of that number.
 * SHOAL_ERR_FORMAT if it can't be understood. */
enum shoal_status
net_tcp_read_candidates(const unsigned char *published, size_t bytes,
                        const struct net_tcp_interfaces *interfaces, int stream,
                        struct net_tcp_candidate candidates[NET_TCP_CANDIDATES_MAX], int *count);

#endif
