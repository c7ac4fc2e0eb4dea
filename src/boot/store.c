/* SPDX-License-Identifier: Apache-2.0 */
/*
 * store.c: the store as its users see it: our own server over a connection, or the caller's own
 * store over its functions.
 *
 * A request that times out is withdrawn by the next one (store_wire.h), so the store stays usable:
 * after a failed start a rank still wants to say why. An answer that stops in the middle, though,
 * ends the connection.
 */
#include "boot/store.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/memory.h"
#include "base/options.h"
#include "base/status.h"
#include "boot/store_link.h"
#include "boot/store_wire.h"

#define MISSING_SHOWN_MAX 16
#define MISSING_ASK_MS    2000
#define USER_PROBE_MS     10 /* per key, when the caller's store is asked what is missing */
#define USER_PROBES_MAX   64
#define GATHER_BYTES_MAX  ((size_t)256 << 20)
#define FIRST_VALUE_BYTES 1024

struct boot_store {
    const struct shoal_store *user; /* NULL: our own server */
    int fd;                         /* -1: lost */
    uint32_t number;                /* of the last request */
    char address[512];
};

/* ---- opening --------------------------------------------------------------------------------- */

enum shoal_status boot_store_connect(const char *address, const unsigned char *secret,
                                     int64_t deadline_ns, struct boot_store **out)
{
    struct boot_store *store;
    TRY(BASE_NEW(&store, "a store's client"));
    snprintf(store->address, sizeof(store->address), "%s", address);
    enum shoal_status status = store_link_open(address, secret, deadline_ns, &store->fd);
    if (status != SHOAL_OK) {
        base_free(store);
        return status;
    }
    *out = store;
    return SHOAL_OK;
}

enum shoal_status boot_store_wrap(const struct shoal_store *user, struct boot_store **out)
{
    if (user->struct_bytes < sizeof(*user) || user->set == NULL || user->get == NULL)
        return base_error(SHOAL_ERR_ARGUMENT,
                          "a shoal_store needs struct_bytes, set and get to be filled in");
    struct boot_store *store;
    TRY(BASE_NEW(&store, "a store's client"));
    store->user = user;
    store->fd = -1;
    *out = store;
    return SHOAL_OK;
}

void boot_store_close(struct boot_store *store)
{
    if (store == NULL)
        return;
    if (store->fd >= 0) {
        shutdown(store->fd, SHUT_RDWR); /* also where a forked child has a copy */
        close(store->fd);
    }
    base_free(store);
}

/* ---- requests to our own server -------------------------------------------------------------- */

/* Where an answer's value goes: a buffer of the caller's, or, with allocate, a block. */
struct answer_place {
    bool allocate;
    void *data;
    size_t capacity;
    size_t bytes; /* of the value, also when it did not fit */
};

/* The stream has lost its place: nothing more can be said on it. */
static enum shoal_status give_up(struct boot_store *store, enum shoal_status status)
{
    close(store->fd);
    store->fd = -1;
    return base_error_context(status, "store at %s", store->address);
}

static enum shoal_status skip(int fd, size_t bytes, int64_t deadline_ns)
{
    char scrap[4096];
    while (bytes > 0) {
        size_t part = bytes < sizeof(scrap) ? bytes : sizeof(scrap);
        TRY(store_link_receive(fd, scrap, part, deadline_ns));
        bytes -= part;
    }
    return SHOAL_OK;
}

static enum shoal_status receive_value(int fd, size_t bytes, struct answer_place *place,
                                       int64_t deadline_ns)
{
    place->bytes = bytes;
    if (bytes > GATHER_BYTES_MAX)
        return base_error(SHOAL_ERR_FORMAT, "an answer of %zu bytes", bytes);
    if (place->allocate) {
        void *block;
        TRY(base_alloc(bytes, "an answer of the store", &block));
        enum shoal_status status = store_link_receive(fd, block, bytes, deadline_ns);
        if (status != SHOAL_OK) {
            base_free(block);
            return status;
        }
        place->data = block;
        return SHOAL_OK;
    }
    if (bytes > place->capacity)
        return skip(fd, bytes, deadline_ns);
    return store_link_receive(fd, place->data, bytes, deadline_ns);
}

