/* SPDX-License-Identifier: Apache-2.0 */
/* meet.c: see meet.h. */
#include "comm/meet.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/options.h"
#include "base/status.h"
#include "boot/address.h"
#include "net/proof.h"

#define CARD_MAGIC     "shoal\0\0\4"
#define LINGER_MS      2000 /* a server waits so long for the last clients to hang up */
#define PART_MS        3000 /* after a meeting in vain, for the others to have heard of it */
#define PART_LOOK_MS   100
#define TRY_TAKEN_MS   2000 /* to find out whether a taken port is this job's */
#define SECRET_KEY     "secret"
#define ID_MAGIC       "shoalid1"
#define ID_MAGIC_BYTES 8
#define ID_TEXT_BYTES  (128 - ID_MAGIC_BYTES - NET_SECRET_BYTES)

/* Layout of a unique id. */
struct id_layout {
    char magic[ID_MAGIC_BYTES];
    unsigned char secret[NET_SECRET_BYTES];
    char addresses[ID_TEXT_BYTES]; /* "host:port,host:port" */
};
_Static_assert(sizeof(struct id_layout) == sizeof(struct shoal_unique_id), "fills the id exactly");

/* What this process remembers between meetings: how often it met at an address, and the servers of
 * the unique ids that it made. */
struct place {
    struct place *next;
    char *address;
    uint64_t times;
    struct boot_store_server *server; /* of a unique id; NULL otherwise */
};
static struct place *places;
static pthread_mutex_t places_lock = PTHREAD_MUTEX_INITIALIZER;

static enum shoal_status place_of(const char *address, struct place **out)
{
    struct place *place = places;
    while (place && strcmp(place->address, address) != 0)
        place = place->next;
    if (!place) {
        TRY(BASE_NEW(&place, "a meeting place"));
        enum shoal_status status = base_strdup(address, "a meeting place", &place->address);
        if (status != SHOAL_OK) {
            base_free(place);
            return status;
        }
        place->next = places;
        places = place;
    }
    *out = place;
    return SHOAL_OK;
}

/* Every meeting at one store has keys of its own: all ranks come there equally often, and servers
 * as often as ranks come for a world that has servers. */
static enum shoal_status make_prefix(struct meeting *meeting)
{
    const char *kind = meeting->identity.server_count > 0 ? "served" : "world";
    char address[sizeof(meeting->identity.store) + 16];
    struct place *place = NULL;
    snprintf(address, sizeof(address), "%s %s", kind, meeting->identity.store);
    pthread_mutex_lock(&places_lock);
    enum shoal_status status = place_of(address, &place);
    if (status == SHOAL_OK)
        snprintf(meeting->prefix, sizeof(meeting->prefix), "%s%" PRIu64 "/", kind, place->times++);
    pthread_mutex_unlock(&places_lock);
    return status;
}

/* ---- unique ids
 * ---------------------------------------------------------------------------------------- */

/* As many of the addresses, which are in the order of their use, as there is room for. */
static void copy_addresses(const char *list, char out[ID_TEXT_BYTES])
{
    size_t bytes = strlen(list);
    while (bytes >= ID_TEXT_BYTES)
        for (bytes--; bytes > 0 && list[bytes] != ',';)
            bytes--;
    memcpy(out, list, bytes);
    out[bytes] = '\0';
}

enum shoal_status comm_unique_id_create(struct shoal_unique_id *out)
{
    struct id_layout id = {.magic = ID_MAGIC};
    char list[1024];
    struct boot_store_server *server = NULL;
    struct place *place = NULL;
    TRY(net_random(id.secret, sizeof(id.secret)));
    TRY(boot_store_serve(NULL, 0, id.secret, &server));
    enum shoal_status status = boot_address_list_local(boot_store_port(server), list, sizeof(list));
    if (status == SHOAL_OK) {
        copy_addresses(list, id.addresses);
        pthread_mutex_lock(&places_lock);
        status = place_of(id.addresses, &place);
        if (status == SHOAL_OK)
            place->server = server;
        pthread_mutex_unlock(&places_lock);
    }
    if (status != SHOAL_OK) {
        boot_store_stop(server, 0);
        return status;
    }
    memcpy(out->bytes, &id, sizeof(id));
    return SHOAL_OK;
}

