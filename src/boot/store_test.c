/* SPDX-License-Identifier: Apache-2.0 */
/*
 * store_test.c: the store with its real server and real sockets: ranks that meet, strangers,
 * wrong secrets, taken ports, keys that never come, servers that start late or die.
 */
#include "boot/store.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/memory.h"
#include "base/options.h"
#include "base/status.h"
#include "boot/address.h"
#include "net/proof.h"

static unsigned char secret[NET_SECRET_BYTES];

/* A server on loopback and its address. */
struct place {
    struct boot_store_server *server;
    char address[64];
};

static struct place serve(void)
{
    struct place place;
    assert_int_equal(boot_store_serve("127.0.0.1", 0, secret, &place.server), SHOAL_OK);
    snprintf(place.address, sizeof(place.address), "127.0.0.1:%d", boot_store_port(place.server));
    return place;
}

static struct boot_store *join(const char *address)
{
    struct boot_store *store = NULL;
    enum shoal_status status = boot_store_connect(address, secret, base_deadline_ns(20000), &store);
    if (status != SHOAL_OK)
        fail_msg("%s", base_error_text());
    return store;
}

static int raw_connect(int port)
{
    struct sockaddr_in where = {.sin_family = AF_INET,
                                .sin_port = htons((uint16_t)port),
                                .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&where, sizeof(where)), 0);
    return fd;
}

static void assert_text_has(const char *part)
{
    if (strstr(base_error_text(), part) == NULL)
        fail_msg("\"%s\" is not in \"%s\"", part, base_error_text());
}

static void keys_are_set_once(void **state)
{
    (void)state;
    struct place place = serve();
    struct boot_store *a = join(place.address), *b = join(place.address);
    assert_int_equal(boot_store_set(a, "key", "value", 5), SHOAL_OK);
    assert_int_equal(boot_store_set(b, "key", "value", 5), SHOAL_OK);
    assert_int_equal(boot_store_set(b, "key", "other", 5), SHOAL_ERR_RANK_TAKEN);
    char value[16];
    size_t bytes = sizeof(value);
    assert_int_equal(boot_store_get(b, "key", value, &bytes, base_deadline_ns(5000)), SHOAL_OK);
    assert_int_equal(bytes, 5);
    assert_memory_equal(value, "value", 5);
    bytes = 4;
    assert_int_equal(boot_store_get(b, "key", value, &bytes, base_deadline_ns(5000)),
                     SHOAL_ERR_LIMIT);
    assert_int_equal(boot_store_set(a, "empty", NULL, 0), SHOAL_OK);
    bytes = sizeof(value);
    assert_int_equal(boot_store_get(b, "empty", value, &bytes, base_deadline_ns(5000)), SHOAL_OK);
    assert_int_equal(bytes, 0);
    assert_int_equal(boot_store_set(a, "", "", 0), SHOAL_ERR_ARGUMENT);
    boot_store_close(a);
    boot_store_close(b);
    boot_store_stop(place.server, 1000);
}

static void values_of_the_largest_size_pass(void **state)
{
    (void)state;
    struct place place = serve();
    struct boot_store *store = join(place.address);
    char *value = malloc(BOOT_VALUE_BYTES + 1), *back = malloc(BOOT_VALUE_BYTES);
    for (int i = 0; i <= BOOT_VALUE_BYTES; i++)
        value[i] = (char)(i * 31);
    assert_int_equal(boot_store_set(store, "big", value, BOOT_VALUE_BYTES + 1), SHOAL_ERR_LIMIT);
    assert_int_equal(boot_store_set(store, "big", value, BOOT_VALUE_BYTES), SHOAL_OK);
    size_t bytes = BOOT_VALUE_BYTES;
    assert_int_equal(boot_store_get(store, "big", back, &bytes, base_deadline_ns(5000)), SHOAL_OK);
    assert_int_equal(bytes, BOOT_VALUE_BYTES);
    assert_memory_equal(value, back, BOOT_VALUE_BYTES);
    free(value);
    free(back);
    boot_store_close(store);
    boot_store_stop(place.server, 0);
}

