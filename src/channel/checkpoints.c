/* SPDX-License-Identifier: Apache-2.0 */
/*
 * checkpoints.c: a folder of each instance and a prefix of a bucket, kept alike.
 *
 * A round lists the folders of all hosts and compares the list with that of the round before. A
 * file that is new or has changed is put when nobody has it open for writing (a lease says so;
 * where the file system has none: when it is as it was a round ago), and if it changes while it is
 * read, nothing is put. So the bucket has whole files only, if late. A key goes when a file that
 * was there as this key has gone from the last host that had it.
 *
 * What a new process knows of the time before it (the service was killed): a file whose object is
 * not older is no news. So one host's copy of what came from the bucket does not go over what
 * another host has made of it since. And the paths that were there (known.h): the keys of those
 * that are gone go. A round notes them before it puts anything.
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/status.h"
#include "channel/bucket.h"
#include "channel/elsewhere.h"
#include "channel/known.h"
#include "channel/prepare.h"
#include "channel/tree.h"

#define LOCAL_PATH     "/opt/ml/checkpoints"
#define ROUND_MS       INT64_C(500)
#define ROUND_SHARE    10 /* of the time at most one part in so many goes into rounds */
#define COPY_BYTES     ((size_t)1 << 20)
#define COPY_FILE_MODE 0644

struct channel_checkpoints {
    struct channel_job job;
    struct channel_control control;
    struct channel_clients clients;
    struct channel_uri uri; /* its key ends in '/' or is empty */
    int folder_fd;          /* of the job */
    int folders[CHANNEL_HOSTS_MAX];
    struct channel_known known;
    struct channel_tree seen; /* sorted; of the round before */
    bool *is_put;             /* of each entry that was seen */
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool is_ending;
};

/* ---- the request ---- */

/* False where the request has none. */
static bool find_config(const struct channel_job *job, const char **uri, const char **local)
{
    const json_t *config = json_object_get(job->request, "CheckpointConfig");
    *uri = json_string_value(json_object_get(config, "S3Uri"));
    *local = json_string_value(json_object_get(config, "LocalPath"));
    if (*local == NULL || **local == '\0')
        *local = LOCAL_PATH;
    return *uri != NULL;
}

static enum shoal_status read_place(const char *text, struct channel_uri *uri)
{
    TRY(channel_uri_parse(text, uri));
    size_t bytes = strlen(uri->key);
    if (bytes > 0 && uri->key[bytes - 1] != '/') {
        if (bytes + 1 >= sizeof(uri->key))
            return base_error(SHOAL_ERR_ARGUMENT, "the place of checkpoints '%.300s' is too long",
                              text);
        memcpy(uri->key + bytes, "/", 2);
    }
    return SHOAL_OK;
}

/* A folder of the job, without '/' at its end, that does not hide /opt/ml. */
static enum shoal_status read_local(const char *text, char out[CHANNEL_PATH_BYTES])
{
    static const char ml[] = CHANNEL_ML;
    size_t bytes = strlen(text);
    while (bytes > 1 && text[bytes - 1] == '/')
        bytes--;
    bool hides_ml = bytes < sizeof(ml) && strncmp(ml, text, bytes) == 0 &&
                    (bytes == 1 || ml[bytes] == '/' || ml[bytes] == '\0');
    if (*text != '/' || bytes >= CHANNEL_PATH_BYTES || hides_ml)
        return base_error(SHOAL_ERR_ARGUMENT,
                          "the LocalPath of checkpoints, '%.300s', must be a folder such as "
                          "/opt/ml/checkpoints",
                          text);
    snprintf(out, CHANNEL_PATH_BYTES, "%.*s", (int)bytes, text);
    return SHOAL_OK;
}

/* ---- from the bucket ---- */

struct fetching {
    const struct channel_job *job;
    struct channel_uri uri;
    size_t strip_bytes;
    int folder_fd;
};

