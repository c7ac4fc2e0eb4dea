/* SPDX-License-Identifier: Apache-2.0 */
/*
 * schedule_access.h: for every element of a buffer, the step that wrote it last and the steps that
 * have read it since. The builder asks it what a new step must wait for.
 */
#ifndef SHOAL_COMM_SCHEDULE_ACCESS_H
#define SHOAL_COMM_SCHEDULE_ACCESS_H

#include <stdint.h>

#include "shoal.h"

struct access_map;

/* Steps to wait for, in the order found, repeats possible. Zeroed to start; reused between calls
 * (the caller sets count to 0), its memory freed by the caller with comm_access_list_release. */
struct access_list {
    uint32_t *steps;
    uint32_t count, capacity;
};
void comm_access_list_release(struct access_list *list);
enum shoal_status comm_access_list_add(struct access_list *list, uint32_t step);

enum shoal_status comm_access_map_create(struct access_map **out);
/* NULL is allowed. */
void comm_access_map_free(struct access_map *map);

/* `step` reads [offset, offset+count), count >= 1: adds the writers of these elements to `before`.
 */
enum shoal_status comm_access_map_read(struct access_map *map, uint64_t offset, uint64_t count,
                                       uint32_t step, struct access_list *before);
/* `step` writes [offset, offset+count): adds their readers, or where nobody has read since, their
 * writers, to `before` (never `step` itself), and forgets both: later steps wait for this one. */
enum shoal_status comm_access_map_write(struct access_map *map, uint64_t offset, uint64_t count,
                                        uint32_t step, struct access_list *before);

#endif
