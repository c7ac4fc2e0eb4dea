/* SPDX-License-Identifier: Apache-2.0 */
/* arguments.c: the arguments of a subcommand, out of one table. */
#include "arguments.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/status.h"
#include "kernel/kernel.h"

#define NAMES_MAX     96
#define NAME_BYTES    64
#define HELP_COLUMN   28
#define OPTION_PREFIX "SHOAL_"
#define SECONDS_MAX   (366.0 * 86400.0)

/* "SHOAL_TIMEOUT_MS" as "timeout-ms". */
static void option_argument_name(int row, char out[NAME_BYTES])
{
    const char *name = base_options()[row].name + strlen(OPTION_PREFIX);
    size_t i = 0;
    for (; name[i] != '\0' && i + 1 < NAME_BYTES; i++)
        out[i] = name[i] == '_' ? '-' : (char)tolower((unsigned char)name[i]);
    out[i] = '\0';
}

/* Who the ranks are, and their secret, is not for the command line. */
static bool option_allowed(int row)
{
    return row != OPTION_SECRET && row != OPTION_STORE && row != OPTION_RANK && row != OPTION_SIZE;
}

static int option_find(const char *name, size_t length)
{
    char own[NAME_BYTES];
    for (int row = 0; row < OPTION_COUNT; row++) {
        option_argument_name(row, own);
        if (option_allowed(row) && strlen(own) == length && strncmp(own, name, length) == 0)
            return row;
    }
    return -1;
}

static enum shoal_status unknown(const struct arguments *arguments, const char *name, size_t length)
{
    char own[OPTION_COUNT][NAME_BYTES], word[NAME_BYTES];
    const char *names[NAMES_MAX];
    size_t count = 0;
    for (size_t i = 0; i < arguments->count && count < NAMES_MAX; i++)
        names[count++] = arguments->table[i].name;
    for (int row = 0; row < OPTION_COUNT && count < NAMES_MAX && arguments->with_options; row++) {
        option_argument_name(row, own[row]);
        if (option_allowed(row))
            names[count++] = own[row];
    }
    snprintf(word, sizeof(word), "%.*s", (int)length, name);
    const char *nearest = base_nearest(word, names, count);
    if (nearest != NULL)
        return base_error(SHOAL_ERR_ARGUMENT, "there is no option --%s; did you mean --%s?", word,
                          nearest);
    return base_error(SHOAL_ERR_ARGUMENT, "there is no option --%s (see shoal help %s)", word,
                      arguments->command);
}

int arguments_exit(const char *command, enum shoal_status status)
{
    if (status == SHOAL_OK)
        return 0;
    fprintf(stderr, "shoal %s: %s\n", command, base_error_text());
    return status == SHOAL_ERR_ARGUMENT || status == SHOAL_ERR_OPTION ? EXIT_USAGE : 1;
}

/* The value of an option that stands in this or in the next word. */
static enum shoal_status value_take(struct arguments *arguments, const char *name,
                                    const char *attached, const char **value)
{
    if (attached != NULL)
        *value = attached;
    else if (arguments->at < arguments->argc)
        *value = arguments->argv[arguments->at++];
    else
        return base_error(SHOAL_ERR_ARGUMENT, "%s needs a value", name);
    return SHOAL_OK;
}

static enum shoal_status long_next(struct arguments *arguments, const char *word, int *id,
                                   const char **value)
{
    size_t length = strcspn(word + 2, "=");
    const char *attached = word[2 + length] == '=' ? word + 3 + length : NULL;
    for (size_t i = 0; i < arguments->count; i++) {
        const struct argument *row = &arguments->table[i];
        if (strlen(row->name) != length || strncmp(row->name, word + 2, length) != 0)
            continue;
        *id = (int)i;
        if (row->value != NULL)
            return value_take(arguments, word, attached, value);
        if (attached != NULL)
            return base_error(SHOAL_ERR_ARGUMENT, "--%s takes no value", row->name);
        return SHOAL_OK;
    }
    arguments->option = arguments->with_options ? option_find(word + 2, length) : -1;
    if (arguments->option < 0)
        return unknown(arguments, word + 2, length);
    *id = ARGUMENTS_OPTION;
    return value_take(arguments, word, attached, value);
}

