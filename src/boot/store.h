/* SPDX-License-Identifier: Apache-2.0 */
/*
 * store.h: where processes that know nothing of each other meet: a small key-value service.
 *
 * The server is one thread in the launcher, in rank 0, or in the process that made a unique id. A
 * client proves with the job's secret that it belongs to the job before anything else
 * (net/proof.h); a stranger is dropped. Values are set once per key, so a second process with the
 * same rank is seen at once.
 */
#ifndef SHOAL_BOOT_STORE_H
#define SHOAL_BOOT_STORE_H

#include <stddef.h>
#include <stdint.h>

#include "shoal.h"

#define BOOT_KEY_BYTES   128
#define BOOT_VALUE_BYTES 65536

struct boot_store_server;
/* Serves on host:port (host "" or NULL: all addresses; port 0: any free one). secret: 32 bytes.
 * SHOAL_ERR_SYSTEM names the address when it is in use. */
enum shoal_status boot_store_serve(const char *host, int port, const unsigned char *secret,
                                   struct boot_store_server **out);
/* Serves at the address that clients are told, or the first of several separated by commas whose
 * port is free: on loopback where its host means this machine alone, else on all addresses (the
 * name may belong to a router or a container's host). Lasts until the
 * process ends, boot_store_stop does nothing to it, and a second call gives the same server: a rank
 * that is ahead may come for its next group while this one is still ending the last. One thread at
 * a time. */
enum shoal_status boot_store_serve_address(const char *addresses, const unsigned char *secret,
                                           struct boot_store_server **out);
/* The same for a server that runs already, under the address that clients are told. */
enum shoal_status boot_store_keep(struct boot_store_server *server, const char *address);
int boot_store_port(const struct boot_store_server *server);
/* Stops the thread and frees. With linger_ms > 0 waits so long for clients to close first. */
void boot_store_stop(struct boot_store_server *server, int64_t linger_ms);

/* A store as its users see it. One thread at a time. */
struct boot_store;
/* Connects to "host:port", or the first that works of several separated by commas, trying again
 * until the deadline (the server may start later). PEER_UNREACHABLE names every address tried and
 * why it failed; PEER_REFUSED, after a few seconds: the secret is not the server's. */
enum shoal_status boot_store_connect(const char *address, const unsigned char *secret,
                                     int64_t deadline_ns, struct boot_store **out);
/* Wraps the caller's own store (borrowed until close). */
enum shoal_status boot_store_wrap(const struct shoal_store *user, struct boot_store **out);
void boot_store_close(struct boot_store *store);

/* Sets key once: SHOAL_ERR_RANK_TAKEN if it is there with another value (the wrapped store can't
 * tell). */
enum shoal_status boot_store_set(struct boot_store *store, const char *key, const void *value,
                                 size_t bytes);
/* Waits for key; SHOAL_ERR_TIMEOUT names the key. *bytes: capacity in, size out; SHOAL_ERR_LIMIT
 * when too small. */
enum shoal_status boot_store_get(struct boot_store *store, const char *key, void *value,
                                 size_t *bytes, int64_t deadline_ns);
/* All of keys "<prefix>0" … "<prefix>N-1" in one round trip where the store can: values[i] points
 * into *block, which the caller frees with base_free. On SHOAL_ERR_TIMEOUT the text lists which are
 * missing. */
enum shoal_status boot_store_gather(struct boot_store *store, const char *prefix, int count,
                                    int64_t deadline_ns, void **block, const void **values,
                                    size_t *sizes);

#endif
