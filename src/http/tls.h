/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tls.h: which certificate a connection is shown: for hosts of amazonaws.com, one of the
 * directory's authority; for others, the one that was given, or one of the authority as well.
 */
#ifndef SHOAL_HTTP_TLS_H
#define SHOAL_HTTP_TLS_H

#include <gnutls/abstract.h>
#include <gnutls/gnutls.h>

#include "http/http.h"

struct tls;

/* Reads what is to be shown. SHOAL_ERR_FORMAT, SHOAL_ERR_SYSTEM say what is wrong with it. */
enum shoal_status tls_create(const struct http_tls *options, struct tls **out);
/* NULL is allowed. */
void tls_free(struct tls *tls);
/* A connection begins: it is shown this one's certificates. */
void tls_begin(struct tls *tls, gnutls_session_t session);
/* For MHD_OPTION_HTTPS_CERT_CALLBACK2. */
int tls_certificate(gnutls_session_t session, const struct gnutls_cert_retr_st *info,
                    gnutls_pcert_st **certificates, unsigned *count, gnutls_ocsp_data_st **ocsp,
                    unsigned *ocsp_count, gnutls_privkey_t *key, unsigned *flags);

#endif
