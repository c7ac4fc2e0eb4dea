/* SPDX-License-Identifier: Apache-2.0 */
/* leftover.h: folders in DIR/jobs that no job wants any more. */
#ifndef SHOAL_SERVICE_LEFTOVER_H
#define SHOAL_SERVICE_LEFTOVER_H

#include "service/service_state.h"

/* Removes the folders of attempts that have ended, whose service was killed before it did. May run
 * beside anything else. */
void service_leftovers_remove(struct service *service);

#endif
