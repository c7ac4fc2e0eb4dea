/* SPDX-License-Identifier: Apache-2.0 */
/*
 * host.h: which ranks share this host, and the memory that they share.
 *
 * Host identity is more than a name: boot id and network namespace (that is where the Unix socket
 * of the exchange lives), or option SHOAL_HOST_ID, which makes several hosts of one in tests. Ranks
 * that say the same identity must still succeed in passing descriptors to each other; where they
 * can't (other user, other namespaces), it is an error that says how to set SHOAL_HOST_ID.
 *
 * Each rank makes one shared region (base/shared.h), one eventfd and one lifeline, a pipe whose
 * writing end nobody else ever has; the lowest local rank gathers all descriptors over a Unix
 * socket in the abstract namespace and hands the whole set to each. When a process is gone,
 * however that happens, all others see the end of its lifeline at once.
 */
#ifndef SHOAL_BOOT_HOST_H
#define SHOAL_BOOT_HOST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/shared.h"
#include "net/transport.h"
#include "shoal.h"

#define BOOT_HOST_KEY_BYTES 128

/* This host's identity (text, NUL-terminated). */
enum shoal_status boot_host_key(char key[BOOT_HOST_KEY_BYTES]);
/* Host name for messages. */
const char *boot_host_name(void);

struct boot_host {
    int local_rank, local_size;
    struct base_shared *regions; /* [local_size], own included, mapped; descriptor: own only */
    int *event_fds;              /* [local_size] eventfds, non-blocking, own included */
    int *life_fds;               /* [local_size] of peers: hangs up when that process is gone. Own:
                                  * the end that must stay open; -1 if alone */
};

struct boot_host_options {
    int local_rank, local_size;
    const unsigned char *job;    /* NET_JOB_BYTES: names the socket */
    const unsigned char *secret; /* NET_SECRET_BYTES: proved on each connection */
    uint64_t nonce;      /* the same on all local ranks, unlike any other group of the job */
    size_t region_bytes; /* address space of one rank's region */
    size_t commit_bytes; /* its first pages, taken at once */
    int64_t deadline_ns;
};
/* Collective over the local ranks. SHOAL_ERR_TIMEOUT names the local ranks that did not come. With
 * local_size 1 makes only the own region. */
enum shoal_status boot_host_meet(const struct boot_host_options *options, struct boot_host **out);
void boot_host_free(struct boot_host *host);
/* Whether that peer's process has ended; it touches no memory any more. Asks the kernel. */
bool boot_host_is_gone(const struct boot_host *host, int local_rank);

#endif
