/* SPDX-License-Identifier: Apache-2.0 */
/* client.h: the bare end of a connection to a server under test. Failures fail the test. */
#ifndef SHOAL_TESTS_CLIENT_H
#define SHOAL_TESTS_CLIENT_H

#include <stddef.h>

#define CLIENT_PATIENCE_S  30        /* for what is read */
#define CLIENT_REPLY_BYTES (1 << 20) /* what is kept of a reply */

/* A connection to that port of 127.0.0.1. */
int client_dial(int port);
/* Stops early if the server has closed; what it said can be read. */
void client_put(int fd, const void *bytes, size_t count);
/* Up to the end of the connection, which it closes. Good until the next call; not shared by
 * threads. */
const char *client_read_all(int fd);

void expect_in(const char *text, const char *piece);

#endif
