/* SPDX-License-Identifier: Apache-2.0 */
/*
 * store_wire.h: what store client and server say to each other once the client has proved that it
 * belongs to the job (net/proof.h). All numbers little-endian, 32 bits.
 *
 *   request   number, operation, key bytes, value bytes, count   then key, then value
 *   answer    number, result, value bytes                        then value
 *
 * A client has one request under way. A new one withdraws the one before it that still waits, which
 * is how a client gives up at its deadline; answers that were on their way by then carry the old
 * number and are skipped.
 *
 * Value of a GATHER's answer: `count` sizes, then the values one behind the other. Value of a
 * MISSING's answer: one byte per key, 1 if it is there.
 */
#ifndef SHOAL_BOOT_STORE_WIRE_H
#define SHOAL_BOOT_STORE_WIRE_H

#include <stdint.h>

#define STORE_REQUEST_BYTES 20
#define STORE_ANSWER_BYTES  12
#define STORE_GATHER_MAX    65536 /* keys of one gather */

enum store_operation {
    STORE_SET = 1, /* key, value */
    STORE_GET,     /* key; answered when it is there */
    STORE_GATHER,  /* key is a prefix; answered when prefix0 … prefix<count-1> are there */
    STORE_MISSING, /* as GATHER, answered at once */
};

enum store_result {
    STORE_DONE = 0,
    STORE_TAKEN, /* SET: the key has another value */
    STORE_FULL,  /* the server's memory limit */
};

struct store_request {
    uint32_t number, operation, key_bytes, value_bytes, count;
};

struct store_answer {
    uint32_t number, result, value_bytes;
};

static inline void store_put(unsigned char *at, uint32_t number)
{
    for (int i = 0; i < 4; i++)
        at[i] = (unsigned char)(number >> (8 * i));
}

static inline uint32_t store_get(const unsigned char *at)
{
    return (uint32_t)at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;
}

#endif
