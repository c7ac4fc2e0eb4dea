/* SPDX-License-Identifier: Apache-2.0 */
/*
 * connections.h: the connections of a server, to end those whose heads take too long and those
 * whose clients went. The library's own timeout starts anew with each byte, so a client that sends
 * one now and then would stay for ever; and it doesn't see every end of a client (connections.c).
 */
#ifndef SHOAL_HTTP_CONNECTIONS_H
#define SHOAL_HTTP_CONNECTIONS_H

#include <microhttpd.h>

#include "http/http.h"
#include "shoal.h"

struct connections;

/* With a thread that looks at them four times a second. */
enum shoal_status connections_create(const struct http_limits *limits, struct connections **out);
/* After the daemon has ended. NULL is allowed. */
void connections_free(struct connections *connections);
/* For MHD_OPTION_NOTIFY_CONNECTION, with the connections as its user. */
void connections_notify(void *user, struct MHD_Connection *connection, void **own,
                        enum MHD_ConnectionNotificationCode what);
/* A request's head is whole: nothing is due until it is over. */
void connections_head_came(struct MHD_Connection *connection);
/* The next one's head may take until the idle time and the head's own have passed. */
void connections_request_over(struct MHD_Connection *connection);
/* How many there are. */
unsigned connections_count(struct connections *connections);
/* Ends the one that has been between two requests for longest, if there is any. */
void connections_end_idlest(struct connections *connections);
/* Shuts them all down. */
void connections_end_all(struct connections *connections);

#endif
