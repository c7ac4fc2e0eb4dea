/* SPDX-License-Identifier: Apache-2.0 */
/*
 * headroom.h: how much memory a process can still take. Taking more than a control group allows, or
 * than the system has, is no error of a call: the kernel then kills a process. So whoever takes
 * much asks first. What others take in the same moment is not known.
 */
#ifndef SHOAL_BASE_HEADROOM_H
#define SHOAL_BASE_HEADROOM_H

#include <stdint.h>

/* Bytes until the system or one of this process's control groups runs out, INT64_MAX if they don't
 * say. The cache of files, which the kernel gives up, and free swap count as free. Takes a
 * tenth of a millisecond. */
int64_t base_headroom_bytes(void);

/* The same of other files: as /proc/self/cgroup, /sys/fs/cgroup, /proc/meminfo. */
int64_t base_headroom_by(const char *list, const char *mount, const char *meminfo);

#endif
