/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tls.c: which certificate a connection is shown.
 *
 * The authority is made when the first client needs it, so that a service that nobody reaches by
 * TLS has none; where TLS is all there is, at the start.
 */
#include "http/tls.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/log.h"
#include "base/memory.h"
#include "base/status.h"
#include "http/authority.h"
#include "http/front.h"

#define CHAIN_MAX  10
#define HOST_BYTES 256

struct tls {
    char *dir;
    pthread_mutex_t lock; /* of the authority's making */
    struct http_authority *authority;
    gnutls_pcert_st chain[CHAIN_MAX]; /* that was given */
    unsigned chain_count;
    gnutls_privkey_t key;
};

/* ---- what was given ----------------------------------------------------------------------------
 */

static enum shoal_status given_failed(const char *path, int error)
{
    return base_error(error == GNUTLS_E_FILE_ERROR ? SHOAL_ERR_SYSTEM : SHOAL_ERR_FORMAT,
                      "%s can't be used for TLS: %s", path, gnutls_strerror(error));
}

static enum shoal_status chain_read(struct tls *tls, const char *path)
{
    gnutls_datum_t text;
    int error = gnutls_load_file(path, &text);
    if (error != GNUTLS_E_SUCCESS)
        return given_failed(path, error);
    unsigned count = CHAIN_MAX;
    error = gnutls_pcert_list_import_x509_raw(tls->chain, &count, &text, GNUTLS_X509_FMT_PEM, 0);
    gnutls_free(text.data);
    if (error != GNUTLS_E_SUCCESS)
        return given_failed(path, error);
    tls->chain_count = count;
    return SHOAL_OK;
}

static enum shoal_status key_read(struct tls *tls, const char *path)
{
    gnutls_datum_t text;
    int error = gnutls_load_file(path, &text);
    if (error != GNUTLS_E_SUCCESS)
        return given_failed(path, error);
    error = gnutls_privkey_init(&tls->key);
    if (error == GNUTLS_E_SUCCESS)
        error = gnutls_privkey_import_x509_raw(tls->key, &text, GNUTLS_X509_FMT_PEM, NULL, 0);
    gnutls_memset(text.data, 0, text.size);
    gnutls_free(text.data);
    return error == GNUTLS_E_SUCCESS ? SHOAL_OK : given_failed(path, error);
}

/* Whether the key is the first certificate's. */
static enum shoal_status pair_check(const struct tls *tls, const struct http_tls *options)
{
    unsigned char ids[2][64];
    size_t bytes[2] = {sizeof(ids[0]), sizeof(ids[1])};
    gnutls_pubkey_t key;
    int error = gnutls_pubkey_init(&key);
    if (error == GNUTLS_E_SUCCESS) {
        error = gnutls_pubkey_import_privkey(key, tls->key, 0, 0);
        if (error == GNUTLS_E_SUCCESS)
            error = gnutls_pubkey_get_key_id(key, GNUTLS_KEYID_USE_SHA256, ids[0], &bytes[0]);
        gnutls_pubkey_deinit(key);
    }
    if (error == GNUTLS_E_SUCCESS)
        error = gnutls_pubkey_get_key_id(tls->chain[0].pubkey, GNUTLS_KEYID_USE_SHA256, ids[1],
                                         &bytes[1]);
    if (error != GNUTLS_E_SUCCESS)
        return given_failed(options->key_path, error);
    if (bytes[0] != bytes[1] || memcmp(ids[0], ids[1], bytes[0]) != 0)
        return base_error(SHOAL_ERR_FORMAT, "%s is not the key of the certificate in %s",
                          options->key_path, options->certificate_path);
    return SHOAL_OK;
}

static enum shoal_status authority_get(struct tls *tls, const struct http_authority **out)
{
    enum shoal_status status = SHOAL_OK;
    pthread_mutex_lock(&tls->lock);
    if (tls->authority == NULL)
        status = http_authority_open(tls->dir, &tls->authority);
    *out = tls->authority;
    pthread_mutex_unlock(&tls->lock);
    return status;
}

static enum shoal_status tls_fill(struct tls *tls, const struct http_tls *options)
{
    const struct http_authority *authority;
    TRY(base_strdup(options->dir, "the service's directory", &tls->dir));
    if (options->certificate_path == NULL)
        return options->is_only ? authority_get(tls, &authority) : SHOAL_OK;
    TRY(chain_read(tls, options->certificate_path));
    TRY(key_read(tls, options->key_path));
    return pair_check(tls, options);
}

enum shoal_status tls_create(const struct http_tls *options, struct tls **out)
{
    struct tls *tls;
    TRY(BASE_NEW(&tls, "TLS"));
    pthread_mutex_init(&tls->lock, NULL);
    enum shoal_status status = tls_fill(tls, options);
    if (status != SHOAL_OK) {
        tls_free(tls);
        return status;
    }
    *out = tls;
    return SHOAL_OK;
}

void tls_free(struct tls *tls)
{
    if (tls == NULL)
        return;
    for (unsigned i = 0; i < tls->chain_count; i++)
        gnutls_pcert_deinit(&tls->chain[i]);
    if (tls->key != NULL)
        gnutls_privkey_deinit(tls->key);
    http_authority_free(tls->authority);
    pthread_mutex_destroy(&tls->lock);
    base_free(tls->dir);
    base_free(tls);
}

/* ---- what is issued ----------------------------------------------------------------------------
 */

/* The address that a client without a name for this machine has called, as it wrote it: without
 * scope, and one of IPv4 also where the listener is of both kinds. */
