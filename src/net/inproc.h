/* SPDX-License-Identifier: Apache-2.0 */
/*
 * inproc.h: ranks as threads of one process, for tests. All endpoints of a job meet in one hall.
 */
#ifndef SHOAL_NET_INPROC_H
#define SHOAL_NET_INPROC_H

#include "net/transport.h"

struct net_inproc_hall;

enum shoal_status net_inproc_hall_create(int size, size_t ring_bytes, struct net_inproc_hall **out);
/* After all endpoints are closed. */
void net_inproc_hall_free(struct net_inproc_hall *hall);
/* As if the rank's process had been killed: peers get `lost`. Any thread. */
void net_inproc_kill(struct net_inproc_hall *hall, int rank);

#endif
