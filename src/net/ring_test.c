/* SPDX-License-Identifier: Apache-2.0 */
/* ring_test.c: a ring seen through two mappings at different addresses. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "net/frame_queue.h"
#include "net/ring.h"

enum { DATA_BYTES = 1024, MEMORY_BYTES = sizeof(struct net_ring) + DATA_BYTES };

struct pair {
    void *writer_side, *reader_side;
    struct net_ring_writer writer;
    struct net_ring_reader reader;
};

static void open_pair(struct pair *pair)
{
    size_t bytes = MEMORY_BYTES;
    int fd = memfd_create("ring_test", MFD_CLOEXEC);

    assert_true(fd >= 0);
    assert_int_equal(ftruncate(fd, (off_t)bytes), 0);
    pair->writer_side = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    pair->reader_side = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    assert_ptr_not_equal(pair->writer_side, MAP_FAILED);
    assert_ptr_not_equal(pair->reader_side, MAP_FAILED);
    assert_ptr_not_equal(pair->writer_side, pair->reader_side);
    struct net_ring *writers = pair->writer_side, *readers = pair->reader_side;
    net_ring_writer_init(&pair->writer, writers, (unsigned char *)(writers + 1), DATA_BYTES);
    net_ring_reader_init(&pair->reader, readers, (unsigned char *)(readers + 1), DATA_BYTES);
}

static void close_pair(struct pair *pair)
{
    munmap(pair->writer_side, MEMORY_BYTES);
    munmap(pair->reader_side, MEMORY_BYTES);
}

/* Puts the frame and takes it out on the other side, in as many turns as it needs. */
static void pass(struct pair *pair, struct net_frame *frame, unsigned char *out)
{
    uint64_t bytes = frame->header.payload_bytes, done = 0;
    enum net_ring_put put = NET_RING_PUT_PIECE;
    struct net_header header;
    bool has_header = false;

    frame->done_bytes = 0;
    while (put != NET_RING_PUT_ALL || !has_header || done < bytes) {
        while (put != NET_RING_PUT_ALL) {
            put = net_ring_put(&pair->writer, frame);
            if (put == NET_RING_PUT_FULL)
                break;
        }
        assert_true(net_ring_available(&pair->reader) > 0);
        if (!has_header) {
            net_ring_take_header(&pair->reader, &header);
            assert_memory_equal(&header, &frame->header, sizeof(header));
            has_header = true;
        }
        if (done < bytes)
            done += net_ring_take(&pair->reader, out + done, bytes - done);
        assert_int_equal(net_ring_publish_read(&pair->reader), put == NET_RING_PUT_FULL);
        if (put == NET_RING_PUT_FULL)
            assert_true(net_ring_can_put(&pair->writer, frame));
    }
    assert_int_equal(net_ring_available(&pair->reader), 0);
    assert_false(net_ring_has_news(&pair->reader));
}

static void every_size(void **state)
{
    static unsigned char in[5 * DATA_BYTES], out[5 * DATA_BYTES];
    struct pair pair;

    (void)state;
    open_pair(&pair);
    for (size_t i = 0; i < sizeof(in); i++)
        in[i] = (unsigned char)(i * 131 + i / 256);
    for (size_t bytes = 0; bytes <= sizeof(in); bytes += bytes < 300 ? 1 : 97) {
        struct net_frame frame = {.header.payload_bytes = bytes, .payload = in};

        memset(frame.header.body, (int)bytes, sizeof(frame.header.body));
        memset(out, 0, sizeof(out));
        pass(&pair, &frame, out);
        assert_memory_equal(out, in, bytes);
    }
    close_pair(&pair);
}

/* Who stops when the ring is just full has not been refused; before it sleeps it must be known as
 * one that waits. */
static void full_at_the_last_piece(void **state)
{
    struct pair pair;
    struct net_frame frame = {.header.payload_bytes = 0};
    struct net_header header;

    (void)state;
    open_pair(&pair);
    for (int i = 0; i < DATA_BYTES / NET_HEADER_BYTES; i++, frame.done_bytes = 0)
        assert_int_equal(net_ring_put(&pair.writer, &frame), NET_RING_PUT_ALL);
    assert_false(net_ring_can_put(&pair.writer, &frame));
    assert_int_equal(net_ring_available(&pair.reader), DATA_BYTES);
    net_ring_take_header(&pair.reader, &header);
    assert_true(net_ring_publish_read(&pair.reader));
    assert_int_equal(net_ring_put(&pair.writer, &frame), NET_RING_PUT_ALL);
    close_pair(&pair);
}

