/* SPDX-License-Identifier: Apache-2.0 */
/*
 * peers.c: launchers of one job tell each other of failures and ends.
 *
 * The thread looks at the store in short waits, between which it does what the loop has asked for.
 * What both touch stands under one lock; news go through a pipe, one byte each.
 */
#include "launch/peers.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/memory.h"
#include "base/status.h"
#include "boot/store.h"
#include "launch/process.h"

#define FAILED_KEY   "launch/failed"
#define ENDED_PREFIX "launch/ended/"
#define LOOK_MS      100
#define CONNECT_MS   500 /* of one try, so that a stop is seen */
#define VALUE_BYTES  (LAUNCH_PEERS_TEXT_BYTES + 16)

struct launch_peers {
    pthread_t thread;
    int news[2]; /* pipe */
    char store_address[512];
    unsigned char secret[32];
    int index, count;
    int64_t deadline_ns;

    pthread_mutex_t lock; /* for all below */
    bool stop, ended;
    bool publish; /* a failure of this launcher's waits to be told */
    int64_t patience_ns;
    char failure[VALUE_BYTES]; /* what is to be told */
    char news_text[VALUE_BYTES];
};

struct wishes {
    bool stop, ended, publish;
    int64_t patience_ns;
    char failure[VALUE_BYTES];
};

static void wishes_take(struct launch_peers *peers, struct wishes *out)
{
    pthread_mutex_lock(&peers->lock);
    out->stop = peers->stop;
    out->ended = peers->ended;
    out->publish = peers->publish;
    out->patience_ns = peers->patience_ns;
    memcpy(out->failure, peers->failure, sizeof(out->failure));
    peers->publish = false;
    pthread_mutex_unlock(&peers->lock);
}

static void news_put(struct launch_peers *peers, enum launch_peers_news news, const char *text)
{
    unsigned char byte = (unsigned char)news;
    pthread_mutex_lock(&peers->lock);
    if (news == LAUNCH_PEERS_FAILED)
        snprintf(peers->news_text, sizeof(peers->news_text), "%s", text);
    pthread_mutex_unlock(&peers->lock);
    while (write(peers->news[1], &byte, 1) < 0 && errno == EINTR)
        continue;
}

/* ---- the thread ---- */

static void lost_put(struct launch_peers *peers)
{
    char text[VALUE_BYTES];
    snprintf(text, sizeof(text), "%d the launcher of the first host does not answer: %s",
             LAUNCH_EXIT_LAUNCH, base_error_text());
    news_put(peers, LAUNCH_PEERS_FAILED, text);
    news_put(peers, LAUNCH_PEERS_OVER, "");
}

static enum shoal_status store_connect(struct launch_peers *peers, struct boot_store **out)
{
    struct wishes wishes;
    enum shoal_status status;
    do {
        int64_t try_ns = base_deadline_ns(CONNECT_MS);
        bool last = try_ns >= peers->deadline_ns;
        status = boot_store_connect(peers->store_address, peers->secret,
                                    last ? peers->deadline_ns : try_ns, out);
        wishes_take(peers, &wishes);
        if (status == SHOAL_OK || last || wishes.stop || wishes.ended)
            break;
    } while (status != SHOAL_ERR_PEER_REFUSED);
    return status;
}

/* Tells the failure once. SHOAL_ERR_RANK_TAKEN: another was first. */
static enum shoal_status failure_publish(struct boot_store *store, const struct wishes *wishes)
{
    enum shoal_status status =
        boot_store_set(store, FAILED_KEY, wishes->failure, strlen(wishes->failure) + 1);
    return status == SHOAL_ERR_RANK_TAKEN ? SHOAL_OK : status;
}

/* Looks for a failure that somebody has told. */
static enum shoal_status failure_look(struct launch_peers *peers, struct boot_store *store,
                                      bool *seen)
{
    char text[VALUE_BYTES];
    size_t bytes = sizeof(text) - 1;
    enum shoal_status status =
        boot_store_get(store, FAILED_KEY, text, &bytes, base_deadline_ns(LOOK_MS));
    if (status == SHOAL_ERR_TIMEOUT)
        return SHOAL_OK;
    TRY(status);
    text[bytes] = '\0';
    *seen = true;
    news_put(peers, LAUNCH_PEERS_FAILED, text);
    return SHOAL_OK;
}

static enum shoal_status all_ended(struct boot_store *store, int count, bool *ended)
{
    void *block = NULL;
    const void **values = NULL;
    size_t *sizes = NULL;
    TRY(BASE_NEW_ARRAY(&values, count, "the launchers that have ended"));
    enum shoal_status status = BASE_NEW_ARRAY(&sizes, count, "the launchers that have ended");
    if (status == SHOAL_OK)
        status = boot_store_gather(store, ENDED_PREFIX, count, base_deadline_ns(LOOK_MS), &block,
                                   values, sizes);
    *ended = status == SHOAL_OK;
    base_free(block);
    base_free(values);
    base_free(sizes);
    return status == SHOAL_ERR_TIMEOUT ? SHOAL_OK : status;
}

static enum shoal_status end_tell(const struct launch_peers *peers, struct boot_store *store)
{
    char key[BOOT_KEY_BYTES];
    snprintf(key, sizeof(key), ENDED_PREFIX "%d", peers->index);
    return boot_store_set(store, key, "", 1);
}

