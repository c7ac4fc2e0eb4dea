/* SPDX-License-Identifier: Apache-2.0 */
/*
 * reach.h: by which addresses hosts reach each other.
 *
 * Nothing is guessed from names: a host lists its own addresses, the others try them, and what
 * answers is used. Names are looked at only to know which host of a list is this one.
 */
#ifndef SHOAL_LAUNCH_REACH_H
#define SHOAL_LAUNCH_REACH_H

#include <stdbool.h>
#include <stdint.h>

#include "shoal.h"

#define LAUNCH_ADDRESS_BYTES 64
#define LAUNCH_ADDRESSES_MAX 16

struct launch_addresses {
    char text[LAUNCH_ADDRESSES_MAX][LAUNCH_ADDRESS_BYTES]; /* numeric, without port or brackets */
    int count;
};

/* This host's addresses that others may reach: no link-local, no loopback unless there is nothing
 * else; IPv4 first. With `interface` (names or address prefixes such as 10.0., with commas) only
 * those: SHOAL_ERR_OPTION names the interfaces when none fits. */
enum shoal_status launch_addresses_read(const char *interface, struct launch_addresses *out);
/* "1.2.3.4:5" or "[::1]:5". */
void launch_address_join(const char *address, int port, char *out, size_t capacity);
/* Opens a listening socket on all addresses; wanted 0: a free port. SHOAL_ERR_SYSTEM names the port
 * when it is in use. */
enum shoal_status launch_port_open(int wanted, int *fd, int *port);
/* Tries to connect to each of count "address:port" at once; reached[] gets the indexes of those
 * that answer: those in a network of this host first, then in the given order. Blocks at most
 * timeout_ms; why (may be NULL) gets a text about one that did not answer. */
enum shoal_status launch_probe(const char *const *addresses, int count, int64_t timeout_ms,
                               int *reached, int *reached_count, char *why, size_t why_bytes);

enum launch_nearness {
    LAUNCH_REMOTE,
    LAUNCH_LOCAL,
    LAUNCH_LOOPBACK /* it resolves to loopback though it is not this host's name */
};
/* What a host name means. look_up: ask the resolver too (may block as long as it does). */
enum launch_nearness launch_nearness(const char *name, bool look_up);

#endif
