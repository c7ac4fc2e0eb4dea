/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz.c: changes are of spans and of words, so that what grows and what nests is met too. */
#include "support/fuzz.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/memory.h"

#define BYTES_MAX   4096
#define CHANGES_MAX 6
#define SPAN_MAX    32
#define FAIL_ONE_OF 4 /* rounds, in which an allocation fails */
#define FAIL_UP_TO  24

/* Of the sanitizers' run time, where there is one. */
void __sanitizer_set_death_callback(void (*callback)(void)) __attribute__((weak));

static const char *const any_words[] = {"0",
                                        "-1",
                                        "1e999",
                                        "2147483648",
                                        "4294967296",
                                        "9223372036854775807",
                                        "9223372036854775808",
                                        "18446744073709551615",
                                        "18446744073709551616",
                                        "0x10",
                                        " ",
                                        "\t",
                                        "\r\n",
                                        "\n\n",
                                        "\"",
                                        "'",
                                        "\\",
                                        "%",
                                        "%00",
                                        "%zz",
                                        "=",
                                        ":",
                                        ";",
                                        ",",
                                        "/",
                                        "..",
                                        "//",
                                        "[",
                                        "]",
                                        "{",
                                        "}",
                                        "<",
                                        ">",
                                        "&",
                                        "#",
                                        "*",
                                        "\xff",
                                        "\xc3\xa9",
                                        "\xed\xa0\x80",
                                        "\xf0\x9f\x90\x9f",
                                        "\x1b",
                                        "\x7f"};

static uint64_t round_under_way;
static bool is_under_way;

struct draft {
    const struct fuzz *fuzz;
    char *bytes; /* [bytes_max] */
    size_t count, bytes_max;
    uint64_t state;
};

