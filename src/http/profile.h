/* SPDX-License-Identifier: Apache-2.0 */
/*
 * profile.h: the files in which the AWS tools keep keys and settings: sections in brackets, lines
 * "name = value", comments behind '#' and ';'.
 */
#ifndef SHOAL_HTTP_PROFILE_H
#define SHOAL_HTTP_PROFILE_H

#include <stddef.h>

#include "shoal.h"

/* The value of a name in a section, "" if it is not there. SHOAL_ERR_FORMAT names file and line of
 * what is neither; SHOAL_ERR_LIMIT: it is too long for `out`. */
enum shoal_status http_profile_value(const char *file, const char *text, size_t text_bytes,
                                     const char *section, const char *name, char *out,
                                     size_t bytes);
/* The same of the file itself; one that is not there has no values. */
enum shoal_status http_profile_read(const char *file, const char *section, const char *name,
                                    char *out, size_t bytes);

#endif
