/* SPDX-License-Identifier: Apache-2.0 */
/* regex.c: PCRE2, compiled to machine code where it can be, with limits on steps and memory. */
#define PCRE2_CODE_UNIT_WIDTH 8

#include "logs/regex.h"

#include <pcre2.h>
#include <string.h>

#include "base/memory.h"
#include "base/status.h"

#define STEPS_MAX    10000
#define HEAP_KIB_MAX 1024
#define ERROR_BYTES  160

struct logs_regex {
    pcre2_code *code;
    pcre2_match_data *data;
    pcre2_match_context *context;
};

static enum shoal_status compile(const char *text, struct logs_regex *regex)
{
    int error;
    PCRE2_SIZE offset;
    regex->code = pcre2_compile((PCRE2_SPTR)text, strlen(text), PCRE2_UTF | PCRE2_MATCH_INVALID_UTF,
                                &error, &offset, NULL);
    if (regex->code == NULL) {
        PCRE2_UCHAR words[ERROR_BYTES];
        pcre2_get_error_message(error, words, sizeof(words));
        return base_error(SHOAL_ERR_ARGUMENT, "%s at character %zu", (const char *)words,
                          (size_t)offset);
    }
    pcre2_jit_compile(regex->code, PCRE2_JIT_COMPLETE); /* slower without, nothing else */
    regex->data = pcre2_match_data_create_from_pattern(regex->code, NULL);
    regex->context = pcre2_match_context_create(NULL);
    if (regex->data == NULL || regex->context == NULL)
        return base_error(SHOAL_ERR_MEMORY, "no memory for a regular expression");
    pcre2_set_match_limit(regex->context, STEPS_MAX);
    pcre2_set_heap_limit(regex->context, HEAP_KIB_MAX);
    return SHOAL_OK;
}

enum shoal_status logs_regex_create(const char *text, struct logs_regex **out)
{
    struct logs_regex *regex;
    TRY(BASE_NEW(&regex, "a regular expression"));
    enum shoal_status status = compile(text, regex);
    if (status != SHOAL_OK) {
        logs_regex_free(regex);
        return status;
    }
    *out = regex;
    return SHOAL_OK;
}

void logs_regex_free(struct logs_regex *regex)
{
    if (regex == NULL)
        return;
    pcre2_match_data_free(regex->data);
    pcre2_match_context_free(regex->context);
    pcre2_code_free(regex->code);
    base_free(regex);
}

enum logs_search logs_regex_search(const struct logs_regex *regex, const char *text, size_t bytes,
                                   size_t from, struct logs_match *out)
{
    bytes = bytes < LOGS_SEARCH_BYTES_MAX ? bytes : LOGS_SEARCH_BYTES_MAX;
    if (from > bytes)
        return LOGS_ABSENT;
    int groups =
        pcre2_match(regex->code, (PCRE2_SPTR)text, bytes, from, 0, regex->data, regex->context);
    if (groups == PCRE2_ERROR_NOMATCH)
        return LOGS_ABSENT;
    if (groups < 0)
        return LOGS_TOO_LONG;
    const PCRE2_SIZE *places = pcre2_get_ovector_pointer(regex->data);
    *out = (struct logs_match){places[0], places[1], places[0], places[1]};
    for (int i = 1; i < groups; i++) {
        if (places[2 * i] != PCRE2_UNSET) {
            out->group_begin = places[2 * i];
            out->group_end = places[2 * i + 1];
            break;
        }
    }
    return LOGS_FOUND;
}