static void a_missing_key_is_named_and_the_store_goes_on(void **state)
{
    (void)state;
    struct place place = serve();
    struct boot_store *store = join(place.address);
    char value[8];
    size_t bytes = sizeof(value);
    assert_int_equal(boot_store_get(store, "never", value, &bytes, base_deadline_ns(50)),
                     SHOAL_ERR_TIMEOUT);
    assert_text_has("never");
    /* The answer to the withdrawn request must not be taken for the next one's. */
    struct boot_store *other = join(place.address);
    assert_int_equal(boot_store_set(other, "never", "late", 4), SHOAL_OK);
    assert_int_equal(boot_store_set(store, "next", "n", 1), SHOAL_OK);
    bytes = sizeof(value);
    assert_int_equal(boot_store_get(store, "next", value, &bytes, base_deadline_ns(5000)),
                     SHOAL_OK);
    assert_int_equal(bytes, 1);
    boot_store_close(store);
    boot_store_close(other);
    boot_store_stop(place.server, 1000);
}

static void a_gather_names_who_is_missing(void **state)
{
    (void)state;
    struct place place = serve();
    struct boot_store *store = join(place.address);
    assert_int_equal(boot_store_set(store, "rank/0", "a", 1), SHOAL_OK);
    assert_int_equal(boot_store_set(store, "rank/3", "d", 1), SHOAL_OK);
    assert_int_equal(boot_store_set(store, "rank/04", "x", 1), SHOAL_OK);
    void *block = NULL;
    const void *values[5];
    size_t sizes[5];
    assert_int_equal(
        boot_store_gather(store, "rank/", 5, base_deadline_ns(50), &block, values, sizes),
        SHOAL_ERR_TIMEOUT);
    assert_text_has("missing 1, 2, 4");
    boot_store_close(store);
    boot_store_stop(place.server, 0);
}

#define MEETING_SIZE 24

/* One rank as a process of its own: publishes, gathers, checks. */
static void meet_as_rank(const char *address, int rank)
{
    struct boot_store *store;
    if (boot_store_connect(address, secret, base_deadline_ns(20000), &store) != SHOAL_OK)
        _exit(1);
    char key[32], value[4096];
    snprintf(key, sizeof(key), "who/%d", rank);
    memset(value, 'a' + rank, sizeof(value));
    if (boot_store_set(store, key, value, 100 + (size_t)rank * 10) != SHOAL_OK)
        _exit(2);
    void *block;
    const void *values[MEETING_SIZE];
    size_t sizes[MEETING_SIZE];
    if (boot_store_gather(store, "who/", MEETING_SIZE, base_deadline_ns(20000), &block, values,
                          sizes) != SHOAL_OK)
        _exit(3);
    for (int i = 0; i < MEETING_SIZE; i++) {
        const char *text = values[i];
        if (sizes[i] != 100 + (size_t)i * 10 || text[0] != 'a' + i || text[sizes[i] - 1] != 'a' + i)
            _exit(4);
    }
    base_free(block);
    boot_store_close(store);
    _exit(0);
}

static void processes_meet(void **state)
{
    (void)state;
    struct place place = serve();
    pid_t pids[MEETING_SIZE];
    for (int rank = 0; rank < MEETING_SIZE; rank++) {
        pids[rank] = fork();
        if (pids[rank] == 0)
            meet_as_rank(place.address, rank);
    }
    for (int rank = 0; rank < MEETING_SIZE; rank++) {
        int result;
        assert_int_equal(waitpid(pids[rank], &result, 0), pids[rank]);
        assert_int_equal(result, 0);
    }
    boot_store_stop(place.server, 0);
}