static enum shoal_status copy_to(int from, int64_t bytes, int folder_fd, const char *name,
                                 int64_t modified_ms)
{
    char *buffer = NULL;
    struct timespec times[2] = {{.tv_nsec = UTIME_OMIT},
                                {modified_ms / 1000, modified_ms % 1000 * 1000000}};
    TRY(channel_tree_remove(folder_fd, name));
    int fd = openat(folder_fd, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC,
                    COPY_FILE_MODE);
    if (fd < 0)
        return base_error_errno(SHOAL_ERR_SYSTEM, errno, "making the file '%.300s'", name);
    enum shoal_status status = base_alloc(COPY_BYTES, "a buffer for copying", (void **)&buffer);
    for (int64_t at = 0; status == SHOAL_OK && at < bytes;) {
        ssize_t got = pread(from, buffer, COPY_BYTES, at);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0) {
            status = base_error_errno(SHOAL_ERR_SYSTEM, got < 0 ? errno : EIO, "reading an object");
            break;
        }
        status = channel_write_all(fd, buffer, (size_t)got, at);
        at += got;
    }
    base_free(buffer);
    futimens(fd, times);
    close(fd);
    return status;
}

static enum shoal_status fetch(void *user, const struct s3_list_entry *object)
{
    struct fetching *fetching = user;
    const char *path = object->key + fetching->strip_bytes, *name;
    bool is_directory;
    int from, above;
    int64_t bytes, modified_ms;
    if (*path == '\0')
        return SHOAL_OK;
    if (s3_key_path_check(path, &is_directory) != S3_OK)
        return base_error(SHOAL_ERR_ARGUMENT, "the key '%.300s' can't be a file of a job",
                          object->key);
    if (is_directory)
        return SHOAL_OK;
    snprintf(fetching->uri.key, sizeof(fetching->uri.key), "%s", object->key);
    TRY(channel_bucket_open(fetching->job, &fetching->uri, &from, &bytes, &modified_ms));
    enum shoal_status status = channel_folder_above(fetching->folder_fd, path, &above, &name);
    if (status == SHOAL_OK) {
        status = copy_to(from, bytes, above, name, modified_ms);
        close(above);
    }
    close(from);
    channel_count(fetching->job, 1, bytes);
    return status;
}

static enum shoal_status fetch_all(struct channel_work *work, const struct channel_uri *uri,
                                   int host)
{
    int fd;
    TRY(channel_host_open(work->job, work->folder_fd, host, "", &fd));
    enum shoal_status status = channel_tree_remove(fd, CHANNEL_CHECKPOINTS);
    close(fd);
    TRY(status);
    TRY(channel_host_open(work->job, work->folder_fd, host, CHANNEL_CHECKPOINTS, &fd));
    struct fetching fetching = {
        .job = work->job, .uri = *uri, .strip_bytes = strlen(uri->key), .folder_fd = fd};
    status = channel_bucket_each(work->job, uri, fetch, &fetching);
    close(fd);
    return status;
}

enum shoal_status channel_checkpoints_put(struct channel_work *work)
{
    const char *place, *local;
    struct channel_uri uri;
    char from[CHANNEL_PATH_BYTES], to[CHANNEL_PATH_BYTES];
    if (!find_config(work->job, &place, &local))
        return SHOAL_OK;
    TRY(read_place(place, &uri));
    TRY(read_local(local, to));
    for (int i = 0; i < work->job->host_count; i++) {
        TRY(fetch_all(work, &uri, i));
        snprintf(from, sizeof(from), "%s/%s/" CHANNEL_CHECKPOINTS, work->job->folder,
                 work->job->hosts[i].name);
        TRY(channel_mount_add(work, i, from, to, "writable"));
    }
    return SHOAL_OK;
}

/* ---- to the bucket ---- */

static enum shoal_status uri_of(const struct channel_checkpoints *checkpoints, const char *path,
                                struct channel_uri *out)
{
    size_t used = strlen(checkpoints->uri.key), bytes = strlen(path);
    *out = checkpoints->uri;
    if (bytes >= sizeof(out->key) - used)
        return base_error(SHOAL_ERR_LIMIT, "the key of the checkpoint '%.300s' is too long", path);
    memcpy(out->key + used, path, bytes + 1);
    return SHOAL_OK;
}

/* Whether somebody has the file open for writing; *is_known is false where that can't be said. Who
 * opens it in this moment waits until the lease has gone, which is at once; the signal that tells
 * of it comes to this thread, which has it blocked. */
static bool has_writers(int fd, bool *is_known)
{
    struct f_owner_ex owner = {.type = F_OWNER_TID, .pid = gettid()};
    *is_known = true;
    if (fcntl(fd, F_SETOWN_EX, &owner) == 0 && fcntl(fd, F_SETLEASE, F_RDLCK) == 0) {
        fcntl(fd, F_SETLEASE, F_UNLCK);
        return false;
    }
    *is_known = errno == EAGAIN;
    return *is_known;
}

