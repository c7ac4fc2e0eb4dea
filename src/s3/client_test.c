/* SPDX-License-Identifier: Apache-2.0 */
/*
 * client_test.c: the client against our own server, directly and through a relay that cuts
 * connections and changes bytes; tests/test_s3_command.py has it speak to another implementation.
 */
#include "s3/client.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <sys/mman.h>
#include <sys/socket.h>

#include <cmocka.h>

#include "s3/client_state.h"
#include "s3/protocol.h"
#include "s3/store_fixture.h"
#include "s3/tree.h"
#include "support/fuzz.h"

#define PART  S3_PART_BYTES_MIN
#define LARGE (2 * PART + 12345)

/* ------------------------------------------------------------------------------------ the relay */

/* Passes bytes on between each connection to it and one to the server. */
struct relay {
    int fd, port, server_port;
    pthread_t thread;
    atomic_int cuts; /* connections that end after `cut_bytes` of answers */
    atomic_int_fast64_t cut_bytes;
    atomic_int_fast64_t flip_at; /* the bit of this byte of a connection's answers changes; -1 */
    atomic_int_fast64_t bytes;   /* of answers */
    pthread_mutex_t lock;        /* of what every request is answered with instead */
    char canned[1024];
    size_t canned_bytes;
    bool is_canned;
};

static int socket_to(int port)
{
    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_port = htons((uint16_t)port),
                                  .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    if (connect(fd, (struct sockaddr *)&address, sizeof(address)) != 0)
        abort();
    return fd;
}

static bool all_sent(int fd, const char *bytes, size_t count)
{
    while (count > 0) {
        ssize_t sent = send(fd, bytes, count, MSG_NOSIGNAL);
        if (sent <= 0)
            return false;
        bytes += sent;
        count -= (size_t)sent;
    }
    return true;
}

struct relayed {
    struct relay *relay;
    int client;
};

static bool answer_pass(struct relay *relay, int client, char *bytes, size_t count, int64_t *passed)
{
    int64_t flip = atomic_load(&relay->flip_at) - *passed;
    if (flip >= 0 && flip < (int64_t)count)
        bytes[flip] ^= 1;
    *passed += (int64_t)count;
    atomic_fetch_add(&relay->bytes, (int64_t)count);
    return all_sent(client, bytes, count);
}

static void *relay_connection(void *user)
{
    struct relayed relayed = *(struct relayed *)user;
    struct relay *relay = relayed.relay;
    int server = socket_to(relay->server_port), client = relayed.client;
    struct pollfd ends[2] = {{.fd = client, .events = POLLIN}, {.fd = server, .events = POLLIN}};
    static _Thread_local char bytes[64 << 10];
    int64_t passed = 0, left = INT64_MAX;
    free(user);
    if (atomic_fetch_sub(&relay->cuts, 1) > 0)
        left = atomic_load(&relay->cut_bytes);
    for (bool goes_on = true; goes_on && left > 0 && poll(ends, 2, -1) > 0;)
        for (int i = 0; i < 2 && goes_on; i++) {
            if (ends[i].revents == 0)
                continue;
            ssize_t got = recv(ends[i].fd, bytes, sizeof(bytes), 0);
            goes_on = got > 0;
            if (got > 0 && i == 1)
                goes_on = answer_pass(relay, client, bytes, (size_t)got, &passed);
            else if (got > 0)
                goes_on = all_sent(server, bytes, (size_t)got);
            left -= i == 1 ? got : 0;
        }
    close(server);
    close(client);
    return NULL;
}

static bool canned_answer(struct relay *relay, int client)
{
    char request[8192], answer[1280];
    pthread_mutex_lock(&relay->lock);
    bool is_canned = relay->is_canned;
    int head = snprintf(answer, sizeof(answer),
                        "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: %zu\r\n\r\n",
                        relay->canned_bytes);
    memcpy(answer + head, relay->canned, relay->canned_bytes);
    size_t bytes = (size_t)head + relay->canned_bytes;
    pthread_mutex_unlock(&relay->lock);
    if (!is_canned)
        return false;
    if (recv(client, request, sizeof(request), 0) > 0)
        all_sent(client, answer, bytes);
    close(client);
    return true;
}