static enum shoal_status letter_next(struct arguments *arguments, int *id, const char **value)
{
    char letter = *arguments->letter++;
    const char *rest = *arguments->letter != '\0' ? arguments->letter : NULL;
    if (rest == NULL)
        arguments->letter = NULL;
    for (size_t i = 0; i < arguments->count; i++) {
        const struct argument *row = &arguments->table[i];
        if (row->letter != letter)
            continue;
        char name[] = {'-', letter, '\0'};
        *id = (int)i;
        if (row->value == NULL)
            return SHOAL_OK;
        arguments->letter = NULL;
        return value_take(arguments, name, rest, value);
    }
    return base_error(SHOAL_ERR_ARGUMENT, "there is no option -%c (see shoal help %s)", letter,
                      arguments->command);
}

enum shoal_status arguments_next(struct arguments *arguments, int *id, const char **value)
{
    *value = NULL;
    if (arguments->letter != NULL)
        return letter_next(arguments, id, value);
    const char *word = arguments->at < arguments->argc ? arguments->argv[arguments->at] : NULL;
    if (word == NULL || word[0] != '-' || word[1] == '\0') {
        *id = ARGUMENTS_END;
        return SHOAL_OK;
    }
    arguments->at++;
    if (strcmp(word, "--") == 0) {
        *id = ARGUMENTS_END;
        return SHOAL_OK;
    }
    if (word[1] == '-')
        return long_next(arguments, word, id, value);
    arguments->letter = word + 1;
    return letter_next(arguments, id, value);
}

enum shoal_status arguments_take(struct arguments *arguments)
{
    for (;;) {
        int id = 0;
        const char *value = NULL;
        TRY(arguments_next(arguments, &id, &value));
        if (id == ARGUMENTS_END)
            return SHOAL_OK;
        TRY(arguments->take(arguments->user, id, value));
    }
}

enum shoal_status arguments_take_all(struct arguments *arguments)
{
    TRY(arguments_take(arguments));
    if (arguments->at < arguments->argc)
        return base_error(SHOAL_ERR_ARGUMENT, "'%s' is not understood (see shoal help %s)",
                          arguments->argv[arguments->at], arguments->command);
    return SHOAL_OK;
}

enum shoal_status arguments_take_with_operation(struct arguments *arguments, const char **operation)
{
    for (;;) {
        TRY(arguments_take(arguments));
        if (arguments->at >= arguments->argc)
            return SHOAL_OK;
        const char *word = arguments->argv[arguments->at++];
        if (*operation)
            return base_error(SHOAL_ERR_ARGUMENT, "one operation at a time: '%s' is one too many",
                              word);
        *operation = word;
    }
}

static void help_lines(const char *help, FILE *out)
{
    for (const char *line = help; *line != '\0';) {
        size_t length = strcspn(line, "\n");
        fprintf(out, "%*s%.*s\n", line == help ? 0 : HELP_COLUMN, "", (int)length, line);
        line += length + (line[length] == '\n');
    }
}

void arguments_help(const struct argument *table, size_t count, FILE *out)
{
    for (size_t i = 0; i < count; i++) {
        char left[96], letter[8] = "    ";
        if (table[i].letter != '\0')
            snprintf(letter, sizeof(letter), "-%c, ", table[i].letter);
        snprintf(left, sizeof(left), "  %s--%s%s%s", letter, table[i].name,
                 table[i].value != NULL ? " " : "", table[i].value != NULL ? table[i].value : "");
        fprintf(out, "%-*s", HELP_COLUMN, left);
        if (strlen(left) >= HELP_COLUMN)
            fprintf(out, "\n%*s", HELP_COLUMN, "");
        help_lines(table[i].help, out);
    }
}