/* The server of an id that this process made becomes the meeting's. */
static void adopt_server(struct meeting *meeting)
{
    pthread_mutex_lock(&places_lock);
    for (struct place *place = places; place; place = place->next)
        if (place->server && strcmp(place->address, meeting->identity.store) == 0) {
            meeting->server = place->server;
            place->server = NULL;
        }
    pthread_mutex_unlock(&places_lock);
}

/* ---- who am I
 * -------------------------------------------------------------------------------------------- */

static void take_secret(const char *given, const char *fallback, struct boot_identity *identity)
{
    const char *secret = given ? given : base_option_text(OPTION_SECRET);
    identity->guessable = secret == NULL;
    net_secret_from_text(secret ? secret : fallback, identity->secret);
    net_job_from_text(fallback, identity->job);
}

static enum shoal_status from_id(const struct shoal_group_options *options,
                                 struct boot_identity *identity)
{
    struct id_layout id;
    memcpy(&id, options->unique_id->bytes, sizeof(id));
    if (memcmp(id.magic, ID_MAGIC, ID_MAGIC_BYTES) != 0 ||
        !memchr(id.addresses, '\0', sizeof(id.addresses)))
        return base_error(
            SHOAL_ERR_ARGUMENT,
            "unique_id was not made by shoal_unique_id_create, or was cut on its way");
    snprintf(identity->store, sizeof(identity->store), "%s", id.addresses);
    memcpy(identity->secret, id.secret, sizeof(identity->secret));
    net_job_from_text(id.addresses, identity->job);
    return SHOAL_OK;
}

static enum shoal_status identify(const struct shoal_group_options *options, int64_t deadline_ns,
                                  struct boot_identity *identity)
{
    bool explicit_place = options->store || options->unique_id || options->user_store;
    if (!explicit_place && options->rank < 0 && options->size < 0)
        return boot_identity_read(deadline_ns, identity);
    if ((options->rank < 0 || options->size < 0) && explicit_place) {
        TRY(boot_identity_read(deadline_ns, identity));
    } else if (!explicit_place && options->size > 1) {
        TRY(boot_identity_read(deadline_ns, identity)); /* for the store and the secret */
    }
    if (options->size >= 0)
        identity->size = options->size;
    if (options->rank >= 0)
        identity->rank = options->rank;
    if (identity->size < 1 || identity->rank < 0 || identity->rank >= identity->size)
        return base_error(SHOAL_ERR_ARGUMENT, "rank %d of size %d: the rank must be 0 to size - 1",
                          identity->rank, identity->size);
    if (options->unique_id)
        return from_id(options, identity);
    if (options->store) {
        snprintf(identity->store, sizeof(identity->store), "%s", options->store);
        identity->serve_here = identity->rank == 0;
        take_secret(options->secret, options->store, identity);
    } else if (!options->user_store && identity->size > 1 && identity->store[0] == '\0') {
        return base_error(SHOAL_ERR_ARGUMENT,
                          "rank and size are given, but no meeting point: set options.store to "
                          "\"host:port\", or SHOAL_STORE");
    }
    return SHOAL_OK;
}

/* ---- the store
 * -----------------------------------------------------------------------------------------------
 */

