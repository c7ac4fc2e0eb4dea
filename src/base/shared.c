/* SPDX-License-Identifier: Apache-2.0 */
/*
 * shared.c: regions over memfd.
 *
 * The file gets its full size at once but no pages; fallocate takes them piece by piece, so that
 * memory that is not there is an error of a call and never a SIGBUS in the middle of a sum. The
 * size is sealed: no peer can cut the file under another's feet.
 */
#include "base/shared.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/memory.h"
#include "base/status.h"

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

static size_t page_round(size_t bytes)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    return (bytes + page - 1) / page * page;
}

static enum shoal_status map(int fd, size_t bytes, void **out)
{
    void *address = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, 0);
    if (address == MAP_FAILED)
        return base_error_errno(SHOAL_ERR_MEMORY, errno,
                                "cannot map %zu MiB of address space for shared memory (set "
                                "SHOAL_SHARED_BYTES lower, for example 1G, or raise ulimit -v)",
                                bytes >> 20);
    *out = address;
    return SHOAL_OK;
}

/* A file beyond RLIMIT_FSIZE would raise SIGXFSZ, so it is asked first. */
static enum shoal_status check_file_limit(size_t bytes)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY &&
        bytes > limit.rlim_cur)
        return base_error(SHOAL_ERR_MEMORY,
                          "shared memory of %zu MiB exceeds the file size limit of %llu MiB "
                          "(ulimit -f): raise it, or set SHOAL_SHARED_BYTES lower",
                          bytes >> 20, (unsigned long long)limit.rlim_cur >> 20);
    return SHOAL_OK;
}

static enum shoal_status open_sealed(const char *name, size_t bytes, int *out)
{
    TRY(check_file_limit(bytes));
    int fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd < 0)
        return base_error_errno(SHOAL_ERR_SYSTEM, errno, "memfd_create for shared memory failed");
    if (ftruncate(fd, (off_t)bytes) != 0 ||
        fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
        int cause = errno;
        close(fd);
        return base_error_errno(SHOAL_ERR_SYSTEM, cause, "cannot size shared memory to %zu bytes",
                                bytes);
    }
    *out = fd;
    return SHOAL_OK;
}

/* ---- copies for children
 * -----------------------------------------------------------------------------------------------
 */

/* Regions that a child maps anew for itself. The kernel copies private memory by itself, but not
 * what is shared. */
struct copied_region {
    struct copied_region *next;
    struct base_shared shared;
};

static pthread_mutex_t copied_lock = PTHREAD_MUTEX_INITIALIZER;
static struct copied_region *copied_regions;

static void lock_copied(void)
{
    pthread_mutex_lock(&copied_lock);
}

static void unlock_copied(void)
{
    pthread_mutex_unlock(&copied_lock);
}

/* If the map fails there is nothing at the address: a use of it ends the child, and harms nobody
 * else. */
static void copy_in_child(void)
{
    for (struct copied_region *region = copied_regions; region; region = region->next)
        mmap(region->shared.address, region->shared.bytes, PROT_READ | PROT_WRITE,
             MAP_PRIVATE | MAP_FIXED | MAP_NORESERVE, region->shared.fd, 0);
    unlock_copied();
}

static void register_copies(void)
{
    pthread_atfork(lock_copied, unlock_copied, copy_in_child);
}

static enum shoal_status add_copied(const struct base_shared *shared)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    struct copied_region *region = NULL;
    TRY(BASE_NEW(&region, "a shared region's record"));
    pthread_once(&once, register_copies);
    lock_copied();
    *region = (struct copied_region){copied_regions, *shared};
    copied_regions = region;
    unlock_copied();
    return SHOAL_OK;
}

static void remove_copied(const struct base_shared *shared)
{
    struct copied_region *found = NULL;
    lock_copied();
    for (struct copied_region **at = &copied_regions; *at && !found;)
        if ((*at)->shared.address == shared->address) {
            found = *at;
            *at = found->next;
        } else {
            at = &(*at)->next;
        }
    unlock_copied();
    base_free(found);
}

/* ---- regions
 * -----------------------------------------------------------------------------------------------
 */

