/* SPDX-License-Identifier: Apache-2.0 */
/*
 * messages_test.c: point to point messages through the engine, over inproc: every size and way to
 * send, in both orders, with tags, from any source, to oneself, in order, and what may not be
 * received where it comes.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/memory.h"
#include "base/status.h"
#include "support/engines.h"
#include "support/message.h"
#include "support/operation.h"

#define TIMEOUT_MS   1000
#define COUNT_OF(at) (sizeof(at) / sizeof((at)[0]))

static const uint64_t eager_sizes[] = {0, 64, 16384};

struct rig {
    struct engines *engines;
    struct engines_group *group;
};

static void must(enum shoal_status status)
{
    if (status != SHOAL_OK)
        fail_msg("%s", base_error_text());
}

static void rig_open(struct rig *rig, int size, uint64_t eager_bytes)
{
    struct engines_options options = {
        .size = size, .eager_bytes = eager_bytes, .late_seed = eager_bytes == 64};
    must(engines_open(&options, &rig->engines));
    must(engines_group_open(rig->engines, NULL, size, NULL, 3, TIMEOUT_MS, &rig->group));
}

static void rig_close(struct rig *rig)
{
    engines_group_close(rig->group);
    engines_close(rig->engines);
}

static struct message *start(struct rig *rig, struct message_options options)
{
    struct message *message = NULL;
    must(message_start(rig->group, &options, &message));
    return message;
}

static struct message_options send_of(int from, int to, int tag, uint64_t count)
{
    static uint64_t seed;
    return (struct message_options){
        .rank = from, .peer = to, .tag = tag, .dtype = SHOAL_U8, .count = count, .seed = ++seed};
}

static struct message_options receive_of(int rank, int from, int tag, uint64_t count)
{
    return (struct message_options){.rank = rank,
                                    .receives = true,
                                    .peer = from,
                                    .tag = tag,
                                    .dtype = SHOAL_U8,
                                    .count = count};
}

static void end_ok(struct message *message)
{
    assert_true(message->done);
    if (message->status != SHOAL_OK)
        fail_msg("%s", message->text);
    assert_true(message_end(message));
}

/* ---- what arrives
 * ------------------------------------------------------------------------------------ */

enum order { SEND_FIRST, RECEIVE_FIRST, AT_ONCE, ORDERS };

static void exchange(struct rig *rig, int from, int to, uint64_t count, enum order order)
{
    struct message_options sends = send_of(from, to, 5, count);
    struct message_options receives = receive_of(to, from, 5, count + 3);
    struct message *first = start(rig, order == RECEIVE_FIRST ? receives : sends);
    if (order != AT_ONCE)
        engines_settle(rig->engines);
    struct message *second = start(rig, order == RECEIVE_FIRST ? sends : receives);
    engines_settle(rig->engines);
    struct message *receive = order == RECEIVE_FIRST ? first : second;
    assert_true(message_got(receive, &sends));
    end_ok(first);
    end_ok(second);
}

static void test_sizes_and_orders(void **state)
{
    (void)state;
    static const uint64_t counts[] = {0, 1, 63, 64, 65, 1000, 4096, 16384, 16385, 100000, 1 << 20};
    for (size_t i = 0; i < COUNT_OF(eager_sizes); i++) {
        struct rig rig;
        rig_open(&rig, 3, eager_sizes[i]);
        for (size_t k = 0; k < COUNT_OF(counts); k++)
            for (int order = 0; order < ORDERS; order++) {
                exchange(&rig, 0, 2, counts[k], (enum order)order);
                exchange(&rig, 1, 1, counts[k], (enum order)order);
            }
        rig_close(&rig);
    }
}

/* The next message starts the moment the last is done, while frames of it may not be reported yet.
 */
static void test_one_after_the_other(void **state)
{
    (void)state;
    struct rig rig;
    rig_open(&rig, 2, 64);
    for (int k = 0; k < 300; k++) {
        struct message_options sends = send_of(0, 1, 5, 100);
        struct message *in = start(&rig, receive_of(1, 0, 5, 100));
        struct message *out = start(&rig, sends);
        for (int polls = 0; !(in->done && out->done) && polls < 10000; polls++)
            engines_poll(rig.engines);
        assert_true(message_got(in, &sends));
        end_ok(in);
        end_ok(out);
    }
    rig_close(&rig);
}

