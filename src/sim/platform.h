/* SPDX-License-Identifier: Apache-2.0 */
/*
 * platform.h: the hosts and links that a simulation runs on, and what processors need for messages.
 *
 * Each host has a link to its switch, with a rate in each direction. Hosts are dealt to switches in
 * their order, so many to each; switches meet in a core that never blocks, through one uplink each.
 * A message passes the sender's link, perhaps two uplinks, and the receiver's link, and none waits
 * for its last byte before it passes on the first.
 *
 * Servers have hosts of their own, numbered behind those with ranks.
 *
 * A platform file has one statement per line; docs/sim.md lists them.
 */
#ifndef SHOAL_SIM_PLATFORM_H
#define SHOAL_SIM_PLATFORM_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "shoal.h"

#define SIM_HOSTS_MAX 4096
#define SIM_RANKS_MAX 4096

/* What a processor does for one message: so much each, and so much for each byte. */
struct sim_cost {
    double message_ns, byte_ns;
};

struct sim_platform {
    int host_count;
    int ranks_per_host;
    int server_count; /* each on a host of its own, behind the host_count others */
    int accelerators; /* per host; 1: none that matter */
    double accelerator_bytes_per_ns;
    double link_bytes_per_ns;
    double link_latency_ns;   /* one way, from host to host through one switch */
    uint64_t bucket_bytes;    /* that a link which was idle passes at once, as shapers do */
    double *own_bytes_per_ns; /* [SIM_HOSTS_MAX] of links with a rate of their own; 0: as others */
    int own_host_last;        /* the last of these; -1: none */
    int own_line;             /* of the file, where it stands */
    int switch_hosts;         /* hosts on a switch; 0: all on one */
    double uplink_bytes_per_ns, uplink_latency_ns;
    int cores;             /* 0: each rank has its own */
    bool cores_are_shared; /* by all hosts; else each host has so many */
    struct sim_cost send, receive;
    double local_latency_ns; /* between ranks of one host */
    double copy_bytes_per_ns, reduce_bytes_per_ns;
    uint64_t eager_bytes; /* longer messages wait until the receiver asks for them */
};

/* Links of 10 Gbit/s and 50 us, one rank per host, and the processor of a server of today. */
enum shoal_status sim_platform_create(int host_count, struct sim_platform **out);
/* From a file: SHOAL_ERR_SYSTEM if it cannot be read; SHOAL_ERR_FORMAT names file and line, and
 * says what was expected. */
enum shoal_status sim_platform_read(const char *path, struct sim_platform **out);
/* The same, of text; `path` is for messages. */
enum shoal_status sim_platform_parse(const char *path, const char *text, struct sim_platform **out);
/* Whether a statement of a platform file begins with this word. */
bool sim_platform_has_keyword(const char *word);
/* Other numbers of hosts with ranks, and of servers. SHOAL_ERR_ARGUMENT if a host with a rate of
 * its own would be missing, or if there were more than SIM_RANKS_MAX ranks and servers. */
enum shoal_status sim_platform_resize(struct sim_platform *platform, int host_count,
                                      int server_count);
/* As a file that sim_platform_read reads. */
void sim_platform_print(const struct sim_platform *platform, FILE *out);
void sim_platform_free(struct sim_platform *platform);

/* "25gbit" in bytes per ns, "10us" in ns: numbers with their unit; a rate is above 0. `what` is for
 * messages. */
enum shoal_status sim_parse_rate(const char *what, const char *text, double *bytes_per_ns);
enum shoal_status sim_parse_time(const char *what, const char *text, double *ns);

static inline double sim_host_rate(const struct sim_platform *platform, int host)
{
    double own = platform->own_bytes_per_ns[host];
    return own > 0 ? own : platform->link_bytes_per_ns;
}

static inline int sim_all_hosts(const struct sim_platform *platform)
{
    return platform->host_count + platform->server_count;
}

static inline int sim_switch_of(const struct sim_platform *platform, int host)
{
    return platform->switch_hosts ? host / platform->switch_hosts : 0;
}

static inline int sim_switch_count(const struct sim_platform *platform)
{
    return sim_switch_of(platform, sim_all_hosts(platform) - 1) + 1;
}

/* Whether hosts are parts of one machine with fewer cores than these ranks: then libshoal takes
 * algorithms of fewer messages (coll_shape's `crowded`). */
static inline bool sim_is_crowded(const struct sim_platform *platform, int hosts, int ranks)
{
    return platform->cores_are_shared && hosts > 1 && ranks > platform->cores;
}

/* Whether every host sees the same network as every other. */
static inline bool sim_is_uniform(const struct sim_platform *platform)
{
    return platform->own_host_last < 0 && sim_switch_count(platform) == 1 &&
           !(platform->cores > 0 && platform->cores_are_shared);
}

#endif
