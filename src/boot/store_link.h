/* SPDX-License-Identifier: Apache-2.0 */
/* store_link.h: a client's connection to the store: opening with proof, requests and answers. */
#ifndef SHOAL_BOOT_STORE_LINK_H
#define SHOAL_BOOT_STORE_LINK_H

#include <stddef.h>
#include <stdint.h>

#include "boot/store_wire.h"
#include "shoal.h"

/* As boot_store_connect: a proven connection. */
enum shoal_status store_link_open(const char *addresses, const unsigned char *secret,
                                  int64_t deadline_ns, int *fd);
/* Sends or receives all; blocks until the deadline. SHOAL_ERR_TIMEOUT, SHOAL_ERR_PEER_LOST. */
enum shoal_status store_link_send(int fd, const void *data, size_t bytes, int64_t deadline_ns);
enum shoal_status store_link_receive(int fd, void *data, size_t bytes, int64_t deadline_ns);
/* Waits for the first byte of an answer; SHOAL_ERR_TIMEOUT leaves the stream usable. */
enum shoal_status store_link_wait(int fd, int64_t deadline_ns);

#endif
