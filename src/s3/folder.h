/* SPDX-License-Identifier: Apache-2.0 */
/* folder.h: paths below a folder that others may write in: no part of them is followed as a link.
 */
#ifndef SHOAL_S3_FOLDER_H
#define SHOAL_S3_FOLDER_H

#include <stdbool.h>

#include "s3/code.h"

/* Opens the folder that a path's last part is in, below `folder`; folders that are not there are
 * made, or are an error. *name is the last part, "" if the path ends in '/'. INVALID_ARGUMENT: a
 * file or a link is where a folder is needed. The path is one that s3_key_path_check takes. */
enum s3_code s3_folder_of(int folder, const char *path, bool makes, int *out, const char **name);

#endif
