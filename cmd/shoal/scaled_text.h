/* SPDX-License-Identifier: Apache-2.0 */
/* scaled_text.h: numbers for people: three digits and a unit. */
#ifndef SHOAL_CMD_SCALED_TEXT_H
#define SHOAL_CMD_SCALED_TEXT_H

/* "64 MiB", "1.5 ms": static texts of the thread, eight of them valid at a time. */
const char *scaled_bytes_text(double bytes);
const char *scaled_time_text(double ns);

#endif
