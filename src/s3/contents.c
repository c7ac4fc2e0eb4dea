/* SPDX-License-Identifier: Apache-2.0 */
/*
 * contents.c: files by numbers, made, sealed, counted and removed.
 *
 * A new file's name is on the disk with its bytes: fsync of a new file takes its entry along on
 * ext4, XFS and Btrfs; the folder's own name is synced when it is made.
 */
#include "s3/contents.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/file.h"
#include "base/memory.h"
#include "s3/store_state.h"

#define FILES_PER_FOLDER_BITS 12
#define PATH_BYTES            40
#define COPY_BUFFER_BYTES     (256 << 10)
#define HEADROOM_BYTES        (INT64_C(16) << 20)

static void path_of(int64_t id, char path[PATH_BYTES])
{
    snprintf(path, PATH_BYTES, "%" PRIx64 "/%" PRIx64, (uint64_t)id >> FILES_PER_FOLDER_BITS,
             (uint64_t)id);
}

static enum s3_code folder_make(struct s3_store *store, int64_t id)
{
    char folder[PATH_BYTES];
    snprintf(folder, sizeof(folder), "%" PRIx64, (uint64_t)id >> FILES_PER_FOLDER_BITS);
    if (mkdirat(store->contents_fd, folder, 0755) != 0 && errno != EEXIST)
        return s3_error_errno(errno, "can't make a folder for contents");
    if (fsync(store->contents_fd) != 0)
        return s3_error_errno(errno, "can't sync the folder of contents");
    return S3_OK;
}

enum s3_code s3_content_create(struct s3_store *store, int64_t *id, int *fd)
{
    int64_t number = atomic_fetch_add(&store->next_content, 1);
    int flags = O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC;
    char path[PATH_BYTES];
    path_of(number, path);
    int file = openat(store->contents_fd, path, flags, 0600);
    if (file < 0 && errno == ENOENT) {
        S3_TRY(folder_make(store, number));
        file = openat(store->contents_fd, path, flags, 0600);
    }
    if (file < 0)
        return s3_error_errno(errno, "can't make a file for an object");
    *id = number;
    *fd = file;
    return S3_OK;
}

/* The last of the disk is the index's, so that deleting, which writes rows, still works when no
 * object has room. */
static int64_t headroom_of(const struct statvfs *disk)
{
    int64_t sixteenth = (int64_t)disk->f_blocks * (int64_t)disk->f_frsize / 16;
    return sixteenth < HEADROOM_BYTES ? sixteenth : HEADROOM_BYTES;
}

enum s3_code s3_content_reserve(int fd, int64_t start, int64_t bytes)
{
    struct statvfs disk;
    if (fstatvfs(fd, &disk) == 0 &&
        (int64_t)disk.f_bavail * (int64_t)disk.f_frsize < headroom_of(&disk) + bytes)
        return s3_error(S3_STORAGE_FULL, "The disk of the server is full: it has no room for an "
                                         "object beside what the index of objects needs.");
    if (bytes <= 0 || fallocate(fd, FALLOC_FL_KEEP_SIZE, start, bytes) == 0)
        return S3_OK;
    if (errno == EOPNOTSUPP || errno == ENOSYS || errno == EINTR)
        return S3_OK; /* then writing shows it */
    return s3_error_errno(errno, "can't take %" PRId64 " bytes for an object", bytes);
}

enum s3_code s3_content_write(int fd, const void *data, size_t bytes, int64_t start)
{
    if (base_file_write(fd, data, bytes, start) != bytes)
        return s3_error_errno(errno, "can't write an object's file");
    return S3_OK;
}

/* What copy_file_range can't do here, by way of memory. */
static enum s3_code copy_by_hand(int from, int64_t from_start, int to, int64_t to_start,
                                 int64_t bytes)
{
    void *buffer;
    S3_TRY(s3_from_status(base_alloc(COPY_BUFFER_BYTES, "a buffer for copying", &buffer)));
    enum s3_code code = S3_OK;
    while (bytes > 0 && code == S3_OK) {
        size_t want = bytes < COPY_BUFFER_BYTES ? (size_t)bytes : COPY_BUFFER_BYTES;
        ssize_t got = pread(from, buffer, want, from_start);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0) {
            code = s3_error_errno(got < 0 ? errno : EIO, "can't read an object's file");
            break;
        }
        code = s3_content_write(to, buffer, (size_t)got, to_start);
        from_start += got;
        to_start += got;
        bytes -= got;
    }
    base_free(buffer);
    return code;
}

enum s3_code s3_content_copy(int from, int64_t from_start, int to, int64_t to_start, int64_t bytes)
{
    while (bytes > 0) {
        loff_t in = from_start, out = to_start;
        ssize_t copied = copy_file_range(from, &in, to, &out, (size_t)bytes, 0);
        if (copied < 0 && errno == EINTR)
            continue;
        if (copied < 0 && (errno == ENOSPC || errno == EDQUOT))
            return s3_error_errno(errno, "can't write an object's file");
        if (copied <= 0)
            return copy_by_hand(from, from_start, to, to_start, bytes);
        from_start += copied;
        to_start += copied;
        bytes -= copied;
    }
    return S3_OK;
}

