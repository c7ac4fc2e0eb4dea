/* SPDX-License-Identifier: Apache-2.0 */
/* store.c: opening and closing a store, connections for readers, and blocking on a write. */
#include "s3/store.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/memory.h"
#include "base/status.h"
#include "s3/contents.h"
#include "s3/store_state.h"

#define INDEX_PATH_BYTES 4096

int64_t s3_now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* ---------------------------------------------------------------------------------- what waits */

void s3_store_entered(struct s3_store *store)
{
    pthread_mutex_lock(&store->lock);
    store->under_way++;
    pthread_mutex_unlock(&store->lock);
}

void s3_store_left(struct s3_store *store)
{
    pthread_mutex_lock(&store->lock);
    if (--store->under_way == 0)
        pthread_cond_broadcast(&store->changed);
    pthread_mutex_unlock(&store->lock);
}

void s3_wait_init(struct s3_wait *wait)
{
    *wait = (struct s3_wait){.is_done = false};
    pthread_mutex_init(&wait->lock, NULL);
    pthread_cond_init(&wait->changed, NULL);
}

void s3_wait_done(void *user, enum s3_code code)
{
    struct s3_wait *wait = user;
    pthread_mutex_lock(&wait->lock);
    wait->code = code;
    wait->is_done = true;
    snprintf(wait->text, sizeof(wait->text), "%s", base_error_text());
    pthread_cond_signal(&wait->changed);
    pthread_mutex_unlock(&wait->lock);
}

enum s3_code s3_wait_for(struct s3_wait *wait)
{
    pthread_mutex_lock(&wait->lock);
    while (!wait->is_done)
        pthread_cond_wait(&wait->changed, &wait->lock);
    pthread_mutex_unlock(&wait->lock);
    pthread_cond_destroy(&wait->changed);
    pthread_mutex_destroy(&wait->lock);
    return wait->code == S3_OK ? S3_OK : s3_error(wait->code, "%s", wait->text);
}

/* ------------------------------------------------------------------------------------- readers */

enum s3_code s3_reader_take(struct s3_store *store, struct sql_database **out)
{
    return s3_from_status(sql_reader_take(&store->readers, out));
}

/* ----------------------------------------------------------------------------- open and close */

static enum shoal_status folder_open(int parent_fd, const char *path, int *out)
{
    if (mkdirat(parent_fd, path, 0755) != 0 && errno != EEXIST)
        return base_error_errno(SHOAL_ERR_SYSTEM, errno, "can't make the directory %s", path);
    *out = openat(parent_fd, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (*out < 0)
        return base_error_errno(SHOAL_ERR_SYSTEM, errno, "can't open the directory %s", path);
    return SHOAL_OK;
}

/* The lock goes with the process, however it ends; the file says whose it is. */
static enum shoal_status lock_take(struct s3_store *store, const char *directory)
{
    store->lock_fd = openat(store->directory_fd, "lock", O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    if (store->lock_fd < 0)
        return base_error_errno(SHOAL_ERR_SYSTEM, errno, "can't make %s/lock", directory);
    char text[32] = "";
    if (flock(store->lock_fd, LOCK_EX | LOCK_NB) != 0) {
        if (pread(store->lock_fd, text, sizeof(text) - 1, 0) <= 0)
            snprintf(text, sizeof(text), "unknown");
        return base_error(SHOAL_ERR_STATE,
                          "the objects in %s are in use by another service (process %s); stop it, "
                          "or choose another directory",
                          directory, text);
    }
    int bytes = snprintf(text, sizeof(text), "%ld", (long)getpid());
    if (ftruncate(store->lock_fd, 0) != 0 ||
        pwrite(store->lock_fd, text, (size_t)bytes, 0) != bytes)
        return base_error_errno(SHOAL_ERR_SYSTEM, errno, "can't write %s/lock", directory);
    return SHOAL_OK;
}

static enum shoal_status parts_open(struct s3_store *store, const char *directory)
{
    char path[INDEX_PATH_BYTES];
    if (snprintf(path, sizeof(path), "%s/index.db", directory) >= (int)sizeof(path))
        return base_error(SHOAL_ERR_ARGUMENT, "the directory's name is too long");
    TRY(sql_readers_init(&store->readers, path, &s3_schema));
    TRY(folder_open(AT_FDCWD, directory, &store->directory_fd));
    TRY(folder_open(store->directory_fd, "contents", &store->contents_fd));
    TRY(lock_take(store, directory));
    TRY(sql_database_open(path, &s3_schema, true, &store->writer.sql.database));
    if (fsync(store->directory_fd) != 0)
        return base_error_errno(SHOAL_ERR_SYSTEM, errno, "can't sync the directory %s", directory);
    if (s3_contents_recover(store) != S3_OK)
        return base_error_context(SHOAL_ERR_SYSTEM, "%s", directory);
    TRY(s3_writer_start(&store->writer, store));
    return s3_workers_start(&store->workers, store);
}

enum shoal_status s3_store_open(const char *directory, struct s3_store **out)
{
    struct s3_store *store;
    TRY(BASE_NEW(&store, "a store of objects"));
    store->directory_fd = store->contents_fd = store->lock_fd = -1;
    pthread_mutex_init(&store->lock, NULL);
    pthread_cond_init(&store->changed, NULL);
    pthread_mutex_init(&store->places.lock, NULL);
    s3_followers_init(&store->followers, &store->workers);
    enum shoal_status status = parts_open(store, directory);
    if (status != SHOAL_OK) {
        char text[BASE_ERROR_TEXT_BYTES];
        snprintf(text, sizeof(text), "%s", base_error_text());
        s3_store_close(store);
        return base_error(status, "%s", text);
    }
    *out = store;
    return SHOAL_OK;
}

static void descriptor_close(int fd)
{
    if (fd >= 0)
        close(fd);
}

void s3_store_close(struct s3_store *store)
{
    pthread_mutex_lock(&store->lock);
    while (store->under_way > 0)
        pthread_cond_wait(&store->changed, &store->lock);
    pthread_mutex_unlock(&store->lock);
    s3_workers_stop(&store->workers);
    sql_readers_release(&store->readers);
    s3_writer_stop(&store->writer);
    s3_places_release(&store->places);
    descriptor_close(store->contents_fd);
    descriptor_close(store->directory_fd);
    descriptor_close(store->lock_fd);
    base_free(store);
}