static void a_wrong_secret_is_refused(void **state)
{
    (void)state;
    struct place place = serve();
    unsigned char other[NET_SECRET_BYTES];
    net_secret_from_text("not the secret", other);
    struct boot_store *store;
    assert_int_equal(boot_store_connect(place.address, other, base_deadline_ns(300), &store),
                     SHOAL_ERR_PEER_REFUSED);
    assert_text_has("SHOAL_SECRET");
    store = join(place.address);
    boot_store_close(store);
    boot_store_stop(place.server, 0);
}

/* Garbage, silence, half a hello, a valid hello with a false proof: the job doesn't notice. */
static void strangers_disturb_nothing(void **state)
{
    (void)state;
    struct place place = serve();
    int port = boot_store_port(place.server), silent[64];
    for (int i = 0; i < 64; i++)
        silent[i] = raw_connect(port);
    srand(7);
    for (int round = 0; round < 200; round++) {
        unsigned char garbage[512];
        for (size_t i = 0; i < sizeof(garbage); i++)
            garbage[i] = (unsigned char)rand();
        int fd = raw_connect(port);
        assert_true(send(fd, garbage, 1 + (size_t)rand() % sizeof(garbage), MSG_NOSIGNAL) > 0);
        close(fd);
    }
    struct net_proof proof = {.rank_mine = -1, .rank_theirs = -1};
    unsigned char hello[NET_HELLO_BYTES], answer[NET_ANSWER_BYTES], false_proof[NET_PROOF_BYTES];
    assert_int_equal(net_proof_hello(&proof, hello), SHOAL_OK);
    int fd = raw_connect(port);
    assert_int_equal(send(fd, hello, sizeof(hello), 0), sizeof(hello));
    assert_int_equal(recv(fd, answer, sizeof(answer), MSG_WAITALL), sizeof(answer));
    memset(false_proof, 9, sizeof(false_proof));
    assert_int_equal(send(fd, false_proof, sizeof(false_proof), 0), sizeof(false_proof));
    assert_true(recv(fd, answer, sizeof(answer), 0) <= 0);
    close(fd);

    struct boot_store *store = join(place.address);
    assert_int_equal(boot_store_set(store, "k", "v", 1), SHOAL_OK);
    boot_store_close(store);
    for (int i = 0; i < 64; i++)
        close(silent[i]);
    boot_store_stop(place.server, 0);
}

static void unproven_connections_are_bounded(void **state)
{
    (void)state;
    enum { flood = 700 };
    struct place place = serve();
    static int fds[flood];
    for (int i = 0; i < flood; i++)
        fds[i] = raw_connect(boot_store_port(place.server));
    /* The first ones were closed to make room. */
    char byte;
    assert_int_equal(recv(fds[0], &byte, 1, 0), 0);
    struct boot_store *store = join(place.address);
    assert_int_equal(boot_store_set(store, "k", "v", 1), SHOAL_OK);
    boot_store_close(store);
    for (int i = 0; i < flood; i++)
        close(fds[i]);
    boot_store_stop(place.server, 0);
}

/* A member may send nonsense too (another release, a bug): it alone is dropped. */
static void nonsense_from_a_member_ends_its_connection_alone(void **state)
{
    (void)state;
    struct place place = serve();
    struct boot_store *good = join(place.address);
    for (unsigned kind = 0; kind < 4; kind++) {
        struct net_proof proof = {.rank_mine = -1, .rank_theirs = -1};
        unsigned char hello[NET_HELLO_BYTES], answer[NET_ANSWER_BYTES], last[NET_PROOF_BYTES];
        memcpy(proof.secret, secret, sizeof(secret));
        assert_int_equal(net_proof_hello(&proof, hello), SHOAL_OK);
        int fd = raw_connect(boot_store_port(place.server));
        assert_int_equal(send(fd, hello, sizeof(hello), 0), sizeof(hello));
        assert_int_equal(recv(fd, answer, sizeof(answer), MSG_WAITALL), sizeof(answer));
        assert_int_equal(net_proof_check_answer(&proof, answer, last), SHOAL_OK);
        assert_int_equal(send(fd, last, sizeof(last), 0), sizeof(last));
        unsigned char request[21] = {1, 0, 0, 0, 9, 0, 0, 0, 1, 0, 0, 0};
        request[8 + kind] = 0xff; /* a key length out of range, or an unknown operation */
        if (kind == 0)
            request[8] = 1;
        assert_int_equal(send(fd, request, sizeof(request), MSG_NOSIGNAL), sizeof(request));
        assert_true(recv(fd, answer, sizeof(answer), 0) <= 0);
        close(fd);
    }
    assert_int_equal(boot_store_set(good, "k", "v", 1), SHOAL_OK);
    boot_store_close(good);
    boot_store_stop(place.server, 0);
}