enum s3_code s3_content_seal(int fd)
{
    if (fchmod(fd, 0444) != 0 || fsync(fd) != 0)
        return s3_error_errno(errno, "can't sync an object's file");
    return S3_OK;
}

enum s3_code s3_content_open(struct s3_store *store, int64_t id, bool for_writing, int *fd)
{
    char path[PATH_BYTES];
    path_of(id, path);
    int flags = (for_writing ? O_RDWR : O_RDONLY) | O_CLOEXEC | O_NOFOLLOW;
    int file = openat(store->contents_fd, path, flags);
    if (file < 0 && errno != ENOENT)
        return s3_error_errno(errno, "can't open the file of an object");
    *fd = file < 0 ? -1 : file;
    return S3_OK;
}

void s3_content_unlink(struct s3_store *store, int64_t id)
{
    char path[PATH_BYTES];
    path_of(id, path);
    unlinkat(store->contents_fd, path, 0); /* what stays is removed at the next start */
}

/* ---------------------------------------------------------------------------------------- rows */

enum s3_code s3_content_add(struct s3_writer *writer, int64_t id)
{
    sqlite3_stmt *add = sql_statement(&writer->sql.database, S3_SQL_CONTENT_ADD);
    sql_bind_int(&writer->sql.database, add, 1, id);
    return s3_run(&writer->sql.database, add);
}

enum s3_code s3_content_hold(struct s3_writer *writer, int64_t id)
{
    sqlite3_stmt *hold = sql_statement(&writer->sql.database, S3_SQL_CONTENT_HOLD);
    sql_bind_int(&writer->sql.database, hold, 1, id);
    bool row;
    S3_TRY(s3_step(&writer->sql.database, hold, &row));
    if (!row)
        return s3_error(S3_OPERATION_ABORTED, NULL);
    sql_reset(hold);
    return S3_OK;
}

/* Where there is no memory to remember it, the file goes at the next start. */
static void unused_remember(struct s3_writer *writer, int64_t id)
{
    if (writer->unused_count == writer->unused_room) {
        size_t room = writer->unused_room * 2 + 64;
        int64_t *larger;
        if (BASE_NEW_ARRAY(&larger, room, "numbers of files to remove") != SHOAL_OK)
            return;
        if (writer->unused_count > 0)
            memcpy(larger, writer->unused, writer->unused_count * sizeof(*larger));
        base_free(writer->unused);
        writer->unused = larger;
        writer->unused_room = room;
    }
    writer->unused[writer->unused_count++] = id;
}

enum s3_code s3_content_drop(struct s3_writer *writer, int64_t id)
{
    sqlite3_stmt *drop = sql_statement(&writer->sql.database, S3_SQL_CONTENT_DROP);
    sql_bind_int(&writer->sql.database, drop, 1, id);
    bool row;
    S3_TRY(s3_step(&writer->sql.database, drop, &row));
    bool is_unused = row && sqlite3_column_int64(drop, 0) == 0;
    if (row)
        sql_reset(drop);
    if (is_unused)
        unused_remember(writer, id);
    return S3_OK;
}

/* -------------------------------------------------------------------------------------- removal */

/* First a task that removes the files, then a write that removes their rows. */
struct removal {
    union {
        struct s3_task task;
        struct s3_write write;
    } as;
    struct s3_store *store;
    size_t count;
    int64_t ids[];
};

static enum s3_code rows_remove(struct s3_writer *writer, const int64_t *ids, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        sqlite3_stmt *remove_row = sql_statement(&writer->sql.database, S3_SQL_CONTENT_REMOVE);
        sql_bind_int(&writer->sql.database, remove_row, 1, ids[i]);
        S3_TRY(s3_run(&writer->sql.database, remove_row));
    }
    return S3_OK;
}

static enum s3_code removal_apply(struct s3_write *write, struct s3_writer *writer)
{
    struct removal *removal = (struct removal *)write;
    return rows_remove(writer, removal->ids, removal->count);
}

static void removal_end(struct s3_write *write, enum s3_code code)
{
    (void)code; /* rows that stay are removed at the next start */
    base_free(write);
}

static void removal_run(struct s3_task *task)
{
    struct removal *removal = (struct removal *)task;
    for (size_t i = 0; i < removal->count; i++)
        s3_content_unlink(removal->store, removal->ids[i]);
    removal->as.write = (struct s3_write){.apply = removal_apply, .end = removal_end};
    s3_writer_submit(&removal->store->writer, &removal->as.write);
}