static void canned_set(struct relay *relay, const char *text, size_t bytes)
{
    pthread_mutex_lock(&relay->lock);
    relay->is_canned = text != NULL;
    relay->canned_bytes = bytes;
    if (text != NULL)
        memcpy(relay->canned, text, bytes);
    pthread_mutex_unlock(&relay->lock);
}

static void *relay_run(void *user)
{
    struct relay *relay = user;
    for (;;) {
        int client = accept(relay->fd, NULL, NULL);
        if (client < 0)
            return NULL;
        if (canned_answer(relay, client))
            continue;
        struct relayed *relayed = malloc(sizeof(*relayed));
        *relayed = (struct relayed){relay, client};
        pthread_t thread;
        assert_int_equal(pthread_create(&thread, NULL, relay_connection, relayed), 0);
        pthread_detach(thread);
    }
}

static void relay_start(struct relay *relay, int server_port)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof(address);
    *relay = (struct relay){.server_port = server_port, .flip_at = -1};
    pthread_mutex_init(&relay->lock, NULL);
    relay->fd = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(bind(relay->fd, (struct sockaddr *)&address, length), 0);
    assert_int_equal(listen(relay->fd, 64), 0);
    assert_int_equal(getsockname(relay->fd, (struct sockaddr *)&address, &length), 0);
    relay->port = ntohs(address.sin_port);
    assert_int_equal(pthread_create(&relay->thread, NULL, relay_run, relay), 0);
}

static void relay_stop(struct relay *relay)
{
    shutdown(relay->fd, SHUT_RDWR);
    pthread_join(relay->thread, NULL);
    close(relay->fd);
}

/* ---------------------------------------------------------------------------------- the server */

struct served {
    struct fixture *fixture;
    struct s3_protocol protocol;
    struct http_server *server;
    struct relay relay;
    struct s3_client *client, *relayed; /* to the server, and to the relay */
    atomic_int_fast64_t moved;
};

static void progress(void *user, int64_t bytes)
{
    struct served *served = user;
    atomic_fetch_add(&served->moved, bytes);
}

static struct s3_client *client_to(struct served *served, int port)
{
    struct http_endpoint endpoint = {.region = "us-east-1"};
    struct s3_client *client;
    char url[64];
    snprintf(url, sizeof(url), "http://127.0.0.1:%d", port);
    assert_int_equal(http_endpoint_set_url(&endpoint, url, "a test"), SHOAL_OK);
    struct s3_client_options options = {.endpoint = &endpoint,
                                        .parallel = 4,
                                        .part_bytes = PART,
                                        .progress = progress,
                                        .user = served};
    assert_int_equal(s3_client_create(&options, &client), S3_OK);
    return client;
}

static int setup(void **state)
{
    struct served *served = calloc(1, sizeof(*served));
    fixture_setup((void **)&served->fixture);
    served->protocol.store = served->fixture->store;
    struct http_options options = {.host = "127.0.0.1", .limits = HTTP_LIMITS_INIT};
    options.handlers[HTTP_S3] = s3_protocol_handler();
    options.users[HTTP_S3] = &served->protocol;
    if (http_server_start(&options, &served->server) != SHOAL_OK)
        return -1;
    int port = http_server_port(served->server);
    relay_start(&served->relay, port);
    served->client = client_to(served, port);
    served->relayed = client_to(served, served->relay.port);
    *state = served;
    return s3_client_bucket_create(served->client, "bkt") == S3_OK ? 0 : -1;
}

static int teardown(void **state)
{
    struct served *served = *state;
    s3_client_free(served->client);
    s3_client_free(served->relayed);
    relay_stop(&served->relay);
    http_server_stop(served->server);
    fixture_teardown((void **)&served->fixture);
    free(served);
    return 0;
}

/* ------------------------------------------------------------------------------------ contents */

static int file_of(int64_t bytes)
{
    int fd = memfd_create("content", MFD_CLOEXEC);
    static char block[1 << 16];
    for (int64_t done = 0; done < bytes; done += (int64_t)sizeof(block)) {
        for (size_t i = 0; i < sizeof(block); i++)
            block[i] = (char)(i * 31 + i / 251 + (size_t)done / sizeof(block));
        int64_t left = bytes - done;
        size_t count = left < (int64_t)sizeof(block) ? (size_t)left : sizeof(block);
        assert_int_equal(write(fd, block, count), count);
    }
    return fd;
}