static void test_both_send_first(void **state)
{
    (void)state;
    struct rig rig;
    rig_open(&rig, 2, 64);
    struct message_options sends[2] = {send_of(0, 1, 1, 300000), send_of(1, 0, 1, 300000)};
    struct message *out[2], *in[2];
    for (int i = 0; i < 2; i++)
        out[i] = start(&rig, sends[i]);
    engines_settle(rig.engines);
    for (int i = 0; i < 2; i++)
        in[i] = start(&rig, receive_of(i, 1 - i, 1, 300000));
    engines_settle(rig.engines);
    for (int i = 0; i < 2; i++) {
        assert_true(message_got(in[i], &sends[1 - i]));
        end_ok(out[i]);
        end_ok(in[i]);
    }
    rig_close(&rig);
}

/* Receives take their tag, whatever came before; any-tag takes what is left, in order. */
static void test_tags(void **state)
{
    (void)state;
    static const uint64_t counts[] = {10, 30000, 0, 20};
    for (size_t i = 0; i < COUNT_OF(eager_sizes); i++) {
        struct rig rig;
        struct message_options sends[4];
        struct message *out[4], *in[4];
        rig_open(&rig, 2, eager_sizes[i]);
        for (int k = 0; k < 4; k++) {
            sends[k] = send_of(0, 1, k, counts[k]);
            out[k] = start(&rig, sends[k]);
        }
        engines_settle(rig.engines);
        in[3] = start(&rig, receive_of(1, 0, 3, 30000));
        in[1] = start(&rig, receive_of(1, 0, 1, 30000));
        in[0] = start(&rig, receive_of(1, 0, SHOAL_ANY_TAG, 30000));
        in[2] = start(&rig, receive_of(1, SHOAL_ANY_SOURCE, SHOAL_ANY_TAG, 30000));
        engines_settle(rig.engines);
        for (int k = 0; k < 4; k++) {
            assert_true(message_got(in[k], &sends[k]));
            end_ok(in[k]);
            end_ok(out[k]);
        }
        rig_close(&rig);
    }
}

#define STREAM 120

/* Messages of one sender and tag are received in the order of the sends, small and large mixed, and
 * more of them than there are slots; half the receives are posted before. */
static void stream(uint64_t eager_bytes, int posted_before, int source)
{
    struct rig rig;
    static struct message_options sends[STREAM];
    static struct message *out[STREAM], *in[STREAM];
    rig_open(&rig, 2, eager_bytes);
    for (int k = 0; k < posted_before; k++)
        in[k] = start(&rig, receive_of(1, source, 4, 30000));
    for (int k = 0; k < STREAM; k++) {
        sends[k] = send_of(0, 1, 4, (uint64_t)(k % 7 == 0 ? 20000 + k : k));
        out[k] = start(&rig, sends[k]);
        if (k % 50 == 0)
            engines_settle(rig.engines);
    }
    engines_settle(rig.engines);
    for (int k = posted_before; k < STREAM; k++)
        in[k] = start(&rig, receive_of(1, source, 4, 30000));
    engines_settle(rig.engines);
    for (int k = 0; k < STREAM; k++) {
        if (!message_got(in[k], &sends[k]))
            fail_msg("message %d was not received in its turn", k);
        end_ok(in[k]);
        end_ok(out[k]);
    }
    rig_close(&rig);
}

static void test_order_of_a_stream(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT_OF(eager_sizes); i++)
        for (int before = 0; before <= STREAM; before += STREAM / 2) {
            stream(eager_sizes[i], before, 0);
            stream(eager_sizes[i], before, SHOAL_ANY_SOURCE);
        }
}

static void test_any_source(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT_OF(eager_sizes); i++) {
        struct rig rig;
        struct message_options sends[5];
        struct message *out[5], *in[5];
        bool seen[5] = {false};
        rig_open(&rig, 5, eager_sizes[i]);
        for (int k = 0; k < 3; k++)
            in[k] = start(&rig, receive_of(0, SHOAL_ANY_SOURCE, 9, 1000));
        for (int k = 0; k < 5; k++) { /* the first is to itself */
            sends[k] = send_of(k, 0, 9, 100 * (uint64_t)(k + 1));
            out[k] = start(&rig, sends[k]);
        }
        engines_settle(rig.engines);
        for (int k = 3; k < 5; k++)
            in[k] = start(&rig, receive_of(0, SHOAL_ANY_SOURCE, 9, 1000));
        engines_settle(rig.engines);
        for (int k = 0; k < 5; k++) {
            assert_true(in[k]->done);
            int source = in[k]->info.source;
            assert_true(!seen[source] && message_got(in[k], &sends[source]));
            seen[source] = true;
            end_ok(in[k]);
        }
        for (int k = 0; k < 5; k++)
            end_ok(out[k]);
        rig_close(&rig);
    }
}

