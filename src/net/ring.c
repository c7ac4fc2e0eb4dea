/* SPDX-License-Identifier: Apache-2.0 */
/* ring.c: the byte ring between two processes or threads; the rules are in ring.h. */
#include "net/ring.h"

#include <string.h>

#include "base/status.h"
#include "net/frame_queue.h"

/* A piece is large enough that publishing it costs nothing beside copying it, and small enough that
 * the reader copies one while the writer fills the next, both from the cache. */
#define PIECE_BYTES_MAX (32 * 1024)

static uint64_t filled_up(uint64_t bytes)
{
    return (bytes + NET_RING_LINE_BYTES - 1) & ~(uint64_t)(NET_RING_LINE_BYTES - 1);
}

static uint64_t smaller(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

bool net_ring_bytes_valid(size_t data_bytes)
{
    return data_bytes >= NET_RING_MIN_BYTES && (data_bytes & (data_bytes - 1)) == 0;
}

/* ---- writer ---- */

void net_ring_writer_init(struct net_ring_writer *writer, struct net_ring *ring,
                          unsigned char *data, size_t data_bytes)
{
    BASE_ASSERT(net_ring_bytes_valid(data_bytes));
    *writer = (struct net_ring_writer){
        .ring = ring,
        .data = data,
        .data_bytes = data_bytes,
        .piece_bytes = smaller(data_bytes / 4, PIECE_BYTES_MAX),
        .written = atomic_load_explicit(&ring->written, memory_order_relaxed),
        .read_seen = atomic_load_explicit(&ring->read, memory_order_acquire),
    };
}

/* What the next piece takes of the ring: a header comes whole with the first. */
static uint64_t next_piece_bytes(const struct net_ring_writer *writer,
                                 const struct net_frame *frame)
{
    uint64_t missing = net_frame_bytes(frame) - frame->done_bytes;

    return smaller(filled_up(missing), writer->piece_bytes);
}

static bool has_space(const struct net_ring_writer *writer, uint64_t bytes)
{
    return writer->data_bytes - (writer->written - writer->read_seen) >= bytes;
}

/* Looks; announces that it waits and looks once more: the reader either sees `blocked`, or has
 * already published what this last look sees. */
static bool wait_for_space(struct net_ring_writer *writer, uint64_t bytes)
{
    struct net_ring *ring = writer->ring;

    writer->read_seen = atomic_load(&ring->read);
    if (!has_space(writer, bytes) && !writer->blocked) {
        writer->blocked = true;
        atomic_store(&ring->blocked, 1);
        writer->read_seen = atomic_load(&ring->read);
    }
    return has_space(writer, bytes);
}

bool net_ring_can_put(struct net_ring_writer *writer, const struct net_frame *frame)
{
    return wait_for_space(writer, next_piece_bytes(writer, frame));
}

static void put_bytes(struct net_ring_writer *writer, const void *from, uint64_t bytes)
{
    uint64_t at = writer->written & (writer->data_bytes - 1);
    uint64_t until_wrap = smaller(bytes, writer->data_bytes - at);

    memcpy(writer->data + at, from, until_wrap);
    if (bytes > until_wrap)
        memcpy(writer->data, (const unsigned char *)from + until_wrap, bytes - until_wrap);
    writer->written += bytes;
}

enum net_ring_put net_ring_put(struct net_ring_writer *writer, struct net_frame *frame)
{
    uint64_t piece = next_piece_bytes(writer, frame);
    uint64_t total = net_frame_bytes(frame), payload;

    if (!has_space(writer, piece) && !wait_for_space(writer, piece))
        return NET_RING_PUT_FULL;
    if (writer->blocked) {
        writer->blocked = false;
        atomic_store_explicit(&writer->ring->blocked, 0, memory_order_relaxed);
    }
    if (frame->done_bytes == 0) {
        put_bytes(writer, &frame->header, NET_HEADER_BYTES);
        frame->done_bytes = NET_HEADER_BYTES;
        piece -= NET_HEADER_BYTES;
    }
    payload = smaller(piece, total - frame->done_bytes);
    if (payload > 0) {
        put_bytes(writer,
                  (const unsigned char *)frame->payload + frame->done_bytes - NET_HEADER_BYTES,
                  payload);
        frame->done_bytes += payload;
        writer->written = filled_up(writer->written);
    }
    atomic_store_explicit(&writer->ring->written, writer->written, memory_order_release);
    return frame->done_bytes == total ? NET_RING_PUT_ALL : NET_RING_PUT_PIECE;
}

void net_ring_end(struct net_ring_writer *writer, enum net_ring_ended how)
{
    atomic_store(&writer->ring->ended, (unsigned)how);
}

/* ---- reader ---- */

void net_ring_reader_init(struct net_ring_reader *reader, struct net_ring *ring,
                          const unsigned char *data, size_t data_bytes)
{
    uint64_t read = atomic_load_explicit(&ring->read, memory_order_relaxed);

    BASE_ASSERT(net_ring_bytes_valid(data_bytes));
    *reader = (struct net_ring_reader){.ring = ring,
                                       .data = data,
                                       .data_bytes = data_bytes,
                                       .read = read,
                                       .read_published = read,
                                       .written_seen = read};
}

uint64_t net_ring_available(struct net_ring_reader *reader)
{
    if (reader->written_seen == reader->read)
        reader->written_seen = atomic_load_explicit(&reader->ring->written, memory_order_acquire);
    return reader->written_seen - reader->read;
}

bool net_ring_has_news(const struct net_ring_reader *reader)
{
    return atomic_load(&reader->ring->written) != reader->read ||
           atomic_load(&reader->ring->ended) != NET_RING_OPEN;
}

void net_ring_take_header(struct net_ring_reader *reader, struct net_header *header)
{
    uint64_t at = reader->read & (reader->data_bytes - 1);

    memcpy(header, reader->data + at, NET_HEADER_BYTES);
    reader->read += NET_HEADER_BYTES;
}

uint64_t net_ring_take(struct net_ring_reader *reader, void *out, uint64_t missing)
{
    uint64_t at = reader->read & (reader->data_bytes - 1);
    uint64_t count = smaller(missing, reader->written_seen - reader->read);
    uint64_t until_wrap = smaller(count, reader->data_bytes - at);

    if (out != NULL) {
        memcpy(out, reader->data + at, until_wrap);
        if (count > until_wrap)
            memcpy((unsigned char *)out + until_wrap, reader->data, count - until_wrap);
    }
    reader->read += count;
    if (count == missing)
        reader->read = filled_up(reader->read);
    return count;
}

bool net_ring_publish_read(struct net_ring_reader *reader)
{
    if (reader->read_published == reader->read)
        return false;
    reader->read_published = reader->read;
    atomic_store(&reader->ring->read, reader->read);
    return atomic_load(&reader->ring->blocked) != 0;
}

enum net_ring_ended net_ring_how_ended(struct net_ring_reader *reader)
{
    unsigned ended = atomic_load(&reader->ring->ended);

    if (ended == NET_RING_OPEN || net_ring_available(reader) > 0)
        return NET_RING_OPEN;
    return (enum net_ring_ended)ended;
}