static void same(int left, int right, int64_t bytes)
{
    assert_int_equal(lseek(left, 0, SEEK_END), bytes);
    assert_int_equal(lseek(right, 0, SEEK_END), bytes);
    if (bytes == 0)
        return;
    void *a = mmap(NULL, (size_t)bytes, PROT_READ, MAP_SHARED, left, 0);
    void *b = mmap(NULL, (size_t)bytes, PROT_READ, MAP_SHARED, right, 0);
    assert_true(memcmp(a, b, (size_t)bytes) == 0);
    munmap(a, (size_t)bytes);
    munmap(b, (size_t)bytes);
}

static void ok(enum s3_code code)
{
    if (code != S3_OK)
        fail_msg("%s: %s", s3_code_name(code), base_error_text());
}

static void put(struct s3_client *client, const char *key, int64_t bytes)
{
    struct s3_client_put wish = {.bucket = "bkt", .key = key};
    int fd = file_of(bytes);
    ok(s3_client_put(client, &wish, fd, 0, bytes, NULL));
    close(fd);
}

/* --------------------------------------------------------------------------------- what goes well
 */

static void objects_go_and_come(void **state)
{
    struct served *served = *state;
    static const int64_t sizes[] = {0, 1, PART, PART + 1, LARGE};
    static const char key[] = "a b/é+&?%/../x";
    for (int i = 0; i < 5; i++) {
        struct s3_client_put wish = {.bucket = "bkt", .key = key, .content_type = "text/plain"};
        struct s3_written written;
        struct s3_object object;
        int from = file_of(sizes[i]), to = file_of(77);
        atomic_store(&served->moved, 0);
        ok(s3_client_put(served->client, &wish, from, 0, sizes[i], &written));
        assert_int_equal(atomic_load(&served->moved), sizes[i]);
        ok(s3_client_head(served->client, "bkt", key, &object));
        assert_int_equal(object.bytes, sizes[i]);
        assert_string_equal(object.etag, written.etag);
        assert_int_equal(object.checksum.algorithm, S3_CRC32);
        assert_int_equal(object.part_count, sizes[i] > PART);
        ok(s3_client_get(served->client, "bkt", key, NULL, to));
        assert_int_equal(atomic_load(&served->moved), 2 * sizes[i]);
        same(from, to, sizes[i]);
        close(from);
        close(to);
    }
    ok(s3_client_delete(served->client, "bkt", &(const char *){key}, 1));
    assert_int_equal(s3_client_head(served->client, "bkt", key, &(struct s3_object){0}),
                     S3_NO_SUCH_KEY);
}

/* The ETag of an object that the client puts in parts names that one writing of it; a body that is
 * put at once has its MD5. */
static void etags_of_parts_are_opaque(void **state)
{
    struct served *served = *state;
    struct s3_client_put wish = {.bucket = "bkt", .key = "k"};
    struct s3_written first, second;
    int fd = file_of(LARGE);
    ok(s3_client_put(served->client, &wish, fd, 0, LARGE, &first));
    ok(s3_client_put(served->client, &wish, fd, 0, LARGE, &second));
    assert_string_not_equal(first.etag, second.etag);
    assert_non_null(strstr(first.etag, "-3"));
    ok(s3_client_put(served->client, &wish, fd, 0, 65536, &first));
    ok(s3_client_put(served->client, &wish, fd, 0, 65536, &second));
    assert_string_equal(first.etag, second.etag);
    assert_int_equal(strlen(first.etag), 32);
    close(fd);
}

static enum shoal_status collect(void *user, const void *data, size_t bytes)
{
    return write(*(int *)user, data, bytes) == (ssize_t)bytes ? SHOAL_OK : SHOAL_ERR_SYSTEM;
}

struct feeder {
    int from, to;
};

static void *feed(void *user)
{
    struct feeder *feeder = user;
    char bytes[50000];
    for (ssize_t got; (got = read(feeder->from, bytes, sizeof(bytes))) > 0;)
        if (write(feeder->to, bytes, (size_t)got) != got)
            abort();
    close(feeder->to);
    return NULL;
}