static void test_self_in_order(void **state)
{
    (void)state;
    struct rig rig;
    struct message_options sends[6];
    struct message *out[6], *in[6];
    rig_open(&rig, 1, 64);
    for (int k = 0; k < 3; k++)
        in[k] = start(&rig, receive_of(0, k % 2 ? SHOAL_ANY_SOURCE : 0, 2, 5000));
    for (int k = 0; k < 6; k++) {
        sends[k] = send_of(0, 0, 2, (uint64_t)(1000 * k));
        out[k] = start(&rig, sends[k]);
    }
    for (int k = 3; k < 6; k++)
        in[k] = start(&rig, receive_of(0, 0, SHOAL_ANY_TAG, 5000));
    for (int k = 0; k < 6; k++) {
        assert_true(message_got(in[k], &sends[k]));
        end_ok(in[k]);
        end_ok(out[k]);
    }
    rig_close(&rig);
}

/* Hundreds of messages to a rank that receives none yet, and collectives between them. */
static void test_beside_collectives(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT_OF(eager_sizes); i++) {
        struct rig rig;
        static struct message_options sends[STREAM];
        static struct message *out[STREAM], *in[STREAM];
        rig_open(&rig, 3, eager_sizes[i]);
        for (int k = 0; k < STREAM; k++) {
            sends[k] = send_of(k % 3, (k + 1) % 3, k, 200);
            out[k] = start(&rig, sends[k]);
        }
        struct operation_options options = {.coll = {.algorithm = coll_find(COLL_ALLREDUCE, "ring"),
                                                     .size = 3,
                                                     .count = 1000,
                                                     .segment_count = 20},
                                            .dtype = SHOAL_F32};
        struct operation *operation;
        bool fits;
        char text[512];
        must(operation_create(&options, rig.group, &fits, &operation));
        for (int rank = 0; rank < 3; rank++)
            must(operation_start(operation, rank, false));
        engines_settle(rig.engines);
        assert_true(operation_done(operation));
        if (!operation_end(operation, text, sizeof(text)))
            fail_msg("%s", text);
        for (int k = STREAM - 1; k >= 0; k--)
            in[k] = start(&rig, receive_of((k + 1) % 3, k % 3, k, 200));
        engines_settle(rig.engines);
        for (int k = 0; k < STREAM; k++) {
            assert_true(message_got(in[k], &sends[k]));
            end_ok(in[k]);
            end_ok(out[k]);
        }
        rig_close(&rig);
    }
}

/* ---- what may not be received
 * -------------------------------------------------------------------------- */

static bool has(const char *text, const char *part)
{
    return strstr(text, part) != NULL;
}

/* Both end with the same MISMATCH, which names both ranks, or the sender was done before. */
static void refuse(uint64_t eager_bytes, struct message_options sends,
                   struct message_options receives, enum order order)
{
    struct rig rig;
    rig_open(&rig, 2, eager_bytes);
    struct message *first = start(&rig, order == RECEIVE_FIRST ? receives : sends);
    if (order != AT_ONCE)
        engines_settle(rig.engines);
    struct message *second = start(&rig, order == RECEIVE_FIRST ? sends : receives);
    engines_settle(rig.engines);
    struct message *receive = order == RECEIVE_FIRST ? first : second;
    struct message *send = order == RECEIVE_FIRST ? second : first;
    assert_true(receive->done && send->done);
    assert_int_equal(receive->status, SHOAL_ERR_MISMATCH);
    if (!has(receive->text, "rank 0 (host ant) sends") ||
        !has(receive->text, "rank 1 (host bee) receives"))
        fail_msg("the text does not name both sides: %s", receive->text);
    if (send->status != SHOAL_OK) {
        assert_int_equal(send->status, SHOAL_ERR_MISMATCH);
        assert_string_equal(send->text, receive->text);
    }
    for (int i = 0; i < 2; i++) {
        assert_int_equal(comm_group_health(rig.group->of[i]), SHOAL_ERR_MISMATCH);
        assert_string_equal(base_error_text(), receive->text);
    }
    assert_true(message_end(first));
    assert_true(message_end(second));
    rig_close(&rig);
}