enum shoal_status argument_number(const char *name, const char *text, long minimum, long maximum,
                                  long *out)
{
    char *end = NULL;
    errno = 0;
    long number = strtol(text, &end, 10);
    if (end == text || *end != '\0' || errno != 0 || number < minimum || number > maximum)
        return base_error(SHOAL_ERR_ARGUMENT, "%s %s: it takes a number from %ld to %ld", name,
                          text, minimum, maximum);
    *out = number;
    return SHOAL_OK;
}

enum shoal_status argument_list_number(const char *name, const char **list, long minimum,
                                       long maximum, long *out)
{
    char word[16];
    size_t bytes = strcspn(*list, ",");
    snprintf(word, sizeof(word), "%.*s", (int)(bytes < sizeof(word) ? bytes : 0), *list);
    TRY(argument_number(name, word, minimum, maximum, out));
    *list = (*list)[bytes] == '\0' ? NULL : *list + bytes + 1;
    return SHOAL_OK;
}

enum shoal_status argument_seconds(const char *name, const char *text, int64_t *ms)
{
    char *end = NULL;
    double seconds = strtod(text, &end);
    if (end == text || *end != '\0' || !(seconds >= 0) || seconds > SECONDS_MAX)
        return base_error(SHOAL_ERR_ARGUMENT, "%s %s: it takes seconds, 0 or more", name, text);
    *ms = (int64_t)(seconds * 1000.0 + 0.5);
    return SHOAL_OK;
}

/* An error that names the nearest of some names, or all of them. */
static enum shoal_status no_such(const char *what, const char *word, const char *const *names,
                                 size_t count)
{
    const char *nearest = base_nearest(word, names, count);
    char list[256] = "";
    for (size_t i = 0, used = 0; i < count && used < sizeof(list); i++)
        used += (size_t)snprintf(list + used, sizeof(list) - used, "%s%s", i ? ", " : "", names[i]);
    if (nearest)
        return base_error(SHOAL_ERR_ARGUMENT, "there is no %s '%s'; did you mean '%s'?", what, word,
                          nearest);
    return base_error(SHOAL_ERR_ARGUMENT, "there is no %s '%s': there are %s", what, word, list);
}

enum shoal_status argument_operation(const char *word, enum coll_kind *out)
{
    const char *names[COLL_BARRIER + 1];
    for (int kind = 0; kind <= COLL_BARRIER; kind++) {
        names[kind] = comm_kind_name((enum coll_kind)kind);
        if (strcmp(word, names[kind]) == 0) {
            *out = (enum coll_kind)kind;
            return SHOAL_OK;
        }
    }
    return no_such("operation", word, names, COLL_BARRIER + 1);
}

enum shoal_status argument_dtype(const char *word, enum shoal_dtype *out)
{
    const char *names[SHOAL_DTYPE_COUNT];
    for (int dtype = 0; dtype < SHOAL_DTYPE_COUNT; dtype++)
        names[dtype] = kernel_dtype_name((enum shoal_dtype)dtype);
    return kernel_dtype_parse(word, out) ? SHOAL_OK
                                         : no_such("dtype", word, names, SHOAL_DTYPE_COUNT);
}

enum shoal_status argument_bytes(const char *name, const char *text, uint64_t *out)
{
    enum shoal_status status = base_parse_bytes(text, out);
    return status == SHOAL_OK ? SHOAL_OK : base_error_context(status, "%s", name);
}

enum shoal_status argument_option_bytes(const char *name, const char *text, enum base_option_id row,
                                        uint64_t *out)
{
    char range[64];
    int64_t bytes = 0;
    TRY(argument_bytes(name, text, out));
    if (base_option_parse(row, text, &bytes) == SHOAL_OK)
        return SHOAL_OK;
    base_option_range(row, range, sizeof(range));
    return base_error(SHOAL_ERR_ARGUMENT, "%s %s: it takes %s", name, text, range);
}
