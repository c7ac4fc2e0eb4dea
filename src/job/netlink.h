/* SPDX-License-Identifier: Apache-2.0 */
/*
 * netlink.h: interfaces of the calling process's network namespace, through rtnetlink.
 *
 * Makes no allocation and writes no error text, for its callers are cloned processes that report by
 * other ways: a call returns 0, or the number of the error.
 */
#ifndef SHOAL_JOB_NETLINK_H
#define SHOAL_JOB_NETLINK_H

#include <netinet/in.h>
#include <sys/types.h>

/* A socket for the calls below, or -1 with errno. */
int netlink_open(void);

int netlink_add_bridge(int fd, const char *name);
/* A pair: `name` here, as a port of `bridge` and up; `peer` in the network namespace of process
 * `pid`. */
int netlink_add_port(int fd, const char *name, const char *bridge, const char *peer, pid_t pid,
                     unsigned mtu);
int netlink_set_up(int fd, const char *name);
int netlink_add_address(int fd, const char *name, struct in_addr address, int prefix_bits);

#endif
