/* SPDX-License-Identifier: Apache-2.0 */
/* utf8.h: which bytes are UTF-8, for texts that come from outside. */
#ifndef SHOAL_BASE_UTF8_H
#define SHOAL_BASE_UTF8_H

#include <stdbool.h>
#include <stddef.h>

#define BASE_UTF8_REPLACEMENT "\xef\xbf\xbd" /* U+FFFD, in place of what is no UTF-8 */

/* Bytes of the character at the front of `left` (at least 1); 0: what is there is not UTF-8 in its
 * shortest form, or a surrogate, or cut off. A NUL is a character. */
size_t base_utf8_bytes(const char *text, size_t left);

#endif
