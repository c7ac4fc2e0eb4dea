/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz.h: what a parser may be given: texts that it knows, changed at random.
 *
 * Each round's number is its seed. A round that fails, or in which a sanitizer ends the process, is
 * named: SHOAL_TEST_SEED=<number> runs it alone. SHOAL_TEST_RUNS=<count> is for long runs: so many
 * rounds in place of those that the test asks for.
 */
#ifndef SHOAL_TESTS_FUZZ_H
#define SHOAL_TESTS_FUZZ_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct fuzz_text {
    const char *bytes;
    size_t count;
};
#define FUZZ_TEXT(literal)           \
    {                                \
        literal, sizeof(literal) - 1 \
    }

struct fuzz {
    const struct fuzz_text *texts; /* the first rounds take them as they are */
    size_t text_count;
    const char *const *words; /* that changes put in, NULL behind; NULL: numbers and signs alone */
    int rounds;
    size_t bytes_max; /* of a changed text; 0: 4096 */
    bool is_string;   /* without NULs, and one behind; else exactly its bytes can be read */
    /* Nothing else allocates meanwhile: an allocation fails in some rounds, and each has to leave
     * as many blocks as it found. */
    bool is_alone;
};

/* Of an array of texts; members that are named behind the rounds are set too. */
#define FUZZ(array, own_words, round_count, ...)                                                  \
    {                                                                                             \
        .texts = (array), .text_count = sizeof(array) / sizeof((array)[0]), .words = (own_words), \
        .rounds = (round_count), __VA_ARGS__                                                      \
    }

/* Calls `take` with one text after the other; it may write in it. `round` for what else is to be
 * drawn (fuzz_below). */
void fuzz_run(const struct fuzz *fuzz,
              void (*take)(void *user, char *text, size_t count, uint64_t round), void *user);
/* 0 to bound - 1, and the next state. */
uint64_t fuzz_below(uint64_t *state, uint64_t bound);

#endif
