/* SPDX-License-Identifier: Apache-2.0 */
/* leftover.h: folders in DIR/jobs, DIR/pools and DIR/logs that no job wants any more. */
#ifndef SHOAL_SERVICE_LEFTOVER_H
#define SHOAL_SERVICE_LEFTOVER_H

#include "service/service_state.h"

/* Removes the folders of attempts and warm pools that have ended, whose service was killed before
 * it did, and the logs of deleted jobs. May run beside anything else, but not beside itself. */
void service_leftovers_remove(struct service *service);

#endif
