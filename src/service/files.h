/* SPDX-License-Identifier: Apache-2.0 */
/* files.h: folders of jobs. */
#ifndef SHOAL_SERVICE_FILES_H
#define SHOAL_SERVICE_FILES_H

#include <jansson.h>

#include "shoal.h"

#define SERVICE_FILE_BYTES 4096

/* With those above it. */
enum shoal_status service_folder_make(const char *path);
/* Removes what is in it but for the entry `keep`. */
enum shoal_status service_folder_clear(const char *path, const char *keep);
/* With all that is in it; one that is not there is none. */
enum shoal_status service_folder_remove(const char *path);
enum shoal_status service_json_write(const char *folder, const char *name, const json_t *value);

#endif
