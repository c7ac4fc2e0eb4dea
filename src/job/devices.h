/* SPDX-License-Identifier: Apache-2.0 */
/*
 * devices.h: the accelerators of this machine, by their device files.
 *
 * Those that have a file each and are numbered by it are given to instances one by one: NVIDIA's
 * (/dev/nvidia0, ...), AWS's (/dev/neuron0, ...), and those of the kernel's own class
 * (/dev/accel/accel0, ...). AMD's are one by their render nodes (/dev/dri/renderD128, ...).
 */
#ifndef SHOAL_JOB_DEVICES_H
#define SHOAL_JOB_DEVICES_H

#include <stdbool.h>
#include <stdint.h>

/* How many there are, of the first kind that is there; at most 64. Where numbers have gaps, those
 * from this count on are not given to anybody. */
int devices_count(void);
/* Whether an instance that has got these accelerators (a bit for each; UINT64_MAX: all) sees the
 * entry `name` of the machine's /dev. Only comparisons. */
bool devices_shown(const char *name, uint64_t accelerators);

#endif
