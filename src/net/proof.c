/* SPDX-License-Identifier: Apache-2.0 */
/*
 * proof.c: the three messages, byte by byte (numbers little-endian):
 *
 *   hello   0 magic[8]  8 job[16]  24 rank[4]  28 stream[4]  32 challenge[32]
 *   answer  0 magic[8]  8 job[16]  24 rank[4]  28 stream[4]  32 challenge[32]  64 HMAC[32]
 *   proof   0 HMAC[32]
 *
 * The HMAC's input is the sender's role, the connector's and then the acceptor's challenge, the
 * connector's and then the acceptor's rank, the job and the stream. Both sides build it from what
 * they sent themselves and what they received, so one changed byte on the way spoils it.
 */
#include "net/proof.h"

#include <errno.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/sha.h>
#include <pthread.h>
#include <string.h>
#include <sys/random.h>

#include "base/status.h"

#define CHALLENGE_BYTES 32
#define MAC_BYTES       32
#define HEAD_BYTES      (32 + CHALLENGE_BYTES)
#define ROLE_BYTES      16

#define MAGIC_AT     0
#define JOB_AT       8
#define RANK_AT      24
#define STREAM_AT    28
#define CHALLENGE_AT 32

/* The last byte is the version of the protocol. */
static const unsigned char magic[8] = {'s', 'h', 'o', 'a', 'l', '>', '<', 2};

static const char role_connector[ROLE_BYTES] = "connector";
static const char role_acceptor[ROLE_BYTES] = "acceptor";

/* libcrypto would take itself down at exit, while threads of ours and of others still use it. This
 * has an effect only where nobody in the process has used libcrypto before, so it comes before the
 * first use. */
static void keep_crypto_at_exit(void)
{
    OPENSSL_init_crypto(OPENSSL_INIT_NO_ATEXIT, NULL);
}

static void prepare_crypto(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, keep_crypto_at_exit);
}

static void put_number(unsigned char *at, int32_t number)
{
    uint32_t bits = (uint32_t)number;
    for (int i = 0; i < 4; i++)
        at[i] = (unsigned char)(bits >> (8 * i));
}

static int32_t get_number(const unsigned char *at)
{
    uint32_t bits = 0;
    for (int i = 0; i < 4; i++)
        bits |= (uint32_t)at[i] << (8 * i);
    return (int32_t)bits;
}

static void write_head(const struct net_proof *proof, unsigned char *message)
{
    memset(message, 0, HEAD_BYTES);
    memcpy(message + MAGIC_AT, magic, sizeof(magic));
    memcpy(message + JOB_AT, proof->job, NET_JOB_BYTES);
    put_number(message + RANK_AT, proof->rank_mine);
    put_number(message + STREAM_AT, proof->stream);
    memcpy(message + CHALLENGE_AT, proof->challenge_mine, CHALLENGE_BYTES);
}

/* What is wrong with the head of a message, if anything. */
static enum shoal_status check_head(const struct net_proof *proof, const unsigned char *message)
{
    if (memcmp(message, magic, sizeof(magic) - 1) != 0)
        return base_error(SHOAL_ERR_PEER_REFUSED, "the other end does not speak shoal's protocol");
    if (message[sizeof(magic) - 1] != magic[sizeof(magic) - 1])
        return base_error(SHOAL_ERR_PEER_REFUSED,
                          "the other end speaks version %d of shoal's protocol, this one %d: run "
                          "the same release on all hosts",
                          message[sizeof(magic) - 1], magic[sizeof(magic) - 1]);
    if (memcmp(message + JOB_AT, proof->job, NET_JOB_BYTES) != 0)
        return base_error(SHOAL_ERR_PEER_REFUSED, "the other end belongs to another job");
    return SHOAL_OK;
}

/* The HMAC that `role` sends; `connector`: whether this end is the connector. */
static enum shoal_status make_mac(const struct net_proof *proof, const char role[ROLE_BYTES],
                                  int connector, unsigned char mac[MAC_BYTES])
{
    unsigned char input[ROLE_BYTES + 2 * CHALLENGE_BYTES + 12 + NET_JOB_BYTES], *at = input;
    memcpy(at, role, ROLE_BYTES);
    at += ROLE_BYTES;
    memcpy(at, connector ? proof->challenge_mine : proof->challenge_theirs, CHALLENGE_BYTES);
    at += CHALLENGE_BYTES;
    memcpy(at, connector ? proof->challenge_theirs : proof->challenge_mine, CHALLENGE_BYTES);
    at += CHALLENGE_BYTES;
    put_number(at, connector ? proof->rank_mine : proof->rank_theirs);
    put_number(at + 4, connector ? proof->rank_theirs : proof->rank_mine);
    put_number(at + 8, proof->stream);
    memcpy(at + 12, proof->job, NET_JOB_BYTES);
    unsigned mac_bytes = MAC_BYTES;
    prepare_crypto();
    if (HMAC(EVP_sha256(), proof->secret, NET_SECRET_BYTES, input, sizeof(input), mac,
             &mac_bytes) == NULL)
        return base_error(SHOAL_ERR_SYSTEM, "libcrypto could not compute an HMAC");
    return SHOAL_OK;
}

