/* SPDX-License-Identifier: Apache-2.0 */
/* agent_command.c: the command that starts an agent on a host. */
#include "launch/agent_command.h"

#include <ctype.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "base/status.h"

#define WORD_BYTES 4096
#define HOST_MARK  "{host}"

struct word {
    char text[WORD_BYTES];
    size_t length;
};

static enum shoal_status word_add(struct word *word, const char *text, size_t length)
{
    if (word->length + length >= WORD_BYTES)
        return base_error(SHOAL_ERR_OPTION, "the agent's command: a word is longer than %d bytes",
                          WORD_BYTES);
    memcpy(word->text + word->length, text, length);
    word->length += length;
    word->text[word->length] = '\0';
    return SHOAL_OK;
}

/* Reads one word from *next on, which is no blank. */
static enum shoal_status word_read(const char **next, const char *host, struct word *word)
{
    char quote = '\0';
    const char *at = *next;
    word->length = 0;
    word->text[0] = '\0';
    for (; *at != '\0' && (quote != '\0' || !isspace((unsigned char)*at)); at++) {
        if (strncmp(at, HOST_MARK, strlen(HOST_MARK)) == 0) {
            TRY(word_add(word, host, strlen(host)));
            at += strlen(HOST_MARK) - 1;
        } else if (quote == *at && quote != '\0') {
            quote = '\0';
        } else if (quote == '\0' && (*at == '"' || *at == '\'')) {
            quote = *at;
        } else {
            if (*at == '\\' && quote != '\'' && at[1] != '\0')
                at++;
            TRY(word_add(word, at, 1));
        }
    }
    *next = at;
    return quote == '\0' ? SHOAL_OK
                         : base_error(SHOAL_ERR_OPTION, "--agent: %c is not closed", quote);
}

static enum shoal_status words_add(struct launch_agent_command *command, const char *text)
{
    TRY(base_strdup(text, "the agent's command", &command->words[command->count]));
    command->count++;
    return SHOAL_OK;
}

static enum shoal_status words_read(const char *pattern, const char *host,
                                    struct launch_agent_command *command)
{
    struct word word = {.text = ""};
    for (const char *next = pattern;;) {
        next += strspn(next, " \t\n");
        if (*next == '\0')
            return SHOAL_OK;
        if (command->count == LAUNCH_COMMAND_WORDS_MAX)
            return base_error(SHOAL_ERR_OPTION, "--agent: more than %d words",
                              LAUNCH_COMMAND_WORDS_MAX);
        TRY(word_read(&next, host, &word));
        TRY(words_add(command, word.text));
    }
}

/* ssh hands its words, joined by blanks, to a shell on the other host. */
static bool shell_follows(const struct launch_agent_command *command)
{
    for (int i = 0; i < command->count; i++) {
        const char *slash = strrchr(command->words[i], '/');
        if (strcmp(slash != NULL ? slash + 1 : command->words[i], "ssh") == 0)
            return true;
    }
    return false;
}

/* Backslashes, which all shells know, before all but what none of them gives a meaning. A tilde
 * keeps its meaning, so that a path may begin with the home there. */
static enum shoal_status word_quote(const char *text, struct word *word)
{
    for (; *text != '\0'; text++) {
        bool plain = isalnum((unsigned char)*text) || (unsigned char)*text >= 0x80 ||
                     strchr("/._-+,:@%=~", *text) != NULL;
        if (!plain)
            TRY(word_add(word, "\\", 1));
        TRY(word_add(word, text, 1));
    }
    return SHOAL_OK;
}

static enum shoal_status shoal_add(struct launch_agent_command *command, const char *shoal)
{
    struct word word = {.text = ""};
    if (!shell_follows(command))
        return words_add(command, shoal);
    TRY(word_quote(shoal, &word));
    return words_add(command, word.text);
}

enum shoal_status launch_agent_command_make(const char *pattern, const char *host,
                                            const char *shoal, struct launch_agent_command *out)
{
    if (pattern != NULL && strstr(pattern, HOST_MARK) == NULL)
        return base_error(SHOAL_ERR_OPTION,
                          "--agent '%s' lacks {host}, which stands for the host's name", pattern);
    *out = (struct launch_agent_command){.count = 0};
    enum shoal_status status = pattern != NULL ? words_read(pattern, host, out) : SHOAL_OK;
    if (status == SHOAL_OK)
        status = shoal_add(out, shoal);
    if (status == SHOAL_OK)
        status = words_add(out, "run-agent");
    if (status != SHOAL_OK)
        launch_agent_command_release(out);
    return status;
}

void launch_agent_command_describe(const struct launch_agent_command *command, char *out,
                                   size_t capacity)
{
    size_t length = 0;
    *out = '\0';
    for (int i = 0; i < command->count && length + 1 < capacity; i++) {
        snprintf(out + length, capacity - length, "%s%s", i > 0 ? " " : "", command->words[i]);
        length = strlen(out);
    }
}

void launch_agent_command_release(struct launch_agent_command *command)
{
    for (int i = 0; i < command->count; i++)
        base_free(command->words[i]);
    *command = (struct launch_agent_command){.count = 0};
}
