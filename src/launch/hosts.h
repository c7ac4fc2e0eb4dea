/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hosts.h: the hosts that ranks are started on, from the command line or from a hosts file.
 *
 *   --hosts a:2,b:2,[fd00::1]:4,c            without a number: one slot
 *   hosts file, one host per line            # comments and empty lines
 *       a slots=2                            as for Open MPI
 *       b:2                                  as for MPICH
 *       [fd00::1]:4
 */
#ifndef SHOAL_LAUNCH_HOSTS_H
#define SHOAL_LAUNCH_HOSTS_H

#include "shoal.h"

#define LAUNCH_HOST_NAME_BYTES 256
#define LAUNCH_HOSTS_MAX       1024
#define LAUNCH_RANKS_MAX       8192

struct launch_host {
    char name[LAUNCH_HOST_NAME_BYTES]; /* without brackets; may be user@host */
    int slots;
    int line;                       /* of the hosts file; 0: from the command line */
    int first_rank, rank_count;     /* set by launch_hosts_place */
    int first_server, server_count; /* set by launch_hosts_place_servers */
};

struct launch_hosts { /* zeroed to start */
    struct launch_host *hosts;
    int count;
};

/* Errors (SHOAL_ERR_OPTION, _FORMAT, _SYSTEM, _MEMORY) name the entry, or file and line. */
enum shoal_status launch_hosts_parse(const char *list, struct launch_hosts *out);
enum shoal_status launch_hosts_read(const char *path, struct launch_hosts *out);
int launch_hosts_slots(const struct launch_hosts *hosts);
/* Fills the hosts in their order with ranks 0 to rank_count-1, and drops those that get none.
 * SHOAL_ERR_OPTION when there are too few slots: says how many. */
enum shoal_status launch_hosts_place(struct launch_hosts *hosts, int rank_count);
/* After it: puts servers on the hosts of the second list, which are filled in their order and added
 * where the first list has not got them; with an empty one evenly on the hosts of ranks. */
enum shoal_status launch_hosts_place_servers(struct launch_hosts *hosts,
                                             struct launch_hosts *server_hosts, int server_count);
void launch_hosts_release(struct launch_hosts *hosts);

#endif
