/* SPDX-License-Identifier: Apache-2.0 */
/*
 * host.c: this host's identity, and the memory that its ranks share.
 *
 * Each rank prepares its own region and eventfd first. A rank that fails at that comes to the
 * meeting all the same, to say so: otherwise the others would wait for it until their deadline.
 *
 * A child that the program forks gets copies of all descriptors. Its copy of the own lifeline would
 * keep that open after this process's death, so the child closes it.
 */
#include "boot/host.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/log.h"
#include "base/memory.h"
#include "base/options.h"
#include "base/status.h"
#include "boot/host_message.h"
#include "net/proof.h"

#define LOCAL_SIZE_MAX 4096

const char *boot_host_name(void)
{
    return base_host_name();
}

/* ---- identity -------------------------------------------------------------------------------- */

/* The kernel's id of this boot; where it is hidden, the host's name has to do. */
static void boot_id(char *text, size_t bytes)
{
    FILE *file = fopen("/proc/sys/kernel/random/boot_id", "re");
    bool found = file != NULL && fgets(text, (int)bytes, file) != NULL;
    if (file != NULL)
        fclose(file);
    if (found)
        text[strcspn(text, "\n")] = '\0';
    else
        snprintf(text, bytes, "%.40s", boot_host_name());
}

/* The option's name, as 32 hexadecimal digits; "" if it is not set. */
static void given_id(char text[2 * NET_JOB_BYTES + 1])
{
    const char *given = base_option_text(OPTION_HOST_ID);
    unsigned char digest[NET_JOB_BYTES];
    text[0] = '\0';
    if (given == NULL)
        return;
    net_job_from_text(given, digest);
    for (int i = 0; i < NET_JOB_BYTES; i++)
        snprintf(text + 2 * i, 3, "%02x", digest[i]);
}

enum shoal_status boot_host_key(char key[BOOT_HOST_KEY_BYTES])
{
    char boot[48], given[2 * NET_JOB_BYTES + 1];
    struct stat namespace = {0};
    boot_id(boot, sizeof(boot));
    given_id(given);
    if (stat("/proc/self/ns/net", &namespace) != 0)
        return base_error_errno(SHOAL_ERR_SYSTEM, errno,
                                "cannot tell this host from others: /proc/self/ns/net");
    snprintf(key, BOOT_HOST_KEY_BYTES, "%s/%lx/%s", boot, (unsigned long)namespace.st_ino, given);
    return SHOAL_OK;
}

/* ---- forked children ------------------------------------------------------------------------- */

/* A host as the list of those that stand knows it. */
struct standing_host {
    struct boot_host public;
    struct standing_host *next;
};

static struct standing_host *standing_hosts;
static pthread_mutex_t standing_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_once_t fork_once = PTHREAD_ONCE_INIT;

static void before_fork(void)
{
    pthread_mutex_lock(&standing_lock);
}

static void after_fork_in_parent(void)
{
    pthread_mutex_unlock(&standing_lock);
}

static void close_lives(struct boot_host *host)
{
    for (int i = 0; i < host->local_size; i++) {
        if (host->life_fds[i] >= 0)
            close(host->life_fds[i]);
        host->life_fds[i] = -1;
    }
}

static void after_fork_in_child(void)
{
    for (struct standing_host *host = standing_hosts; host != NULL; host = host->next)
        close_lives(&host->public);
    pthread_mutex_unlock(&standing_lock);
}

static void watch_forks(void)
{
    pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child);
}

static void stand(struct standing_host *host)
{
    pthread_once(&fork_once, watch_forks);
    pthread_mutex_lock(&standing_lock);
    host->next = standing_hosts;
    standing_hosts = host;
    pthread_mutex_unlock(&standing_lock);
}

/* Takes a host off the list; it may never have been on it. */
static void fall(struct standing_host *host)
{
    pthread_mutex_lock(&standing_lock);
    struct standing_host **at = &standing_hosts;
    while (*at != NULL && *at != host)
        at = &(*at)->next;
    if (*at != NULL)
        *at = host->next;
    pthread_mutex_unlock(&standing_lock);
}

