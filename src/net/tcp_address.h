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
 */
#ifndef SHOAL_NET_TCP_ADDRESS_H
#define SHOAL_NET_TCP_ADDRESS_H

#include <netinet/in.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "net/transport.h"

#define NET_TCP_CANDIDATES_MAX 32
#define NET_TCP_TEXT_BYTES     64

union net_tcp_address {
    struct sockaddr any;
    struct sockaddr_in v4;
    struct sockaddr_in6 v6;
};

struct net_tcp_candidate {
    union net_tcp_address address;
    union net_tcp_address source; /* by the route; family AF_UNSPEC: there is none */
    int preference;               /* higher is tried earlier */
    int failure;                  /* of the last attempt: enum net_tcp_failure, or an errno */
};

socklen_t net_tcp_address_bytes(const union net_tcp_address *address);
/* "10.0.0.2:4000", "[fd00::2]:4000". Addresses of IPv4 in IPv6 are shown as IPv4. */
void net_tcp_address_text(const union net_tcp_address *address, char text[NET_TCP_TEXT_BYTES]);

/* Writes this process's addresses: `interface` is an interface's name, an address, the beginning of
 * one, or address/prefix length; NULL or "": all. with_v6: whether the socket takes IPv6.
 * SHOAL_ERR_OPTION if nothing fits, with a list of what there is; SHOAL_ERR_SYSTEM. */
enum shoal_status net_tcp_publish(const char *interface, uint16_t port, bool with_v6,
                                  unsigned char out[NET_ADDRESS_BYTES], size_t *bytes);

/* Reads what a peer published, in the order to try it. SHOAL_ERR_FORMAT if it can't be understood.
 */
enum shoal_status
net_tcp_read_candidates(const unsigned char *published, size_t bytes, const char *interface,
                        struct net_tcp_candidate candidates[NET_TCP_CANDIDATES_MAX], int *count);

#endif
