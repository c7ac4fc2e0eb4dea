/* SPDX-License-Identifier: Apache-2.0 */
/*
 * resource_config.c: the file is written by the platform, but read like anything from outside:
 * every name is checked, because it becomes part of addresses and commands.
 */
#include "boot/resource_config.h"

#include <ctype.h>
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/memory.h"
#include "base/status.h"
#include "boot/json.h"

#define FILE_BYTES_MAX ((size_t)1 << 20)
#define HOSTS_MAX      4096
#define NAME_BYTES     256 /* of a host or an interface, with its NUL */

static bool is_name(const char *name)
{
    if (!isalnum((unsigned char)name[0]))
        return false;
    for (const char *at = name; *at != '\0'; at++) {
        if (!isalnum((unsigned char)*at) && strchr("._-:", *at) == NULL)
            return false;
    }
    return true;
}

static enum shoal_status read_name(struct boot_json *json, char name[NAME_BYTES])
{
    TRY(boot_json_string(json, name, NAME_BYTES));
    if (!is_name(name))
        return boot_json_error(json, "a name of letters, digits and . _ - : is expected here");
    return SHOAL_OK;
}

static enum shoal_status read_copy(struct boot_json *json, char **out)
{
    char name[NAME_BYTES];
    TRY(read_name(json, name));
    if (*out != NULL)
        return boot_json_error(json, "this member stands here a second time");
    return base_strdup(name, "a resource config's name", out);
}

static enum shoal_status grow_hosts(struct boot_resource_config *config)
{
    char **wider;
    int count = config->host_count;
    if (count != 0 && (count & (count - 1)) != 0)
        return SHOAL_OK; /* room is always a power of two */
    TRY(BASE_NEW_ARRAY(&wider, count == 0 ? 1 : 2 * count, "a resource config's hosts"));
    if (count > 0)
        memcpy(wider, config->hosts, sizeof(*wider) * (size_t)count);
    base_free(config->hosts);
    config->hosts = wider;
    return SHOAL_OK;
}

static enum shoal_status read_hosts(struct boot_json *json, struct boot_resource_config *config)
{
    bool more;
    if (config->hosts != NULL)
        return boot_json_error(json, "\"hosts\" stands here a second time");
    TRY(boot_json_array(json));
    for (;;) {
        TRY(boot_json_element(json, &more));
        if (!more)
            return SHOAL_OK;
        char name[NAME_BYTES];
        TRY(read_name(json, name));
        if (config->host_count == HOSTS_MAX)
            return boot_json_error(json, "too many hosts");
        for (int i = 0; i < config->host_count; i++) {
            if (strcmp(config->hosts[i], name) == 0)
                return boot_json_error(json, "this host is in the list twice");
        }
        TRY(grow_hosts(config));
        TRY(base_strdup(name, "a resource config's host", &config->hosts[config->host_count]));
        config->host_count++;
    }
}

static enum shoal_status read_members(struct boot_json *json, struct boot_resource_config *config,
                                      char **current)
{
    char name[64];
    bool more;
    TRY(boot_json_object(json));
    for (;;) {
        TRY(boot_json_member(json, name, sizeof(name), &more));
        if (!more)
            return boot_json_end(json);
        if (strcmp(name, "hosts") == 0)
            TRY(read_hosts(json, config));
        else if (strcmp(name, "current_host") == 0)
            TRY(read_copy(json, current));
        else if (strcmp(name, "network_interface_name") == 0)
            TRY(read_copy(json, &config->interface_name));
        else
            TRY(boot_json_skip(json));
    }
}

static enum shoal_status find_current(struct boot_resource_config *config, const char *current)
{
    if (config->host_count == 0)
        return base_error(SHOAL_ERR_FORMAT, "\"hosts\" is missing or empty");
    if (current == NULL)
        return base_error(SHOAL_ERR_FORMAT, "\"current_host\" is missing");
    for (int i = 0; i < config->host_count; i++) {
        if (strcmp(config->hosts[i], current) == 0) {
            config->current = i;
            return SHOAL_OK;
        }
    }
    return base_error(SHOAL_ERR_FORMAT, "current_host \"%s\" is not in \"hosts\"", current);
}

static enum shoal_status read_file(const char *path, char **text, size_t *bytes)
{
    FILE *file = fopen(path, "re");
    char *buffer;
    if (file == NULL)
        return base_error_errno(SHOAL_ERR_SYSTEM, errno, "%s", path);
    enum shoal_status status = base_alloc(FILE_BYTES_MAX, path, (void **)&buffer);
    if (status == SHOAL_OK) {
        *bytes = fread(buffer, 1, FILE_BYTES_MAX, file);
        if (ferror(file))
            status = base_error_errno(SHOAL_ERR_SYSTEM, errno, "%s", path);
        else if (*bytes == FILE_BYTES_MAX)
            status = base_error(SHOAL_ERR_FORMAT, "%s: longer than 1 MiB", path);
        if (status == SHOAL_OK)
            *text = buffer;
        else
            base_free(buffer);
    }
    fclose(file);
    return status;
}

static enum shoal_status parse(const char *path, const char *text, size_t bytes,
                               struct boot_resource_config *config)
{
    struct boot_json json;
    char *current = NULL;
    boot_json_begin(&json, text, bytes);
    enum shoal_status status = read_members(&json, config, &current);
    if (status == SHOAL_OK)
        status = find_current(config, current);
    base_free(current);
    return status == SHOAL_OK ? status : base_error_context(status, "%s", path);
}

static const char *find_path(void)
{
    return access(BOOT_RESOURCE_CONFIG_TRAINING, F_OK) != 0 &&
                   access(BOOT_RESOURCE_CONFIG_PROCESSING, F_OK) == 0
               ? BOOT_RESOURCE_CONFIG_PROCESSING
               : BOOT_RESOURCE_CONFIG_TRAINING;
}

enum shoal_status boot_resource_config_read(const char *path, struct boot_resource_config **out)
{
    struct boot_resource_config *config;
    char *text = NULL;
    size_t bytes = 0;
    if (path == NULL)
        path = find_path();
    TRY(read_file(path, &text, &bytes));
    enum shoal_status status = BASE_NEW(&config, "a resource config");
    if (status == SHOAL_OK) {
        status = base_strdup(path, "a resource config's path", &config->path);
        if (status == SHOAL_OK)
            status = parse(path, text, bytes, config);
        if (status == SHOAL_OK)
            *out = config;
        else
            boot_resource_config_free(config);
    }
    base_free(text);
    return status;
}

void boot_resource_config_free(struct boot_resource_config *config)
{
    if (config == NULL)
        return;
    for (int i = 0; i < config->host_count; i++)
        base_free(config->hosts[i]);
    base_free(config->hosts);
    base_free(config->interface_name);
    base_free(config->path);
    base_free(config);
}