/* Through the caller's own store rank 0 hands out a fresh secret and job. */
static enum shoal_status share_secret(struct meeting *meeting, const char *given)
{
    unsigned char both[NET_SECRET_BYTES + NET_JOB_BYTES];
    size_t bytes = sizeof(both);
    if (meeting->identity.rank == 0) {
        TRY(net_random(both, sizeof(both)));
        TRY(boot_store_set(meeting->store, SECRET_KEY, both, sizeof(both)));
    } else {
        enum shoal_status status =
            boot_store_get(meeting->store, SECRET_KEY, both, &bytes, meeting->deadline_ns);
        if (status != SHOAL_OK)
            return base_error_context(status,
                                      "rank %d (host %s) waits for rank 0, which has not come",
                                      meeting->identity.rank, boot_host_name());
        if (bytes != sizeof(both))
            return base_error(SHOAL_ERR_FORMAT,
                              "the store's key '" SECRET_KEY "' holds %zu bytes "
                              "instead of %zu: is the store shared with something else?",
                              bytes, sizeof(both));
    }
    memcpy(meeting->identity.secret, both, NET_SECRET_BYTES);
    memcpy(meeting->identity.job, both + NET_SECRET_BYTES, NET_JOB_BYTES);
    if (given)
        net_secret_from_text(given, meeting->identity.secret);
    return SHOAL_OK;
}

/* Who read the environment may serve already, at an address that the launcher told all ranks; of no
 * use when the caller names another place. */
static void take_server(struct meeting *meeting, const struct shoal_group_options *options)
{
    meeting->server = meeting->identity.server;
    meeting->identity.server = NULL;
    if (options->store || options->unique_id || options->user_store) {
        boot_store_stop(meeting->server, 0);
        meeting->server = NULL;
    }
}

/* Serves the meeting. Where the port is taken it may be by who serves this job's ranks: another
 * process with this rank, which the store will tell, or a launcher. */
static enum shoal_status serve(struct meeting *meeting)
{
    char text[BASE_ERROR_TEXT_BYTES];
    const struct boot_identity *identity = &meeting->identity;
    enum shoal_status status =
        boot_store_serve_address(identity->store, identity->secret, &meeting->server);
    if (status != SHOAL_ERR_SYSTEM)
        return status;
    snprintf(text, sizeof(text), "%s", base_error_text());
    int64_t try_ns = base_deadline_ns(TRY_TAKEN_MS);
    if (meeting->deadline_ns < try_ns)
        try_ns = meeting->deadline_ns;
    if (boot_store_connect(identity->store, identity->secret, try_ns, &meeting->store) == SHOAL_OK)
        return SHOAL_OK;
    return base_error(status, "%s", text);
}

/* Once, by one rank of the job. */
static void say_if_guessable(const struct boot_identity *identity)
{
    static atomic_flag said = ATOMIC_FLAG_INIT;
    if (identity->guessable && identity->rank == 0 && !atomic_flag_test_and_set(&said))
        base_log(BASE_LOG_INFO,
                 "the job's secret is made from its name and address, which other users may know: "
                 "to keep them out set SHOAL_SECRET on all ranks");
}

static enum shoal_status open_store(struct meeting *meeting,
                                    const struct shoal_group_options *options)
{
    if (options->user_store) {
        TRY(boot_store_wrap(options->user_store, &meeting->store));
        return share_secret(meeting, options->secret);
    }
    TRY(make_prefix(meeting));
    if (!options->unique_id)
        say_if_guessable(&meeting->identity);
    if (options->unique_id)
        adopt_server(meeting);
    else if (meeting->identity.serve_here && !meeting->server)
        TRY(serve(meeting));
    if (meeting->store)
        return SHOAL_OK;
    return boot_store_connect(meeting->identity.store, meeting->identity.secret,
                              meeting->deadline_ns, &meeting->store);
}

/* Where the job has servers, a world of all its ranks meets at the job's store, whatever place the
 * caller names: that is where the servers are. *out: it is such a world. */
static enum shoal_status identify_served(const struct shoal_group_options *options,
                                         struct meeting *meeting, bool *out)
{
    struct boot_identity *identity = &meeting->identity;
    *out = false;
    if (base_option_int(OPTION_SERVERS) == 0)
        return SHOAL_OK;
    TRY(boot_identity_read(meeting->deadline_ns, identity));
    *out = identity->server_count > 0 && (options->size < 0 || options->size == identity->size) &&
           (options->rank < 0 || options->rank == identity->rank);
    if (!*out) {
        boot_store_stop(identity->server, 0);
        memset(identity, 0, sizeof(*identity));
    }
    return SHOAL_OK;
}

