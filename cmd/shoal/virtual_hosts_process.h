/* SPDX-License-Identifier: Apache-2.0 */
/* virtual_hosts_process.h: what virtual_hosts.c needs of virtual_hosts_process.c; nobody else's. */
#ifndef SHOAL_CMD_VIRTUAL_HOSTS_PROCESS_H
#define SHOAL_CMD_VIRTUAL_HOSTS_PROCESS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "virtual_hosts.h"

#define VHOSTS_HEAD_NAME    "vhead"
#define VHOSTS_PROGRAMS_MAX 1024

struct vhosts {
    int count, links;
    struct vhosts_rates rates;
    bool owned;  /* false after vhosts_attach */
    int life_fd; /* closing it ends everything */
    pid_t head_pid;
    pid_t *pids;      /* [count], as seen from here */
    pid_t *head_view; /* [count], as seen in the head's PID namespace */
    int program_count;
    int program_fds[VHOSTS_PROGRAMS_MAX]; /* pidfds of programs that may not have been waited for */
};

/* "vh3" or "vhead"; may write into buffer. */
const char *vhosts_name(int host, char buffer[16]);

/* Starts the head and the hosts, each furnished with name and mounts but not connected, and waits
 * until they are ready. Fills head_pid, life_fd, pids and head_view; on failure what exists is left
 * for vhosts_free. */
enum shoal_status vhosts_start_holders(struct vhosts *vhosts, const char *hosts_text);

/* Waits for all programs that were started and killed since. */
void vhosts_reap_programs(struct vhosts *vhosts);

/* waitpid() for one child, its status ignored. */
void vhosts_wait_for(pid_t pid);

#endif