static void test_too_long_or_other_dtype(void **state)
{
    (void)state;
    static const uint64_t counts[] = {8, 400, 40000};
    for (size_t i = 0; i < COUNT_OF(eager_sizes); i++)
        for (size_t k = 0; k < COUNT_OF(counts); k++)
            for (int order = 0; order < ORDERS; order++) {
                struct message_options sends = send_of(0, 1, 1, counts[k]);
                struct message_options receives = receive_of(1, 0, 1, counts[k] - 1);
                refuse(eager_sizes[i], sends, receives, (enum order)order);
                receives.count = counts[k];
                receives.dtype = SHOAL_I8;
                refuse(eager_sizes[i], sends, receives, (enum order)order);
            }
}

static void test_self_too_long(void **state)
{
    (void)state;
    for (int order = 0; order < AT_ONCE; order++) {
        struct rig rig;
        rig_open(&rig, 1, 64);
        struct message_options sends = send_of(0, 0, 1, 10), receives = receive_of(0, 0, 1, 9);
        struct message *first = start(&rig, order == RECEIVE_FIRST ? receives : sends);
        struct message *second = start(&rig, order == RECEIVE_FIRST ? sends : receives);
        engines_settle(rig.engines);
        assert_int_equal(first->status, SHOAL_ERR_MISMATCH);
        assert_int_equal(second->status, SHOAL_ERR_MISMATCH);
        assert_true(message_end(first));
        assert_true(message_end(second));
        rig_close(&rig);
    }
}

/* ---- what never comes
 * ---------------------------------------------------------------------------------- */

/* Lets the time of all operations pass. */
static void let_time_pass(struct rig *rig)
{
    for (int i = 0; i < 2 * TIMEOUT_MS; i += 5) {
        rig->engines->now_ns += 5 * BASE_NS_PER_MS;
        engines_settle(rig->engines);
    }
}

static void expect_end(struct message *message, enum shoal_status status, const char *who,
                       const char *what)
{
    assert_true(message->done);
    assert_int_equal(message->status, status);
    if (!has(message->text, who) || !has(message->text, what))
        fail_msg("the text has no '%s' or no '%s': %s", who, what, message->text);
    assert_true(message_end(message));
}

static void test_deadlines(void **state)
{
    (void)state;
    struct rig rig;
    rig_open(&rig, 3, 64);
    struct message *message = start(&rig, receive_of(0, 2, 1, 10));
    let_time_pass(&rig);
    expect_end(message, SHOAL_ERR_TIMEOUT, "rank 2 (host cod)", "has not sent it");
    rig_close(&rig);
    rig_open(&rig, 3, 64);
    message = start(&rig, send_of(1, 2, 1, 1000));
    let_time_pass(&rig);
    expect_end(message, SHOAL_ERR_TIMEOUT, "rank 2 (host cod)", "has not received it");
    rig_close(&rig);
    rig_open(&rig, 3, 64);
    message = start(&rig, receive_of(1, SHOAL_ANY_SOURCE, 1, 1000));
    let_time_pass(&rig);
    expect_end(message, SHOAL_ERR_TIMEOUT, "rank 0, 2", "has not sent it");
    rig_close(&rig);
}

static void test_killed_peer(void **state)
{
    (void)state;
    struct rig rig;
    rig_open(&rig, 3, 64);
    struct message *receive = start(&rig, receive_of(0, 2, 1, 10));
    struct message *send = start(&rig, send_of(1, 2, 1, 100000));
    engines_settle(rig.engines);
    engines_kill(rig.engines, 2);
    engines_settle(rig.engines);
    expect_end(receive, SHOAL_ERR_PEER_LOST, "rank 2", "is lost");
    expect_end(send, SHOAL_ERR_PEER_LOST, "rank 2", "is lost");
    rig_close(&rig);
}

/* -----------------------------------------------------------------------------------------------
 */

static size_t blocks_before;

static int count_blocks(void **state)
{
    (void)state;
    blocks_before = base_memory_blocks();
    return 0;
}

static int check_blocks(void **state)
{
    (void)state;
    if (base_memory_blocks() == blocks_before)
        return 0;
    print_error("%zu blocks were not freed\n", base_memory_blocks() - blocks_before);
    return -1;
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, count_blocks, check_blocks)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_sizes_and_orders),
        TEST(test_one_after_the_other),
        TEST(test_both_send_first),
        TEST(test_tags),
        TEST(test_order_of_a_stream),
        TEST(test_any_source),
        TEST(test_self_in_order),
        TEST(test_beside_collectives),
        TEST(test_too_long_or_other_dtype),
        TEST(test_self_too_long),
        TEST(test_deadlines),
        TEST(test_killed_peer),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
