/* SPDX-License-Identifier: Apache-2.0 */
/* instance_folder.c: what stands in an instance's folder on the machine before it is made. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <arpa/inet.h>

#include "base/memory.h"
#include "base/status.h"
#include "job/instance_state.h"

#define PATH_BYTES 4096
#define LINE_BYTES 64

static enum shoal_status make_folder(const char *folder, const char *name, mode_t mode)
{
    char path[PATH_BYTES];
    if (snprintf(path, sizeof(path), "%s/%s", folder, name) >= PATH_BYTES)
        return base_error(SHOAL_ERR_ARGUMENT, "the path %s/%s is too long", folder, name);
    if (mkdir(path, 0700) != 0 && errno != EEXIST)
        return base_error_errno(SHOAL_ERR_SYSTEM, errno, "making the folder %s", path);
    if (chmod(path, mode) != 0)
        return base_error_errno(SHOAL_ERR_SYSTEM, errno, "setting the mode of %s", path);
    return SHOAL_OK;
}

static enum shoal_status make_folders(const char *folder)
{
    static const struct {
        const char *name;
        mode_t mode;
    } folders[] = {{"own", 0755},
                   {"own/tmp", 01777},
                   {"own/var-tmp", 01777},
                   {"own/run", 0755},
                   {"own/root", 0700},
                   {"own/home", 0755},
                   {"ml", 0755},
                   {"ml/input", 0755},
                   {"ml/input/config", 0755},
                   {"ml/input/data", 0755},
                   {"ml/model", 0755},
                   {"ml/output", 0755},
                   {"ml/output/data", 0755},
                   {"ml/code", 0755},
                   {"ml/checkpoints", 0755}};
    for (size_t i = 0; i < sizeof(folders) / sizeof(folders[0]); i++)
        TRY(make_folder(folder, folders[i].name, folders[i].mode));
    return SHOAL_OK;
}

/* Where the changes of own copies are kept; see instance_root.c. */
static enum shoal_status make_copy_folder(const char *folder, const char *copy)
{
    static const char *const parts[] = {"", "/upper", "/work"};
    char name[LINE_BYTES];
    for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++) {
        snprintf(name, sizeof(name), "own/copy-%s%s", copy, parts[i]);
        TRY(make_folder(folder, name, 0755));
    }
    return SHOAL_OK;
}

static enum shoal_status make_copy_folders(const struct job_plan *plan, int index)
{
    const struct job_instance_plan *instance = &plan->instances[index];
    int count = plan->mount_count + instance->mount_count;
    char copy[16];
    if (plan->root_copied)
        TRY(make_copy_folder(instance->folder, "root"));
    for (int i = 0; i < count; i++) {
        snprintf(copy, sizeof(copy), "%d", i);
        if (instance_mount(plan, index, i)->access == JOB_OWN_COPY)
            TRY(make_copy_folder(instance->folder, copy));
    }
    return SHOAL_OK;
}

static enum shoal_status put_text(const char *folder, const char *name, const char *text)
{
    char path[PATH_BYTES];
    snprintf(path, sizeof(path), "%s/%s", folder, name);
    FILE *file = fopen(path, "we");
    bool good = file != NULL && fputs(text, file) >= 0;
    if (file != NULL && fclose(file) != 0)
        good = false;
    if (!good)
        return base_error_errno(SHOAL_ERR_SYSTEM, errno, "writing %s", path);
    return SHOAL_OK;
}

/* Freed by base_free. */
static enum shoal_status hosts_text_create(int count, char **out)
{
    static const char head[] = "127.0.0.1 localhost\n::1 localhost ip6-localhost ip6-loopback\n"
                               "10.77.0.1 host\n";
    size_t capacity = sizeof(head) + (size_t)count * LINE_BYTES;
    char *text, address[INET_ADDRSTRLEN], name[JOB_HOST_BYTES];
    TRY(BASE_NEW_ARRAY(&text, capacity, "the hosts file"));
    size_t used = (size_t)snprintf(text, capacity, "%s", head);
    for (int i = 0; i < count; i++) {
        uint32_t number = instance_address(i);
        inet_ntop(AF_INET, &number, address, sizeof(address));
        used += (size_t)snprintf(text + used, capacity - used, "%s %s\n", address,
                                 job_host_name(i, name));
    }
    *out = text;
    return SHOAL_OK;
}

enum shoal_status instance_folder_fill(const struct job_plan *plan, int index)
{
    const char *folder = plan->instances[index].folder;
    char name[JOB_HOST_BYTES], line[JOB_HOST_BYTES + 1], *hosts;
    TRY(make_folders(folder));
    TRY(make_copy_folders(plan, index));
    snprintf(line, sizeof(line), "%s\n", job_host_name(index, name));
    TRY(put_text(folder, "own/hostname", line));
    TRY(hosts_text_create(plan->count, &hosts));
    enum shoal_status status = put_text(folder, "own/hosts", hosts);
    base_free(hosts);
    return status;
}