/* Puts a file if it is whole. `was_so` says that it is as it was a round ago. */
static enum shoal_status put_file(struct channel_checkpoints *checkpoints,
                                  const struct channel_entry *entry, bool was_so, bool *is_put)
{
    struct channel_uri uri;
    bool is_known;
    TRY(uri_of(checkpoints, entry->path, &uri));
    int fd = channel_open_kind(checkpoints->folders[entry->folder], entry->path, S_IFREG, O_RDONLY);
    if (fd < 0)
        return SHOAL_OK; /* gone, or something else now */
    enum shoal_status status = SHOAL_OK;
    if (!has_writers(fd, &is_known) && (is_known || was_so))
        status = channel_bucket_put_file(&checkpoints->job, &uri, fd, is_put);
    close(fd);
    return status;
}

/* Whether the bucket has the file, or a newer one. */
static bool is_in_bucket(struct channel_checkpoints *checkpoints, const struct channel_entry *entry)
{
    struct channel_uri uri;
    int64_t bytes, modified_ms;
    return uri_of(checkpoints, entry->path, &uri) == SHOAL_OK &&
           channel_bucket_find(&checkpoints->job, &uri, &bytes, &modified_ms) == SHOAL_OK &&
           modified_ms >= entry->modified_ms;
}

/* One file of the new list beside what was seen of it (NULL: nothing). */
static enum shoal_status compare_file(struct channel_checkpoints *checkpoints,
                                      const struct channel_entry *entry,
                                      const struct channel_entry *before, bool was_put,
                                      bool *is_put)
{
    bool was_so =
        before != NULL && before->bytes == entry->bytes && before->changed_ns == entry->changed_ns;
    *is_put = was_so && was_put;
    if (*is_put)
        return SHOAL_OK;
    if (before == NULL && is_in_bucket(checkpoints, entry)) {
        *is_put = true;
        return SHOAL_OK;
    }
    return put_file(checkpoints, entry, was_so, is_put);
}

