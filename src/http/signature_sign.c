/* SPDX-License-Identifier: Apache-2.0 */
/* signature_sign.c: signatures for clients. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/status.h"
#include "http/signature.h"
#include "http/signature_form.h"
#include "http/text.h"

static enum shoal_status begin(const struct http_signing *signing, struct http_signature *out)
{
    *out = (struct http_signature){0};
    http_signature_time(signing->time_s, out->time);
    memcpy(out->date, out->time, sizeof(out->date) - 1);
    if (snprintf(out->key_id, sizeof(out->key_id), "%s", signing->key->id) >=
            (int)sizeof(out->key_id) ||
        snprintf(out->region, sizeof(out->region), "%s", signing->region) >=
            (int)sizeof(out->region) ||
        snprintf(out->service, sizeof(out->service), "%s", signing->service) >=
            (int)sizeof(out->service))
        return base_error(SHOAL_ERR_ARGUMENT,
                          "the key, region or service is too long to sign with");
    return SHOAL_OK;
}

static void lower(char *text)
{
    for (; *text != '\0'; text++)
        if (*text >= 'A' && *text <= 'Z')
            *text = (char)(*text - 'A' + 'a');
}

#define NAMES_MAX  128
#define NAME_BYTES 128

static int name_compare(const void *left, const void *right)
{
    return strcmp(left, right);
}

/* Their names, lower-case, in order, each once. */
static enum shoal_status names_put(const struct http_pairs *headers, char *out, size_t bytes)
{
    char names[NAMES_MAX][NAME_BYTES];
    if (headers->count > NAMES_MAX)
        return base_error(SHOAL_ERR_LIMIT, "more than %d headers to sign", NAMES_MAX);
    for (size_t i = 0; i < headers->count; i++) {
        if (snprintf(names[i], NAME_BYTES, "%s", headers->pairs[i].name) >= NAME_BYTES)
            return base_error(SHOAL_ERR_LIMIT, "the name of a header to sign is too long");
        lower(names[i]);
    }
    qsort(names, headers->count, NAME_BYTES, name_compare);
    size_t used = 0;
    out[0] = '\0';
    for (size_t i = 0; i < headers->count; i++) {
        if (i > 0 && strcmp(names[i], names[i - 1]) == 0)
            continue;
        used += (size_t)snprintf(out + used, bytes - used, "%s%s", i > 0 ? ";" : "", names[i]);
        if (used >= bytes)
            return base_error(SHOAL_ERR_LIMIT, "too many headers to sign");
    }
    return SHOAL_OK;
}

enum shoal_status http_signature_sign(const struct http_message *message,
                                      const struct http_signing *signing, char *authorization,
                                      size_t bytes)
{
    struct http_signature signature;
    TRY(begin(signing, &signature));
    TRY(names_put(message->headers, signature.signed_headers, sizeof(signature.signed_headers)));
    TRY(signature_make(message, &signature, signing->key->secret, signing->payload, signature.hex));
    int length = snprintf(authorization, bytes,
                          "AWS4-HMAC-SHA256 Credential=%s/%s/%s/%s/aws4_request, "
                          "SignedHeaders=%s, Signature=%s",
                          signature.key_id, signature.date, signature.region, signature.service,
                          signature.signed_headers, signature.hex);
    if (length < 0 || (size_t)length >= bytes)
        return base_error(SHOAL_ERR_LIMIT, "no room for the header Authorization");
    return SHOAL_OK;
}

#define SIGNING_PARAMETERS 5

/* The message's own parameters and those that say how it is signed. */
static enum shoal_status pairs_join(const struct http_pairs *query,
                                    const struct http_pair more[SIGNING_PARAMETERS],
                                    struct http_pairs *out)
{
    struct http_pairs all = {.count = query->count + SIGNING_PARAMETERS};
    TRY(BASE_NEW_ARRAY(&all.pairs, all.count, "parameters"));
    if (query->count > 0)
        memcpy(all.pairs, query->pairs, query->count * sizeof(*all.pairs));
    memcpy(all.pairs + query->count, more, SIGNING_PARAMETERS * sizeof(*more));
    *out = all;
    return SHOAL_OK;
}

static void query_write(const struct http_pairs *query, const char *hex, struct http_text *out)
{
    for (size_t i = 0; i < query->count; i++) {
        http_text_put(out, i > 0 ? "&" : "");
        http_text_encode(out, query->pairs[i].name, strlen(query->pairs[i].name), false);
        http_text_put(out, "=");
        http_text_encode(out, query->pairs[i].value, strlen(query->pairs[i].value), false);
    }
    http_text_format(out, "&X-Amz-Signature=%s", hex);
}

enum shoal_status http_signature_presign(const struct http_message *message,
                                         const struct http_signing *signing, int64_t expires_s,
                                         struct http_text *query)
{
    struct http_signature signature;
    TRY(begin(signing, &signature));
    TRY(names_put(message->headers, signature.signed_headers, sizeof(signature.signed_headers)));
    char credential[HTTP_KEY_ID_BYTES + HTTP_SIGNATURE_SCOPE_BYTES], expires[24];
    snprintf(credential, sizeof(credential), "%s/%s/%s/%s/aws4_request", signature.key_id,
             signature.date, signature.region, signature.service);
    snprintf(expires, sizeof(expires), "%lld", (long long)expires_s);
    const struct http_pair more[SIGNING_PARAMETERS] = {
        {"X-Amz-Algorithm", "AWS4-HMAC-SHA256"},
        {"X-Amz-Credential", credential},
        {"X-Amz-Date", signature.time},
        {"X-Amz-Expires", expires},
        {"X-Amz-SignedHeaders", signature.signed_headers},
    };
    struct http_pairs all;
    TRY(pairs_join(message->query, more, &all));
    struct http_message whole = *message;
    whole.query = &all;
    enum shoal_status status =
        signature_make(&whole, &signature, signing->key->secret, signing->payload, signature.hex);
    if (status == SHOAL_OK)
        query_write(&all, signature.hex, query);
    http_pairs_free(&all);
    return status == SHOAL_OK ? http_text_status(query) : status;
}
