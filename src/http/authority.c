/* SPDX-License-Identifier: Apache-2.0 */
/*
 * authority.c: the certificate authority of a service's directory.
 *
 * Certificates of hosts are issued for each connection and never stored: they can't run out, and
 * there is nothing to renew but the authority itself. Their key is made when the authority is
 * opened. Two processes that make an authority at one time take turns by a lock; a key without its
 * certificate, after a kill in between, counts as none.
 */
#include "http/authority.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/rand.h>
#include <openssl/x509v3.h>

#include "base/memory.h"
#include "base/status.h"
#include "http/front.h"
#include "http/home.h"

#define PATH_BYTES      (HTTP_HOME_PATH_BYTES + 64)
#define DAY_S           (24 * 60 * 60)
#define AUTHORITY_DAYS  3650
#define RENEWAL_DAYS    365
#define ISSUED_DAYS     30
#define HOSTS_BYTES_MAX 2048

struct http_authority {
    char folder[PATH_BYTES], path[PATH_BYTES], key_path[PATH_BYTES];
    X509 *certificate;
    EVP_PKEY *key, *issued_key;
    unsigned char *issued_key_der;
    int issued_key_bytes;
};

static enum shoal_status failed(const char *what)
{
    unsigned long error = ERR_get_error();
    const char *reason = ERR_reason_error_string(error);
    ERR_clear_error();
    return base_error(SHOAL_ERR_SYSTEM, "%s: %s", what,
                      reason != NULL ? reason : "OpenSSL gives no reason");
}

/* ---- certificates ------------------------------------------------------------------------------
 */

static bool extension_add(X509 *certificate, X509 *issuer, int kind, const char *value)
{
    X509V3_CTX context;
    X509V3_set_ctx(&context, issuer, certificate, NULL, NULL, 0);
    X509_EXTENSION *extension = X509V3_EXT_conf_nid(NULL, &context, kind, value);
    bool added = extension != NULL && X509_add_ext(certificate, extension, -1) == 1;
    X509_EXTENSION_free(extension);
    return added;
}

/* 159 random bits: never negative, never twice. */
static bool serial_set(X509 *certificate)
{
    BIGNUM *number = BN_new();
    bool set = number != NULL && BN_rand(number, 159, BN_RAND_TOP_ANY, BN_RAND_BOTTOM_ANY) == 1 &&
               BN_to_ASN1_INTEGER(number, X509_get_serialNumber(certificate)) != NULL;
    BN_free(number);
    return set;
}

static bool name_set(X509 *certificate, const char *name)
{
    return X509_NAME_add_entry_by_txt(X509_get_subject_name(certificate), "CN", MBSTRING_ASC,
                                      (const unsigned char *)name, -1, -1, 0) == 1;
}

/* What all certificates have: version, serial, a life from yesterday on, subject and key. */
static bool begin(X509 *certificate, EVP_PKEY *key, const char *name, int days)
{
    return X509_set_version(certificate, X509_VERSION_3) == 1 && serial_set(certificate) &&
           X509_gmtime_adj(X509_getm_notBefore(certificate), -DAY_S) != NULL &&
           X509_time_adj_ex(X509_getm_notAfter(certificate), days, 0, NULL) != NULL &&
           X509_set_pubkey(certificate, key) == 1 && name_set(certificate, name);
}

static bool authority_fill(X509 *certificate, EVP_PKEY *key)
{
    return begin(certificate, key, "Shoal, the authority of one directory", AUTHORITY_DAYS) &&
           X509_set_issuer_name(certificate, X509_get_subject_name(certificate)) == 1 &&
           extension_add(certificate, certificate, NID_basic_constraints,
                         "critical,CA:TRUE,pathlen:0") &&
           extension_add(certificate, certificate, NID_key_usage, "critical,keyCertSign,cRLSign") &&
           extension_add(certificate, certificate, NID_subject_key_identifier, "hash") &&
           X509_sign(certificate, key, EVP_sha256()) > 0;
}