static void full_and_free_again(void **state)
{
    struct pair pair;
    struct net_frame frame = {.header.payload_bytes = 0};
    struct net_header header;
    int count = 0;

    (void)state;
    open_pair(&pair);
    while (net_ring_put(&pair.writer, &frame) != NET_RING_PUT_FULL) {
        frame.done_bytes = 0;
        count++;
    }
    assert_int_equal(count, DATA_BYTES / NET_HEADER_BYTES);
    assert_false(net_ring_can_put(&pair.writer, &frame));
    assert_int_equal(net_ring_available(&pair.reader), DATA_BYTES);
    net_ring_take_header(&pair.reader, &header);
    assert_true(net_ring_publish_read(&pair.reader));
    assert_false(net_ring_publish_read(&pair.reader));
    assert_true(net_ring_can_put(&pair.writer, &frame));
    assert_int_equal(net_ring_put(&pair.writer, &frame), NET_RING_PUT_ALL);
    net_ring_take_header(&pair.reader, &header);
    assert_false(net_ring_publish_read(&pair.reader));
    close_pair(&pair);
}

static void end_comes_last(void **state)
{
    struct pair pair;
    struct net_frame frame = {.header.payload_bytes = 0};
    struct net_header header;

    (void)state;
    open_pair(&pair);
    assert_int_equal(net_ring_put(&pair.writer, &frame), NET_RING_PUT_ALL);
    net_ring_end(&pair.writer, NET_RING_LEFT);
    assert_int_equal(net_ring_how_ended(&pair.reader), NET_RING_OPEN);
    assert_true(net_ring_available(&pair.reader) > 0);
    net_ring_take_header(&pair.reader, &header);
    assert_int_equal(net_ring_how_ended(&pair.reader), NET_RING_LEFT);
    close_pair(&pair);
}

static void valid_sizes(void **state)
{
    (void)state;
    assert_true(net_ring_bytes_valid(NET_RING_MIN_BYTES));
    assert_true(net_ring_bytes_valid((size_t)1 << 30));
    assert_false(net_ring_bytes_valid(NET_RING_MIN_BYTES / 2));
    assert_false(net_ring_bytes_valid(NET_RING_MIN_BYTES + 64));
    assert_false(net_ring_bytes_valid(0));
}

/* ---- the queue in front of a ring ---- */

static void queue_order_and_withdrawal(void **state)
{
    struct net_frame frames[4] = {{.payload = NULL}};
    struct net_frame_queue queue = {0};

    (void)state;
    for (int i = 0; i < 4; i++)
        net_frame_queue_push(&queue, &frames[i]);
    assert_int_equal(net_frame_queue_withdraw(&queue, &frames[1]), SHOAL_OK);
    assert_int_equal(net_frame_queue_withdraw(&queue, &frames[1]), SHOAL_ERR_ARGUMENT);
    assert_int_equal(net_frame_queue_withdraw(&queue, &frames[3]), SHOAL_OK);
    net_frame_queue_push(&queue, &frames[1]);
    assert_ptr_equal(net_frame_queue_pop(&queue), &frames[0]);
    assert_ptr_equal(net_frame_queue_pop(&queue), &frames[2]);
    assert_ptr_equal(net_frame_queue_pop(&queue), &frames[1]);
    assert_null(queue.first);
    assert_null(queue.last);
}

/* The copy of a half-sent frame goes on at the same byte, and ends without its sender. */
static void half_sent_is_copied(void **state)
{
    struct net_frame frame = {.header.payload_bytes = 10, .payload = "0123456789"};
    struct net_frame next = {.payload = NULL};
    struct net_frame_queue queue = {0};
    const unsigned char *payload;

    (void)state;
    net_frame_queue_push(&queue, &frame);
    net_frame_queue_push(&queue, &next);
    frame.done_bytes = NET_HEADER_BYTES + 4;
    assert_int_equal(net_frame_queue_withdraw(&queue, &frame), SHOAL_OK);
    assert_ptr_not_equal(queue.first, &frame);
    assert_int_equal(queue.first->done_bytes, NET_HEADER_BYTES + 4);
    payload = queue.first->payload;
    assert_memory_equal(payload + 4, "456789", 6);
    assert_null(net_frame_queue_pop(&queue));
    assert_ptr_equal(net_frame_queue_pop(&queue), &next);
    assert_null(queue.last);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_size),          cmocka_unit_test(full_at_the_last_piece),
        cmocka_unit_test(full_and_free_again), cmocka_unit_test(end_comes_last),
        cmocka_unit_test(valid_sizes),         cmocka_unit_test(queue_order_and_withdrawal),
        cmocka_unit_test(half_sent_is_copied),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
