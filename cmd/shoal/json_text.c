/* SPDX-License-Identifier: Apache-2.0 */
/* json_text.c: what all JSON outputs have in common. */
#include "json_text.h"

void json_print_string(const char *text, FILE *out)
{
    fputc('"', out);
    for (const unsigned char *at = (const unsigned char *)text; *at; at++) {
        if (*at == '"' || *at == '\\')
            fprintf(out, "\\%c", *at);
        else if (*at < 0x20)
            fprintf(out, "\\u%04x", *at);
        else
            fputc(*at, out);
    }
    fputc('"', out);
}
