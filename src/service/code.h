/* SPDX-License-Identifier: Apache-2.0 */
/* code.h: the archive of a script's sources, in each instance before it starts. */
#ifndef SHOAL_SERVICE_CODE_H
#define SHOAL_SERVICE_CODE_H

#include <jansson.h>

#include "s3/store.h"

/* Unpacks the archive that the request names, if it names one, into `<folder>/<host>/ml/code` of
 * each host, algo-1 to algo-<count>. SHOAL_ERR_ARGUMENT with the FailureReason. */
enum shoal_status service_code_unpack(const json_t *request, struct s3_store *store,
                                      const char *folder, int count);

#endif
