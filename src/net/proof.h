/* SPDX-License-Identifier: Apache-2.0 */
/*
 * proof.h: both ends of a fresh connection prove that they know the job's secret, without sending
 * it.
 *
 * Three messages of fixed size: connector's hello (magic, version, job, its rank, which stream,
 * challenge) -> acceptor's answer (its rank, challenge, HMAC-SHA256 over role, both challenges,
 * both ranks, job, stream) -> connector's proof (HMAC with the other role). A replayed or reflected
 * answer fails because role and both challenges are in it. Pure functions on messages: the sockets
 * belong to the callers, so that the blocking store and the non-blocking tcp transport share it.
 * Used by net/tcp.c and boot's store.
 */
#ifndef SHOAL_NET_PROOF_H
#define SHOAL_NET_PROOF_H

#include <stdint.h>

#include "net/transport.h"
#include "shoal.h"

#define NET_HELLO_BYTES  64
#define NET_ANSWER_BYTES 96
#define NET_PROOF_BYTES  32

struct net_proof {
    unsigned char job[NET_JOB_BYTES];
    unsigned char secret[NET_SECRET_BYTES];
    unsigned char challenge_mine[32], challenge_theirs[32];
    int32_t rank_mine, rank_theirs; /* -1: not a rank (store client, tool) */
    int32_t stream;                 /* which of the pair's connections; the connector says it */
};

/* Connector: begins. SHOAL_ERR_SYSTEM if there is no randomness. */
enum shoal_status net_proof_hello(struct net_proof *proof, unsigned char hello[NET_HELLO_BYTES]);
/* Acceptor: reads a hello and answers. PEER_REFUSED: not shoal, another version or another job. */
enum shoal_status net_proof_answer(struct net_proof *proof,
                                   const unsigned char hello[NET_HELLO_BYTES],
                                   unsigned char answer[NET_ANSWER_BYTES]);
/* Connector: checks the answer, makes the proof. PEER_REFUSED: wrong secret or rank_theirs differs.
 */
enum shoal_status net_proof_check_answer(struct net_proof *proof,
                                         const unsigned char answer[NET_ANSWER_BYTES],
                                         unsigned char out[NET_PROOF_BYTES]);
/* Acceptor: checks the proof. */
enum shoal_status net_proof_check(const struct net_proof *proof,
                                  const unsigned char in[NET_PROOF_BYTES]);
/* 32 bytes of secret from a text of any length; 16 bytes of job id likewise. */
void net_secret_from_text(const char *text, unsigned char secret[NET_SECRET_BYTES]);
void net_job_from_text(const char *text, unsigned char job[NET_JOB_BYTES]);
/* Fresh randomness. */
enum shoal_status net_random(void *out, size_t bytes);

#endif
