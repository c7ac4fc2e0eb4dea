/* SPDX-License-Identifier: Apache-2.0 */
/*
 * virtual_hosts.h: many hosts on one machine, for tests and benchmarks. Needs root and iproute2.
 *
 * A virtual host has its own network, host name, IPC, process and mount namespaces, its own /proc,
 * /sys and /dev/shm, and an interface eth0 whose both directions carry a given rate. /tmp and all
 * other files are the machine's. Names are vh0, vh1, ...; addresses 10.77.1.1, ... and
 * fd77::1:1, ..., known in every host through /etc/hosts. With several links a host has eth1, ...
 * too, each with the same rate on a network of its own: 10.78.1.1, ... and fd78::1:1, ...
 *
 * The head, "vhead" at 10.77.0.1, is one more host: the one that holds the bridge between them. Its
 * own link has no limit. Launchers run there, because it sees all hosts, and can start programs in
 * them.
 */
#ifndef SHOAL_CMD_VIRTUAL_HOSTS_H
#define SHOAL_CMD_VIRTUAL_HOSTS_H

#include <stdint.h>
#include <sys/types.h>

#include "shoal.h"

#define VHOSTS_MAX       250
#define VHOSTS_HEAD      (-1) /* as host index */
#define VHOSTS_LINKS_MAX 8
/* What clouds use inside one network, and little enough per-packet work for a small machine. */
#define VHOSTS_MTU_BYTES 9000

struct vhosts;

/* What each of a host's links carries in each direction; the last rate holds for all hosts after
 * it. */
struct vhosts_rates {
    int count;                       /* 1 or more */
    uint64_t bits_per_s[VHOSTS_MAX]; /* 0: no limit */
};

/* "1gbit", "250mbit", "2.5gbit", "800kbit": bits per second; "none": no limit. Several with commas.
 */
enum shoal_status vhosts_parse_rates(const char *text, struct vhosts_rates *rates);

/* Makes `count` hosts with `links` interfaces each. They live until vhosts_free, or until this
 * process ends, however it ends: then everything in them is killed. Blocks for some tens of
 * milliseconds. Not root, no ip or tc: SHOAL_ERR_SYSTEM. */
enum shoal_status vhosts_create(int count, int links, const struct vhosts_rates *rates,
                                struct vhosts **out);

/* The hosts that the environment names, as vhosts_export left it; only inside their head. */
enum shoal_status vhosts_attach(struct vhosts **out);

/* Sets SHOAL_VHOSTS ("vh0 vh1 ...") and SHOAL_VHOSTS_PIDS, for programs started in the head. */
enum shoal_status vhosts_export(const struct vhosts *vhosts);

int vhosts_count(const struct vhosts *vhosts);
/* Index of a host by name, "vhead" included; SHOAL_ERR_ARGUMENT names those there are. */
enum shoal_status vhosts_find(const struct vhosts *vhosts, const char *name, int *host);

/* Starts a program in a host (or VHOSTS_HEAD) as a child of this process, in this working
 * directory. argv[0] is looked up in PATH; envp NULL: this process's; stdio[i] becomes descriptor
 * i, -1 or stdio NULL: as here. The program is killed when the calling thread ends.
 * SHOAL_ERR_SYSTEM if it can't be executed. */
enum shoal_status vhosts_spawn(struct vhosts *vhosts, int host, char *const argv[],
                               char *const envp[], const int stdio[3], pid_t *out);

/* Kills everything in the hosts, waits for what vhosts_spawn started and the caller did not wait
 * for (its exit status is lost), and removes the hosts. After vhosts_attach: only lets go. NULL is
 * allowed. */
void vhosts_free(struct vhosts *vhosts);

#endif