static void streams_go_and_come(void **state)
{
    struct served *served = *state;
    static const int64_t sizes[] = {0, 3, PART, LARGE};
    for (int i = 0; i < 4; i++) {
        struct s3_client_put wish = {.bucket = "bkt", .key = "stream"};
        int ends[2], from = file_of(sizes[i]), to = file_of(0);
        pthread_t thread;
        assert_int_equal(pipe(ends), 0);
        struct feeder feeder = {from, ends[1]};
        lseek(from, 0, SEEK_SET);
        assert_int_equal(pthread_create(&thread, NULL, feed, &feeder), 0);
        ok(s3_client_write(served->client, &wish, ends[0], NULL));
        pthread_join(thread, NULL);
        close(ends[0]);
        struct s3_sink sink = {collect, &to};
        ok(s3_client_read(served->client, "bkt", "stream", 0, -1, &sink));
        same(from, to, sizes[i]);
        close(from);
        close(to);
    }
    int to = file_of(0);
    ok(s3_client_read(served->client, "bkt", "stream", PART - 1, 3,
                      &(struct s3_sink){collect, &to}));
    assert_int_equal(lseek(to, 0, SEEK_END), 3);
    close(to);
}

static void lists_come_in_pages(void **state)
{
    struct served *served = *state;
    static const char *const keys[] = {"a", "a b+c", "a/1", "a/2", "b\x01\n", "é"};
    struct s3_client_listing listing = {.bucket = "bkt", .delimiter = "/", .limit = 2};
    static const char *const expected[] = {"a", "a b+c", "a/", "b\x01\n", "é"};
    int seen = 0;
    for (int i = 0; i < 6; i++)
        put(served->client, keys[i], i);
    while (!listing.is_over) {
        struct s3_list page;
        ok(s3_client_list(served->client, &listing, &page));
        assert_true(page.count <= 2);
        for (int i = 0; i < page.count; i++, seen++) {
            assert_string_equal(page.entries[i].key, expected[seen]);
            assert_int_equal(page.entries[i].is_prefix, seen == 2);
        }
        s3_list_release(&page);
    }
    s3_client_listing_release(&listing);
    assert_int_equal(seen, 5);
    ok(s3_client_delete(served->client, "bkt", keys, 6));
    ok(s3_client_bucket_delete(served->client, "bkt"));
    struct s3_bucket *buckets;
    size_t count;
    ok(s3_client_bucket_list(served->client, &buckets, &count));
    assert_int_equal(count, 0);
    base_free(buckets);
}

static void copies_are_made_by_the_service(void **state)
{
    struct served *served = *state;
    struct s3_client_copy copy = {"bkt", "from é", "bkt", "to"};
    int from = file_of(9), to = file_of(0);
    put(served->client, "from é", 9);
    ok(s3_client_copy(served->client, &copy, -1));
    ok(s3_client_get(served->client, "bkt", "to", NULL, to));
    same(from, to, 9);
    copy.key = "none";
    assert_int_equal(s3_client_copy(served->client, &copy, 1), S3_NO_SUCH_KEY);
    close(from);
    close(to);
}

static void text_write(int folder, const char *path, const char *text)
{
    int fd = openat(folder, path, O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
    assert_true(fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text));
    close(fd);
}

static void folders_become_objects(void **state)
{
    struct served *served = *state;
    char from[64] = "/tmp/shoal-s3-tree-XXXXXX";
    assert_non_null(mkdtemp(from));
    int folder = open(from, O_RDONLY | O_DIRECTORY);
    int64_t count = 0;
    struct s3_list page;
    mkdirat(folder, "a", 0755);
    text_write(folder, "a.txt", "one");
    text_write(folder, "a/b", "three");
    assert_int_equal(symlinkat("/etc/passwd", folder, "link"), 0);
    assert_int_equal(symlinkat("/etc", folder, "folder"), 0);
    ok(s3_client_store_tree(served->client, from, "bkt", "p/", &count));
    assert_int_equal(count, 2);
    ok(s3_client_list(served->client, &(struct s3_client_listing){.bucket = "bkt"}, &page));
    assert_int_equal(page.count, 2);
    assert_string_equal(page.entries[0].key, "p/a.txt");
    assert_string_equal(page.entries[1].key, "p/a/b");
    assert_int_equal(page.entries[1].bytes, 5);
    s3_list_release(&page);
    close(folder);
    fixture_remove(from);
}

