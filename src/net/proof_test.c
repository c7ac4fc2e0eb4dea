/* SPDX-License-Identifier: Apache-2.0 */
/* proof_test.c: both ends agree, and every way not to belong is refused. */
#include "net/proof.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "base/status.h"

static struct net_proof end(int rank_mine, int rank_theirs)
{
    struct net_proof proof = {.rank_mine = rank_mine, .rank_theirs = rank_theirs};
    net_secret_from_text("a secret", proof.secret);
    net_job_from_text("a job", proof.job);
    return proof;
}

static void both_ends_agree(void **state)
{
    (void)state;
    struct net_proof connector = end(3, 7), acceptor = end(7, -1);
    unsigned char hello[NET_HELLO_BYTES], answer[NET_ANSWER_BYTES], proof[NET_PROOF_BYTES];
    assert_int_equal(net_proof_hello(&connector, hello), SHOAL_OK);
    assert_int_equal(net_proof_answer(&acceptor, hello, answer), SHOAL_OK);
    assert_int_equal(acceptor.rank_theirs, 3);
    assert_int_equal(net_proof_check_answer(&connector, answer, proof), SHOAL_OK);
    assert_int_equal(net_proof_check(&acceptor, proof), SHOAL_OK);
}

static void every_changed_byte_is_refused(void **state)
{
    (void)state;
    unsigned char hello[NET_HELLO_BYTES], answer[NET_ANSWER_BYTES], proof[NET_PROOF_BYTES];
    for (size_t i = 0; i < NET_HELLO_BYTES + NET_ANSWER_BYTES + NET_PROOF_BYTES; i++) {
        struct net_proof connector = end(0, 1), acceptor = end(1, -1);
        /* The connector knows which stream it is; what the answer says of it is not read. */
        if (i >= NET_HELLO_BYTES + 28 && i < NET_HELLO_BYTES + 32)
            continue;
        assert_int_equal(net_proof_hello(&connector, hello), SHOAL_OK);
        if (i < NET_HELLO_BYTES)
            hello[i] ^= 4;
        enum shoal_status status = net_proof_answer(&acceptor, hello, answer);
        if (status == SHOAL_OK) {
            if (i >= NET_HELLO_BYTES && i < NET_HELLO_BYTES + NET_ANSWER_BYTES)
                answer[i - NET_HELLO_BYTES] ^= 4;
            status = net_proof_check_answer(&connector, answer, proof);
        }
        if (status == SHOAL_OK) {
            assert_true(i >= NET_HELLO_BYTES + NET_ANSWER_BYTES);
            proof[i - NET_HELLO_BYTES - NET_ANSWER_BYTES] ^= 4;
            status = net_proof_check(&acceptor, proof);
        }
        assert_int_equal(status, SHOAL_ERR_PEER_REFUSED);
    }
}

static void another_secret_is_refused_by_both(void **state)
{
    (void)state;
    struct net_proof connector = end(0, 1), acceptor = end(1, -1);
    net_secret_from_text("another secret", acceptor.secret);
    unsigned char hello[NET_HELLO_BYTES], answer[NET_ANSWER_BYTES], proof[NET_PROOF_BYTES] = {0};
    assert_int_equal(net_proof_hello(&connector, hello), SHOAL_OK);
    assert_int_equal(net_proof_answer(&acceptor, hello, answer), SHOAL_OK);
    assert_int_equal(net_proof_check_answer(&connector, answer, proof), SHOAL_ERR_PEER_REFUSED);
    assert_non_null(strstr(base_error_text(), "secret"));
    assert_int_equal(net_proof_check(&acceptor, proof), SHOAL_ERR_PEER_REFUSED);
}

static void another_job_is_refused(void **state)
{
    (void)state;
    struct net_proof connector = end(0, 1), acceptor = end(1, -1);
    net_job_from_text("another job", acceptor.job);
    unsigned char hello[NET_HELLO_BYTES], answer[NET_ANSWER_BYTES];
    assert_int_equal(net_proof_hello(&connector, hello), SHOAL_OK);
    assert_int_equal(net_proof_answer(&acceptor, hello, answer), SHOAL_ERR_PEER_REFUSED);
    assert_non_null(strstr(base_error_text(), "another job"));
}

