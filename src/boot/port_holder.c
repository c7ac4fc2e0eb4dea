/* SPDX-License-Identifier: Apache-2.0 */
/*
 * port_holder.c: who holds a port? /proc/net/tcp gives the listening socket's inode, and some
 * process has a descriptor with that inode. Only for messages, so every failure is "not known":
 * other users' processes can't be looked into, and those of other namespaces aren't there.
 */
#include <ctype.h>
#include <dirent.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "boot/address.h"

#define STATE_LISTEN 0x0A

/* Inode of the socket that listens on the port by this table, 0 if none. */
static unsigned long listener_inode(const char *table, int port)
{
    FILE *file = fopen(table, "re");
    if (file == NULL)
        return 0;
    char line[512];
    unsigned long found = 0;
    while (found == 0 && fgets(line, sizeof(line), file) != NULL) {
        unsigned local_port, state;
        unsigned long inode;
        /* sl local:port remote:port state queues timer retransmit uid timeout inode */
        if (sscanf(line, " %*d: %*[0-9A-Fa-f]:%x %*[0-9A-Fa-f]:%*x %x %*s %*s %*s %*d %*d %lu",
                   &local_port, &state, &inode) == 3 &&
            state == STATE_LISTEN && (int)local_port == port)
            found = inode;
    }
    fclose(file);
    return found;
}

static bool process_has_inode(const char *pid, unsigned long inode)
{
    char folder[64], path[PATH_MAX], link[64], wanted[64];
    snprintf(wanted, sizeof(wanted), "socket:[%lu]", inode);
    snprintf(folder, sizeof(folder), "/proc/%.20s/fd", pid);
    DIR *fds = opendir(folder);
    if (fds == NULL)
        return false;
    bool found = false;
    struct dirent *entry;
    while (!found && (entry = readdir(fds)) != NULL) {
        snprintf(path, sizeof(path), "%s/%s", folder, entry->d_name);
        ssize_t bytes = readlink(path, link, sizeof(link) - 1);
        if (bytes > 0) {
            link[bytes] = '\0';
            found = strcmp(link, wanted) == 0;
        }
    }
    closedir(fds);
    return found;
}

static void describe_process(const char *pid, char *text, size_t bytes)
{
    char path[64], name[64] = "a process";
    snprintf(path, sizeof(path), "/proc/%.20s/comm", pid);
    FILE *file = fopen(path, "re");
    if (file != NULL) {
        if (fgets(name, sizeof(name), file) != NULL)
            name[strcspn(name, "\n")] = '\0';
        fclose(file);
    }
    snprintf(text, bytes, "%s (pid %s)", name, pid);
}

bool boot_address_port_holder(int port, char *text, size_t bytes)
{
    unsigned long inode = listener_inode("/proc/self/net/tcp", port);
    if (inode == 0)
        inode = listener_inode("/proc/self/net/tcp6", port);
    DIR *processes = inode != 0 ? opendir("/proc") : NULL;
    if (processes == NULL)
        return false;
    bool found = false;
    struct dirent *entry;
    while (!found && (entry = readdir(processes)) != NULL) {
        if (!isdigit((unsigned char)entry->d_name[0]) || !process_has_inode(entry->d_name, inode))
            continue;
        describe_process(entry->d_name, text, bytes);
        found = true;
    }
    closedir(processes);
    return found;
}