/* ------------------------------------------------------------------------------------ what does
 * not
 */

static void errors_have_their_codes(void **state)
{
    struct served *served = *state;
    struct s3_client_put wish = {.bucket = "none", .key = "k"};
    struct s3_list page;
    int fd = file_of(1);
    assert_int_equal(s3_client_bucket_find(served->client, "none"), S3_NO_SUCH_BUCKET);
    assert_int_equal(s3_client_bucket_create(served->client, "B_d"), S3_INVALID_BUCKET_NAME);
    assert_int_equal(s3_client_bucket_create(served->client, "bkt"), S3_BUCKET_OWNED);
    assert_int_equal(s3_client_put(served->client, &wish, fd, 0, 1, NULL), S3_NO_SUCH_BUCKET);
    assert_non_null(strstr(base_error_text(), "NoSuchBucket: The specified bucket"));
    assert_int_equal(
        s3_client_list(served->client, &(struct s3_client_listing){.bucket = "none"}, &page),
        S3_NO_SUCH_BUCKET);
    assert_int_equal(s3_client_get(served->client, "bkt", "none", NULL, fd), S3_NO_SUCH_KEY);
    assert_int_equal(s3_client_get(served->client, "a/b", "k", NULL, fd), S3_INVALID_BUCKET_NAME);
    put(served->client, "k", 1);
    assert_int_equal(s3_client_bucket_delete(served->client, "bkt"), S3_BUCKET_NOT_EMPTY);
    close(fd);
}

static void a_broken_download_goes_on_where_it_was(void **state)
{
    struct served *served = *state;
    int from = file_of(LARGE), to = file_of(0);
    put(served->client, "k", LARGE);
    atomic_store(&served->moved, 0);
    atomic_store(&served->relay.cut_bytes, 1 << 20);
    atomic_store(&served->relay.cuts, 8);
    ok(s3_client_get(served->relayed, "bkt", "k", NULL, to));
    same(from, to, LARGE);
    assert_int_equal(atomic_load(&served->moved), LARGE);
    assert_true(atomic_load(&served->relay.bytes) < LARGE + (2 << 20)); /* nothing came twice */
    atomic_store(&served->relay.cut_bytes, 100);                        /* not even a head comes */
    atomic_store(&served->relay.cuts, 3);
    s3_client_free(served->relayed);
    served->relayed = client_to(served, served->relay.port);
    put(served->relayed, "again", LARGE);
    close(from);
    close(to);
}

static void changed_bytes_are_seen(void **state)
{
    struct served *served = *state;
    struct s3_wait wait;
    struct s3_put *body;
    int to = file_of(0);
    put(served->client, "parts", LARGE);
    put(served->client, "crc", 5000);
    ok(s3_put_begin(served->fixture->store,
                    &(struct s3_put_options){.bucket = "bkt", .key = "md5", .bytes = 5000}, &body));
    static const char bytes[5000];
    ok(s3_put_write(body, bytes, sizeof(bytes)));
    s3_wait_init(&wait);
    s3_put_finish(body, NULL, NULL, s3_wait_done, &wait);
    ok(s3_wait_for(&wait));
    atomic_store(&served->relay.flip_at, 3000);
    assert_int_equal(s3_client_get(served->relayed, "bkt", "parts", NULL, to), S3_BAD_DIGEST);
    assert_int_equal(s3_client_get(served->relayed, "bkt", "crc", NULL, to), S3_OK);
    s3_client_free(served->relayed); /* the byte is one of each connection */
    served->relayed = client_to(served, served->relay.port);
    assert_int_equal(
        s3_client_get(served->relayed, "bkt", "crc", &(struct s3_object){.bytes = 5000}, to),
        S3_BAD_DIGEST);
    assert_non_null(strstr(base_error_text(), "CRC32"));
    s3_client_free(served->relayed);
    served->relayed = client_to(served, served->relay.port);
    assert_int_equal(
        s3_client_get(served->relayed, "bkt", "md5", &(struct s3_object){.bytes = 5000}, to),
        S3_BAD_DIGEST);
    assert_non_null(strstr(base_error_text(), "MD5"));
    s3_client_free(served->relayed);
    served->relayed = client_to(served, served->relay.port);
    assert_int_equal(
        s3_client_read(served->relayed, "bkt", "crc", 0, -1, &(struct s3_sink){collect, &to}),
        S3_BAD_DIGEST);
    close(to);
}

