/* SPDX-License-Identifier: Apache-2.0 */
/* model_table.h: the text of a model's table: one that the build put into this program, or a file.
 */
#ifndef SHOAL_CMD_MODEL_TABLE_H
#define SHOAL_CMD_MODEL_TABLE_H

#include <stddef.h>

#include "shoal.h"

struct model_table {
    const char *name, *text;
};

/* By name, or by path if it has a slash. The caller frees the text with base_free.
 * SHOAL_ERR_ARGUMENT lists the names there are. */
enum shoal_status model_table_read(const char *name, const struct model_table *tables,
                                   size_t table_count, char **text);

#endif
