/* SPDX-License-Identifier: Apache-2.0 */
/* signature_read.c: the signature that a request carries, out of its header or its query. */
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "http/signature.h"
#include "http/signature_form.h"

#define ALGORITHM "AWS4-HMAC-SHA256"

/* Copies a word; false if it is empty or does not fit. */
static bool word_take(const char *from, size_t length, char *out, size_t bytes)
{
    if (length == 0 || length >= bytes)
        return false;
    memcpy(out, from, length);
    out[length] = '\0';
    return true;
}

static bool number_take(const char *text, int digits, int *out)
{
    *out = 0;
    for (int i = 0; i < digits; i++) {
        if (text[i] < '0' || text[i] > '9')
            return false;
        *out = *out * 10 + (text[i] - '0');
    }
    return true;
}

/* 20261120T173347Z */
static bool time_take(const char *text, struct http_signature *out)
{
    struct tm parts = {0};
    if (strlen(text) != HTTP_SIGNATURE_TIME_BYTES - 1 || text[8] != 'T' || text[15] != 'Z')
        return false;
    if (!number_take(text, 4, &parts.tm_year) || !number_take(text + 4, 2, &parts.tm_mon) ||
        !number_take(text + 6, 2, &parts.tm_mday) || !number_take(text + 9, 2, &parts.tm_hour) ||
        !number_take(text + 11, 2, &parts.tm_min) || !number_take(text + 13, 2, &parts.tm_sec))
        return false;
    parts.tm_year -= 1900;
    parts.tm_mon -= 1;
    out->time_s = timegm(&parts);
    memcpy(out->time, text, sizeof(out->time));
    return true;
}

/* "KEY/20261120/us-east-1/s3/aws4_request" */
static bool credential_take(const char *text, size_t length, struct http_signature *out)
{
    char copy[512];
    if (!word_take(text, length, copy, sizeof(copy)))
        return false;
    const char *parts[5];
    char *rest = copy;
    for (int i = 0; i < 5; i++)
        if ((parts[i] = strsep(&rest, "/")) == NULL)
            return false;
    return rest == NULL && strcmp(parts[4], "aws4_request") == 0 &&
           word_take(parts[0], strlen(parts[0]), out->key_id, sizeof(out->key_id)) &&
           strlen(parts[1]) == sizeof(out->date) - 1 &&
           word_take(parts[1], strlen(parts[1]), out->date, sizeof(out->date)) &&
           word_take(parts[2], strlen(parts[2]), out->region, sizeof(out->region)) &&
           word_take(parts[3], strlen(parts[3]), out->service, sizeof(out->service));
}

static bool signature_take(const char *text, size_t length, struct http_signature *out)
{
    return length == HTTP_DIGEST_HEX_BYTES - 1 &&
           strspn(text, "0123456789abcdef") >= HTTP_DIGEST_HEX_BYTES - 1 &&
           word_take(text, length, out->hex, sizeof(out->hex));
}

/* Lower-case names in order, as the client must have written them for its own signature. */
static bool names_take(const char *text, size_t length, struct http_signature *out)
{
    return word_take(text, length, out->signed_headers, sizeof(out->signed_headers)) &&
           strpbrk(out->signed_headers, "ABCDEFGHIJKLMNOPQRSTUVWXYZ \r\n") == NULL;
}

static enum http_verdict malformed(struct http_signature *out, const char *why)
{
    out->why = why;
    return out->presigned ? HTTP_MALFORMED_QUERY : HTTP_MALFORMED;
}

/* One "Name=value" of the header. */
static const char *field_take(const char *field, size_t length, struct http_signature *out)
{
    static const char credential[] = "Credential=", names[] = "SignedHeaders=",
                      hex[] = "Signature=";
    size_t skip = strcspn(field, "=") + 1;
    if (strncmp(field, credential, sizeof(credential) - 1) == 0)
        return credential_take(field + skip, length - skip, out)
                   ? NULL
                   : "the credential is not KEY/DATE/REGION/SERVICE/aws4_request";
    if (strncmp(field, names, sizeof(names) - 1) == 0)
        return names_take(field + skip, length - skip, out) ? NULL : "SignedHeaders is wrong";
    if (strncmp(field, hex, sizeof(hex) - 1) == 0)
        return signature_take(field + skip, length - skip, out)
                   ? NULL
                   : "the signature is not 64 hexadecimal digits";
    return NULL;
}