enum shoal_status meet_begin_server(struct meeting *meeting)
{
    struct shoal_group_options none = SHOAL_GROUP_OPTIONS_INIT;
    memset(meeting, 0, sizeof(*meeting));
    meeting->timeout_ms = base_option_int(OPTION_TIMEOUT_MS);
    meeting->deadline_ns = base_deadline_ns(meeting->timeout_ms);
    enum shoal_status status = boot_identity_read_server(&meeting->identity);
    if (status == SHOAL_OK)
        status = open_store(meeting, &none);
    if (status != SHOAL_OK)
        meet_give_up(meeting);
    return status;
}

enum shoal_status meet_begin(const struct shoal_group_options *options, struct meeting *meeting)
{
    memset(meeting, 0, sizeof(*meeting));
    int64_t timeout_ms =
        options->timeout_ms ? options->timeout_ms : base_option_int(OPTION_TIMEOUT_MS);
    meeting->timeout_ms = timeout_ms;
    meeting->deadline_ns = base_deadline_ns(timeout_ms);
    struct shoal_group_options own = *options;
    bool is_job = false;
    enum shoal_status status = identify_served(options, meeting, &is_job);
    if (is_job)
        own.store = NULL, own.unique_id = NULL, own.user_store = NULL;
    else if (status == SHOAL_OK)
        status = identify(options, meeting->deadline_ns, &meeting->identity);
    options = &own;
    take_server(meeting, options);
    if (status == SHOAL_OK && meeting->identity.size == 1)
        return net_random(meeting->identity.job, sizeof(meeting->identity.job));
    if (status == SHOAL_OK)
        status = open_store(meeting, options);
    if (status != SHOAL_OK)
        meet_give_up(meeting);
    return status;
}

void meet_give_up(struct meeting *meeting)
{
    boot_store_close(meeting->store);
    boot_store_stop(meeting->server, 0);
    meeting->store = NULL;
    meeting->server = NULL;
}

enum shoal_status meet_end(struct meeting *meeting)
{
    if (!meeting->store)
        return SHOAL_OK;
    char key[BOOT_KEY_BYTES];
    enum shoal_status status = SHOAL_OK;
    snprintf(key, sizeof(key), "%sstands/%d", meeting->prefix, meeting->identity.rank);
    if (!meeting->identity.is_server)
        status = boot_store_set(meeting->store, key, "1", 1);
    void *block = NULL;
    const void **values = NULL;
    size_t *sizes = NULL;
    if (status == SHOAL_OK && meeting->server) {
        snprintf(key, sizeof(key), "%sstands/", meeting->prefix);
        status = BASE_NEW_ARRAY(&values, meeting->identity.size, "the meeting's end");
        if (status == SHOAL_OK)
            status = BASE_NEW_ARRAY(&sizes, meeting->identity.size, "the meeting's end");
        if (status == SHOAL_OK)
            status = boot_store_gather(meeting->store, key, meeting->identity.size,
                                       meeting->deadline_ns, &block, values, sizes);
    }
    base_free(block);
    base_free(values);
    base_free(sizes);
    boot_store_close(meeting->store);
    boot_store_stop(meeting->server, LINGER_MS);
    meeting->store = NULL;
    meeting->server = NULL;
    return status;
}

/* ---- the cards
 * --------------------------------------------------------------------------------------------------
 */

static const enum base_option_id setting_options[MEET_SETTING_COUNT] = {
    [MEET_EAGER_BYTES] = OPTION_EAGER_BYTES,
    [MEET_SEGMENT_BYTES] = OPTION_SEGMENT_BYTES,
    [MEET_REPRODUCIBLE] = OPTION_REPRODUCIBLE,
    [MEET_STREAMS] = OPTION_STREAMS,
    [MEET_RING_BYTES] = OPTION_RING_BYTES,
    [MEET_CHUNK_BYTES] = OPTION_CHUNK_BYTES,
    [MEET_LOCAL] = OPTION_LOCAL,
};

