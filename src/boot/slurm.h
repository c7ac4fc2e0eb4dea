/* SPDX-License-Identifier: Apache-2.0 */
/* slurm.h: the lists in which Slurm's variables tell nodes and tasks. */
#ifndef SHOAL_BOOT_SLURM_H
#define SHOAL_BOOT_SLURM_H

#include <stddef.h>

#include "boot/environment.h"
#include "shoal.h"

/* The first name of a list such as "rack1n[03-07,9],m2": "rack1n03". SHOAL_ERR_OPTION. */
enum shoal_status boot_slurm_first_host(const char *list, char *host, size_t bytes);
/* Tasks of the node-th node by a list such as "4(x2),1". SHOAL_ERR_OPTION. */
enum shoal_status boot_slurm_tasks_on_node(const char *list, int node, int *out);
/* local_rank and local_size as srun tells them; unchanged where it doesn't. */
enum shoal_status boot_slurm_local(struct boot_identity *identity);

#endif
