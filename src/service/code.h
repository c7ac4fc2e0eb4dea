/* SPDX-License-Identifier: Apache-2.0 */
/* code.h: the archive of a script's sources, in each instance before it starts. */
#ifndef SHOAL_SERVICE_CODE_H
#define SHOAL_SERVICE_CODE_H

#include "channel/channel.h"

/* Unpacks the archive that the request names, if it names one, into `<folder>/<host>/ml/code` of
 * each host. A failure's text is the FailureReason. */
enum shoal_status service_code_unpack(const struct channel_job *job);

#endif