void meet_settings(const struct shoal_group_options *options, struct meet_card *card)
{
    const char *algorithm = base_option_text(OPTION_ALGORITHM);
    for (int i = 0; i < MEET_SETTING_COUNT; i++)
        card->settings[i] = base_option_int(setting_options[i]);
    if (options->reproducible >= 0)
        card->settings[MEET_REPRODUCIBLE] = options->reproducible != 0;
    snprintf(card->algorithm, sizeof(card->algorithm), "%s", algorithm ? algorithm : "");
}

/* Where a rank's card lies, or a server's. */
static void card_key(const struct meeting *meeting, int rank, char key[BOOT_KEY_BYTES])
{
    int size = meeting->identity.size;
    if (rank < size)
        snprintf(key, BOOT_KEY_BYTES, "%srank/%d", meeting->prefix, rank);
    else
        snprintf(key, BOOT_KEY_BYTES, "%sserver/%d", meeting->prefix, rank - size);
}

static enum shoal_status check_settings(const struct meet_card *mine, const struct meet_card *card)
{
    bool same_host = strcmp(mine->host_key, card->host_key) == 0;
    int count = same_host ? MEET_SETTING_COUNT : MEET_RING_BYTES;
    for (int i = 0; i < count; i++)
        if (card->settings[i] != mine->settings[i])
            return base_error(SHOAL_ERR_MISMATCH,
                              "%s differs: rank %d (host %s) has %" PRId64
                              ", rank %d (host %s) has %" PRId64 "; set it alike on all ranks",
                              base_options()[setting_options[i]].name, card->rank, card->host_name,
                              card->settings[i], mine->rank, mine->host_name, mine->settings[i]);
    if (strcmp(card->algorithm, mine->algorithm) != 0)
        return base_error(SHOAL_ERR_MISMATCH,
                          "SHOAL_ALGORITHM differs: rank %d (host %s) has \"%s\", rank %d (host "
                          "%s) has \"%s\"; set it alike on all ranks",
                          card->rank, card->host_name, card->algorithm, mine->rank, mine->host_name,
                          mine->algorithm);
    return SHOAL_OK;
}

static enum shoal_status check_card(const struct meeting *meeting, const struct meet_card *mine,
                                    const struct meet_card *card, size_t bytes, int rank)
{
    if (bytes != sizeof(*card) || memcmp(card->magic, CARD_MAGIC, sizeof(card->magic)) != 0)
        return base_error(SHOAL_ERR_MISMATCH,
                          "rank %d runs another version of shoal than rank %d: install the same "
                          "everywhere",
                          rank, mine->rank);
    if (rank == meeting->identity.rank && card->nonce != mine->nonce)
        return base_error(SHOAL_ERR_RANK_TAKEN,
                          "rank %d is taken: process %d on host %s came with it first; this is "
                          "process %d on host %s",
                          rank, card->pid, card->host_name, mine->pid, mine->host_name);
    if (card->failure != SHOAL_OK)
        return base_error((enum shoal_status)card->failure, "%s %d (host %s) cannot come: %.*s",
                          rank < meeting->identity.size ? "rank" : "server",
                          rank < meeting->identity.size ? rank : rank - meeting->identity.size,
                          card->host_name, (int)sizeof(card->address), (const char *)card->address);
    return check_settings(mine, card);
}

static enum shoal_status publish(struct meeting *meeting, const struct meet_card *mine)
{
    char key[BOOT_KEY_BYTES];
    card_key(meeting, mine->rank, key);
    enum shoal_status status = boot_store_set(meeting->store, key, mine, sizeof(*mine));
    if (status != SHOAL_ERR_RANK_TAKEN)
        return status;
    struct meet_card first;
    size_t bytes = sizeof(first);
    TRY(boot_store_get(meeting->store, key, &first, &bytes, meeting->deadline_ns));
    return check_card(meeting, mine, &first, bytes, mine->rank);
}

