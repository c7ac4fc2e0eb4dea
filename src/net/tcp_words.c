/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tcp_words.c: what a link that breaks still tells the peer.
 *
 * When one stream of a link breaks, or one can't be opened, this side knows why and the peer may
 * not: its half of the connection is only silent. So the streams that still work end with a message
 * of words. On each, what was half sent is finished first, from a copy, since the frame is its
 * sender's again at once. The sockets then wait until the words have arrived, or for a while; words
 * that never did end as a reset.
 */
#include <linux/sockios.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/memory.h"
#include "base/status.h"
#include "net/tcp.h"

#define WORDS_LIMIT_NS (5 * BASE_NS_PER_S)
#define WORDS_PAUSE_NS (5 * BASE_NS_PER_MS)

struct net_tcp_words {
    struct net_tcp_words *next;
    int fd;
    int64_t deadline_ns;
    size_t count, done;
    bool shut;
    unsigned char bytes[];
};

/* The rest of a message: up to two parts. */
struct rest {
    const unsigned char *parts[2];
    uint64_t bytes[2];
};

static struct rest rest_of_head(const unsigned char *head, uint64_t head_bytes,
                                const unsigned char *payload, uint64_t payload_bytes,
                                uint64_t done_bytes)
{
    struct rest rest = {{head, payload}, {head_bytes, payload_bytes}};

    if (done_bytes < head_bytes) {
        rest.parts[0] += done_bytes;
        rest.bytes[0] -= done_bytes;
        return rest;
    }
    rest.bytes[0] = 0;
    if (payload != NULL)
        rest.parts[1] += done_bytes - head_bytes;
    rest.bytes[1] -= done_bytes - head_bytes;
    return rest;
}

/* What was begun on the stream and not ended. */
static struct rest rest_of(const struct net_tcp_stream *stream)
{
    const struct net_tcp_link *link = stream->link;
    const struct net_tcp_piece *piece = stream->piece;
    const struct net_frame *first = link->queue.first;

    if (piece->head_bytes > 0 && piece->done_bytes > 0)
        return rest_of_head(piece->head, piece->head_bytes,
                            (const unsigned char *)link->cut->payload + piece->at, piece->bytes,
                            piece->done_bytes);
    if (stream->number == 0 && first != NULL && first != link->cut && first->done_bytes > 0)
        return rest_of_head((const unsigned char *)&first->header, NET_HEADER_BYTES, first->payload,
                            net_tcp_wire_bytes(link, first) - NET_HEADER_BYTES, first->done_bytes);
    return (struct rest){0};
}

static struct net_tcp_words *write_words(const struct net_tcp_stream *stream, const char *text)
{
    struct rest rest = rest_of(stream);
    size_t text_bytes = strnlen(text, NET_TCP_WORDS_BYTES);
    size_t count = rest.bytes[0] + rest.bytes[1] + NET_HEADER_BYTES + text_bytes;
    struct net_header header = {.payload_bytes = text_bytes | NET_TCP_WORDS};
    struct net_tcp_words *words;
    unsigned char *at;

    if (base_alloc(sizeof(*words) + count, "the last words of a tcp link", (void **)&words) !=
        SHOAL_OK)
        return NULL;
    memset(words, 0, sizeof(*words));
    words->count = count;
    at = words->bytes;
    for (int i = 0; i < 2; i++) {
        if (rest.bytes[i] > 0)
            memcpy(at, rest.parts[i], rest.bytes[i]);
        at += rest.bytes[i];
    }
    memcpy(at, &header, sizeof(header));
    memcpy(at + sizeof(header), text, text_bytes);
    return words;
}

static void send_words(struct net_tcp_words *words)
{
    while (words->done < words->count) {
        ssize_t sent = send(words->fd, words->bytes + words->done, words->count - words->done,
                            MSG_NOSIGNAL | MSG_DONTWAIT);

        if (sent <= 0)
            return;
        words->done += (size_t)sent;
    }
    if (!words->shut)
        (void)shutdown(words->fd, SHUT_WR);
    words->shut = true;
}

void net_tcp_say_words(struct net_tcp *ep, struct net_tcp_link *link,
                       const struct net_tcp_stream *except, const char *text)
{
    for (int i = 0; i < NET_TCP_STREAMS_MAX; i++) {
        struct net_tcp_stream *stream = link->streams[i];
        struct net_tcp_words *words;

        if (stream == NULL || stream == except || stream->fd < 0 || stream->write_error != 0)
            continue;
        words = write_words(stream, text);
        if (words == NULL)
            continue;
        (void)epoll_ctl(ep->epoll_fd, EPOLL_CTL_DEL, stream->fd, NULL);
        words->fd = stream->fd;
        stream->fd = -1;
        words->deadline_ns = base_now_ns() + WORDS_LIMIT_NS;
        words->next = ep->words;
        ep->words = words;
        send_words(words);
        net_tcp_timer_at(ep, base_now_ns() + WORDS_PAUSE_NS);
    }
}

static bool has_arrived(const struct net_tcp_words *words)
{
    int unsent = 0;

    return words->done == words->count && (ioctl(words->fd, SIOCOUTQ, &unsent) != 0 || unsent == 0);
}

/* Where the peer has no room for words, a reset needs none. */
static void free_first(struct net_tcp_words **at)
{
    struct net_tcp_words *words = *at;
    struct linger at_once = {.l_onoff = 1};

    *at = words->next;
    if (!has_arrived(words))
        (void)setsockopt(words->fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once));
    close(words->fd);
    base_free(words);
}

void net_tcp_go_on_with_words(struct net_tcp *ep, int64_t now_ns, int64_t *next_ns)
{
    for (struct net_tcp_words **at = &ep->words; *at != NULL;) {
        send_words(*at);
        if (has_arrived(*at) || now_ns >= (*at)->deadline_ns) {
            free_first(at);
            continue;
        }
        if (now_ns + WORDS_PAUSE_NS < *next_ns)
            *next_ns = now_ns + WORDS_PAUSE_NS;
        at = &(*at)->next;
    }
}

bool net_tcp_words_arrived(const struct net_tcp *ep)
{
    for (const struct net_tcp_words *words = ep->words; words != NULL; words = words->next)
        if (!has_arrived(words))
            return false;
    return true;
}

void net_tcp_close_copies_of_words(const struct net_tcp *ep)
{
    for (const struct net_tcp_words *words = ep->words; words != NULL; words = words->next)
        close(words->fd);
}

void net_tcp_free_words(struct net_tcp *ep)
{
    while (ep->words != NULL)
        free_first(&ep->words);
}
