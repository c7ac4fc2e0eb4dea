/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bytes.h: a growing queue of bytes, and the reading and writing of numbers and texts in it.
 *
 * Taking never moves memory, so what was taken stays readable until the next append.
 */
#ifndef SHOAL_LAUNCH_BYTES_H
#define SHOAL_LAUNCH_BYTES_H

#include <stddef.h>
#include <stdint.h>

#include "shoal.h"

struct launch_bytes { /* zeroed to start */
    unsigned char *data;
    size_t begin, end, capacity;
};

size_t launch_bytes_count(const struct launch_bytes *bytes);
const unsigned char *launch_bytes_front(const struct launch_bytes *bytes);
/* Room for `count` more at the end; the caller writes there and then calls launch_bytes_grew. */
enum shoal_status launch_bytes_room(struct launch_bytes *bytes, size_t count, unsigned char **out);
void launch_bytes_grew(struct launch_bytes *bytes, size_t count);
enum shoal_status launch_bytes_append(struct launch_bytes *bytes, const void *data, size_t count);
/* Drops the first `count`. */
void launch_bytes_take(struct launch_bytes *bytes, size_t count);
void launch_bytes_release(struct launch_bytes *bytes);

/* Numbers little-endian, texts with their length in front and a NUL behind. */
enum shoal_status launch_put_number(struct launch_bytes *bytes, uint32_t number);
enum shoal_status launch_put_text(struct launch_bytes *bytes, const char *text);
/* `count` texts with their number in front. */
enum shoal_status launch_put_texts(struct launch_bytes *bytes, const char *const *texts, int count);

struct launch_reader { /* over memory that somebody else keeps */
    const unsigned char *next;
    size_t left;
};

/* SHOAL_ERR_FORMAT when there is too little or a text is not well formed. Texts point into the
 * memory that is read. */
enum shoal_status launch_read_number(struct launch_reader *reader, uint32_t *out);
enum shoal_status launch_read_text(struct launch_reader *reader, const char **out);
/* An array with a NULL behind it; the caller frees the array (not the texts) by base_free. */
enum shoal_status launch_read_texts(struct launch_reader *reader, const char ***texts, int *count);

#endif
