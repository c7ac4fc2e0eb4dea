/* SPDX-License-Identifier: Apache-2.0 */
/*
 * follower.c: counts what writers leave behind them.
 *
 * Who finds a follower untaken and something to do takes it: it waits in the queue then. A crew, a
 * task of the workers, takes as many as there are lanes, counts a piece of each, and gives them
 * back, those with more to do to the end of the queue. While few wait there is one crew: they
 * gather while it counts, so that lanes are full where they are needed. After its end was asked for
 * a follower stays taken until that has come.
 */
#include "s3/follower.h"

#include <errno.h>
#include <stdio.h>
#include <unistd.h>

#include "base/status.h"

#define PIECE_BYTES (INT64_C(512) << 10) /* counted at a time; less is not worth a task */
#define READ_BYTES  (32 << 10)

/* ---- the queue; all with the lock ---- */

static int lanes_of(const struct s3_follower *follower)
{
    return follower->digest->sha != NULL ? S3_MD5_LANES : 1;
}

static void crew_run(struct s3_task *task);

/* One that has begun has not taken anything yet. */
static void crew_begin(struct s3_followers *followers)
{
    for (int i = 0; i < S3_CREWS; i++) {
        struct s3_crew *crew = &followers->crews[i];
        if (crew->is_running)
            continue;
        *crew = (struct s3_crew){.task.run = crew_run, .followers = followers, .is_running = true};
        followers->running_crews++;
        followers->begun_crews++;
        s3_workers_submit(followers->workers, &crew->task);
        return;
    }
}

static void crews_begin(struct s3_followers *followers)
{
    while (followers->waiting_lanes / S3_MD5_LANES > followers->begun_crews &&
           followers->running_crews < S3_CREWS)
        crew_begin(followers);
    if (followers->waiting_lanes > 0 && followers->running_crews == 0)
        crew_begin(followers);
}

static void enqueue(struct s3_follower *follower)
{
    struct s3_followers *followers = follower->followers;
    follower->is_taken = true;
    follower->next = NULL;
    *followers->last = follower;
    followers->last = &follower->next;
    followers->waiting_lanes += lanes_of(follower);
}

/* Whether there is enough to do for a crew. */
static bool has_work(const struct s3_follower *follower)
{
    int64_t behind = follower->written - follower->done;
    return follower->end != NULL || (follower->code == S3_OK && behind >= PIECE_BYTES);
}

static void take(struct s3_follower *follower)
{
    if (follower->is_taken || !has_work(follower))
        return;
    enqueue(follower);
    crews_begin(follower->followers);
}

/* ---- crews ---- */

struct member {
    struct s3_follower *follower;
    int64_t until;
    char buffer[READ_BYTES];
};

static void failed(struct s3_follower *follower, enum s3_code code)
{
    follower->code = code;
    snprintf(follower->text, sizeof(follower->text), "%s", base_error_text());
}

/* The next bytes of the file; 0: the member has what it wanted. */
static size_t member_read(struct member *member)
{
    struct s3_follower *follower = member->follower;
    int64_t left = follower->code == S3_OK ? member->until - follower->done : 0;
    ssize_t got = 0;
    if (left <= 0)
        return 0;
    do
        got = pread(follower->fd, member->buffer, left < READ_BYTES ? (size_t)left : READ_BYTES,
                    follower->start + follower->done);
    while (got < 0 && errno == EINTR);
    if (got > 0)
        return (size_t)got;
    failed(follower, s3_error_errno(got < 0 ? errno : EIO, "can't read an object's file again"));
    return 0;
}