static enum shoal_status send_request(struct boot_store *store, enum store_operation operation,
                                      const char *key, const void *value, size_t value_bytes,
                                      uint32_t count, int64_t deadline_ns)
{
    unsigned char head[STORE_REQUEST_BYTES + BOOT_KEY_BYTES];
    size_t key_bytes = strlen(key);
    store_put(head, ++store->number);
    store_put(head + 4, (uint32_t)operation);
    store_put(head + 8, (uint32_t)key_bytes);
    store_put(head + 12, (uint32_t)value_bytes);
    store_put(head + 16, count);
    memcpy(head + STORE_REQUEST_BYTES, key, key_bytes);
    TRY(store_link_send(store->fd, head, STORE_REQUEST_BYTES + key_bytes, deadline_ns));
    return store_link_send(store->fd, value, value_bytes, deadline_ns);
}

/* Receives answers until this request's; a timeout before its first byte is not a loss. */
static enum shoal_status receive_answer(struct boot_store *store, struct answer_place *place,
                                        int64_t deadline_ns, enum store_result *result, bool *lost)
{
    for (;;) {
        unsigned char head[STORE_ANSWER_BYTES];
        *lost = false;
        TRY(store_link_wait(store->fd, deadline_ns));
        *lost = true;
        /* What has begun gets time to end, even at the deadline. */
        int64_t end_ns = base_deadline_ns(MISSING_ASK_MS);
        if (end_ns < deadline_ns)
            end_ns = deadline_ns;
        TRY(store_link_receive(store->fd, head, sizeof(head), end_ns));
        size_t bytes = store_get(head + 8);
        if (store_get(head) != store->number) {
            TRY(skip(store->fd, bytes, end_ns));
            continue;
        }
        *result = (enum store_result)store_get(head + 4);
        return receive_value(store->fd, bytes, place, end_ns);
    }
}

static enum shoal_status ask(struct boot_store *store, enum store_operation operation,
                             const char *key, const void *value, size_t value_bytes, uint32_t count,
                             int64_t deadline_ns, struct answer_place *place)
{
    enum store_result result = STORE_DONE;
    bool lost = true;
    if (store->fd < 0)
        return base_error(SHOAL_ERR_PEER_LOST, "the connection to the store at %s is lost",
                          store->address);
    enum shoal_status status =
        send_request(store, operation, key, value, value_bytes, count, deadline_ns);
    if (status == SHOAL_OK)
        status = receive_answer(store, place, deadline_ns, &result, &lost);
    if (status != SHOAL_OK)
        return lost ? give_up(store, status) : status;
    if (result != STORE_DONE && place->allocate)
        base_free(place->data);
    if (result == STORE_TAKEN)
        return base_error(SHOAL_ERR_RANK_TAKEN, "key \"%s\" of the store has another value already",
                          key);
    if (result == STORE_FULL)
        return base_error(SHOAL_ERR_LIMIT, "the store at %s is full", store->address);
    return SHOAL_OK;
}

static enum shoal_status check_key(const char *key)
{
    if (key[0] == '\0' || strlen(key) >= BOOT_KEY_BYTES)
        return base_error(SHOAL_ERR_ARGUMENT, "a key of the store has 1 to %d bytes",
                          BOOT_KEY_BYTES - 1);
    return SHOAL_OK;
}

/* ---- set and get ----------------------------------------------------------------------------- */

enum shoal_status boot_store_set(struct boot_store *store, const char *key, const void *value,
                                 size_t bytes)
{
    TRY(check_key(key));
    if (bytes > BOOT_VALUE_BYTES)
        return base_error(SHOAL_ERR_LIMIT, "a value of %zu bytes; the store takes %d", bytes,
                          BOOT_VALUE_BYTES);
    if (store->user != NULL) {
        int result = store->user->set(store->user->user, key, value, bytes);
        if (result != 0)
            return base_error(SHOAL_ERR_SYSTEM, "the caller's store failed to set \"%s\" (%d)", key,
                              result);
        return SHOAL_OK;
    }
    struct answer_place nowhere = {0};
    int64_t deadline_ns = base_deadline_ns(base_option_int(OPTION_CONNECT_TIMEOUT_MS));
    return ask(store, STORE_SET, key, value, bytes, 0, deadline_ns, &nowhere);
}

static int64_t user_timeout_ms(int64_t deadline_ns)
{
    int left_ms = base_left_ms(deadline_ns);
    return left_ms > 0 ? left_ms : 1;
}