static enum http_verdict fields_read(const char *at, struct http_signature *out)
{
    while (*at != '\0') {
        at += strspn(at, ", \t");
        size_t length = strcspn(at, ", \t");
        const char *why = length > 0 ? field_take(at, length, out) : NULL;
        if (why != NULL)
            return malformed(out, why);
        at += length;
    }
    if (out->key_id[0] == '\0')
        return malformed(out, "Credential is missing");
    if (out->signed_headers[0] == '\0')
        return malformed(out, "SignedHeaders is missing");
    if (out->hex[0] == '\0')
        return malformed(out, "Signature is missing");
    return HTTP_ACCEPTED;
}

static enum http_verdict header_read(const struct http_message *message, const char *header,
                                     struct http_signature *out)
{
    if (strncmp(header, ALGORITHM, sizeof(ALGORITHM) - 1) != 0 ||
        (header[sizeof(ALGORITHM) - 1] != ' ' && header[sizeof(ALGORITHM) - 1] != '\t'))
        return malformed(out, "it is not " ALGORITHM ", which is the only one here");
    enum http_verdict verdict = fields_read(header + sizeof(ALGORITHM) - 1, out);
    if (verdict != HTTP_ACCEPTED)
        return verdict;
    const char *time = http_pairs_find_header(message->headers, "x-amz-date");
    if (time == NULL || !time_take(time, out))
        return malformed(out, "X-Amz-Date is missing or not YYYYMMDDTHHMMSSZ");
    return HTTP_ACCEPTED;
}

static bool expires_take(const char *text, struct http_signature *out)
{
    size_t length = strlen(text);
    int seconds = 0;
    if (length == 0 || length > 6 || !number_take(text, (int)length, &seconds))
        return false;
    out->expires_s = seconds;
    return seconds >= 1 && seconds <= HTTP_SIGNATURE_EXPIRES_MAX_S;
}

static enum http_verdict query_read(const struct http_message *message, const char *algorithm,
                                    struct http_signature *out)
{
    static const char *const names[] = {"X-Amz-Credential", "X-Amz-Date", "X-Amz-Expires",
                                        "X-Amz-SignedHeaders", "X-Amz-Signature"};
    const char *values[5];
    out->presigned = true;
    if (strcmp(algorithm, ALGORITHM) != 0)
        return malformed(out, "X-Amz-Algorithm is not " ALGORITHM);
    for (int i = 0; i < 5; i++)
        if ((values[i] = http_pairs_find(message->query, names[i])) == NULL)
            return malformed(out, "one of X-Amz-Credential, X-Amz-Date, X-Amz-Expires, "
                                  "X-Amz-SignedHeaders and X-Amz-Signature is missing");
    if (!credential_take(values[0], strlen(values[0]), out))
        return malformed(out, "X-Amz-Credential is not KEY/DATE/REGION/SERVICE/aws4_request");
    if (!time_take(values[1], out))
        return malformed(out, "X-Amz-Date is not YYYYMMDDTHHMMSSZ");
    if (!expires_take(values[2], out))
        return malformed(out, "X-Amz-Expires must be 1 to 604800 seconds");
    if (!names_take(values[3], strlen(values[3]), out))
        return malformed(out, "X-Amz-SignedHeaders is wrong");
    if (!signature_take(values[4], strlen(values[4]), out))
        return malformed(out, "X-Amz-Signature is not 64 hexadecimal digits");
    return HTTP_ACCEPTED;
}

enum http_verdict http_signature_read(const struct http_message *message,
                                      struct http_signature *out)
{
    *out = (struct http_signature){0};
    const char *header = http_pairs_find_header(message->headers, "authorization");
    const char *algorithm = http_pairs_find(message->query, "X-Amz-Algorithm");
    if (header == NULL && algorithm == NULL)
        return signature_old_read(message, out);
    enum http_verdict verdict =
        header != NULL ? header_read(message, header, out) : query_read(message, algorithm, out);
    if (verdict == HTTP_ACCEPTED && memcmp(out->date, out->time, sizeof(out->date) - 1) != 0)
        return malformed(out, "the credential's date is not the request's");
    return verdict;
}