static void another_version_and_a_stranger_are_told_apart(void **state)
{
    (void)state;
    struct net_proof connector = end(0, 1), acceptor = end(1, -1);
    unsigned char hello[NET_HELLO_BYTES], answer[NET_ANSWER_BYTES];
    assert_int_equal(net_proof_hello(&connector, hello), SHOAL_OK);
    hello[7]++;
    assert_int_equal(net_proof_answer(&acceptor, hello, answer), SHOAL_ERR_PEER_REFUSED);
    assert_non_null(strstr(base_error_text(), "version"));
    memset(hello, 'G', sizeof(hello));
    assert_int_equal(net_proof_answer(&acceptor, hello, answer), SHOAL_ERR_PEER_REFUSED);
    assert_non_null(strstr(base_error_text(), "protocol"));
}

static void the_wrong_rank_is_refused(void **state)
{
    (void)state;
    struct net_proof connector = end(0, 2), acceptor = end(1, -1);
    unsigned char hello[NET_HELLO_BYTES], answer[NET_ANSWER_BYTES], proof[NET_PROOF_BYTES];
    assert_int_equal(net_proof_hello(&connector, hello), SHOAL_OK);
    assert_int_equal(net_proof_answer(&acceptor, hello, answer), SHOAL_OK);
    assert_int_equal(net_proof_check_answer(&connector, answer, proof), SHOAL_ERR_PEER_REFUSED);
    assert_string_equal(base_error_text(), "rank 1 answers where rank 2 should");
}

/* A stranger who records one meeting, or sends an end's own words back, gets nowhere. */
static void replay_and_reflection_fail(void **state)
{
    (void)state;
    struct net_proof connector = end(0, 1), acceptor = end(1, -1), later = end(1, -1);
    unsigned char hello[NET_HELLO_BYTES], answer[NET_ANSWER_BYTES], proof[NET_PROOF_BYTES];
    assert_int_equal(net_proof_hello(&connector, hello), SHOAL_OK);
    assert_int_equal(net_proof_answer(&acceptor, hello, answer), SHOAL_OK);
    assert_int_equal(net_proof_check_answer(&connector, answer, proof), SHOAL_OK);

    unsigned char fresh[NET_ANSWER_BYTES];
    assert_int_equal(net_proof_answer(&later, hello, fresh), SHOAL_OK);
    assert_int_equal(net_proof_check(&later, proof), SHOAL_ERR_PEER_REFUSED);
    assert_int_equal(net_proof_check(&later, fresh + NET_ANSWER_BYTES - NET_PROOF_BYTES),
                     SHOAL_ERR_PEER_REFUSED);

    struct net_proof next = end(0, 1);
    assert_int_equal(net_proof_hello(&next, hello), SHOAL_OK);
    assert_int_equal(net_proof_check_answer(&next, answer, proof), SHOAL_ERR_PEER_REFUSED);
}

static void texts_make_distinct_secrets_and_jobs(void **state)
{
    (void)state;
    unsigned char a[NET_SECRET_BYTES], b[NET_SECRET_BYTES], job[NET_JOB_BYTES];
    net_secret_from_text("x", a);
    net_secret_from_text("x", b);
    assert_memory_equal(a, b, sizeof(a));
    net_secret_from_text("y", b);
    assert_memory_not_equal(a, b, sizeof(a));
    net_job_from_text("x", job);
    assert_memory_not_equal(a, job, sizeof(job));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(both_ends_agree),
        cmocka_unit_test(every_changed_byte_is_refused),
        cmocka_unit_test(another_secret_is_refused_by_both),
        cmocka_unit_test(another_job_is_refused),
        cmocka_unit_test(another_version_and_a_stranger_are_told_apart),
        cmocka_unit_test(the_wrong_rank_is_refused),
        cmocka_unit_test(replay_and_reflection_fail),
        cmocka_unit_test(texts_make_distinct_secrets_and_jobs),
    };
    return cmocka_run_group_tests_name("net proof", tests, NULL, NULL);
}