/* Copies the values of `count` from rank `first` on, which lie anywhere, to cards. */
static enum shoal_status read_cards(const struct meeting *meeting, const struct meet_card *mine,
                                    const void *const *values, const size_t *sizes, int first,
                                    int count, struct meet_card *cards)
{
    for (int i = 0; i < count; i++) {
        struct meet_card *card = &cards[first + i];
        memcpy(card, values[i], sizes[i] < sizeof(*card) ? sizes[i] : sizeof(*card));
        TRY(check_card(meeting, mine, card, sizes[i], first + i));
    }
    return SHOAL_OK;
}

/* After a meeting in vain: the rank that serves it goes last, so that the others hear from the
 * store who is missing and not that it is gone. */
static void part(struct meeting *meeting, enum shoal_status status)
{
    char key[BOOT_KEY_BYTES], text[BASE_ERROR_TEXT_BYTES];
    snprintf(text, sizeof(text), "%s", base_error_text());
    int64_t limit_ns = base_deadline_ns(PART_MS);
    for (int i = 0; meeting->server && i < meeting->identity.size; i++) {
        struct meet_card card;
        size_t bytes = sizeof(card);
        if (i == meeting->identity.rank || base_left_ms(limit_ns) == 0)
            continue;
        snprintf(key, sizeof(key), "%srank/%d", meeting->prefix, i);
        if (boot_store_get(meeting->store, key, &card, &bytes, base_deadline_ns(PART_LOOK_MS)) !=
            SHOAL_OK)
            continue;
        snprintf(key, sizeof(key), "%sparted/%d", meeting->prefix, i);
        boot_store_get(meeting->store, key, &card, &bytes, limit_ns);
    }
    if (!meeting->server) {
        snprintf(key, sizeof(key), "%sparted/%d", meeting->prefix, meeting->identity.rank);
        boot_store_set(meeting->store, key, "1", 1);
    }
    base_error(status, "%s", text);
}

static bool any_declined(const struct meet_card *cards, int count)
{
    for (int i = 0; i < count; i++)
        if (cards[i].failure != SHOAL_OK)
            return true;
    return false;
}

/* Of SHOAL_SERVER_HOSTS " (host f)"; nothing where it does not say. */
static void server_host_text(int server, char *text, size_t text_bytes)
{
    const char *at = base_option_text(OPTION_SERVER_HOSTS);
    for (int i = 0; at && i < server; i++) {
        at = strchr(at, ',');
        at += at != NULL;
    }
    if (at && *at)
        snprintf(text, text_bytes, " (host %.*s)", (int)strcspn(at, ","), at);
    else
        text[0] = '\0';
}

/* Adds to the error which server did not come, where it should be, and how one is started. */
static void name_missing_server(const struct meeting *meeting)
{
    const struct boot_identity *identity = &meeting->identity;
    char key[BOOT_KEY_BYTES], host[256], why[BASE_ERROR_TEXT_BYTES];
    snprintf(why, sizeof(why), "%s", base_error_text());
    for (int server = 0; server < identity->server_count; server++) {
        struct meet_card card;
        size_t bytes = sizeof(card);
        card_key(meeting, identity->size + server, key);
        if (boot_store_get(meeting->store, key, &card, &bytes, base_deadline_ns(PART_LOOK_MS)) ==
            SHOAL_OK)
            continue;
        server_host_text(server, host, sizeof(host));
        base_error(
            SHOAL_ERR_TIMEOUT,
            "%s; server %d%s does not come: is it running, and does it reach the store? "
            "SHOAL_STORE=%s SHOAL_SIZE=%d SHOAL_SERVERS=%d SHOAL_SERVER=%d shoal reduce-server "
            "(with the job's SHOAL_SECRET) starts it by hand",
            why, server, host, identity->store, identity->size, identity->server_count, server);
        return;
    }
    base_error(SHOAL_ERR_TIMEOUT, "%s", why);
}