uint64_t fuzz_below(uint64_t *state, uint64_t bound)
{
    uint64_t mixed = *state += UINT64_C(0x9e3779b97f4a7c15);
    mixed = (mixed ^ mixed >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    mixed = (mixed ^ mixed >> 27) * UINT64_C(0x94d049bb133111eb);
    return (mixed ^ mixed >> 31) % bound;
}

static size_t below(struct draft *draft, size_t bound)
{
    return (size_t)fuzz_below(&draft->state, bound);
}

/* ---- changes ---- */

/* Puts bytes, which are not the draft's own, in the place of `gone` others; what is too long is
 * left out. */
static void replace(struct draft *draft, size_t at, size_t gone, const char *bytes, size_t count)
{
    if (draft->count - gone + count > draft->bytes_max)
        return;
    memmove(draft->bytes + at + count, draft->bytes + at + gone, draft->count - at - gone);
    memcpy(draft->bytes + at, bytes, count);
    draft->count += count - gone;
}

static void put_byte(struct draft *draft, size_t at)
{
    char byte = (char)below(draft, 256);
    replace(draft, at, at < draft->count ? 1 : 0, &byte, 1);
}

static void put_word(struct draft *draft, size_t at)
{
    size_t own = 0, any = sizeof(any_words) / sizeof(any_words[0]);
    while (draft->fuzz->words != NULL && draft->fuzz->words[own] != NULL)
        own++;
    size_t drawn = below(draft, own > 0 && below(draft, 2) == 0 ? own : own + any);
    const char *word = drawn < own ? draft->fuzz->words[drawn] : any_words[drawn - own];
    size_t rest = draft->count - at, gone = below(draft, 2) == 0 ? 0 : strlen(word);
    replace(draft, at, gone < rest ? gone : rest, word, strlen(word));
}

static void cut_span(struct draft *draft, size_t at)
{
    size_t rest = draft->count - at, most = below(draft, 4) == 0 ? rest : SPAN_MAX;
    replace(draft, at, below(draft, (most < rest ? most : rest) + 1), "", 0);
}

/* A span of one of the texts, here or in place of what is here. */
static void put_span(struct draft *draft, size_t at)
{
    const struct fuzz_text *text = &draft->fuzz->texts[below(draft, draft->fuzz->text_count)];
    size_t from = below(draft, text->count + 1), rest = text->count - from;
    size_t most = below(draft, 4) == 0 ? rest : SPAN_MAX;
    size_t count = below(draft, (most < rest ? most : rest) + 1);
    size_t gone = below(draft, 2) * count;
    replace(draft, at, gone < draft->count - at ? gone : draft->count - at, text->bytes + from,
            count);
}

/* A few of the bytes here, again and again: up to the most that is allowed, now and then. */
static void repeat_span(struct draft *draft, size_t at)
{
    char span[8];
    size_t rest = draft->count - at, count = 1 + below(draft, sizeof(span));
    size_t left = below(draft, 8) == 0 ? draft->bytes_max : below(draft, 300);
    count = count < rest ? count : rest;
    memcpy(span, draft->bytes + at, count);
    for (; count > 0 && left >= count && draft->count + count <= draft->bytes_max; left -= count)
        replace(draft, at, 0, span, count);
}

static void change(struct draft *draft)
{
    static void (*const changes[])(struct draft *, size_t) = {put_byte, put_word, put_word,
                                                              cut_span, put_span, repeat_span};
    changes[below(draft, sizeof(changes) / sizeof(changes[0]))](draft,
                                                                below(draft, draft->count + 1));
}

static void make(struct draft *draft, uint64_t round)
{
    const struct fuzz *fuzz = draft->fuzz;
    const struct fuzz_text *text = &fuzz->texts[round % fuzz->text_count];
    draft->state = round;
    draft->count = text->count < draft->bytes_max ? text->count : draft->bytes_max;
    memcpy(draft->bytes, text->bytes, draft->count);
    for (size_t i = round < fuzz->text_count ? 0 : 1 + below(draft, CHANGES_MAX); i > 0; i--)
        change(draft);
    for (size_t i = 0; fuzz->is_string && i < draft->count; i++)
        if (draft->bytes[i] == '\0')
            draft->bytes[i] = '0';
}

/* ---- rounds ---- */

static void name_round(void)
{
    if (is_under_way)
        fprintf(stderr, "this was round %llu: SHOAL_TEST_SEED=%llu runs it alone\n",
                (unsigned long long)round_under_way, (unsigned long long)round_under_way);
    is_under_way = false;
}

static void watch(void)
{
    static bool is_watched;
    name_round(); /* of a test that failed before */
    if (is_watched)
        return;
    is_watched = true;
    atexit(name_round);
    if (__sanitizer_set_death_callback != NULL)
        __sanitizer_set_death_callback(name_round);
}

static void run_round(struct draft *draft, uint64_t round,
                      void (*take)(void *, char *, size_t, uint64_t), void *user)
{
    const struct fuzz *fuzz = draft->fuzz;
    make(draft, round);
    size_t count = draft->count, blocks = base_memory_blocks();
    bool fails = fuzz->is_alone && round >= fuzz->text_count && below(draft, FAIL_ONE_OF) == 0;
    char *text = malloc(count + fuzz->is_string);
    assert_true(text != NULL || count == 0);
    if (count > 0)
        memcpy(text, draft->bytes, count);
    if (fuzz->is_string)
        text[count] = '\0';
    base_memory_fail_at(fails ? 1 + below(draft, FAIL_UP_TO) : 0);
    take(user, text, count, round);
    base_memory_fail_at(0);
    free(text);
    if (fuzz->is_alone)
        assert_int_equal(base_memory_blocks(), blocks);
}

void fuzz_run(const struct fuzz *fuzz, void (*take)(void *, char *, size_t, uint64_t), void *user)
{
    const char *seed = getenv("SHOAL_TEST_SEED"), *runs = getenv("SHOAL_TEST_RUNS");
    struct draft draft = {.fuzz = fuzz,
                          .bytes_max = fuzz->bytes_max > 0 ? fuzz->bytes_max : BYTES_MAX};
    uint64_t first = seed != NULL ? strtoull(seed, NULL, 10) : 0;
    uint64_t count = runs != NULL ? strtoull(runs, NULL, 10) : (uint64_t)fuzz->rounds;
    draft.bytes = malloc(draft.bytes_max);
    assert_non_null(draft.bytes);
    watch();
    for (uint64_t i = 0; i < (seed != NULL ? 1 : count); i++) {
        round_under_way = first + i;
        is_under_way = true;
        run_round(&draft, first + i, take, user);
        is_under_way = false;
    }
    free(draft.bytes);
}
