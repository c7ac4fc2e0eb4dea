/* SPDX-License-Identifier: Apache-2.0 */
/* json_text.h: what all JSON outputs have in common. */
#ifndef SHOAL_CMD_JSON_TEXT_H
#define SHOAL_CMD_JSON_TEXT_H

#include <stdio.h>

/* Text in quotes, with what JSON keeps for itself replaced. */
void json_print_string(const char *text, FILE *out);

#endif
