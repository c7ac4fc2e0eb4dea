/* SPDX-License-Identifier: Apache-2.0 */
/* inflate.h: objects that were compressed with gzip. */
#ifndef SHOAL_CHANNEL_INFLATE_H
#define SHOAL_CHANNEL_INFLATE_H

#include <stddef.h>

#include "shoal.h"

/* Unpacks all that a descriptor has from its position on, members one behind the other, and gives
 * it to `sink` piece by piece; nothing is nothing. SHOAL_ERR_FORMAT: not gzip, or cut off; what
 * `sink` returns ends it. */
enum shoal_status
channel_inflate(int fd, enum shoal_status (*sink)(void *user, const void *data, size_t bytes),
                void *user);

#endif
