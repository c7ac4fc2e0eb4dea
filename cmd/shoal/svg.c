/* SPDX-License-Identifier: Apache-2.0 */
/* svg.c: what all pictures have in common: head, ground, text, ticks. */
#include "svg.h"

#include <errno.h>
#include <stdbool.h>

#include "base/status.h"

enum shoal_status svg_open(const char *path, FILE **out)
{
    *out = fopen(path, "w");
    return *out ? SHOAL_OK : base_error_errno(SHOAL_ERR_SYSTEM, errno, "cannot write %s", path);
}

enum shoal_status svg_close(FILE *file, const char *path)
{
    bool broken = ferror(file) != 0;
    if (fclose(file) != 0 || broken)
        return base_error_errno(SHOAL_ERR_SYSTEM, errno, "cannot write %s", path);
    return SHOAL_OK;
}

void svg_begin(double width, double height, FILE *out)
{
    fprintf(out,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%.0f\" height=\"%.0f\" "
            "viewBox=\"0 0 %.0f %.0f\" font-family=\"sans-serif\" font-size=\"12\">\n<style>"
            "text{fill:#1f2937}.m{fill:#6b7280}",
            width, height, width, height);
}

void svg_end_style(FILE *out)
{
    fprintf(out, "</style>\n<rect width=\"100%%\" height=\"100%%\" fill=\"#fff\"/>\n");
}

void svg_text(const char *text, FILE *out)
{
    for (; *text; text++) {
        if (*text == '<' || *text == '>' || *text == '&')
            fprintf(out, "&#%d;", *text);
        else
            fputc(*text, out);
    }
}

double svg_tick_distance(double wanted)
{
    double distance = 1;
    while (distance * 10 <= wanted)
        distance *= 10;
    return wanted >= 5 * distance ? 5 * distance : wanted >= 2 * distance ? 2 * distance : distance;
}
