/* SPDX-License-Identifier: Apache-2.0 */
/* variables.c: environments in the making. */
#include "launch/variables.h"

#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "base/status.h"

static int entry_find(const struct launch_variables *variables, const char *name, size_t length)
{
    for (int i = 0; i < variables->count; i++)
        if (strncmp(variables->entries[i], name, length) == 0 &&
            variables->entries[i][length] == '=')
            return i;
    return -1;
}

static enum shoal_status grow(struct launch_variables *variables)
{
    int capacity = variables->capacity > 0 ? variables->capacity * 2 : 64;
    char **entries = NULL;
    TRY(BASE_NEW_ARRAY(&entries, capacity + 1, "an environment"));
    if (variables->count > 0)
        memcpy(entries, variables->entries, sizeof(*entries) * (size_t)variables->count);
    base_free(variables->entries);
    variables->entries = entries;
    variables->capacity = capacity;
    return SHOAL_OK;
}

/* Takes the entry over. */
static enum shoal_status entry_take(struct launch_variables *variables, char *entry)
{
    size_t length = strcspn(entry, "=");
    int at = entry_find(variables, entry, length);
    if (at >= 0) {
        base_free(variables->entries[at]);
        variables->entries[at] = entry;
        return SHOAL_OK;
    }
    enum shoal_status status = variables->count == variables->capacity ? grow(variables) : SHOAL_OK;
    if (status != SHOAL_OK) {
        base_free(entry);
        return status;
    }
    variables->entries[variables->count++] = entry;
    return SHOAL_OK;
}

enum shoal_status launch_variables_put(struct launch_variables *variables, const char *entry)
{
    char *copy = NULL;
    const char *equals = strchr(entry, '=');
    if (equals == NULL || equals == entry)
        return base_error(SHOAL_ERR_ARGUMENT, "'%s' is not NAME=VALUE", entry);
    TRY(base_strdup(entry, "an environment", &copy));
    return entry_take(variables, copy);
}

enum shoal_status launch_variables_set(struct launch_variables *variables, const char *name,
                                       const char *value)
{
    size_t bytes = strlen(name) + strlen(value) + 2;
    char *entry = NULL;
    TRY(base_alloc(bytes, "an environment", (void **)&entry));
    snprintf(entry, bytes, "%s=%s", name, value);
    return entry_take(variables, entry);
}

enum shoal_status launch_variables_set_number(struct launch_variables *variables, const char *name,
                                              long number)
{
    char text[24];
    snprintf(text, sizeof(text), "%ld", number);
    return launch_variables_set(variables, name, text);
}

enum shoal_status launch_variables_put_all(struct launch_variables *variables, char *const *list)
{
    for (; *list != NULL; list++)
        if (strchr(*list, '=') != NULL && **list != '=')
            TRY(launch_variables_put(variables, *list));
    return SHOAL_OK;
}

const char *launch_variables_get(const struct launch_variables *variables, const char *name)
{
    size_t length = strlen(name);
    int at = entry_find(variables, name, length);
    return at < 0 ? NULL : variables->entries[at] + length + 1;
}

void launch_variables_release(struct launch_variables *variables)
{
    for (int i = 0; i < variables->count; i++)
        base_free(variables->entries[i]);
    base_free(variables->entries);
    *variables = (struct launch_variables){0};
}

bool launch_variable_travels(const char *entry)
{
    static const char *const stays[] = {
        "HOME=",        "USER=",   "LOGNAME=", "SHELL=",  "MAIL=",  "HOSTNAME=", "SSH_",     "XDG_",
        "DBUS_SESSION", "TMPDIR=", "PWD=",     "OLDPWD=", "SHLVL=", "WAYLAND_",  "DISPLAY=", "_=",
    };
    if (strchr(entry, '=') == NULL || *entry == '=')
        return false;
    for (size_t i = 0; i < sizeof(stays) / sizeof(stays[0]); i++)
        if (strncmp(entry, stays[i], strlen(stays[i])) == 0)
            return false;
    return true;
}