/* ---- meeting --------------------------------------------------------------------------------- */

static enum shoal_status host_new(const struct boot_host_options *options, struct boot_host **out)
{
    struct standing_host *standing;
    int local_size = options->local_size;
    TRY(BASE_NEW(&standing, "this host's ranks"));
    struct boot_host *host = &standing->public;
    host->local_rank = options->local_rank;
    enum shoal_status status = BASE_NEW_ARRAY(&host->regions, local_size, "this host's ranks");
    if (status == SHOAL_OK)
        status = BASE_NEW_ARRAY(&host->event_fds, local_size, "this host's ranks");
    if (status == SHOAL_OK)
        status = BASE_NEW_ARRAY(&host->life_fds, local_size, "this host's ranks");
    if (status != SHOAL_OK) {
        boot_host_free(host);
        return status;
    }
    host->local_size = local_size;
    for (int i = 0; i < local_size; i++)
        host->event_fds[i] = host->life_fds[i] = host->regions[i].fd = -1;
    *out = host;
    return SHOAL_OK;
}

/* This rank's own region and eventfd. */
static enum shoal_status prepare(const struct boot_host_options *options, struct boot_host *host)
{
    char name[32];
    int own = options->local_rank;
    snprintf(name, sizeof(name), "shoal-%d", own);
    TRY(base_shared_create(name, options->region_bytes, BASE_FORK_COPIES, &host->regions[own]));
    TRY(base_shared_commit(&host->regions[own], 0, options->commit_bytes));
    host->event_fds[own] = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    if (host->event_fds[own] < 0)
        return base_error_errno(SHOAL_ERR_SYSTEM, errno, "eventfd");
    return SHOAL_OK;
}

enum shoal_status host_life_make(struct boot_host *host, int *end)
{
    int ends[2];
    if (pipe2(ends, O_NONBLOCK | O_CLOEXEC) != 0)
        return base_error_errno(SHOAL_ERR_SYSTEM, errno,
                                "a pipe by which this host's ranks see each other end");
    *end = ends[0];
    host->life_fds[host->local_rank] = ends[1];
    return SHOAL_OK;
}

void host_regions_mapped(struct boot_host *host)
{
    for (int i = 0; i < host->local_size; i++)
        if (i != host->local_rank)
            base_shared_keep_mapping(&host->regions[i]);
}

enum shoal_status boot_host_meet(const struct boot_host_options *options, struct boot_host **out)
{
    if (options->local_size < 1 || options->local_size > LOCAL_SIZE_MAX ||
        options->local_rank < 0 || options->local_rank >= options->local_size)
        return base_error(SHOAL_ERR_ARGUMENT, "local rank %d of %d (at most %d)",
                          options->local_rank, options->local_size, LOCAL_SIZE_MAX);
    struct boot_host *host;
    TRY(host_new(options, &host));
    enum shoal_status status = prepare(options, host);
    if (options->local_size > 1)
        status = options->local_rank == 0 ? host_meet_as_lowest(options, status, host)
                                          : host_meet_as_member(options, status, host);
    if (status != SHOAL_OK) {
        boot_host_free(host);
        return status;
    }
    stand((struct standing_host *)host);
    *out = host;
    return SHOAL_OK;
}

void boot_host_free(struct boot_host *host)
{
    if (host == NULL)
        return;
    fall((struct standing_host *)host);
    close_lives(host);
    for (int i = 0; i < host->local_size; i++) {
        base_shared_release(&host->regions[i]);
        if (host->event_fds[i] >= 0)
            close(host->event_fds[i]);
    }
    base_free(host->regions);
    base_free(host->event_fds);
    base_free(host->life_fds);
    base_free(host);
}

bool boot_host_is_gone(const struct boot_host *host, int local_rank)
{
    struct pollfd life = {.fd = host->life_fds[local_rank]};
    return poll(&life, 1, 0) == 1 && (life.revents & (POLLHUP | POLLERR)) != 0;
}