/* Reads a little of each, and counts it; false if nobody has anything. */
static bool members_count(struct member *members, int count)
{
    struct s3_digest_piece pieces[S3_MD5_LANES];
    struct s3_follower *owners[S3_MD5_LANES];
    int found = 0;
    for (int i = 0; i < count; i++) {
        size_t bytes = member_read(&members[i]);
        if (bytes == 0)
            continue;
        owners[found] = members[i].follower;
        pieces[found++] = (struct s3_digest_piece){
            .digest = members[i].follower->digest, .data = members[i].buffer, .bytes = bytes};
    }
    s3_digest_add_all(pieces, found);
    for (int i = 0; i < found; i++) {
        owners[i]->done += (int64_t)pieces[i].bytes;
        if (pieces[i].code != S3_OK)
            failed(owners[i], pieces[i].code);
    }
    return found > 0;
}

/* With the lock. Those that end without everything have nothing to do. */
static int members_take(struct s3_followers *followers, struct member *members)
{
    int count = 0, lanes = 0;
    while (followers->first != NULL && lanes + lanes_of(followers->first) <= S3_MD5_LANES) {
        struct s3_follower *follower = followers->first;
        int64_t until = follower->done + PIECE_BYTES;
        followers->first = follower->next;
        lanes += lanes_of(follower);
        if (follower->end != NULL && !follower->wants_all)
            until = 0;
        members[count].follower = follower;
        members[count++].until = until < follower->written ? until : follower->written;
    }
    if (followers->first == NULL)
        followers->last = &followers->first;
    followers->waiting_lanes -= lanes;
    followers->begun_crews--;
    return count;
}

static void ended(struct s3_task *task)
{
    struct s3_follower *follower = (struct s3_follower *)task;
    follower->end(follower->user);
}

/* With the lock. What comes at the end may take long, so it is another task. */
static void member_give(struct s3_follower *follower)
{
    bool is_done = follower->code != S3_OK || follower->done == follower->written;
    follower->is_taken = false;
    if (follower->end != NULL && (is_done || !follower->wants_all)) {
        follower->is_taken = true;
        follower->task.run = ended;
        s3_workers_submit(follower->followers->workers, &follower->task);
    } else if (has_work(follower)) {
        enqueue(follower);
    }
}

static void crew_run(struct s3_task *task)
{
    struct s3_crew *crew = (struct s3_crew *)task;
    struct s3_followers *followers = crew->followers;
    struct member members[S3_MD5_LANES];
    pthread_mutex_lock(&followers->lock);
    int count = members_take(followers, members);
    pthread_mutex_unlock(&followers->lock);
    while (members_count(members, count))
        ;
    pthread_mutex_lock(&followers->lock);
    for (int i = 0; i < count; i++)
        member_give(members[i].follower);
    crew->is_running = false;
    followers->running_crews--;
    crews_begin(followers);
    pthread_mutex_unlock(&followers->lock);
}

/* ---- followers ---- */

void s3_followers_init(struct s3_followers *followers, struct s3_workers *workers)
{
    followers->workers = workers;
    followers->last = &followers->first;
    pthread_mutex_init(&followers->lock, NULL);
}

void s3_follower_init(struct s3_follower *follower, struct s3_followers *followers,
                      struct s3_digest *digest, int fd, int64_t start)
{
    *follower = (struct s3_follower){
        .followers = followers, .digest = digest, .fd = fd, .start = start, .code = S3_OK};
}

enum s3_code s3_follower_code(const struct s3_follower *follower)
{
    return follower->code == S3_OK ? S3_OK : s3_error(follower->code, "%s", follower->text);
}

void s3_follower_wrote(struct s3_follower *follower, int64_t written)
{
    pthread_mutex_lock(&follower->followers->lock);
    follower->written = written;
    take(follower);
    pthread_mutex_unlock(&follower->followers->lock);
}

void s3_follower_end(struct s3_follower *follower, bool all, void (*end)(void *user), void *user)
{
    struct s3_followers *followers = follower->followers;
    pthread_mutex_lock(&followers->lock);
    follower->wants_all = all;
    follower->end = end;
    follower->user = user;
    take(follower);
    pthread_mutex_unlock(&followers->lock);
}
