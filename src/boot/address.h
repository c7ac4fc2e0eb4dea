/* SPDX-License-Identifier: Apache-2.0 */
/* address.h: network addresses as users write and read them: "host:port", "[::1]:port". */
#ifndef SHOAL_BOOT_ADDRESS_H
#define SHOAL_BOOT_ADDRESS_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/socket.h>

#include "shoal.h"

#define BOOT_ADDRESS_HOST_BYTES 256
#define BOOT_ADDRESS_TEXT_BYTES 96

/* Splits "host:port"; IPv6 numbers stand in brackets. SHOAL_ERR_ARGUMENT says what is wrong. */
enum shoal_status boot_address_split(const char *text, char host[BOOT_ADDRESS_HOST_BYTES],
                                     int *port);
/* "192.0.2.1:80" or "[2001:db8::1]:80". */
void boot_address_format(const struct sockaddr *address, char text[BOOT_ADDRESS_TEXT_BYTES]);
bool boot_address_is_loopback(const struct sockaddr *address);
/* Whether a host, name or number, means this machine alone: "localhost", 127.0.0.0/8, ::1. */
bool boot_address_host_is_loopback(const char *host);

/* All addresses under which this host can be reached, each with `port`, separated by commas, as
 * boot_store_connect takes them. Those that option SHOAL_INTERFACE names come first, loopback
 * last; what does not fit is left out. */
enum shoal_status boot_address_list_local(int port, char *list, size_t bytes);

/* Who listens on a TCP port here, for messages: "python3 (pid 12)"; false if /proc doesn't tell. */
bool boot_address_port_holder(int port, char *text, size_t bytes);

/* Whether an address (as text, without brackets) or its interface is among `words`, which commas
 * part: names of interfaces or beginnings of addresses, as in option SHOAL_INTERFACE. */
bool boot_address_is_named(const char *interface, const char *text, const char *words);

#endif