static void a_taken_port_is_named_with_its_holder(void **state)
{
    (void)state;
    struct place place = serve();
    struct boot_store_server *second;
    assert_int_equal(boot_store_serve("127.0.0.1", boot_store_port(place.server), secret, &second),
                     SHOAL_ERR_SYSTEM);
    assert_text_has(place.address);
    char pid[32];
    snprintf(pid, sizeof(pid), "(pid %d)", getpid());
    assert_text_has(pid);
    boot_store_stop(place.server, 0);
}

static void *serve_late(void *argument)
{
    struct place *place = argument;
    base_sleep_ms(300);
    assert_int_equal(boot_store_serve("127.0.0.1", atoi(strchr(place->address, ':') + 1), secret,
                                      &place->server),
                     SHOAL_OK);
    return NULL;
}

static void the_server_may_start_late(void **state)
{
    (void)state;
    /* A port that was free a moment ago. */
    struct place place = serve();
    boot_store_stop(place.server, 0);
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, serve_late, &place), 0);
    struct boot_store *store = join(place.address);
    pthread_join(thread, NULL);
    boot_store_close(store);
    boot_store_stop(place.server, 0);
}

static void nobody_there_names_addresses_and_causes(void **state)
{
    (void)state;
    struct place place = serve();
    boot_store_stop(place.server, 0);
    char list[160];
    snprintf(list, sizeof(list), "%s,no-such-host.invalid:1", place.address);
    struct boot_store *store;
    assert_int_equal(boot_store_connect(list, secret, base_deadline_ns(100), &store),
                     SHOAL_ERR_PEER_UNREACHABLE);
    assert_text_has(place.address);
    assert_text_has("refused");
    assert_text_has("no-such-host.invalid");
    assert_int_equal(boot_store_connect("nonsense", secret, base_deadline_ns(100), &store),
                     SHOAL_ERR_ARGUMENT);
    assert_text_has("nonsense");
}

static void a_server_that_is_no_store_is_told(void **state)
{
    (void)state;
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct sockaddr_in where = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t bytes = sizeof(where);
    assert_int_equal(bind(listener, (struct sockaddr *)&where, sizeof(where)), 0);
    assert_int_equal(listen(listener, 8), 0);
    assert_int_equal(getsockname(listener, (struct sockaddr *)&where, &bytes), 0);
    char address[32];
    snprintf(address, sizeof(address), "127.0.0.1:%d", ntohs(where.sin_port));
    struct boot_store *store;
    assert_int_equal(boot_store_connect(address, secret, base_deadline_ns(200), &store),
                     SHOAL_ERR_PEER_UNREACHABLE);
    assert_text_has("did not answer as a store does");
    close(listener);
}

