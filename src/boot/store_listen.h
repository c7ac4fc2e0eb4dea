/* SPDX-License-Identifier: Apache-2.0 */
/* store_listen.h: the store's listening sockets. */
#ifndef SHOAL_BOOT_STORE_LISTEN_H
#define SHOAL_BOOT_STORE_LISTEN_H

#include "shoal.h"

#define STORE_LISTENERS_MAX 8

struct store_listeners {
    int fds[STORE_LISTENERS_MAX]; /* non-blocking, listening */
    int count;
    int port;
};
/* Listens on all addresses of host (NULL or "": on every address, IPv4 and IPv6); port 0: any free
 * one. SHOAL_ERR_SYSTEM names the address, and who holds it if that is the cause and known. */
enum shoal_status store_listen(const char *host, int port, struct store_listeners *out);
void store_listen_close(struct store_listeners *listeners);

#endif