/* Whether a sorted list has the path, on whichever host. */
static bool has_path(const struct channel_tree *tree, const char *path)
{
    struct channel_entry wanted = {.path = path, .folder = -1};
    size_t low = 0, high = tree->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (channel_entry_compare(&tree->entries[middle], &wanted) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return low < tree->count && strcmp(tree->entries[low].path, path) == 0;
}

static enum shoal_status forget_file(struct channel_checkpoints *checkpoints,
                                     const struct channel_tree *now,
                                     const struct channel_entry *before)
{
    struct channel_uri uri;
    if (!S_ISREG(before->mode) || has_path(now, before->path))
        return SHOAL_OK;
    TRY(uri_of(checkpoints, before->path, &uri));
    return channel_bucket_remove(&checkpoints->job, &uri);
}

/* Both lists side by side. Files that fail are left for the next round; *has_removed says whether
 * all keys that were to go have gone. */
static enum shoal_status compare(struct channel_checkpoints *checkpoints,
                                 const struct channel_tree *now, bool *is_put, bool *has_removed)
{
    const struct channel_tree *seen = &checkpoints->seen;
    size_t at = 0;
    enum shoal_status result = SHOAL_OK;
    *has_removed = true;
    for (size_t i = 0; i < now->count || at < seen->count;) {
        int order = i >= now->count ? 1
                    : at >= seen->count
                        ? -1
                        : channel_entry_compare(&now->entries[i], &seen->entries[at]);
        enum shoal_status status = SHOAL_OK;
        if (order > 0 && checkpoints->is_put[at])
            status = forget_file(checkpoints, now, &seen->entries[at]);
        if (order <= 0 && S_ISREG(now->entries[i].mode))
            status =
                compare_file(checkpoints, &now->entries[i], order == 0 ? &seen->entries[at] : NULL,
                             order == 0 && checkpoints->is_put[at], &is_put[i]);
        i += order <= 0;
        at += order >= 0;
        if (status != SHOAL_OK)
            result = status;
        if (status != SHOAL_OK && order > 0)
            *has_removed = false;
        if (status == SHOAL_ERR_ABORTED)
            break;
    }
    return result;
}

/* A folder that can't be read says nothing of what was removed: then nothing is done. */
static enum shoal_status list(const struct channel_checkpoints *checkpoints,
                              struct channel_tree *now)
{
    for (int i = 0; i < checkpoints->job.host_count; i++) {
        struct stat about;
        if (fstat(checkpoints->folders[i], &about) != 0 || about.st_nlink == 0)
            return base_error(SHOAL_ERR_STATE, "the folder of checkpoints of %s has gone",
                              checkpoints->job.hosts[i].name);
        TRY(channel_tree_add(now, checkpoints->folders[i], i));
    }
    channel_tree_sort(now);
    return SHOAL_OK;
}

static enum shoal_status do_round(struct channel_checkpoints *checkpoints)
{
    struct channel_tree now = {0};
    bool *is_put = NULL, has_removed;
    sigset_t io;
    sigemptyset(&io);
    sigaddset(&io, SIGIO); /* what a broken lease sends */
    pthread_sigmask(SIG_BLOCK, &io, NULL);
    enum shoal_status status = list(checkpoints, &now);
    if (status == SHOAL_OK)
        status = channel_known_write(&checkpoints->known, checkpoints->folder_fd, &now,
                                     &checkpoints->seen, checkpoints->is_put);
    if (status == SHOAL_OK)
        status = BASE_NEW_ARRAY(&is_put, now.count + 1, "marks of checkpoints");
    if (status != SHOAL_OK) {
        channel_tree_release(&now);
        return status;
    }
    status = compare(checkpoints, &now, is_put, &has_removed);
    if (!has_removed) { /* the list that knows of it stays */
        channel_tree_release(&now);
        base_free(is_put);
        return status;
    }
    channel_tree_release(&checkpoints->seen);
    base_free(checkpoints->is_put);
    checkpoints->seen = now;
    checkpoints->is_put = is_put;
    return status;
}

/* ---- the thread ---- */

static void release(struct channel_checkpoints *checkpoints)
{
    for (int i = 0; i < checkpoints->job.host_count; i++) {
        if (checkpoints->folders[i] >= 0)
            close(checkpoints->folders[i]);
    }
    if (checkpoints->folder_fd >= 0)
        close(checkpoints->folder_fd);
    channel_clients_release(&checkpoints->clients);
    channel_known_release(&checkpoints->known);
    channel_tree_release(&checkpoints->seen);
    base_free(checkpoints->is_put);
    base_free(checkpoints);
}

/* What the process before this one has seen. A folder that somebody has removed tells nothing. */
static enum shoal_status known_take(struct channel_checkpoints *checkpoints)
{
    const struct channel_job *job = &checkpoints->job;
    char path[CHANNEL_PATH_BYTES];
    for (int i = 0; i < job->host_count; i++) {
        snprintf(path, sizeof(path), "%s/" CHANNEL_CHECKPOINTS, job->hosts[i].name);
        if (faccessat(checkpoints->folder_fd, path, F_OK, AT_SYMLINK_NOFOLLOW) != 0)
            return SHOAL_OK;
    }
    TRY(channel_known_read(checkpoints->folder_fd, &checkpoints->seen));
    channel_tree_sort(&checkpoints->seen);
    TRY(BASE_NEW_ARRAY(&checkpoints->is_put, checkpoints->seen.count + 1, "marks of checkpoints"));
    memset(checkpoints->is_put, true, checkpoints->seen.count);
    return SHOAL_OK;
}

static enum shoal_status folders_open(struct channel_checkpoints *checkpoints, const char *place)
{
    const struct channel_job *job = &checkpoints->job;
    checkpoints->folder_fd = open(job->folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (checkpoints->folder_fd < 0)
        return base_error_errno(SHOAL_ERR_SYSTEM, errno, "opening %s", job->folder);
    TRY(read_place(place, &checkpoints->uri));
    TRY(known_take(checkpoints));
    for (int i = 0; i < job->host_count; i++)
        TRY(channel_host_open(job, checkpoints->folder_fd, i, CHANNEL_CHECKPOINTS,
                              &checkpoints->folders[i]));
    return SHOAL_OK;
}

/* *out is NULL where there is nothing to do. */
static enum shoal_status create(const struct channel_job *job, struct channel_checkpoints **out)
{
    const char *place, *local;
    struct channel_checkpoints *checkpoints;
    *out = NULL;
    if (!find_config(job, &place, &local))
        return SHOAL_OK;
    TRY(BASE_NEW(&checkpoints, "a job's checkpoints"));
    channel_clients_open(job, &checkpoints->clients, &checkpoints->job);
    checkpoints->job.control = &checkpoints->control;
    memset(checkpoints->folders, -1, sizeof(checkpoints->folders));
    enum shoal_status status = folders_open(checkpoints, place);
    if (status != SHOAL_OK) {
        release(checkpoints);
        return status;
    }
    *out = checkpoints;
    return SHOAL_OK;
}

/* Whether it is time to end. */
static bool sleep_for(struct channel_checkpoints *checkpoints, int64_t ms)
{
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += ms / 1000;
    until.tv_nsec += ms % 1000 * 1000000;
    if (until.tv_nsec >= 1000000000) {
        until.tv_sec++;
        until.tv_nsec -= 1000000000;
    }
    pthread_mutex_lock(&checkpoints->lock);
    int result = 0;
    while (!checkpoints->is_ending && result == 0)
        result = pthread_cond_timedwait(&checkpoints->changed, &checkpoints->lock, &until);
    bool is_ending = checkpoints->is_ending;
    pthread_mutex_unlock(&checkpoints->lock);
    return is_ending;
}

static void *run(void *user)
{
    struct channel_checkpoints *checkpoints = user;
    char said[BASE_ERROR_TEXT_BYTES] = "";
    int64_t pause_ms = ROUND_MS;
    while (!sleep_for(checkpoints, pause_ms)) {
        int64_t start_ns = base_now_ns();
        enum shoal_status status = do_round(checkpoints);
        if (status != SHOAL_OK && status != SHOAL_ERR_ABORTED &&
            strcmp(said, base_error_text()) != 0) {
            snprintf(said, sizeof(said), "%s", base_error_text());
            base_log(BASE_LOG_ERROR, "checkpoints of job %s: %s", checkpoints->job.name, said);
        }
        int64_t taken_ms = (base_now_ns() - start_ns) / BASE_NS_PER_MS;
        pause_ms = taken_ms * ROUND_SHARE > ROUND_MS ? taken_ms * ROUND_SHARE : ROUND_MS;
    }
    return NULL;
}

enum shoal_status channel_checkpoints_start(const struct channel_job *job,
                                            struct channel_checkpoints **out)
{
    struct channel_checkpoints *checkpoints;
    pthread_condattr_t clock;
    TRY(create(job, &checkpoints));
    *out = NULL;
    if (checkpoints == NULL)
        return SHOAL_OK;
    pthread_mutex_init(&checkpoints->lock, NULL);
    pthread_condattr_init(&clock);
    pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
    pthread_cond_init(&checkpoints->changed, &clock);
    pthread_condattr_destroy(&clock);
    int number = pthread_create(&checkpoints->thread, NULL, run, checkpoints);
    if (number != 0) {
        release(checkpoints);
        return base_error_errno(SHOAL_ERR_SYSTEM, number, "starting a thread for checkpoints");
    }
    *out = checkpoints;
    return SHOAL_OK;
}

void channel_checkpoints_end(struct channel_checkpoints *checkpoints, bool job_has_ended)
{
    if (checkpoints == NULL)
        return;
    if (!job_has_ended)
        atomic_store(&checkpoints->control.is_cancelled, true);
    pthread_mutex_lock(&checkpoints->lock);
    checkpoints->is_ending = true;
    pthread_cond_signal(&checkpoints->changed);
    pthread_mutex_unlock(&checkpoints->lock);
    pthread_join(checkpoints->thread, NULL);
    if (job_has_ended && do_round(checkpoints) != SHOAL_OK)
        base_log(BASE_LOG_ERROR, "checkpoints of job %s: %s", checkpoints->job.name,
                 base_error_text());
    pthread_cond_destroy(&checkpoints->changed);
    pthread_mutex_destroy(&checkpoints->lock);
    release(checkpoints);
}

/* Nobody writes any more, so two rounds are as good as any number. */
enum shoal_status channel_checkpoints_flush(const struct channel_job *job)
{
    struct channel_checkpoints *checkpoints;
    TRY(create(job, &checkpoints));
    if (checkpoints == NULL)
        return SHOAL_OK;
    enum shoal_status status = do_round(checkpoints);
    if (status == SHOAL_OK)
        status = do_round(checkpoints);
    release(checkpoints);
    return status;
}
