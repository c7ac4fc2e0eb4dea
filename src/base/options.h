/* SPDX-License-Identifier: Apache-2.0 */
/*
 * options.h: the one table of options. A row is read by the environment (SHOAL_X), the command line
 * (--x) and the option structs; `shoal info --options` prints it and docs/options.md is generated
 * from it. Values are read once, at first use.
 */
#ifndef SHOAL_BASE_OPTIONS_H
#define SHOAL_BASE_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "shoal.h"

enum base_option_kind { BASE_OPTION_INT, BASE_OPTION_BYTES, BASE_OPTION_BOOL, BASE_OPTION_TEXT };

/* One row. */
struct base_option {
    const char *name; /* "SHOAL_TIMEOUT_MS" */
    enum base_option_kind kind;
    const char *default_text;
    int64_t minimum, maximum; /* unused for TEXT */
    bool zero_too;            /* 0 is allowed besides the range: "by itself" */
    bool power_of_two;
    const char *choices; /* TEXT: "a|b|c", NULL: any text */
    const char *help;    /* one line: what, and when to change it */
};

enum base_option_id {
    OPTION_TIMEOUT_MS,
    OPTION_REPRODUCIBLE,
    OPTION_INTERFACE,
    OPTION_STREAMS,
    OPTION_HOST_ID,
    OPTION_LOG,
    OPTION_ISA,
    OPTION_ALGORITHM,
    OPTION_SEGMENT_BYTES,
    OPTION_SHARES,
    OPTION_EAGER_BYTES,
    OPTION_RING_BYTES,
    OPTION_CHUNK_BYTES,
    OPTION_SHARED_BYTES,
    OPTION_LOCAL,
    OPTION_TUNE,
    OPTION_FUSE_BYTES,
    OPTION_FUSE_IN_FLIGHT,
    OPTION_TORCH_SHARED,
    OPTION_SPIN_US,
    OPTION_PORT,
    OPTION_STORE,
    OPTION_SECRET,
    OPTION_RANK,
    OPTION_SIZE,
    OPTION_SERVERS,
    OPTION_SERVER,
    OPTION_SERVER_HOSTS,
    OPTION_CONNECT_TIMEOUT_MS,
    OPTION_COUNT
};

/* All rows, OPTION_COUNT of them, by id. */
const struct base_option *base_options(void);
/* What the row takes, in words, for tables and errors: "4K to 1G or 0", "0 or 1", "a|b". */
void base_option_range(enum base_option_id id, char *text, size_t bytes);
/* Reads all rows from the environment, once; SHOAL_ERR_OPTION names the first variable that is out
 * of range or cannot be read, and any unknown SHOAL_* variable (a typo) with the nearest name.
 * Called by whoever starts the library. */
enum shoal_status base_options_load(void);
/* Values; loads on first use, defaults where the environment is wrong (base_options_load reports
 * it). */
int64_t base_option_int(enum base_option_id id);      /* INT, BYTES and BOOL */
const char *base_option_text(enum base_option_id id); /* TEXT; NULL if empty */
/* True if the environment sets it. */
bool base_option_is_set(enum base_option_id id);
/* Parses "64K", "4M", "1G", "123" into bytes. */
enum shoal_status base_parse_bytes(const char *text, uint64_t *out);
/* The same number in that form, in the largest unit that shows it exactly; returns text. */
#define BASE_BYTES_TEXT_BYTES 32
const char *base_bytes_text(uint64_t bytes, char text[BASE_BYTES_TEXT_BYTES]);
/* Parses `text` as row id's kind and checks its range; errors name the option. */
enum shoal_status base_option_parse(enum base_option_id id, const char *text, int64_t *out);
/* The candidate nearest to `word` by edit distance, NULL if none is near: for "did you mean". */
const char *base_nearest(const char *word, const char *const *candidates, size_t count);
/* Forgets what was read: tests only. */
void base_options_reset(void);

#endif
