/* SPDX-License-Identifier: Apache-2.0 */
/*
 * meter.h: for how long buffers were on their way, callers waited, and both at once; and how fast
 * buffers went.
 *
 * Turned at each change, before it is made, under the fuse's lock.
 */
#ifndef SHOAL_FUSE_METER_H
#define SHOAL_FUSE_METER_H

#include <stdbool.h>
#include <stdint.h>

struct fuse_meter {
    int64_t since_ns; /* of the last turn */
    int in_flight, waiting;
    int64_t flight_ns, waited_ns, exposed_ns;
    int64_t step_flight_ns;                   /* of flight_ns: when the last step ended */
    uint64_t step_link_bytes, step_link_busy; /* likewise, of the links */
};

void fuse_meter_turn(struct fuse_meter *meter, int64_t now_ns);
/* At the end of a step, which sent so many bytes of buffers: their bytes in a second. 0: not known.
 */
double fuse_meter_pace(struct fuse_meter *meter, uint64_t bytes);
/* Likewise: what this rank's links carry together in a second while they are busy, from what each
 * has since they were opened, added up. 0: not known. */
double fuse_meter_links(struct fuse_meter *meter, uint64_t bytes, uint64_t busy_us, int links);
/* Whether these are fast, so that what buffers cost is the processors' time; was: in the step
 * before. */
bool fuse_meter_is_fast(double pace, double links, bool was);

#endif