static void no_uploads(const struct served *served)
{
    struct s3_upload *uploads;
    size_t count;
    bool is_truncated;
    ok(s3_upload_list(served->fixture->store, "bkt", "", "", "", 10, &uploads, &count,
                      &is_truncated));
    assert_int_equal(count, 0);
    base_free(uploads);
}

static void an_upload_that_fails_leaves_nothing(void **state)
{
    struct served *served = *state;
    struct s3_client_put wish = {.bucket = "bkt", .key = "k"};
    int fd = file_of(LARGE);
    assert_true(s3_client_put(served->client, &wish, fd, 0, LARGE + 1, NULL) != S3_OK);
    assert_non_null(strstr(base_error_text(), "has become shorter"));
    no_uploads(served);
    assert_int_equal(s3_client_head(served->client, "bkt", "k", &(struct s3_object){0}),
                     S3_NO_SUCH_KEY);
    close(fd);
}

static atomic_bool is_cancelled;

static void cancel(void *user, int64_t bytes)
{
    (void)user, (void)bytes;
    atomic_store(&is_cancelled, true);
}

static void an_upload_that_is_cancelled_leaves_nothing(void **state)
{
    struct served *served = *state;
    struct http_endpoint endpoint = {.region = "us-east-1"};
    struct s3_client *client;
    struct s3_client_put wish = {.bucket = "bkt", .key = "k"};
    struct s3_client_options options = {
        .endpoint = &endpoint, .is_cancelled = &is_cancelled, .progress = cancel};
    int fd = file_of(3 * S3_CLIENT_PART_BYTES);
    assert_int_equal(http_endpoint_set_url(&endpoint, s3_client_url(served->client), "a test"),
                     SHOAL_OK);
    ok(s3_client_create(&options, &client));
    assert_true(s3_client_put(client, &wish, fd, 0, 3 * S3_CLIENT_PART_BYTES, NULL) != S3_OK);
    assert_non_null(strstr(base_error_text(), "cancelled"));
    no_uploads(served);
    s3_client_free(client);
    close(fd);
}

static const char list_text[] =
    "<?xml version=\"1.0\"?><ListBucketResult xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\">"
    "<IsTruncated>true</IsTruncated><NextContinuationToken>t</NextContinuationToken><Contents>"
    "<Key>a%20+b</Key><Size>12</Size><LastModified>2026-01-31T23:59:59.000Z</LastModified>"
    "<ETag>&quot;x&quot;</ETag></Contents><CommonPrefixes><Prefix>a/</Prefix></CommonPrefixes>"
    "</ListBucketResult>";

static enum s3_code canned_list(struct served *served, const char *text, const char *prefix)
{
    struct s3_client_listing listing = {.bucket = "bkt", .prefix = prefix};
    struct s3_list page;
    canned_set(&served->relay, text, strlen(text));
    enum s3_code code = s3_client_list(served->relayed, &listing, &page);
    if (code == S3_OK)
        s3_list_release(&page);
    s3_client_listing_release(&listing);
    canned_set(&served->relay, NULL, 0);
    return code;
}

/* Callers cut the prefix off each key. */
static void lists_of_other_keys_are_refused(void **state)
{
    static const char keyless[] = "<ListBucketResult><Contents><Size>1</Size></Contents>"
                                  "<Contents><Size>2</Size></Contents></ListBucketResult>";
    assert_int_equal(canned_list(*state, list_text, "a"), S3_OK);
    assert_int_equal(canned_list(*state, list_text, "a longer prefix/"), S3_MALFORMED_XML);
    assert_int_equal(canned_list(*state, keyless, NULL), S3_MALFORMED_XML);
}

static void take_any_list(void *user, char *text, size_t count, uint64_t round)
{
    struct served *served = user;
    struct s3_client_listing listing = {.bucket = "bkt"};
    struct s3_list page;
    canned_set(&served->relay, text, count);
    enum s3_code code = s3_client_list(served->relayed, &listing, &page);
    assert_true(round > 0 || code == S3_OK);
    for (int i = 0; code == S3_OK && i < page.count; i++)
        assert_true(page.entries[i].key != NULL && strlen(page.entries[i].key) <= count);
    if (code == S3_OK)
        s3_list_release(&page);
    s3_client_listing_release(&listing);
}