static bool issued_fill(const struct http_authority *authority, X509 *certificate,
                        const char *names)
{
    X509 *issuer = authority->certificate;
    return begin(certificate, authority->issued_key, "Shoal", ISSUED_DAYS) &&
           X509_set_issuer_name(certificate, X509_get_subject_name(issuer)) == 1 &&
           extension_add(certificate, issuer, NID_basic_constraints, "critical,CA:FALSE") &&
           extension_add(certificate, issuer, NID_key_usage, "critical,digitalSignature") &&
           extension_add(certificate, issuer, NID_ext_key_usage, "serverAuth") &&
           extension_add(certificate, issuer, NID_subject_key_identifier, "hash") &&
           extension_add(certificate, issuer, NID_authority_key_identifier, "keyid:always") &&
           extension_add(certificate, issuer, NID_subject_alt_name, names) &&
           X509_sign(certificate, authority->key, EVP_sha256()) > 0;
}

static enum shoal_status der_copy(X509 *certificate, unsigned char **out, size_t *bytes)
{
    int length = i2d_X509(certificate, NULL);
    if (length <= 0)
        return failed("a certificate can't be written");
    unsigned char *der, *at;
    TRY(base_alloc((size_t)length, "a certificate", (void **)&der));
    at = der;
    i2d_X509(certificate, &at);
    *out = der;
    *bytes = (size_t)length;
    return SHOAL_OK;
}

/* "DNS:a,IP:127.0.0.1" */
static enum shoal_status names_write(const char *const *hosts, size_t count,
                                     char names[HOSTS_BYTES_MAX])
{
    size_t used = 0;
    for (size_t i = 0; i < count; i++) {
        ASN1_OCTET_STRING *number = a2i_IPADDRESS(hosts[i]);
        bool is_number = number != NULL;
        ASN1_OCTET_STRING_free(number);
        if (!is_number && !front_is_host_name(hosts[i]))
            return base_error(SHOAL_ERR_ARGUMENT, "'%s' is no host's name", hosts[i]);
        int length = snprintf(names + used, HOSTS_BYTES_MAX - used, "%s%s:%s", i > 0 ? "," : "",
                              is_number ? "IP" : "DNS", hosts[i]);
        if (length < 0 || used + (size_t)length >= HOSTS_BYTES_MAX)
            return base_error(SHOAL_ERR_LIMIT, "too many hosts for one certificate");
        used += (size_t)length;
    }
    ERR_clear_error();
    return SHOAL_OK;
}

enum shoal_status authority_issue(const struct http_authority *authority, const char *const *hosts,
                                  size_t count, unsigned char **out, size_t *bytes)
{
    char names[HOSTS_BYTES_MAX];
    TRY(names_write(hosts, count, names));
    X509 *certificate = X509_new();
    enum shoal_status status = certificate != NULL && issued_fill(authority, certificate, names)
                                   ? der_copy(certificate, out, bytes)
                                   : failed("a certificate can't be made");
    X509_free(certificate);
    return status;
}

const unsigned char *authority_key(const struct http_authority *authority, size_t *bytes)
{
    *bytes = (size_t)authority->issued_key_bytes;
    return authority->issued_key_der;
}

/* ---- files -------------------------------------------------------------------------------------
 */

/* Opens a file of the authority to read; NULL with SHOAL_OK if it is not there. */
static enum shoal_status file_open(const char *path, bool is_secret, FILE **out)
{
    *out = fopen(path, "re");
    if (*out == NULL)
        return errno == ENOENT ? SHOAL_OK
                               : base_error_errno(SHOAL_ERR_SYSTEM, errno, "cannot read %s", path);
    enum shoal_status status = is_secret ? http_home_secret_check(path, fileno(*out)) : SHOAL_OK;
    if (status != SHOAL_OK) {
        fclose(*out);
        *out = NULL;
    }
    return status;
}

/* Reads both, as far as they are there. */
static enum shoal_status files_read(struct http_authority *authority)
{
    FILE *file;
    TRY(file_open(authority->key_path, true, &file));
    if (file == NULL)
        return SHOAL_OK;
    authority->key = PEM_read_PrivateKey(file, NULL, NULL, NULL);
    fclose(file);
    TRY(file_open(authority->path, false, &file));
    if (file == NULL)
        return SHOAL_OK;
    authority->certificate = PEM_read_X509(file, NULL, NULL, NULL);
    fclose(file);
    return SHOAL_OK;
}

/* Whether what was read is an authority, and will be one for long. */
static bool is_good(const struct http_authority *authority)
{
    int days = 0, seconds = 0;
    bool good =
        authority->key != NULL && authority->certificate != NULL &&
        X509_check_private_key(authority->certificate, authority->key) == 1 &&
        X509_check_ca(authority->certificate) == 1 &&
        ASN1_TIME_diff(&days, &seconds, NULL, X509_get0_notAfter(authority->certificate)) == 1 &&
        days >= RENEWAL_DAYS;
    ERR_clear_error();
    return good;
}