enum shoal_status base_shared_create(const char *name, size_t bytes, enum base_on_fork on_fork,
                                     struct base_shared *out)
{
    if (bytes == 0 || bytes > (size_t)INT64_MAX / 2)
        return base_error(SHOAL_ERR_ARGUMENT, "shared memory of %zu bytes", bytes);
    struct base_shared shared = {.fd = -1, .bytes = page_round(bytes)};
    TRY(open_sealed(name, shared.bytes, &shared.fd));
    enum shoal_status status = map(shared.fd, shared.bytes, &shared.address);
    if (status == SHOAL_OK && on_fork == BASE_FORK_COPIES)
        status = add_copied(&shared);
    if (status != SHOAL_OK) {
        base_shared_release(&shared);
        return status;
    }
    /* Both are advice: without them the region works all the same. */
    if (on_fork != BASE_FORK_SHARES)
        madvise(shared.address, shared.bytes, MADV_DONTFORK);
    madvise(shared.address, shared.bytes, MADV_DONTDUMP);
    *out = shared;
    return SHOAL_OK;
}

enum shoal_status base_shared_map(int fd, struct base_shared *out)
{
    struct stat file;
    struct base_shared shared = {.fd = fd};
    enum shoal_status status = SHOAL_OK;
    if (fstat(fd, &file) != 0)
        status = base_error_errno(SHOAL_ERR_SYSTEM, errno, "a peer's shared memory has no size");
    else if (!S_ISREG(file.st_mode) || file.st_size <= 0)
        status = base_error(SHOAL_ERR_FORMAT, "a peer's descriptor is not shared memory");
    if (status == SHOAL_OK) {
        shared.bytes = (size_t)file.st_size;
        status = map(fd, shared.bytes, &shared.address);
    }
    if (status != SHOAL_OK) {
        close(fd);
        return status;
    }
    madvise(shared.address, shared.bytes, MADV_DONTFORK);
    madvise(shared.address, shared.bytes, MADV_DONTDUMP);
    *out = shared;
    return SHOAL_OK;
}

enum shoal_status base_shared_commit(const struct base_shared *shared, size_t offset, size_t bytes)
{
    size_t end;
    if (__builtin_add_overflow(offset, bytes, &end) || end > shared->bytes)
        return base_error(SHOAL_ERR_LIMIT,
                          "shared memory is full: %zu of %zu MiB wanted (raise "
                          "SHOAL_SHARED_BYTES)",
                          end >> 20, shared->bytes >> 20);
    if (bytes == 0)
        return SHOAL_OK;
    int result;
    do
        result = fallocate(shared->fd, 0, (off_t)offset, (off_t)bytes);
    while (result != 0 && errno == EINTR);
    if (result != 0)
        return base_error_errno(errno == ENOSPC || errno == ENOMEM ? SHOAL_ERR_MEMORY
                                                                   : SHOAL_ERR_SYSTEM,
                                errno, "cannot take %zu KiB of shared memory", bytes >> 10);
    return SHOAL_OK;
}

static int populate(void *address, size_t bytes)
{
    int result;
    do
        result = madvise(address, bytes, MADV_POPULATE_WRITE);
    while (result != 0 && errno == EINTR);
    return result;
}

bool base_shared_can_populate(void)
{
    static _Alignas(4096) char page[4096];
    return populate(page, sizeof(page)) == 0 || errno != EINVAL;
}

enum shoal_status base_shared_populate(void *address, size_t bytes)
{
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    uintptr_t first = (uintptr_t)address / page * page;
    uintptr_t end = ((uintptr_t)address + bytes + page - 1) / page * page;
    if (populate((void *)first, end - first) == 0 || errno == EINVAL)
        return SHOAL_OK;
    return base_error_errno(SHOAL_ERR_MEMORY, errno, "cannot take %zu KiB of shared memory",
                            bytes >> 10);
}

void base_shared_keep_mapping(struct base_shared *shared)
{
    close(shared->fd);
    shared->fd = -1;
}

void base_shared_release(struct base_shared *shared)
{
    if (shared->address != NULL) {
        remove_copied(shared);
        munmap(shared->address, shared->bytes);
    }
    if (shared->fd > 0 || (shared->fd == 0 && shared->address != NULL))
        close(shared->fd);
    *shared = (struct base_shared){.fd = -1};
}