/* Of `count` ranks, or of servers. */
static enum shoal_status gather(struct meeting *meeting, const struct meet_card *mine, bool servers,
                                int count, struct meet_card *cards)
{
    char key[BOOT_KEY_BYTES];
    const void **values = NULL;
    size_t *sizes = NULL;
    void *block = NULL;
    int size = meeting->identity.size;
    const char *what = servers ? "server" : "rank";
    snprintf(key, sizeof(key), "%s%s/", meeting->prefix, what);
    enum shoal_status status = BASE_NEW_ARRAY(&values, count, "the cards of all ranks");
    if (status == SHOAL_OK)
        status = BASE_NEW_ARRAY(&sizes, count, "the cards of all ranks");
    if (status == SHOAL_OK)
        status = boot_store_gather(meeting->store, key, count, meeting->deadline_ns, &block, values,
                                   sizes);
    if (status == SHOAL_ERR_TIMEOUT || status == SHOAL_ERR_PEER_LOST)
        base_error_context(status, "%s %d (host %s) waits for all %d %ss",
                           meeting->identity.is_server ? "server" : "rank",
                           mine->rank - (meeting->identity.is_server ? size : 0), mine->host_name,
                           count, what);
    int first = servers ? size : 0;
    if (status == SHOAL_ERR_TIMEOUT && servers)
        name_missing_server(meeting);
    if (status == SHOAL_OK)
        status = read_cards(meeting, mine, values, sizes, first, count, cards);
    if (status == SHOAL_ERR_TIMEOUT || (status != SHOAL_OK && any_declined(cards + first, count)))
        part(meeting, status);
    base_free(values);
    base_free(sizes);
    base_free(block);
    return status;
}

/* Whose card it is. */
static enum shoal_status sign(const struct meeting *meeting, struct meet_card *mine)
{
    memcpy(mine->magic, CARD_MAGIC, sizeof(mine->magic));
    mine->rank = meeting->identity.rank;
    mine->pid = (int32_t)getpid();
    snprintf(mine->host_name, sizeof(mine->host_name), "%s", boot_host_name());
    return net_random(&mine->nonce, sizeof(mine->nonce));
}

enum shoal_status meet_decline(struct meeting *meeting, struct meet_card *mine,
                               enum shoal_status why)
{
    char text[BASE_ERROR_TEXT_BYTES];
    snprintf(text, sizeof(text), "%s", base_error_text());
    mine->failure = (int32_t)why;
    snprintf((char *)mine->address, sizeof(mine->address), "%s", text);
    bool told =
        meeting->store && sign(meeting, mine) == SHOAL_OK && publish(meeting, mine) == SHOAL_OK;
    base_error(why, "%s", text);
    if (told)
        part(meeting, why);
    return why;
}

enum shoal_status meet_exchange(struct meeting *meeting, struct meet_card *mine,
                                struct meet_card **out)
{
    struct meet_card *cards = NULL;
    TRY(sign(meeting, mine));
    int size = meeting->identity.size, server_count = meeting->identity.server_count;
    TRY(BASE_NEW_ARRAY(&cards, size + server_count, "the cards of all ranks"));
    cards[0] = *mine; /* for a group of one */
    enum shoal_status status = SHOAL_OK;
    if (size > 1)
        status = publish(meeting, mine);
    if (meeting->identity.is_server)
        meeting->deadline_ns = BASE_NO_DEADLINE;
    if (status == SHOAL_OK && size > 1)
        status = gather(meeting, mine, false, size, cards);
    if (meeting->identity.is_server)
        meeting->deadline_ns = base_deadline_ns(meeting->timeout_ms);
    if (status == SHOAL_OK && server_count > 0)
        status = gather(meeting, mine, true, server_count, cards);
    if (status != SHOAL_OK) {
        base_free(cards);
        return status;
    }
    *out = cards;
    return SHOAL_OK;
}
