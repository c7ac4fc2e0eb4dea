/* SPDX-License-Identifier: Apache-2.0 */
/* svg.h: what all pictures have in common. */
#ifndef SHOAL_CMD_SVG_H
#define SHOAL_CMD_SVG_H

#include <stdio.h>

#include "shoal.h"

/* A picture's file; SHOAL_ERR_SYSTEM if it cannot be made. */
enum shoal_status svg_open(const char *path, FILE **out);
/* Ends it; SHOAL_ERR_SYSTEM if not all of it is written. */
enum shoal_status svg_close(FILE *file, const char *path);
/* The head, up to the middle of the style sheet, for rules of the picture's own. Text is dark, of
 * class "m" dimmer. */
void svg_begin(double width, double height, FILE *out);
/* Ends the style sheet and paints the ground. */
void svg_end_style(FILE *out);
/* Text with what XML keeps for itself replaced. */
void svg_text(const char *text, FILE *out);
/* A distance between ticks of 1, 2 or 5 times a power of ten, at most the wanted one, which is 1
 * or more. */
double svg_tick_distance(double wanted);

#endif
