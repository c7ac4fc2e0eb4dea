/* SPDX-License-Identifier: Apache-2.0 */
/*
 * internet.h: the door to the Internet: a proxy for HTTP and HTTPS in a process of its own, at a
 * port of a job's network.
 *
 * It speaks CONNECT, and plain HTTP with absolute addresses, one request a connection. It reaches
 * what the machine reaches, but for the machine itself, by whichever of its addresses, and for
 * link-local addresses, where clouds keep their machines' credentials. Where the machine has a
 * proxy of its own (https_proxy, http_proxy), requests go on to that.
 */
#ifndef SHOAL_JOB_INTERNET_H
#define SHOAL_JOB_INTERNET_H

#include <stdbool.h>
#include <sys/types.h>

#include "shoal.h"

#define INTERNET_LINKS_MAX 256

/* Starts the process, which ends with its parent; takes the listening socket, also when it fails.
 * The caller may have one thread only. SHOAL_ERR_SYSTEM. */
enum shoal_status internet_start(int listen_fd, pid_t *pid);
/* Ends it. -1 is allowed. */
void internet_end(pid_t pid);

/* The process's life: until the socket fails. `own_allowed`: the machine itself too; for tests. */
void internet_serve(int listen_fd, bool own_allowed);

#endif
