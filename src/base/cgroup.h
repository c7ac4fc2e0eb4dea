/* SPDX-License-Identifier: Apache-2.0 */
/* cgroup.h: the limits of a process's control groups, of version 1 and 2. */
#ifndef SHOAL_BASE_CGROUP_H
#define SHOAL_BASE_CGROUP_H

#define BASE_CGROUP_LIST  "/proc/self/cgroup"
#define BASE_CGROUP_MOUNT "/sys/fs/cgroup"

/* What one folder of the tree says; LLONG_MAX: no limit. version is 1 or 2. */
typedef long long (*base_cgroup_reader)(const char *folder, int version);

/* The least that the reader finds in the group that has the controller ("cpu", "memory") and in all
 * above it, for each of them binds; LLONG_MAX if none says anything. `list` and `mount`: as the
 * two files above. */
long long base_cgroup_least(const char *list, const char *mount, const char *controller,
                            base_cgroup_reader reader);

/* The first `count` numbers of a file, "max" and what is no number read as -1; how many there were.
 */
int base_cgroup_numbers(const char *path, long long *numbers, int count);

#endif
