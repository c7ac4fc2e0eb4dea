/* SPDX-License-Identifier: Apache-2.0 */
/*
 * meet.h: the ranks of a new world find each other: from the caller's options or the environment to
 * a store, and through the store to a card of every rank.
 */
#ifndef SHOAL_COMM_MEET_H
#define SHOAL_COMM_MEET_H

#include "base/tuning.h"
#include "boot/environment.h"
#include "boot/host.h"
#include "boot/store.h"
#include "net/transport.h"
#include "shoal.h"

/* Options that ranks must have alike, or else they would wait for each other in vain. */
enum meet_setting {
    MEET_EAGER_BYTES,
    MEET_SEGMENT_BYTES,
    MEET_REPRODUCIBLE,
    MEET_STREAMS,
    MEET_RING_BYTES, /* from here on: among the ranks of a host */
    MEET_CHUNK_BYTES,
    MEET_LOCAL,
    MEET_SETTING_COUNT
};

/* What each rank tells all others. */
struct meet_card {
    char magic[8]; /* "shoal", then the layout's number */
    int32_t rank, pid;
    uint64_t nonce; /* tells two processes with one rank apart */
    int64_t settings[MEET_SETTING_COUNT];
    struct base_tuning_table tuning; /* found here; that of a host's lowest rank counts */
    char algorithm[96];
    char host_key[BOOT_HOST_KEY_BYTES];
    char host_name[64];
    int32_t cores; /* that the kernel grants this rank */
    uint32_t address_bytes;
    int32_t failure; /* enum shoal_status: why the rank cannot come; `address` is the text then */
    unsigned char address[NET_ADDRESS_BYTES];
};

struct meeting {
    struct boot_identity identity;
    struct boot_store *store; /* NULL for a group of one */
    struct boot_store_server *server;
    char prefix[96]; /* of keys: unlike any other meeting at this store */
    int64_t timeout_ms;
    int64_t deadline_ns;
};

/* Finds out who this rank is and opens the store. */
enum shoal_status meet_begin(const struct shoal_group_options *options, struct meeting *meeting);
/* The same for a server; its meeting has no deadline until all have come. */
enum shoal_status meet_begin_server(struct meeting *meeting);
/* Fills in the settings, from the options. */
void meet_settings(const struct shoal_group_options *options, struct meet_card *card);
/* Publishes the own card and waits for all: (*cards)[size] belongs to the caller, ranks first, then
 * servers. Checks that they fit together. RANK_TAKEN, TIMEOUT (names the missing), MISMATCH, or
 * what one has declined with. */
enum shoal_status meet_exchange(struct meeting *meeting, struct meet_card *mine,
                                struct meet_card **cards);
/* In place of meet_exchange: tells all others that this rank cannot come, with the thread's error
 * of status `why`, which is returned again. */
enum shoal_status meet_decline(struct meeting *meeting, struct meet_card *mine,
                               enum shoal_status why);
/* Says that this rank stands; whoever serves the store waits for all. Then closes. */
enum shoal_status meet_end(struct meeting *meeting);
/* Closes after a failure. Safe at any time, also twice. */
void meet_give_up(struct meeting *meeting);

enum shoal_status comm_unique_id_create(struct shoal_unique_id *out);

#endif
