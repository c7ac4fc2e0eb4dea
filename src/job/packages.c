/* SPDX-License-Identifier: Apache-2.0 */
/* packages.c: see packages.h. */
#include "job/packages.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "launch/process.h"

#define TREE_LEVELS_MAX 4

bool packages_program_folder(char *path, size_t bytes)
{
    char own[LAUNCH_PATH_BYTES];
    if (launch_own_path(own) != SHOAL_OK)
        return false;
    char *slash = strrchr(own, '/');
    if (slash == NULL || slash == own)
        return false;
    *slash = '\0';
    return snprintf(path, bytes, "%s", own) < (int)bytes;
}

static bool has(const char *folder, const char *name, int mode)
{
    char path[PACKAGES_PATH_BYTES];
    return snprintf(path, sizeof(path), "%s/%s", folder, name) < (int)sizeof(path) &&
           access(path, mode) == 0;
}

bool packages_tree(char *path, size_t bytes)
{
    if (!packages_program_folder(path, bytes))
        return false;
    for (int level = 0; level < TREE_LEVELS_MAX; level++) {
        if (has(path, "bindings/python/shoal/__init__.py", R_OK))
            return true;
        char *slash = strrchr(path, '/');
        if (slash == NULL || slash == path)
            return false;
        *slash = '\0';
    }
    return false;
}

bool packages_installed(char *path, size_t bytes)
{
    char folder[PACKAGES_PATH_BYTES];
    return packages_program_folder(folder, sizeof(folder)) &&
           snprintf(path, bytes, "%s/../share/shoal/python", folder) < (int)bytes &&
           has(path, "shoal/__init__.py", R_OK);
}

void packages_python(char *path, size_t bytes)
{
    char folder[PACKAGES_PATH_BYTES];
    if (packages_program_folder(folder, sizeof(folder)) && has(folder, "python3", X_OK))
        snprintf(path, bytes, "%s/python3", folder);
    else if (packages_tree(folder, sizeof(folder)) && has(folder, ".venv/bin/python", X_OK))
        snprintf(path, bytes, "%s/.venv/bin/python", folder);
    else
        snprintf(path, bytes, "python3");
}
