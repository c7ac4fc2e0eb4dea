/* SPDX-License-Identifier: Apache-2.0 */
/* authority_test.c: an authority is made once, kept, renewed, and issues what clients accept. */
#include "http/authority.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>

#include "base/memory.h"
#include "base/status.h"

static char dir[] = "/tmp/shoal-authority-XXXXXX";

static const char *file(const char *name)
{
    static char path[128];
    snprintf(path, sizeof(path), "%s/tls/%s", dir, name);
    return path;
}

static struct http_authority *open_it(void)
{
    struct http_authority *authority;
    if (http_authority_open(dir, &authority) != SHOAL_OK)
        fail_msg("%s", base_error_text());
    return authority;
}

static X509 *authority_certificate(void)
{
    FILE *in = fopen(file("authority.pem"), "r");
    assert_non_null(in);
    X509 *certificate = PEM_read_X509(in, NULL, NULL, NULL);
    fclose(in);
    assert_non_null(certificate);
    return certificate;
}

static void it_is_made_once(void **state)
{
    (void)state;
    struct stat key, folder;
    http_authority_free(open_it());
    X509 *first = authority_certificate();
    assert_int_equal(stat(file("authority.key"), &key), 0);
    assert_int_equal(key.st_mode & 0777, 0600);
    assert_int_equal(stat(file(""), &folder), 0);
    assert_int_equal(folder.st_mode & 0777, 0700);
    struct http_authority *again = open_it();
    assert_string_equal(http_authority_path(again), file("authority.pem"));
    http_authority_free(again);
    X509 *second = authority_certificate();
    assert_int_equal(X509_cmp(first, second), 0);
    X509_free(first);
    X509_free(second);
}

/* What a strict client does: the chain, the purpose, the name. */
static bool is_accepted(X509 *certificate, X509 *root, const char *host)
{
    X509_STORE *store = X509_STORE_new();
    X509_STORE_CTX *context = X509_STORE_CTX_new();
    X509_STORE_add_cert(store, root);
    X509_STORE_CTX_init(context, store, certificate, NULL);
    X509_STORE_CTX_set_purpose(context, X509_PURPOSE_SSL_SERVER);
    X509_VERIFY_PARAM *rules = X509_STORE_CTX_get0_param(context);
    X509_VERIFY_PARAM_set_flags(rules, X509_V_FLAG_X509_STRICT);
    if (X509_VERIFY_PARAM_set1_ip_asc(rules, host) != 1)
        X509_VERIFY_PARAM_set1_host(rules, host, 0);
    bool accepted = X509_verify_cert(context) == 1;
    X509_STORE_CTX_free(context);
    X509_STORE_free(store);
    ERR_clear_error();
    return accepted;
}

static X509 *issue(struct http_authority *authority, const char *const *hosts, size_t count)
{
    unsigned char *der;
    size_t bytes;
    assert_int_equal(authority_issue(authority, hosts, count, &der, &bytes), SHOAL_OK);
    const unsigned char *at = der;
    X509 *certificate = d2i_X509(NULL, &at, (long)bytes);
    base_free(der);
    assert_non_null(certificate);
    return certificate;
}

static void clients_accept_what_it_issues(void **state)
{
    (void)state;
    struct http_authority *authority = open_it();
    X509 *root = authority_certificate();
    static const char *const hosts[] = {"my_bucket.s3.eu-west-1.amazonaws.com", "127.0.0.1", "::1"};
    X509 *certificate = issue(authority, hosts, 3);
    for (int i = 0; i < 3; i++)
        assert_true(is_accepted(certificate, root, hosts[i]));
    assert_false(is_accepted(certificate, root, "other.s3.eu-west-1.amazonaws.com"));
    assert_false(is_accepted(certificate, root, "127.0.0.2"));
    size_t key_bytes;
    const unsigned char *key_der = authority_key(authority, &key_bytes);
    EVP_PKEY *key = d2i_AutoPrivateKey(NULL, &key_der, (long)key_bytes);
    assert_int_equal(X509_check_private_key(certificate, key), 1);
    EVP_PKEY_free(key);
    X509_free(certificate);
    X509_free(root);
    unsigned char *der;
    size_t bytes;
    static const char *const wrong[] = {"a,IP:10.0.0.1"};
    assert_int_equal(authority_issue(authority, wrong, 1, &der, &bytes), SHOAL_ERR_ARGUMENT);
    http_authority_free(authority);
}