void s3_contents_sweep(struct s3_writer *writer)
{
    size_t count = writer->unused_count;
    writer->unused_count = 0;
    struct removal *removal;
    if (count == 0 || base_alloc(sizeof(*removal) + count * sizeof(removal->ids[0]),
                                 "numbers of files to remove", (void **)&removal) != SHOAL_OK)
        return;
    removal->as.task = (struct s3_task){.run = removal_run};
    removal->store = writer->store;
    removal->count = count;
    memcpy(removal->ids, writer->unused, count * sizeof(removal->ids[0]));
    s3_workers_submit(&writer->store->workers, &removal->as.task);
}

/* ------------------------------------------------------------------------------------- recovery */

static enum s3_code number_get(struct sql_database *database, enum s3_sql which, int64_t *out)
{
    sqlite3_stmt *statement = sql_statement(database, which);
    bool row;
    S3_TRY(s3_step(database, statement, &row));
    *out = row ? sqlite3_column_int64(statement, 0) : 0;
    if (row)
        sql_reset(statement);
    return S3_OK;
}

static enum s3_code has_row(struct sql_database *database, int64_t id, bool *out)
{
    sqlite3_stmt *find = sql_statement(database, S3_SQL_CONTENT_FIND);
    sql_bind_int(database, find, 1, id);
    S3_TRY(s3_step(database, find, out));
    if (*out)
        sql_reset(find);
    return S3_OK;
}

/* A number in hexadecimal that is all of the name; -1: none. */
static int64_t number_of(const char *name)
{
    if (strlen(name) > 15 || strspn(name, "0123456789abcdef") != strlen(name))
        return -1;
    return strtoll(name, NULL, 16);
}

/* Goes through a folder's names; visit's id is -1 for names that are no numbers. */
static enum s3_code names_visit(int folder_fd, const char *name,
                                enum s3_code (*visit)(struct s3_store *store, int64_t id),
                                struct s3_store *store)
{
    int fd = openat(folder_fd, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
    DIR *folder = fd < 0 ? NULL : fdopendir(fd);
    if (folder == NULL) {
        int number = errno;
        if (fd >= 0)
            close(fd);
        return number == ENOTDIR ? S3_OK : s3_error_errno(number, "can't read the folder %s", name);
    }
    enum s3_code code = S3_OK;
    struct dirent *entry;
    while (code == S3_OK && (entry = readdir(folder)) != NULL)
        if (number_of(entry->d_name) >= 0)
            code = visit(store, number_of(entry->d_name));
    closedir(folder);
    return code;
}

static enum s3_code file_settle(struct s3_store *store, int64_t id)
{
    bool found;
    S3_TRY(has_row(&store->writer.sql.database, id, &found));
    if (!found)
        s3_content_unlink(store, id);
    if (id >= store->next_content)
        store->next_content = id + 1;
    return S3_OK;
}

static enum s3_code folder_settle(struct s3_store *store, int64_t folder)
{
    int64_t settled;
    S3_TRY(number_get(&store->writer.sql.database, S3_SQL_SETTLED_GET, &settled));
    if (folder < settled >> FILES_PER_FOLDER_BITS)
        return S3_OK;
    char name[PATH_BYTES];
    snprintf(name, sizeof(name), "%" PRIx64, (uint64_t)folder);
    return names_visit(store->contents_fd, name, file_settle, store);
}

static enum s3_code unused_settle(struct s3_store *store)
{
    struct sql_database *database = &store->writer.sql.database;
    sqlite3_stmt *unused = sql_statement(database, S3_SQL_CONTENT_UNUSED);
    bool row;
    for (;;) {
        S3_TRY(s3_step(database, unused, &row));
        if (!row)
            break;
        int64_t id = sqlite3_column_int64(unused, 0);
        s3_content_unlink(store, id);
        unused_remember(&store->writer, id);
    }
    enum s3_code code =
        rows_remove(&store->writer, store->writer.unused, store->writer.unused_count);
    store->writer.unused_count = 0;
    return code;
}

enum s3_code s3_contents_recover(struct s3_store *store)
{
    struct sql_database *database = &store->writer.sql.database;
    int64_t settled, last;
    S3_TRY(number_get(database, S3_SQL_SETTLED_GET, &settled));
    S3_TRY(number_get(database, S3_SQL_CONTENT_LAST, &last));
    store->next_content = last >= settled ? last + 1 : settled;
    S3_TRY(s3_run(database, sql_statement(database, S3_SQL_BEGIN)));
    S3_TRY(names_visit(store->contents_fd, ".", folder_settle, store));
    S3_TRY(unused_settle(store));
    sqlite3_stmt *set = sql_statement(database, S3_SQL_SETTLED_SET);
    sql_bind_int(database, set, 1, store->next_content);
    S3_TRY(s3_run(database, set));
    return s3_run(database, sql_statement(database, S3_SQL_COMMIT));
}