static void ipv4_and_ipv6_both_reach_one_server(void **state)
{
    (void)state;
    struct boot_store_server *server;
    assert_int_equal(boot_store_serve(NULL, 0, secret, &server), SHOAL_OK);
    char address[64];
    snprintf(address, sizeof(address), "127.0.0.1:%d", boot_store_port(server));
    struct boot_store *store = join(address);
    boot_store_close(store);
    int six = socket(AF_INET6, SOCK_STREAM, 0);
    struct sockaddr_in6 loopback = {.sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT};
    bool has_six = six >= 0 && bind(six, (struct sockaddr *)&loopback, sizeof(loopback)) == 0;
    close(six);
    if (has_six) {
        snprintf(address, sizeof(address), "[::1]:%d", boot_store_port(server));
        store = join(address);
        boot_store_close(store);
    }
    char list[1024];
    assert_int_equal(boot_address_list_local(boot_store_port(server), list, sizeof(list)),
                     SHOAL_OK);
    store = join(list);
    boot_store_close(store);
    boot_store_stop(server, 0);
}

static void a_server_at_an_address_lasts(void **state)
{
    (void)state;
    struct place place = serve();
    boot_store_stop(place.server, 0); /* its port is free now */
    struct boot_store_server *again;
    assert_int_equal(boot_store_serve_address(place.address, secret, &place.server), SHOAL_OK);
    struct boot_store *early = join(place.address);
    boot_store_stop(place.server, 5000);
    assert_int_equal(boot_store_set(early, "k", "v", 1), SHOAL_OK);
    assert_int_equal(boot_store_serve_address(place.address, secret, &again), SHOAL_OK);
    assert_ptr_equal(again, place.server);
    boot_store_close(early);
    /* Another job of this process at the same address takes its place. */
    unsigned char other[NET_SECRET_BYTES];
    net_secret_from_text("another job", other);
    assert_int_equal(boot_store_serve_address(place.address, other, &again), SHOAL_OK);
    struct boot_store *late;
    assert_int_equal(boot_store_connect(place.address, other, base_deadline_ns(5000), &late),
                     SHOAL_OK);
    boot_store_close(late);
}

static void the_first_free_port_is_taken(void **state)
{
    (void)state;
    struct place taken = serve(), free_one = serve();
    boot_store_stop(free_one.server, 0);
    char list[160];
    snprintf(list, sizeof(list), "%s,%s", taken.address, free_one.address);
    struct boot_store_server *server;
    unsigned char other[NET_SECRET_BYTES];
    net_secret_from_text("of another job", other);
    assert_int_equal(boot_store_serve_address(list, other, &server), SHOAL_OK);
    assert_int_equal(boot_store_port(server), atoi(strchr(free_one.address, ':') + 1));
    /* Clients meet the other job's server first, and pass on. */
    struct boot_store *store;
    assert_int_equal(boot_store_connect(list, other, base_deadline_ns(20000), &store), SHOAL_OK);
    boot_store_close(store);
    snprintf(list, sizeof(list), "%s,%s", taken.address, taken.address);
    assert_int_equal(boot_store_serve_address(list, other, &server), SHOAL_ERR_SYSTEM);
    assert_text_has(taken.address);
    boot_store_stop(taken.server, 0);
}

/* A child that the server's process forked lives on: the port is free all the same. */
static void a_forked_child_does_not_hold_the_port(void **state)
{
    (void)state;
    struct place place = serve();
    int port = boot_store_port(place.server);
    pid_t child = fork();
    if (child == 0) {
        for (;;)
            pause();
    }
    boot_store_stop(place.server, 0);
    assert_int_equal(boot_store_serve("127.0.0.1", port, secret, &place.server), SHOAL_OK);
    boot_store_stop(place.server, 0);
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
}