static enum shoal_status check_mac(const unsigned char *mine, const unsigned char *theirs)
{
    if (CRYPTO_memcmp(mine, theirs, MAC_BYTES) != 0)
        return base_error(SHOAL_ERR_PEER_REFUSED, "the other end does not know this job's secret");
    return SHOAL_OK;
}

enum shoal_status net_proof_hello(struct net_proof *proof, unsigned char hello[NET_HELLO_BYTES])
{
    TRY(net_random(proof->challenge_mine, CHALLENGE_BYTES));
    write_head(proof, hello);
    return SHOAL_OK;
}

enum shoal_status net_proof_answer(struct net_proof *proof,
                                   const unsigned char hello[NET_HELLO_BYTES],
                                   unsigned char answer[NET_ANSWER_BYTES])
{
    TRY(check_head(proof, hello));
    TRY(net_random(proof->challenge_mine, CHALLENGE_BYTES));
    memcpy(proof->challenge_theirs, hello + CHALLENGE_AT, CHALLENGE_BYTES);
    proof->rank_theirs = get_number(hello + RANK_AT);
    proof->stream = get_number(hello + STREAM_AT);
    unsigned char mac[MAC_BYTES];
    TRY(make_mac(proof, role_acceptor, 0, mac));
    write_head(proof, answer);
    memcpy(answer + HEAD_BYTES, mac, MAC_BYTES);
    return SHOAL_OK;
}

enum shoal_status net_proof_check_answer(struct net_proof *proof,
                                         const unsigned char answer[NET_ANSWER_BYTES],
                                         unsigned char out[NET_PROOF_BYTES])
{
    TRY(check_head(proof, answer));
    struct net_proof seen = *proof;
    memcpy(seen.challenge_theirs, answer + CHALLENGE_AT, CHALLENGE_BYTES);
    seen.rank_theirs = get_number(answer + RANK_AT);
    unsigned char mac[MAC_BYTES];
    TRY(make_mac(&seen, role_acceptor, 1, mac));
    TRY(check_mac(mac, answer + HEAD_BYTES));
    if (seen.rank_theirs != proof->rank_theirs)
        return base_error(SHOAL_ERR_PEER_REFUSED, "rank %d answers where rank %d should",
                          seen.rank_theirs, proof->rank_theirs);
    TRY(make_mac(&seen, role_connector, 1, mac));
    *proof = seen;
    memcpy(out, mac, MAC_BYTES);
    return SHOAL_OK;
}

enum shoal_status net_proof_check(const struct net_proof *proof,
                                  const unsigned char in[NET_PROOF_BYTES])
{
    unsigned char mac[MAC_BYTES];
    TRY(make_mac(proof, role_connector, 0, mac));
    return check_mac(mac, in);
}

/* SHA-256 of a label and the text; the label keeps secret and job apart when the text is one. */
static void digest(const char *label, const char *text, unsigned char out[SHA256_DIGEST_LENGTH])
{
    unsigned char inner[2 * SHA256_DIGEST_LENGTH];
    prepare_crypto();
    SHA256((const unsigned char *)label, strlen(label), inner);
    SHA256((const unsigned char *)text, strlen(text), inner + SHA256_DIGEST_LENGTH);
    SHA256(inner, sizeof(inner), out);
}

void net_secret_from_text(const char *text, unsigned char secret[NET_SECRET_BYTES])
{
    digest("shoal secret", text, secret);
}

void net_job_from_text(const char *text, unsigned char job[NET_JOB_BYTES])
{
    unsigned char hash[SHA256_DIGEST_LENGTH];
    digest("shoal job", text, hash);
    memcpy(job, hash, NET_JOB_BYTES);
}

enum shoal_status net_random(void *out, size_t bytes)
{
    unsigned char *at = out;
    while (bytes > 0) {
        ssize_t got = getrandom(at, bytes, 0);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return base_error_errno(SHOAL_ERR_SYSTEM, errno, "no randomness from the kernel");
        at += got;
        bytes -= (size_t)got;
    }
    return SHOAL_OK;
}
