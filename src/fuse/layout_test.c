/* SPDX-License-Identifier: Apache-2.0 */
/* layout_test.c: homes and buffers: nothing overlaps, nothing is left out, in every order. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "fuse/layout.h"

#define TENSORS 6
#define BUFFER  128

static const uint64_t bytes[TENSORS] = {4, 0, 300, 64, 128, 1};

static void fill(struct fuse_home *homes)
{
    memset(homes, 0, sizeof(*homes) * TENSORS);
    for (int i = 0; i < TENSORS; i++)
        homes[i].bytes = bytes[i];
}

static void test_known(void **state)
{
    (void)state;
    struct fuse_home homes[TENSORS];
    struct fuse_window windows[6];
    static const uint32_t order[TENSORS] = {5, 2, 0, 1, 4, 3};
    fill(homes);
    assert_int_equal(fuse_layout_bytes(homes, TENSORS), 64 + 0 + 320 + 64 + 128 + 64);
    assert_int_equal(fuse_layout_buffers(640, BUFFER), 5);
    assert_int_equal(fuse_layout_buffers(641, BUFFER), 6);
    assert_int_equal(fuse_layout_buffers(0, BUFFER), 0);
    fuse_layout(homes, TENSORS, order, windows, BUFFER);
    /* tensor 5 at 0, 2 at 64 to 363, 0 at 384, 1 (empty) and 4 at 448 to 575, 3 at 576 */
    static const uint64_t offsets[TENSORS] = {384, 448, 64, 576, 448, 0};
    static const int first[TENSORS] = {3, 3, 0, 4, 3, 0}, last[TENSORS] = {3, 2, 2, 4, 4, 0};
    for (int i = 0; i < TENSORS; i++) {
        assert_int_equal(homes[i].offset, offsets[i]);
        assert_int_equal(homes[i].first_buffer, first[i]);
        assert_int_equal(homes[i].last_buffer, last[i]);
    }
    static const int count[5] = {2, 1, 1, 2, 2}, priority[5] = {2, 2, 2, 0, 3};
    static const int first_tensor[5] = {5, 2, 2, 0, 4}, last_tensor[5] = {2, 2, 2, 4, 3};
    for (int b = 0; b < 5; b++) {
        assert_int_equal(windows[b].offset, b * BUFFER);
        assert_int_equal(windows[b].bytes, BUFFER);
        assert_int_equal(windows[b].tensor_count, count[b]);
        assert_int_equal(windows[b].priority, priority[b]);
        assert_int_equal(windows[b].first_tensor, first_tensor[b]);
        assert_int_equal(windows[b].last_tensor, last_tensor[b]);
    }
}

/* A 64th, between two limits. */
static void test_buffer_bytes(void **state)
{
    (void)state;
    const uint64_t kib = 1024, mib = 1024 * kib;
    assert_int_equal(fuse_layout_buffer_bytes(0), 256 * kib);
    assert_int_equal(fuse_layout_buffer_bytes(16 * mib), 256 * kib);
    assert_int_equal(fuse_layout_buffer_bytes(64 * mib), mib);
    assert_int_equal(fuse_layout_buffer_bytes(64 * mib + 64 * 64), mib + 64);
    assert_int_equal(fuse_layout_buffer_bytes(64 * mib + 64 * 64 - 1), mib);
    assert_int_equal(fuse_layout_buffer_bytes(256 * mib), 4 * mib);
    assert_int_equal(fuse_layout_buffer_bytes(UINT64_MAX), 4 * mib);
}

/* All orders, and buffers that end anywhere. */
static void check_order(const uint32_t *order, uint64_t buffer_bytes)
{
    struct fuse_home homes[TENSORS];
    struct fuse_window windows[10];
    uint64_t end = 0;
    fill(homes);
    uint64_t buffers = fuse_layout_buffers(fuse_layout_bytes(homes, TENSORS), buffer_bytes);
    fuse_layout(homes, TENSORS, order, windows, buffer_bytes);
    for (int i = 0; i < TENSORS; i++) {
        const struct fuse_home *home = &homes[order[i]];
        assert_int_equal(home->offset, end);
        end += fuse_layout_room(home->bytes);
    }
    for (uint64_t b = 0; b < buffers; b++) {
        int inside = 0;
        for (int i = 0; i < TENSORS; i++)
            inside += homes[i].first_buffer <= (int)b && (int)b <= homes[i].last_buffer;
        assert_true(inside > 0);
        assert_int_equal(windows[b].tensor_count, inside);
    }
    assert_int_equal(windows[buffers - 1].offset + windows[buffers - 1].bytes, end);
}

static void check_orders(uint32_t *order, int placed)
{
    if (placed == TENSORS)
        for (uint64_t buffer_bytes = 64; buffer_bytes <= 704; buffer_bytes += 64)
            check_order(order, buffer_bytes);
    for (int i = placed; i < TENSORS; i++) {
        uint32_t kept = order[placed];
        order[placed] = order[i];
        order[i] = kept;
        check_orders(order, placed + 1);
        order[i] = order[placed];
        order[placed] = kept;
    }
}

static void test_every_order(void **state)
{
    (void)state;
    uint32_t order[TENSORS] = {0, 1, 2, 3, 4, 5};
    check_orders(order, 0);
}

static void test_limits(void **state)
{
    (void)state;
    struct fuse_home homes[2] = {{.bytes = UINT64_MAX}, {.bytes = 0}};
    assert_int_equal(fuse_layout_bytes(homes, 2), UINT64_MAX);
    homes[0].bytes = homes[1].bytes = (uint64_t)1 << 62;
    assert_int_equal(fuse_layout_bytes(homes, 2), UINT64_MAX);
    homes[1].bytes = 0;
    assert_int_equal(fuse_layout_bytes(homes, 2), (uint64_t)1 << 62);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_known),
        cmocka_unit_test(test_buffer_bytes),
        cmocka_unit_test(test_every_order),
        cmocka_unit_test(test_limits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
