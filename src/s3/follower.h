/* SPDX-License-Identifier: Apache-2.0 */
/*
 * follower.h: the digests of files that are being written, counted behind their writers.
 *
 * MD5 takes most of the time of a large PUT, and one body's can't be shared among cores. So the
 * connection's thread only receives and writes, and the store's workers read what was written,
 * which is still in memory, and count it: of up to S3_MD5_LANES bodies side by side, in little more
 * time than one takes. A SHA has a worker of its own. Each time for half a MiB, so that syncs of
 * other files don't wait long.
 */
#ifndef SHOAL_S3_FOLLOWER_H
#define SHOAL_S3_FOLLOWER_H

#include <pthread.h>

#include "s3/digest.h"
#include "s3/workers.h"

#define S3_CREWS 4 /* workers that count at one time */

/* Of a store. */
struct s3_followers {
    struct s3_workers *workers;
    pthread_mutex_t lock; /* of all below, and of what followers say */
    struct s3_follower *first, **last;
    int waiting_lanes, running_crews, begun_crews;
    struct s3_crew {
        struct s3_task task; /* first, as tasks are */
        struct s3_followers *followers;
        bool is_running;
    } crews[S3_CREWS];
};

struct s3_follower {
    struct s3_task task; /* first, as tasks are */
    struct s3_followers *followers;
    struct s3_follower *next;
    struct s3_digest *digest;
    int fd;
    int64_t start, done; /* where the body begins; how much of it is counted */
    enum s3_code code;   /* how reading failed, with its text */
    char text[256];
    /* With the lock: */
    int64_t written;
    bool is_taken; /* a crew has it, or will */
    bool wants_all;
    void (*end)(void *user);
    void *user;
};

void s3_followers_init(struct s3_followers *followers, struct s3_workers *workers);

/* Borrows digest and fd until it has ended. */
void s3_follower_init(struct s3_follower *follower, struct s3_followers *followers,
                      struct s3_digest *digest, int fd, int64_t start);
/* So much of the body is in the file. */
void s3_follower_wrote(struct s3_follower *follower, int64_t written);
/* Calls `end` once, on a worker: when everything is counted, or, without `all`, soon. Nothing
 * touches the follower any more then. */
void s3_follower_end(struct s3_follower *follower, bool all, void (*end)(void *user), void *user);
/* S3_OK, or why the digest is none. */
enum s3_code s3_follower_code(const struct s3_follower *follower);

#endif