/* A list of any bytes is read within bounds, or refused. */
static void lists_of_any_bytes(void **state)
{
    struct served *served = *state;
    static const struct fuzz_text texts[] = {FUZZ_TEXT(list_text)};
    static const char *const words[] = {"<Contents>", "</Contents>", "<Key>", "</Key>",   "<Size>",
                                        "true",       "%2",          "&#10;", "<Prefix>", NULL};
    struct fuzz fuzz = FUZZ(texts, words, 400, .bytes_max = sizeof(served->relay.canned));
    fuzz_run(&fuzz, take_any_list, served);
    canned_set(&served->relay, NULL, 0);
}

/* Each line of the text is a header, and the value of every header that is looked at. */
static void take_any_head(void *user, char *text, size_t count, uint64_t round)
{
    char etag[S3_ETAG_BYTES];
    struct s3_checksum checksum;
    (void)user, (void)count;
    for (char *rest = text, *line; (line = strsep(&rest, "\n")) != NULL;) {
        char *value = strchr(line, ':');
        if (value == NULL)
            continue;
        *value++ = '\0';
        struct http_pair pair = {line, value};
        struct http_answer answer = {.status = 206, .headers = {.pairs = &pair, .count = 1}};
        int64_t first = 0, all = 0;
        if (s3_answer_range(&answer, &first, &all))
            assert_true(first >= 0 && first < all);
        s3_answer_checksum(&answer, &checksum);
        s3_etag_of(value, etag);
        assert_true(strlen(etag) <= strlen(value) && strlen(checksum.text) <= strlen(value));
        s3_time_of(value);
        assert_true(round > 0 || strcasecmp(line, "etag") != 0 || strcmp(etag, "5d41-2") == 0);
        assert_true(round > 0 || strcasecmp(line, "content-range") != 0 ||
                    (first == 2 && all == 5));
    }
}

static void heads_of_any_text(void **state)
{
    static const struct fuzz_text texts[] = {
        FUZZ_TEXT("ETag: \"5d41-2\"\nx-amz-checksum-crc32:NhCmhg==\ncontent-range:bytes 2-4/5\n"
                  "Last-Modified:Sat, 31 Jan 2026 23:59:59 GMT\nDate:2026-01-31T23:59:59.999Z")};
    static const char *const words[] = {
        "etag:", "\"", "-2", "x-amz-checksum-sha256:", "-", "/", "9223372036854775807", NULL};
    struct fuzz fuzz = FUZZ(texts, words, 20000, .is_string = true, .is_alone = true);
    (void)state;
    fuzz_run(&fuzz, take_any_head, NULL);
}

int main(void)
{
    signal(SIGPIPE, SIG_IGN);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(objects_go_and_come, setup, teardown),
        cmocka_unit_test_setup_teardown(etags_of_parts_are_opaque, setup, teardown),
        cmocka_unit_test_setup_teardown(streams_go_and_come, setup, teardown),
        cmocka_unit_test_setup_teardown(lists_come_in_pages, setup, teardown),
        cmocka_unit_test_setup_teardown(copies_are_made_by_the_service, setup, teardown),
        cmocka_unit_test_setup_teardown(folders_become_objects, setup, teardown),
        cmocka_unit_test_setup_teardown(errors_have_their_codes, setup, teardown),
        cmocka_unit_test_setup_teardown(a_broken_download_goes_on_where_it_was, setup, teardown),
        cmocka_unit_test_setup_teardown(changed_bytes_are_seen, setup, teardown),
        cmocka_unit_test_setup_teardown(an_upload_that_fails_leaves_nothing, setup, teardown),
        cmocka_unit_test_setup_teardown(an_upload_that_is_cancelled_leaves_nothing, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(lists_of_other_keys_are_refused, setup, teardown),
        cmocka_unit_test_setup_teardown(lists_of_any_bytes, setup, teardown),
        cmocka_unit_test(heads_of_any_text),
    };
    return cmocka_run_group_tests_name("s3 client", tests, NULL, NULL);
}
