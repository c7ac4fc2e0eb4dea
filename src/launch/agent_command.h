/* SPDX-License-Identifier: Apache-2.0 */
/* agent_command.h: the command that starts an agent on a host, out of a template. */
#ifndef SHOAL_LAUNCH_AGENT_COMMAND_H
#define SHOAL_LAUNCH_AGENT_COMMAND_H

#include "shoal.h"

#define LAUNCH_COMMAND_WORDS_MAX 64

struct launch_agent_command {
    char *words[LAUNCH_COMMAND_WORDS_MAX + 3]; /* for exec; NULL behind the last */
    int count;
};

/* Splits the template into words as a shell would (blanks, quotes, backslashes; nothing else has a
 * meaning), puts the host's name for {host}, and "<shoal> run-agent" behind. pattern NULL: only
 * that. Where a word is ssh, <shoal> is quoted for the shell that ssh has on the other host.
 * SHOAL_ERR_OPTION when a quote is open, {host} does not occur, or a word is too long. */
enum shoal_status launch_agent_command_make(const char *pattern, const char *host,
                                            const char *shoal, struct launch_agent_command *out);
/* The words with blanks between, cut at capacity. */
void launch_agent_command_describe(const struct launch_agent_command *command, char *out,
                                   size_t capacity);
void launch_agent_command_release(struct launch_agent_command *command);

#endif