/* A server in a process that is killed: who waits on it hears at once. */
static void a_killed_server_is_noticed(void **state)
{
    (void)state;
    int ready[2];
    assert_int_equal(pipe(ready), 0);
    pid_t pid = fork();
    if (pid == 0) {
        struct boot_store_server *server;
        int port = boot_store_serve("127.0.0.1", 0, secret, &server) == SHOAL_OK
                       ? boot_store_port(server)
                       : 0;
        if (write(ready[1], &port, sizeof(port)) != sizeof(port))
            _exit(1);
        for (;;)
            pause();
    }
    int port;
    assert_int_equal(read(ready[0], &port, sizeof(port)), sizeof(port));
    char address[64], value[8];
    snprintf(address, sizeof(address), "127.0.0.1:%d", port);
    struct boot_store *store = join(address);
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    size_t bytes = sizeof(value);
    assert_int_equal(boot_store_get(store, "k", value, &bytes, base_deadline_ns(60000)),
                     SHOAL_ERR_PEER_LOST);
    assert_text_has(address);
    assert_int_equal(boot_store_set(store, "k", "v", 1), SHOAL_ERR_PEER_LOST);
    boot_store_close(store);
    close(ready[0]);
    close(ready[1]);
}

/* A server in a process that is stopped: the deadline holds. */
static void a_stopped_server_is_a_timeout(void **state)
{
    (void)state;
    int ready[2];
    assert_int_equal(pipe(ready), 0);
    pid_t pid = fork();
    if (pid == 0) {
        struct boot_store_server *server;
        int port = boot_store_serve("127.0.0.1", 0, secret, &server) == SHOAL_OK
                       ? boot_store_port(server)
                       : 0;
        if (write(ready[1], &port, sizeof(port)) != sizeof(port))
            _exit(1);
        for (;;)
            pause();
    }
    int port;
    assert_int_equal(read(ready[0], &port, sizeof(port)), sizeof(port));
    char address[64], value[8];
    snprintf(address, sizeof(address), "127.0.0.1:%d", port);
    struct boot_store *store = join(address);
    kill(pid, SIGSTOP);
    size_t bytes = sizeof(value);
    assert_int_equal(boot_store_get(store, "k", value, &bytes, base_deadline_ns(100)),
                     SHOAL_ERR_TIMEOUT);
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    boot_store_close(store);
    close(ready[0]);
    close(ready[1]);
}

/* ---- the caller's own store ------------------------------------------------------------------ */

struct shelf {
    char keys[8][32];
    char values[8][2048];
    size_t sizes[8];
    int count;
};

static int shelf_set(void *user, const char *key, const void *value, size_t bytes)
{
    struct shelf *shelf = user;
    if (shelf->count == 8 || bytes > sizeof(shelf->values[0]))
        return 5;
    snprintf(shelf->keys[shelf->count], sizeof(shelf->keys[0]), "%s", key);
    memcpy(shelf->values[shelf->count], value, bytes);
    shelf->sizes[shelf->count++] = bytes;
    return 0;
}

static int shelf_get(void *user, const char *key, void *value, size_t capacity, size_t *bytes,
                     int64_t timeout_ms)
{
    struct shelf *shelf = user;
    if (timeout_ms <= 0)
        return 6;
    for (int i = 0; i < shelf->count; i++) {
        if (strcmp(shelf->keys[i], key) == 0) {
            *bytes = shelf->sizes[i];
            memcpy(value, shelf->values[i], *bytes < capacity ? *bytes : capacity);
            return 0;
        }
    }
    return 1;
}

static void a_store_of_the_callers_own_works(void **state)
{
    (void)state;
    static struct shelf shelf;
    struct shoal_store user = {sizeof(user), &shelf, shelf_set, shelf_get};
    struct boot_store *store;
    assert_int_equal(boot_store_wrap(&user, &store), SHOAL_OK);
    char large[1500];
    memset(large, 'L', sizeof(large));
    assert_int_equal(boot_store_set(store, "r/0", "zero", 4), SHOAL_OK);
    assert_int_equal(boot_store_set(store, "r/1", large, sizeof(large)), SHOAL_OK);
    void *block;
    const void *values[4];
    size_t sizes[4];
    assert_int_equal(boot_store_gather(store, "r/", 4, base_deadline_ns(50), &block, values, sizes),
                     SHOAL_ERR_TIMEOUT);
    assert_text_has("missing 2, 3");
    assert_int_equal(boot_store_set(store, "r/2", "two", 3), SHOAL_OK);
    assert_int_equal(boot_store_gather(store, "r/", 3, base_deadline_ns(50), &block, values, sizes),
                     SHOAL_OK);
    assert_int_equal(sizes[0], 4);
    assert_memory_equal(values[0], "zero", 4);
    assert_int_equal(sizes[1], sizeof(large));
    assert_memory_equal(values[1], large, sizeof(large));
    assert_memory_equal(values[2], "two", 3);
    base_free(block);
    boot_store_close(store);
    user.get = NULL;
    assert_int_equal(boot_store_wrap(&user, &store), SHOAL_ERR_ARGUMENT);
}

