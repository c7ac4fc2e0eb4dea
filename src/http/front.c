/* SPDX-License-Identifier: Apache-2.0 */
/* front.c: what a connection's first bytes are. */
#include "http/front.h"

#include <string.h>
#include <strings.h>

#include "base/status.h"

#define TLS_HANDSHAKE 0x16 /* the type of TLS's first record; no request begins with it */
#define METHOD        "CONNECT "
#define METHOD_BYTES  (sizeof(METHOD) - 1)
#define HTTPS_PORT    443
#define LABEL_MAX     63

enum front_kind front_kind(const char *bytes, size_t count)
{
    if (count == 0)
        return FRONT_UNSURE;
    if (bytes[0] == TLS_HANDSHAKE)
        return FRONT_TLS;
    size_t compared = count < METHOD_BYTES ? count : METHOD_BYTES;
    if (memcmp(bytes, METHOD, compared) != 0)
        return FRONT_PLAIN;
    return count < METHOD_BYTES ? FRONT_UNSURE : FRONT_CONNECT;
}

static bool is_label_letter(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
           c == '_';
}

bool front_is_host_name(const char *name)
{
    size_t length = strlen(name), label = 0;
    if (length == 0 || length >= FRONT_HOST_BYTES)
        return false;
    for (size_t i = 0; i < length; i++) {
        if (name[i] == '.' ? label == 0 : !is_label_letter(name[i]))
            return false;
        label = name[i] == '.' ? 0 : label + 1;
        if (label > LABEL_MAX)
            return false;
    }
    return label > 0;
}

/* "host:port", or an error that a client may be shown. */
static enum shoal_status target_read(const char *text, size_t count, struct front_target *out)
{
    const char *colon = memchr(text, ':', count);
    size_t host = colon != NULL ? (size_t)(colon - text) : 0;
    if (host == 0 || host >= FRONT_HOST_BYTES)
        return base_error(SHOAL_ERR_FORMAT, "CONNECT needs HOST:PORT");
    memcpy(out->host, text, host);
    out->host[host] = '\0';
    size_t digits = count - host - 1;
    out->port = 0;
    for (size_t i = 0; i < digits; i++) {
        char c = colon[1 + i];
        if (c < '0' || c > '9' || i == 5)
            return base_error(SHOAL_ERR_FORMAT, "CONNECT needs HOST:PORT");
        out->port = out->port * 10 + (c - '0');
    }
    bool is_host = strlen(out->host) == host && front_is_host_name(out->host);
    if (!is_host || out->port < 1 || out->port > 65535)
        return base_error(SHOAL_ERR_FORMAT, "CONNECT needs HOST:PORT");
    return SHOAL_OK;
}

enum shoal_status front_connect_read(const char *bytes, size_t count, struct front_target *out,
                                     size_t *head_bytes)
{
    const char *end = memmem(bytes, count, "\r\n\r\n", 4);
    if (end == NULL && count >= FRONT_HEAD_BYTES_MAX)
        return base_error(SHOAL_ERR_FORMAT, "the head of a CONNECT has more than %d bytes",
                          FRONT_HEAD_BYTES_MAX);
    if (end == NULL)
        return SHOAL_IN_PROGRESS;
    const char *target = bytes + METHOD_BYTES, *line_end = memchr(bytes, '\r', count);
    const char *blank = line_end > target ? memchr(target, ' ', (size_t)(line_end - target)) : NULL;
    if (blank == NULL || line_end - blank != 9 || memcmp(blank, " HTTP/1.", 8) != 0)
        return base_error(SHOAL_ERR_FORMAT, "a CONNECT ends with HTTP/1.1");
    struct front_target target_out;
    TRY(target_read(target, (size_t)(blank - target), &target_out));
    *out = target_out;
    *head_bytes = (size_t)(end - bytes) + 4;
    return SHOAL_OK;
}

bool front_serves_name(const char *name)
{
    static const char domain[] = ".amazonaws.com";
    size_t length = strlen(name), end = sizeof(domain) - 1;
    return length > end && strcasecmp(name + length - end, domain) == 0;
}

bool front_serves(const struct front_target *target)
{
    return target->port == HTTPS_PORT && front_serves_name(target->host);
}