static void what_is_broken_is_made_anew(void **state)
{
    (void)state;
    static const char *const broken[] = {"authority.pem", "authority.key"};
    for (int i = 0; i < 2; i++) {
        X509 *before = authority_certificate();
        FILE *out = fopen(file(broken[i]), "w");
        fputs("nothing of the kind\n", out);
        fclose(out);
        http_authority_free(open_it());
        X509 *after = authority_certificate();
        assert_int_not_equal(X509_cmp(before, after), 0);
        X509_free(before);
        X509_free(after);
    }
}

/* The same key, and a certificate that ends in so many days. */
static void shorten(int days)
{
    FILE *in = fopen(file("authority.key"), "r");
    EVP_PKEY *key = PEM_read_PrivateKey(in, NULL, NULL, NULL);
    fclose(in);
    X509 *certificate = authority_certificate();
    X509_time_adj_ex(X509_getm_notAfter(certificate), days, 0, NULL);
    assert_true(X509_sign(certificate, key, EVP_sha256()) > 0);
    FILE *out = fopen(file("authority.pem"), "w");
    PEM_write_X509(out, certificate);
    fclose(out);
    X509_free(certificate);
    EVP_PKEY_free(key);
}

static void it_is_renewed_before_it_ends(void **state)
{
    (void)state;
    shorten(400);
    X509 *kept = authority_certificate();
    http_authority_free(open_it());
    X509 *after = authority_certificate();
    assert_int_equal(X509_cmp(kept, after), 0);
    X509_free(after);
    shorten(100);
    http_authority_free(open_it());
    after = authority_certificate();
    assert_int_not_equal(X509_cmp(kept, after), 0);
    X509_free(kept);
    X509_free(after);
}

static void its_key_is_the_owner_s(void **state)
{
    (void)state;
    struct http_authority *authority;
    chmod(file("authority.key"), 0644);
    assert_int_equal(http_authority_open(dir, &authority), SHOAL_ERR_SYSTEM);
    assert_non_null(strstr(base_error_text(), "chmod 600"));
    chmod(file("authority.key"), 0600);
}

static void *opener(void *out)
{
    *(struct http_authority **)out = open_it();
    return NULL;
}

static void many_make_one(void **state)
{
    (void)state;
    struct http_authority *all[8];
    pthread_t threads[8];
    unlink(file("authority.key"));
    for (int i = 0; i < 8; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, opener, &all[i]), 0);
    for (int i = 0; i < 8; i++)
        pthread_join(threads[i], NULL);
    X509 *root = authority_certificate();
    static const char *const host[] = {"sts.amazonaws.com"};
    for (int i = 0; i < 8; i++) {
        X509 *certificate = issue(all[i], host, 1);
        assert_true(is_accepted(certificate, root, host[0]));
        X509_free(certificate);
        http_authority_free(all[i]);
    }
    X509_free(root);
}

static int make_dir(void **state)
{
    (void)state;
    return mkdtemp(dir) == NULL;
}

static int remove_dir(void **state)
{
    (void)state;
    unlink(file("authority.pem"));
    unlink(file("authority.key"));
    rmdir(file(""));
    rmdir(dir);
    assert_int_equal(base_memory_blocks(), 0);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(it_is_made_once),
        cmocka_unit_test(clients_accept_what_it_issues),
        cmocka_unit_test(what_is_broken_is_made_anew),
        cmocka_unit_test(it_is_renewed_before_it_ends),
        cmocka_unit_test(its_key_is_the_owner_s),
        cmocka_unit_test(many_make_one),
    };
    return cmocka_run_group_tests(tests, make_dir, remove_dir);
}