static enum shoal_status get_from_user(struct boot_store *store, const char *key,
                                       struct answer_place *place, int64_t deadline_ns)
{
    int result = store->user->get(store->user->user, key, place->data, place->capacity,
                                  &place->bytes, user_timeout_ms(deadline_ns));
    if (result == 1)
        return base_error(SHOAL_ERR_TIMEOUT, "key \"%s\" did not appear in the caller's store",
                          key);
    if (result != 0)
        return base_error(SHOAL_ERR_SYSTEM, "the caller's store failed to get \"%s\" (%d)", key,
                          result);
    return SHOAL_OK;
}

enum shoal_status boot_store_get(struct boot_store *store, const char *key, void *value,
                                 size_t *bytes, int64_t deadline_ns)
{
    TRY(check_key(key));
    struct answer_place place = {.data = value, .capacity = *bytes};
    enum shoal_status status = store->user != NULL
                                   ? get_from_user(store, key, &place, deadline_ns)
                                   : ask(store, STORE_GET, key, NULL, 0, 0, deadline_ns, &place);
    if (status == SHOAL_ERR_TIMEOUT && store->user == NULL)
        return base_error(status, "key \"%s\" did not appear in the store at %s in time", key,
                          store->address);
    TRY(status);
    if (place.bytes > place.capacity)
        return base_error(SHOAL_ERR_LIMIT,
                          "the value of \"%s\" has %zu bytes, there is room for %zu", key,
                          place.bytes, place.capacity);
    *bytes = place.bytes;
    return SHOAL_OK;
}

/* ---- gather ---------------------------------------------------------------------------------- */

/* A list of missing numbers as text: "3, 5 and 12 more". */
struct missing_list {
    char text[256];
    int count;
};

static void missing_add(struct missing_list *list, int index)
{
    size_t used = strlen(list->text);
    if (list->count++ < MISSING_SHOWN_MAX)
        snprintf(list->text + used, sizeof(list->text) - used, "%s%d", used > 0 ? ", " : "", index);
}

static enum shoal_status missing_error(const struct missing_list *list, const char *prefix,
                                       int count)
{
    char more[32] = "";
    if (list->count > MISSING_SHOWN_MAX)
        snprintf(more, sizeof(more), " and %d more", list->count - MISSING_SHOWN_MAX);
    if (list->count == 0)
        return base_error(SHOAL_ERR_TIMEOUT, "the %d values of \"%s\" came too late", count,
                          prefix);
    return base_error(SHOAL_ERR_TIMEOUT, "%d of %d did not come in time (\"%s\"): missing %s%s",
                      list->count, count, prefix, list->text, more);
}

/* Lays values[] and sizes[] over a block that starts with `count` sizes. */
static enum shoal_status spread(const unsigned char *block, size_t block_bytes, int count,
                                const void **values, size_t *sizes)
{
    size_t at = 4 * (size_t)count;
    for (int i = 0; i < count; i++) {
        sizes[i] = at <= block_bytes ? store_get(block + 4 * (size_t)i) : 0;
        if (at > block_bytes || sizes[i] > block_bytes - at)
            return base_error(SHOAL_ERR_FORMAT, "the store's answer to a gather is cut short");
        values[i] = block + at;
        at += sizes[i];
    }
    return SHOAL_OK;
}

static enum shoal_status gather_late(struct boot_store *store, const char *prefix, int count)
{
    struct missing_list list = {0};
    struct answer_place place = {.allocate = true};
    TRY(ask(store, STORE_MISSING, prefix, NULL, 0, (uint32_t)count,
            base_deadline_ns(MISSING_ASK_MS), &place));
    const unsigned char *present = place.data;
    for (int i = 0; i < count && (size_t)i < place.bytes; i++) {
        if (!present[i])
            missing_add(&list, i);
    }
    base_free(place.data);
    return missing_error(&list, prefix, count);
}

static enum shoal_status gather_from_server(struct boot_store *store, const char *prefix, int count,
                                            int64_t deadline_ns, void **block, const void **values,
                                            size_t *sizes)
{
    struct answer_place place = {.allocate = true};
    enum shoal_status status =
        ask(store, STORE_GATHER, prefix, NULL, 0, (uint32_t)count, deadline_ns, &place);
    if (status == SHOAL_ERR_TIMEOUT && store->fd >= 0)
        return gather_late(store, prefix, count);
    TRY(status);
    status = place.bytes < 4 * (size_t)count
                 ? base_error(SHOAL_ERR_FORMAT, "the store's answer to a gather is cut short")
                 : spread(place.data, place.bytes, count, values, sizes);
    if (status != SHOAL_OK) {
        base_free(place.data);
        return status;
    }
    *block = place.data;
    return SHOAL_OK;
}