/* What the loop has asked for; *over when that is all there was to do. */
static enum shoal_status wishes_serve(struct launch_peers *peers, struct boot_store *store,
                                      const struct wishes *wishes, bool *told, bool *over)
{
    if (wishes->publish)
        TRY(failure_publish(store, wishes));
    if (wishes->ended && !*told)
        TRY(end_tell(peers, store));
    *told = wishes->ended;
    if (wishes->ended && peers->index > 0) /* from here on the store may go away */
        *over = true;
    else if (wishes->ended)
        TRY(all_ended(store, peers->count, over));
    *over = *over || base_now_ns() >= wishes->patience_ns;
    return SHOAL_OK;
}

static enum shoal_status talk(struct launch_peers *peers, struct boot_store *store)
{
    struct wishes wishes;
    bool seen = false, told = false, over = false;
    news_put(peers, LAUNCH_PEERS_READY, "");
    for (;;) {
        wishes_take(peers, &wishes);
        if (wishes.stop)
            return SHOAL_OK;
        TRY(wishes_serve(peers, store, &wishes, &told, &over));
        if (over)
            break;
        seen = seen || *wishes.failure != '\0';
        if (!seen)
            TRY(failure_look(peers, store, &seen));
        else
            base_sleep_ms(LOOK_MS);
    }
    news_put(peers, LAUNCH_PEERS_OVER, "");
    return SHOAL_OK;
}

static void *thread_main(void *argument)
{
    struct launch_peers *peers = argument;
    struct boot_store *store = NULL;
    enum shoal_status status = store_connect(peers, &store);
    if (status == SHOAL_OK)
        status = talk(peers, store);
    if (status != SHOAL_OK)
        lost_put(peers);
    boot_store_close(store);
    return NULL;
}

/* ---- the launcher's side ---- */

enum shoal_status launch_peers_open(const char *store, const unsigned char *secret, int index,
                                    int count, int64_t deadline_ns, struct launch_peers **out)
{
    struct launch_peers *peers = NULL;
    TRY(BASE_NEW(&peers, "the other launchers"));
    *peers = (struct launch_peers){.index = index,
                                   .count = count,
                                   .deadline_ns = deadline_ns,
                                   .patience_ns = BASE_NO_DEADLINE};
    snprintf(peers->store_address, sizeof(peers->store_address), "%s", store);
    memcpy(peers->secret, secret, sizeof(peers->secret));
    pthread_mutex_init(&peers->lock, NULL);
    int error_number = pipe2(peers->news, O_CLOEXEC | O_NONBLOCK) == 0 ? 0 : errno;
    if (error_number == 0) {
        error_number = pthread_create(&peers->thread, NULL, thread_main, peers);
        if (error_number == 0) {
            *out = peers;
            return SHOAL_OK;
        }
        close(peers->news[0]);
        close(peers->news[1]);
    }
    pthread_mutex_destroy(&peers->lock);
    base_free(peers);
    return base_error_errno(SHOAL_ERR_SYSTEM, error_number, "a thread for the other launchers");
}

int launch_peers_fd(const struct launch_peers *peers)
{
    return peers->news[0];
}

enum launch_peers_news launch_peers_take(struct launch_peers *peers, int *exit_code, char *text,
                                         size_t capacity)
{
    unsigned char byte = LAUNCH_PEERS_NONE;
    if (read(peers->news[0], &byte, 1) != 1)
        return LAUNCH_PEERS_NONE;
    if (byte == LAUNCH_PEERS_FAILED) {
        char *end = NULL;
        pthread_mutex_lock(&peers->lock);
        *exit_code = (int)strtol(peers->news_text, &end, 10);
        snprintf(text, capacity, "%s", *end == ' ' ? end + 1 : end);
        pthread_mutex_unlock(&peers->lock);
    }
    return (enum launch_peers_news)byte;
}

void launch_peers_fail(struct launch_peers *peers, int exit_code, const char *text)
{
    pthread_mutex_lock(&peers->lock);
    if (*peers->failure == '\0') {
        snprintf(peers->failure, sizeof(peers->failure), "%d %.*s", exit_code,
                 LAUNCH_PEERS_TEXT_BYTES - 1, text);
        peers->publish = true;
    }
    pthread_mutex_unlock(&peers->lock);
}

void launch_peers_end(struct launch_peers *peers, int exit_code, const char *text,
                      int64_t patience_ms)
{
    if (exit_code != 0)
        launch_peers_fail(peers, exit_code, text);
    pthread_mutex_lock(&peers->lock);
    peers->ended = true;
    if (exit_code != 0)
        peers->patience_ns = base_deadline_ns(patience_ms);
    pthread_mutex_unlock(&peers->lock);
}

void launch_peers_close(struct launch_peers *peers)
{
    if (peers == NULL)
        return;
    pthread_mutex_lock(&peers->lock);
    peers->stop = true;
    pthread_mutex_unlock(&peers->lock);
    pthread_join(peers->thread, NULL);
    close(peers->news[0]);
    close(peers->news[1]);
    pthread_mutex_destroy(&peers->lock);
    base_free(peers);
}
