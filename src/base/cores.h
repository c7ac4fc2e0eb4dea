/* SPDX-License-Identifier: Apache-2.0 */
/* cores.h: how many cores the kernel grants; base_cores_granted() in wait.h is its user. */
#ifndef SHOAL_BASE_CORES_H
#define SHOAL_BASE_CORES_H

/* Cores that the cgroups of a process may use at once by their quotas, rounded down, at least 1;
 * INT_MAX without a quota. Reads version 1 and 2. `list`: as /proc/self/cgroup; `mount`: as
 * /sys/fs/cgroup. */
int base_cgroup_cores(const char *list, const char *mount);

#endif
