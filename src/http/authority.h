/* SPDX-License-Identifier: Apache-2.0 */
/*
 * authority.h: the certificate authority of a service's directory: who trusts it (AWS_CA_BUNDLE)
 * takes the service for the hosts whose names it is called by. Nobody else has to know it, and it
 * is nobody else's.
 *
 *     DIR/tls/authority.pem   its certificate, for clients
 *     DIR/tls/authority.key   its key, readable by the owner only
 */
#ifndef SHOAL_HTTP_AUTHORITY_H
#define SHOAL_HTTP_AUTHORITY_H

#include <stddef.h>

#include "shoal.h"

struct http_authority;

/* The authority of a service's directory; makes one where there is none, and anew where it ends
 * within a year. SHOAL_ERR_SYSTEM: others than its owner may read its key, or it can't be written.
 * Any number of processes at a time. */
enum shoal_status http_authority_open(const char *dir, struct http_authority **out);
/* NULL is allowed. */
void http_authority_free(struct http_authority *authority);
/* The path of the certificate that clients trust. */
const char *http_authority_path(const struct http_authority *authority);

/* A certificate for hosts, names or numbers, as DER (base_free), that holds from yesterday on for a
 * month. Its key is the one below. Any thread. */
enum shoal_status authority_issue(const struct http_authority *authority, const char *const *hosts,
                                  size_t count, unsigned char **out, size_t *bytes);
/* The key of all certificates that were issued here, as DER; valid while the authority is. */
const unsigned char *authority_key(const struct http_authority *authority, size_t *bytes);

#endif