/* ---- memory ---------------------------------------------------------------------------------- */

/* A meeting in which the nth allocation fails, wherever that is: an error, never a crash or leak.
 */
static void every_failing_allocation_is_survived(void **state)
{
    (void)state;
    size_t blocks = base_memory_blocks();
    bool reached = true;
    for (uint64_t nth = 1; reached && nth < 64; nth++) {
        uint64_t before = base_memory_count();
        base_memory_fail_at(nth);
        struct boot_store_server *server = NULL;
        struct boot_store *store = NULL;
        void *block = NULL;
        const void *value;
        size_t bytes;
        if (boot_store_serve("127.0.0.1", 0, secret, &server) == SHOAL_OK) {
            char address[64];
            snprintf(address, sizeof(address), "127.0.0.1:%d", boot_store_port(server));
            if (boot_store_connect(address, secret, base_deadline_ns(3000), &store) == SHOAL_OK &&
                boot_store_set(store, "k/0", "v", 1) == SHOAL_OK &&
                boot_store_gather(store, "k/", 1, base_deadline_ns(3000), &block, &value, &bytes) ==
                    SHOAL_OK)
                assert_int_equal(bytes, 1);
        }
        base_free(block);
        boot_store_close(store);
        boot_store_stop(server, 0);
        reached = base_memory_count() - before >= nth;
        base_memory_fail_at(0);
        assert_int_equal(base_memory_blocks(), blocks);
    }
    assert_false(reached);
}

static int set_up(void **state)
{
    (void)state;
    net_secret_from_text("the job's secret", secret);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(keys_are_set_once),
        cmocka_unit_test(values_of_the_largest_size_pass),
        cmocka_unit_test(a_missing_key_is_named_and_the_store_goes_on),
        cmocka_unit_test(a_gather_names_who_is_missing),
        cmocka_unit_test(processes_meet),
        cmocka_unit_test(a_wrong_secret_is_refused),
        cmocka_unit_test(strangers_disturb_nothing),
        cmocka_unit_test(unproven_connections_are_bounded),
        cmocka_unit_test(nonsense_from_a_member_ends_its_connection_alone),
        cmocka_unit_test(a_taken_port_is_named_with_its_holder),
        cmocka_unit_test(the_server_may_start_late),
        cmocka_unit_test(nobody_there_names_addresses_and_causes),
        cmocka_unit_test(a_server_that_is_no_store_is_told),
        cmocka_unit_test(ipv4_and_ipv6_both_reach_one_server),
        cmocka_unit_test(a_killed_server_is_noticed),
        cmocka_unit_test(a_stopped_server_is_a_timeout),
        cmocka_unit_test(a_store_of_the_callers_own_works),
        cmocka_unit_test(every_failing_allocation_is_survived),
        /* Last, because they fork while a server's thread runs, or leave one behind. */
        cmocka_unit_test(a_forked_child_does_not_hold_the_port),
        cmocka_unit_test(a_server_at_an_address_lasts),
        cmocka_unit_test(the_first_free_port_is_taken),
    };
    return cmocka_run_group_tests_name("boot store", tests, set_up, NULL);
}
