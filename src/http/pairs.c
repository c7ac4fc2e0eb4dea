/* SPDX-License-Identifier: Apache-2.0 */
/* pairs.c: queries and forms, decoded in a copy. */
#include "http/pairs.h"

#include <string.h>
#include <strings.h>

#include "base/memory.h"
#include "base/status.h"

static int hex_value(char digit)
{
    if (digit >= '0' && digit <= '9')
        return digit - '0';
    if (digit >= 'a' && digit <= 'f')
        return digit - 'a' + 10;
    if (digit >= 'A' && digit <= 'F')
        return digit - 'A' + 10;
    return -1;
}

enum shoal_status http_decode(char *text, size_t *count, bool plus_is_blank)
{
    size_t used = 0;
    for (size_t i = 0; i < *count; i++) {
        char byte = text[i];
        if (byte == '%') {
            int high = i + 2 < *count ? hex_value(text[i + 1]) : -1;
            int low = high >= 0 ? hex_value(text[i + 2]) : -1;
            if (low < 0)
                return base_error(SHOAL_ERR_FORMAT, "'%%' without two hexadecimal digits");
            byte = (char)(high * 16 + low);
            i += 2;
        } else if (byte == '+' && plus_is_blank) {
            byte = ' ';
        }
        if (byte == '\0')
            return base_error(SHOAL_ERR_FORMAT, "a NUL");
        text[used++] = byte;
    }
    *count = used;
    return SHOAL_OK;
}

static enum shoal_status decode_word(char *word)
{
    size_t count = strlen(word);
    TRY(http_decode(word, &count, true));
    word[count] = '\0';
    return SHOAL_OK;
}

/* One of the words between '&'. */
static enum shoal_status pair_parse(char *word, struct http_pair *out)
{
    char *equals = strchr(word, '=');
    if (equals != NULL) {
        *equals = '\0';
        TRY(decode_word(equals + 1));
    }
    TRY(decode_word(word));
    *out = (struct http_pair){word, equals != NULL ? equals + 1 : ""};
    return SHOAL_OK;
}

static enum shoal_status fill(struct http_pairs *pairs)
{
    char *rest = pairs->storage, *word;
    while ((word = strsep(&rest, "&")) != NULL)
        if (*word != '\0')
            TRY(pair_parse(word, &pairs->pairs[pairs->count++]));
    return SHOAL_OK;
}

enum shoal_status http_pairs_parse(const char *text, size_t count, size_t most,
                                   struct http_pairs *out)
{
    size_t words = count > 0;
    for (size_t i = 0; i < count; i++) {
        words += text[i] == '&';
        if (text[i] == '\0')
            return base_error(SHOAL_ERR_FORMAT, "a NUL");
    }
    if (words > most)
        return base_error(SHOAL_ERR_LIMIT, "more than %zu parameters", most);
    struct http_pairs pairs = {0};
    if (words > 0) {
        TRY(base_alloc(count + 1, "parameters", (void **)&pairs.storage));
        memcpy(pairs.storage, text, count);
        enum shoal_status status = BASE_NEW_ARRAY(&pairs.pairs, words, "parameters");
        if (status == SHOAL_OK)
            status = fill(&pairs);
        if (status != SHOAL_OK) {
            http_pairs_free(&pairs);
            return status;
        }
    }
    *out = pairs;
    return SHOAL_OK;
}

void http_pairs_free(struct http_pairs *pairs)
{
    base_free(pairs->pairs);
    base_free(pairs->storage);
    *pairs = (struct http_pairs){0};
}

const char *http_pairs_find(const struct http_pairs *pairs, const char *name)
{
    for (size_t i = 0; i < pairs->count; i++)
        if (strcmp(pairs->pairs[i].name, name) == 0)
            return pairs->pairs[i].value;
    return NULL;
}

const char *http_pairs_find_header(const struct http_pairs *pairs, const char *name)
{
    for (size_t i = 0; i < pairs->count; i++)
        if (strcasecmp(pairs->pairs[i].name, name) == 0)
            return pairs->pairs[i].value;
    return NULL;
}
