/* SPDX-License-Identifier: Apache-2.0 */
/* model_table.c: finds a model's table among those of this program, or reads a file. */
#include "model_table.h"

#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "base/options.h"
#include "base/status.h"

#define FILE_BYTES_MAX (UINT64_C(16) << 20)
#define NAMES_MAX      32

static enum shoal_status read_file(const char *path, char **out)
{
    char *text = NULL;
    FILE *file = fopen(path, "r");
    if (!file)
        return base_error_errno(SHOAL_ERR_SYSTEM, errno, "cannot read the model %s", path);
    enum shoal_status status = BASE_NEW_ARRAY(&text, FILE_BYTES_MAX + 1, "a model's table");
    size_t bytes = status == SHOAL_OK ? fread(text, 1, FILE_BYTES_MAX, file) : 0;
    if (status == SHOAL_OK && ferror(file))
        status = base_error(SHOAL_ERR_SYSTEM, "cannot read the model %s", path);
    if (status == SHOAL_OK && bytes == FILE_BYTES_MAX)
        status = base_error(SHOAL_ERR_LIMIT, "%s is too long", path);
    if (status == SHOAL_OK)
        *out = text; /* memory is zeroed: the text ends */
    else
        base_free(text);
    fclose(file);
    return status;
}

enum shoal_status model_table_read(const char *name, const struct model_table *tables,
                                   size_t table_count, char **text)
{
    const char *names[NAMES_MAX];
    char list[256] = "";
    if (strchr(name, '/'))
        return read_file(name, text);
    for (size_t i = 0; i < table_count && i < NAMES_MAX; i++) {
        names[i] = tables[i].name;
        if (strcmp(name, names[i]) == 0)
            return base_strdup(tables[i].text, "a model's table", text);
        snprintf(list + strlen(list), sizeof(list) - strlen(list), "%s%s", i ? ", " : "", names[i]);
    }
    const char *nearest = base_nearest(name, names, table_count);
    return base_error(SHOAL_ERR_ARGUMENT, "there is no model '%s': there are %s%s%s%s", name, list,
                      nearest ? "; did you mean '" : "", nearest ? nearest : "",
                      nearest ? "'?" : "");
}
