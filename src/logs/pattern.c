/* SPDX-License-Identifier: Apache-2.0 */
/* pattern.c: a list of terms, each looked for in the whole line. */
#include "logs/pattern.h"

#include <ctype.h>
#include <string.h>

#include "base/memory.h"
#include "base/status.h"
#include "logs/regex.h"

#define TERMS_MAX 64
#define BLANKS    " \t\r\n"

enum term_kind { TERM_NEEDED, TERM_OPTIONAL, TERM_EXCLUDED };

struct term {
    enum term_kind kind;
    const char *text; /* in the pattern's copy */
    size_t bytes;
    struct logs_regex *regex; /* instead */
};

struct logs_pattern {
    char *copy;
    struct term terms[TERMS_MAX];
    size_t count;
    bool has_needed, has_optional;
    int overruns;
};

/* ---- reading ---- */

/* Up to the quote that ends it; what stands behind a backslash is taken as it is. */
static enum shoal_status phrase_read(char **at, struct term *term)
{
    char *out = *at + 1, *from = *at + 1;
    term->text = out;
    for (; *from != '"'; from++) {
        if (*from == '\\' && (from[1] == '"' || from[1] == '\\'))
            from++;
        if (*from == '\0')
            return base_error(SHOAL_ERR_ARGUMENT, "Invalid filter pattern: a quote is not closed");
        *out++ = *from;
    }
    term->bytes = (size_t)(out - term->text);
    *at = from + 1;
    return SHOAL_OK;
}

static enum shoal_status regex_read(char **at, struct term *term)
{
    char *end = strchr(*at + 1, '%');
    if (end == NULL)
        return base_error(SHOAL_ERR_ARGUMENT, "Invalid filter pattern: a '%%' is not closed");
    *end = '\0';
    enum shoal_status status = logs_regex_create(*at + 1, &term->regex);
    *at = end + 1;
    if (status == SHOAL_ERR_ARGUMENT)
        return base_error_context(status, "Invalid filter pattern: invalid regular expression");
    return status;
}

static enum shoal_status word_read(char **at, struct term *term)
{
    size_t bytes = strcspn(*at, BLANKS);
    term->text = *at;
    term->bytes = bytes;
    *at += bytes;
    for (size_t i = 0; i < bytes; i++) {
        unsigned char c = (unsigned char)term->text[i];
        if (!isalnum(c) && c != '_' && c < 0x80)
            return base_error(SHOAL_ERR_ARGUMENT, "Invalid character(s) in term '%.*s'", (int)bytes,
                              term->text);
    }
    return bytes > 0 ? SHOAL_OK
                     : base_error(SHOAL_ERR_ARGUMENT, "Invalid filter pattern: an empty term");
}

static enum shoal_status term_read(char **at, struct term *term)
{
    if (**at == '-' || **at == '?')
        term->kind = *(*at)++ == '-' ? TERM_EXCLUDED : TERM_OPTIONAL;
    if (**at == '"')
        return phrase_read(at, term);
    return **at == '%' ? regex_read(at, term) : word_read(at, term);
}

static enum shoal_status terms_read(struct logs_pattern *pattern)
{
    char *at = pattern->copy;
    for (at += strspn(at, BLANKS); *at != '\0'; at += strspn(at, BLANKS)) {
        if (pattern->count == TERMS_MAX)
            return base_error(SHOAL_ERR_ARGUMENT, "Invalid filter pattern: more than %d terms",
                              TERMS_MAX);
        if (pattern->count == 0 && (*at == '{' || *at == '['))
            return base_error(SHOAL_ERR_ARGUMENT,
                              "Invalid filter pattern: patterns for JSON and for columns are not "
                              "supported; use terms, \"phrases\" or %%regular expressions%%");
        struct term *term = &pattern->terms[pattern->count++];
        TRY(term_read(&at, term));
        pattern->has_needed = pattern->has_needed || term->kind == TERM_NEEDED;
        pattern->has_optional = pattern->has_optional || term->kind == TERM_OPTIONAL;
    }
    return SHOAL_OK;
}

enum shoal_status logs_pattern_create(const char *text, struct logs_pattern **out)
{
    struct logs_pattern *pattern;
    TRY(BASE_NEW(&pattern, "a filter pattern"));
    enum shoal_status status = base_strdup(text, "a filter pattern", &pattern->copy);
    if (status == SHOAL_OK)
        status = terms_read(pattern);
    if (status != SHOAL_OK) {
        logs_pattern_free(pattern);
        return status;
    }
    *out = pattern;
    return SHOAL_OK;
}

void logs_pattern_free(struct logs_pattern *pattern)
{
    if (pattern == NULL)
        return;
    for (size_t i = 0; i < pattern->count; i++)
        logs_regex_free(pattern->terms[i].regex);
    base_free(pattern->copy);
    base_free(pattern);
}

/* ---- matching ---- */

static bool is_in(struct logs_pattern *pattern, const struct term *term, const char *line,
                  size_t bytes)
{
    struct logs_match match;
    if (term->regex == NULL)
        return memmem(line, bytes, term->text, term->bytes) != NULL;
    enum logs_search result = logs_regex_search(term->regex, line, bytes, 0, &match);
    pattern->overruns += result == LOGS_TOO_LONG;
    return result == LOGS_FOUND;
}

bool logs_pattern_passes(struct logs_pattern *pattern, const char *line, size_t bytes)
{
    bool needs_one = pattern->has_optional && !pattern->has_needed, has_one = false;
    for (size_t i = 0; i < pattern->count; i++) {
        const struct term *term = &pattern->terms[i];
        if (term->kind == TERM_OPTIONAL && (!needs_one || has_one))
            continue;
        bool found = is_in(pattern, term, line, bytes);
        if (term->kind == TERM_NEEDED ? !found : term->kind == TERM_EXCLUDED && found)
            return false;
        has_one = has_one || (term->kind == TERM_OPTIONAL && found);
    }
    return !needs_one || has_one;
}

int logs_pattern_overruns(const struct logs_pattern *pattern)
{
    return pattern->overruns;
}