static bool own_address(gnutls_session_t session, char host[HOST_BYTES])
{
    static const char mapped[] = "::ffff:";
    struct sockaddr_storage address;
    socklen_t bytes = sizeof(address);
    if (getsockname(gnutls_transport_get_int(session), (struct sockaddr *)&address, &bytes) != 0 ||
        getnameinfo((struct sockaddr *)&address, bytes, host, HOST_BYTES, NULL, 0,
                    NI_NUMERICHOST) != 0)
        return false;
    host[strcspn(host, "%")] = '\0';
    if (strncmp(host, mapped, sizeof(mapped) - 1) == 0 && strchr(host, '.') != NULL)
        memmove(host, host + sizeof(mapped) - 1, strlen(host) - sizeof(mapped) + 2);
    return true;
}

static enum shoal_status issue(struct tls *tls, gnutls_session_t session, const char *name,
                               unsigned char **out, size_t *bytes, gnutls_datum_t *key)
{
    char machine[HOST_BYTES] = "", address[HOST_BYTES];
    const char *hosts[5] = {name};
    size_t count = 1, key_bytes;
    if (name[0] == '\0') {
        hosts[0] = "localhost";
        hosts[count++] = "127.0.0.1";
        hosts[count++] = "::1";
        if (own_address(session, address))
            hosts[count++] = address;
        if (gethostname(machine, sizeof(machine) - 1) == 0 && front_is_host_name(machine))
            hosts[count++] = machine;
    }
    const struct http_authority *authority;
    TRY(authority_get(tls, &authority));
    TRY(authority_issue(authority, hosts, count, out, bytes));
    key->data = (unsigned char *)authority_key(authority, &key_bytes);
    key->size = (unsigned)key_bytes;
    return SHOAL_OK;
}

static int key_import(const gnutls_datum_t *der, gnutls_privkey_t *out)
{
    int error = gnutls_privkey_init(out);
    if (error != GNUTLS_E_SUCCESS)
        return error;
    error = gnutls_privkey_import_x509_raw(*out, der, GNUTLS_X509_FMT_DER, NULL, 0);
    if (error != GNUTLS_E_SUCCESS)
        gnutls_privkey_deinit(*out);
    return error;
}

/* In memory that GnuTLS frees. */
static int issued_import(const gnutls_datum_t *certificate, const gnutls_datum_t *key_der,
                         gnutls_pcert_st **out, gnutls_privkey_t *key)
{
    gnutls_pcert_st *shown = gnutls_malloc(sizeof(*shown));
    if (shown == NULL)
        return GNUTLS_E_MEMORY_ERROR;
    int error = gnutls_pcert_import_x509_raw(shown, certificate, GNUTLS_X509_FMT_DER, 0);
    if (error == GNUTLS_E_SUCCESS) {
        error = key_import(key_der, key);
        if (error != GNUTLS_E_SUCCESS)
            gnutls_pcert_deinit(shown);
    }
    if (error != GNUTLS_E_SUCCESS)
        gnutls_free(shown);
    else
        *out = shown;
    return error;
}

/* The name that the client calls; "" if it calls none. */
static void name_read(gnutls_session_t session, char name[HOST_BYTES])
{
    size_t bytes = HOST_BYTES;
    unsigned kind;
    if (gnutls_server_name_get(session, name, &bytes, &kind, 0) != GNUTLS_E_SUCCESS ||
        kind != GNUTLS_NAME_DNS || !front_is_host_name(name))
        name[0] = '\0';
}

/* One of the authority for the name that was called. */
static int issued_show(struct tls *tls, gnutls_session_t session, const char *name,
                       gnutls_pcert_st **certificates, gnutls_privkey_t *key)
{
    gnutls_datum_t der = {0}, key_der;
    size_t bytes = 0;
    int error = GNUTLS_E_INTERNAL_ERROR;
    if (issue(tls, session, name, &der.data, &bytes, &key_der) == SHOAL_OK) {
        der.size = (unsigned)bytes;
        error = issued_import(&der, &key_der, certificates, key);
        if (error != GNUTLS_E_SUCCESS)
            base_error(SHOAL_ERR_SYSTEM, "%s", gnutls_strerror(error));
        base_free(der.data);
    }
    if (error != GNUTLS_E_SUCCESS)
        base_log(BASE_LOG_WARN, "http: no certificate for '%s': %s", name, base_error_text());
    return error == GNUTLS_E_SUCCESS ? 0 : -1;
}

/* ---- for the daemon ----------------------------------------------------------------------------
 */

void tls_begin(struct tls *tls, gnutls_session_t session)
{
    gnutls_session_set_ptr(session, tls);
}

int tls_certificate(gnutls_session_t session, const struct gnutls_cert_retr_st *info,
                    gnutls_pcert_st **certificates, unsigned *count, gnutls_ocsp_data_st **ocsp,
                    unsigned *ocsp_count, gnutls_privkey_t *key, unsigned *flags)
{
    struct tls *tls = gnutls_session_get_ptr(session);
    char name[HOST_BYTES];
    (void)info;
    name_read(session, name);
    *ocsp = NULL;
    *ocsp_count = 0;
    if (tls->chain_count > 0 && !front_serves_name(name)) {
        *certificates = tls->chain;
        *count = tls->chain_count;
        *key = tls->key;
        *flags = 0;
        return 0;
    }
    *count = 1;
    *flags = GNUTLS_CERT_RETR_DEINIT_ALL;
    return issued_show(tls, session, name, certificates, key);
}