/* Under another name first, so that a reader finds all of it or nothing. */
static enum shoal_status file_make(const struct http_authority *authority, const char *path,
                                   bool is_key)
{
    char fresh[PATH_BYTES + 8];
    snprintf(fresh, sizeof(fresh), "%s.new", path);
    unlink(fresh);
    int fd = open(fresh, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, is_key ? 0600 : 0644);
    FILE *file = fd >= 0 ? fdopen(fd, "w") : NULL;
    if (file == NULL) {
        if (fd >= 0)
            close(fd);
        return base_error_errno(SHOAL_ERR_SYSTEM, errno, "cannot write %s", fresh);
    }
    bool written = is_key
                       ? PEM_write_PrivateKey(file, authority->key, NULL, NULL, 0, NULL, NULL) == 1
                       : PEM_write_X509(file, authority->certificate) == 1;
    written = written && fflush(file) == 0 && fsync(fd) == 0;
    written = fclose(file) == 0 && written;
    if (!written || rename(fresh, path) != 0)
        return base_error_errno(SHOAL_ERR_SYSTEM, errno, "cannot write %s", path);
    return SHOAL_OK;
}

static void both_free(struct http_authority *authority)
{
    EVP_PKEY_free(authority->key);
    X509_free(authority->certificate);
    authority->key = NULL;
    authority->certificate = NULL;
}

static enum shoal_status both_make(struct http_authority *authority)
{
    both_free(authority);
    authority->key = EVP_EC_gen("P-256");
    authority->certificate = X509_new();
    if (authority->key == NULL || authority->certificate == NULL ||
        !authority_fill(authority->certificate, authority->key))
        return failed("the service's certificate authority can't be made");
    TRY(file_make(authority, authority->key_path, true));
    return file_make(authority, authority->path, false);
}

static enum shoal_status read_or_make(struct http_authority *authority)
{
    TRY(files_read(authority));
    return is_good(authority) ? SHOAL_OK : both_make(authority);
}

/* ---- open --------------------------------------------------------------------------------------
 */

/* Takes the lock of DIR/tls. */
static enum shoal_status folder_lock(const char *folder, int *fd)
{
    if (mkdir(folder, 0700) != 0 && errno != EEXIST)
        return base_error_errno(SHOAL_ERR_SYSTEM, errno, "cannot make the directory %s", folder);
    *fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (*fd < 0)
        return base_error_errno(SHOAL_ERR_SYSTEM, errno, "cannot open the directory %s", folder);
    while (flock(*fd, LOCK_EX) != 0)
        if (errno != EINTR) {
            close(*fd);
            return base_error_errno(SHOAL_ERR_SYSTEM, errno, "cannot lock %s", folder);
        }
    return SHOAL_OK;
}

static enum shoal_status authority_load(struct http_authority *authority, const char *dir)
{
    int lock = -1;
    TRY(http_home_file(dir, "tls", authority->folder, PATH_BYTES));
    TRY(http_home_file(authority->folder, "authority.pem", authority->path, PATH_BYTES));
    TRY(http_home_file(authority->folder, "authority.key", authority->key_path, PATH_BYTES));
    TRY(folder_lock(authority->folder, &lock));
    enum shoal_status status = read_or_make(authority);
    close(lock);
    TRY(status);
    authority->issued_key = EVP_EC_gen("P-256");
    authority->issued_key_bytes = i2d_PrivateKey(authority->issued_key, &authority->issued_key_der);
    return authority->issued_key_bytes > 0 ? SHOAL_OK : failed("a key can't be made");
}

enum shoal_status http_authority_open(const char *dir, struct http_authority **out)
{
    struct http_authority *authority;
    TRY(BASE_NEW(&authority, "a certificate authority"));
    enum shoal_status status = authority_load(authority, dir);
    if (status != SHOAL_OK) {
        http_authority_free(authority);
        return status;
    }
    *out = authority;
    return SHOAL_OK;
}

void http_authority_free(struct http_authority *authority)
{
    if (authority == NULL)
        return;
    both_free(authority);
    EVP_PKEY_free(authority->issued_key);
    OPENSSL_clear_free(authority->issued_key_der, (size_t)authority->issued_key_bytes);
    base_free(authority);
}

const char *http_authority_path(const struct http_authority *authority)
{
    return authority->path;
}