/* A block that grows while values are put in it behind `count` sizes. */
struct growing {
    unsigned char *block;
    size_t used, capacity;
};

static enum shoal_status grow(struct growing *growing, size_t free_bytes)
{
    if (growing->capacity - growing->used >= free_bytes)
        return SHOAL_OK;
    size_t capacity = growing->capacity * 2;
    if (capacity < growing->used + free_bytes)
        capacity = growing->used + free_bytes;
    void *wider;
    TRY(base_alloc(capacity, "values of the store", &wider));
    if (growing->used > 0)
        memcpy(wider, growing->block, growing->used);
    base_free(growing->block);
    growing->block = wider;
    growing->capacity = capacity;
    return SHOAL_OK;
}

/* Gets one value behind those that are there; once more when it is longer than was guessed. */
static enum shoal_status user_value(struct boot_store *store, const char *prefix, int index,
                                    int64_t deadline_ns, struct growing *growing)
{
    char key[BOOT_KEY_BYTES + 16];
    snprintf(key, sizeof(key), "%s%d", prefix, index);
    struct answer_place place = {.bytes = FIRST_VALUE_BYTES};
    do {
        TRY(grow(growing, place.bytes));
        place.data = growing->block + growing->used;
        place.capacity = growing->capacity - growing->used;
        TRY(get_from_user(store, key, &place, deadline_ns));
        if (place.bytes > BOOT_VALUE_BYTES)
            return base_error(SHOAL_ERR_LIMIT, "the value of \"%s\" has %zu bytes", key,
                              place.bytes);
    } while (place.bytes > place.capacity);
    store_put(growing->block + 4 * (size_t)index, (uint32_t)place.bytes);
    growing->used += place.bytes;
    return SHOAL_OK;
}

static enum shoal_status user_late(struct boot_store *store, const char *prefix, int from,
                                   int count)
{
    struct missing_list list = {0};
    missing_add(&list, from);
    for (int i = from + 1; i < count && i < from + USER_PROBES_MAX; i++) {
        char key[BOOT_KEY_BYTES + 16], scrap[16];
        struct answer_place place = {.data = scrap, .capacity = sizeof(scrap)};
        snprintf(key, sizeof(key), "%s%d", prefix, i);
        if (get_from_user(store, key, &place, base_deadline_ns(USER_PROBE_MS)) != SHOAL_OK)
            missing_add(&list, i);
    }
    return missing_error(&list, prefix, count);
}

static enum shoal_status gather_from_user(struct boot_store *store, const char *prefix, int count,
                                          int64_t deadline_ns, void **block, const void **values,
                                          size_t *sizes)
{
    struct growing growing = {0};
    TRY(grow(&growing, 4 * (size_t)count + FIRST_VALUE_BYTES));
    growing.used = 4 * (size_t)count;
    enum shoal_status status = SHOAL_OK;
    for (int i = 0; i < count && status == SHOAL_OK; i++) {
        status = user_value(store, prefix, i, deadline_ns, &growing);
        if (status == SHOAL_ERR_TIMEOUT)
            status = user_late(store, prefix, i, count);
    }
    if (status == SHOAL_OK)
        status = spread(growing.block, growing.used, count, values, sizes);
    if (status != SHOAL_OK) {
        base_free(growing.block);
        return status;
    }
    *block = growing.block;
    return SHOAL_OK;
}

enum shoal_status boot_store_gather(struct boot_store *store, const char *prefix, int count,
                                    int64_t deadline_ns, void **block, const void **values,
                                    size_t *sizes)
{
    TRY(check_key(prefix));
    if (count < 0 || count > STORE_GATHER_MAX || strlen(prefix) + 8 > BOOT_KEY_BYTES)
        return base_error(SHOAL_ERR_LIMIT, "a gather of %d values of \"%s\"", count, prefix);
    if (store->user != NULL)
        return gather_from_user(store, prefix, count, deadline_ns, block, values, sizes);
    return gather_from_server(store, prefix, count, deadline_ns, block, values, sizes);
}
