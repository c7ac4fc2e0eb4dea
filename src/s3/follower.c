/* SPDX-License-Identifier: Apache-2.0 */
/*
 * follower.c: counts what a writer leaves behind it.
 *
 * Who finds the follower untaken and something to do takes it and queues its task; the task gives
 * it back, under the lock, when it has caught up. After the end was asked for nobody gives it back.
 */
#include "s3/follower.h"

#include <errno.h>
#include <stdio.h>
#include <unistd.h>

#include "base/status.h"

#define STEP_BYTES (INT64_C(512) << 10) /* less is not worth a task */
#define RUN_BYTES  (INT64_C(4) << 20)   /* of one */
#define READ_BYTES (64 << 10)

static void follow(struct s3_task *task);

void s3_follower_init(struct s3_follower *follower, struct s3_workers *workers,
                      struct s3_digest *digest, int fd, int64_t start)
{
    *follower = (struct s3_follower){.task.run = follow,
                                     .workers = workers,
                                     .digest = digest,
                                     .fd = fd,
                                     .start = start,
                                     .code = S3_OK};
    pthread_mutex_init(&follower->lock, NULL);
}

static enum s3_code bytes_count(struct s3_follower *follower, int64_t until)
{
    char buffer[READ_BYTES];
    while (follower->done < until) {
        int64_t left = until - follower->done;
        ssize_t got = pread(follower->fd, buffer, left < READ_BYTES ? (size_t)left : READ_BYTES,
                            follower->start + follower->done);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return s3_error_errno(got < 0 ? errno : EIO, "can't read an object's file again");
        S3_TRY(s3_digest_add(follower->digest, buffer, (size_t)got));
        follower->done += got;
    }
    return S3_OK;
}

enum s3_code s3_follower_code(const struct s3_follower *follower)
{
    return follower->code == S3_OK ? S3_OK : s3_error(follower->code, "%s", follower->text);
}

/* With the lock: whether there is enough to do for a task. */
static bool has_work(const struct s3_follower *follower)
{
    int64_t behind = follower->written - follower->done;
    if (follower->code != S3_OK)
        return follower->end != NULL;
    return follower->end != NULL || behind >= STEP_BYTES;
}

static void follow(struct s3_task *task)
{
    struct s3_follower *follower = (struct s3_follower *)task;
    pthread_mutex_lock(&follower->lock);
    int64_t written = follower->written, until = follower->done + RUN_BYTES;
    bool is_over = follower->end != NULL && !follower->wants_all;
    pthread_mutex_unlock(&follower->lock);
    if (!is_over && follower->code == S3_OK) {
        follower->code = bytes_count(follower, until < written ? until : written);
        if (follower->code != S3_OK)
            snprintf(follower->text, sizeof(follower->text), "%s", base_error_text());
    }
    pthread_mutex_lock(&follower->lock);
    bool is_done = follower->code != S3_OK || follower->done == follower->written;
    void (*end)(void *user) = is_done || !follower->wants_all ? follower->end : NULL;
    void *user = follower->user;
    follower->is_taken = end != NULL || has_work(follower);
    bool goes_on = end == NULL && follower->is_taken;
    struct s3_workers *workers = follower->workers;
    pthread_mutex_unlock(&follower->lock);
    if (end != NULL) {
        pthread_mutex_destroy(&follower->lock);
        end(user);
    } else if (goes_on) {
        s3_workers_submit(workers, &follower->task);
    }
}

void s3_follower_wrote(struct s3_follower *follower, int64_t written)
{
    pthread_mutex_lock(&follower->lock);
    follower->written = written;
    bool takes = !follower->is_taken && has_work(follower);
    follower->is_taken = follower->is_taken || takes;
    pthread_mutex_unlock(&follower->lock);
    if (takes)
        s3_workers_submit(follower->workers, &follower->task);
}

void s3_follower_end(struct s3_follower *follower, bool all, void (*end)(void *user), void *user)
{
    pthread_mutex_lock(&follower->lock);
    follower->wants_all = all;
    follower->end = end;
    follower->user = user;
    bool takes = !follower->is_taken;
    follower->is_taken = true;
    pthread_mutex_unlock(&follower->lock);
    if (takes)
        s3_workers_submit(follower->workers, &follower->task);
}
