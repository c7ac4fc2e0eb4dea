/* SPDX-License-Identifier: Apache-2.0 */
/*
 * stream_test.c: places in log files against a plain reading of all lines: times, counts from the
 * end, pages; with lines that have no time, a last one without an end, and lines of 64 KiB. The
 * line parser with random bytes.
 */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/memory.h"
#include "base/status.h"
#include "job/log.h"
#include "logs/stream.h"
#include "support/fuzz.h"

#define LINES_MAX 2000

struct sample {
    char path[64];
    int64_t places[LINES_MAX + 1], times[LINES_MAX];
    bool has_time[LINES_MAX];
    size_t count;
    struct logs_stream stream;
};

static void sample_open(struct sample *sample, const char *text, size_t bytes)
{
    snprintf(sample->path, sizeof(sample->path), "/tmp/shoal-stream-XXXXXX");
    int fd = mkstemp(sample->path);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, bytes), bytes);
    close(fd);
    assert_int_equal(logs_stream_open(sample->path, &sample->stream), SHOAL_OK);
}

static void sample_close(struct sample *sample)
{
    logs_stream_close(&sample->stream);
    unlink(sample->path);
}

/* Lines of times that don't decrease, some of them equal, some lines long, some without a time. */
static void sample_make(struct sample *sample, unsigned seed, size_t count, bool has_damage)
{
    char *text = NULL;
    size_t bytes = 0;
    int64_t time_ms = 1763841600000;
    FILE *out = open_memstream(&text, &bytes);
    srand(seed);
    for (sample->count = 0; sample->count < count; sample->count++) {
        int length = rand() % 50 == 0 ? rand() % 9000 : rand() % 40;
        time_ms += rand() % 4;
        fflush(out);
        sample->places[sample->count] = (int64_t)bytes;
        sample->times[sample->count] = time_ms;
        sample->has_time[sample->count] = !has_damage || rand() % 10 != 0;
        if (sample->has_time[sample->count])
            fprintf(out, "%013lld ", (long long)time_ms);
        else if (sample->count > 0)
            sample->times[sample->count] = sample->times[sample->count - 1];
        fprintf(out, "%0*d\n", length > 0 ? length : 1, rand());
    }
    fflush(out);
    sample->places[sample->count] = (int64_t)bytes;
    fprintf(out, "%013lld a line without an end", (long long)time_ms);
    fclose(out);
    sample_open(sample, text, bytes);
    free(text);
}

static void open_ends_behind_the_last_newline(void **state)
{
    struct sample sample;
    (void)state;
    sample_make(&sample, 1, 5, false);
    assert_int_equal(sample.stream.end, sample.places[5]);
    sample_close(&sample);
    sample_open(&sample, "no newline", 10);
    assert_int_equal(sample.stream.end, 0);
    sample_close(&sample);
    struct logs_stream none;
    assert_int_equal(logs_stream_open("/tmp/shoal-stream-none", &none), SHOAL_ERR_STATE);
}

static void times_are_found(void **state)
{
    (void)state;
    for (unsigned seed = 0; seed < 20; seed++) {
        struct sample sample;
        sample_make(&sample, seed, seed * 13, false);
        int64_t first = 1763841599999, last = first + 4 * (int64_t)sample.count + 2;
        for (int64_t time_ms = first; time_ms < last; time_ms += 1 + rand() % 3) {
            size_t expected = 0;
            int64_t place;
            while (expected < sample.count && sample.times[expected] < time_ms)
                expected++;
            assert_int_equal(logs_stream_find(&sample.stream, time_ms, &place), SHOAL_OK);
            assert_int_equal(place, sample.places[expected]);
        }
        sample_close(&sample);
    }
}

/* A line without a time belongs to what is before it, so a search may end on either side of it. */
static void damage_does_not_lose_lines(void **state)
{
    (void)state;
    for (unsigned seed = 0; seed < 20; seed++) {
        struct sample sample;
        sample_make(&sample, seed, 300, true);
        for (size_t i = 0; i < sample.count; i += 7) {
            int64_t place;
            size_t first = 0;
            assert_int_equal(logs_stream_find(&sample.stream, sample.times[i], &place), SHOAL_OK);
            while (sample.places[first] < place)
                first++;
            assert_true(first <= i && sample.places[first] == place);
        }
        sample_close(&sample);
    }
}

static void lines_are_read_from_any_place(void **state)
{
    (void)state;
    for (unsigned seed = 0; seed < 10; seed++) {
        struct sample sample;
        sample_make(&sample, seed, 500, seed % 2 == 1);
        for (size_t from = 0; from <= sample.count; from += 61) {
            struct logs_reader reader;
            struct logs_line line;
            bool has_line = true, has_time = false;
            assert_int_equal(
                logs_reader_init(&sample.stream, sample.places[from], sample.stream.end, &reader),
                SHOAL_OK);
            for (size_t i = from; i < sample.count; i++) {
                assert_int_equal(logs_reader_next(&reader, &line, &has_line), SHOAL_OK);
                assert_true(has_line);
                assert_int_equal(line.offset, sample.places[i]);
                assert_int_equal(line.next, sample.places[i + 1]);
                assert_true(line.time_ms >= 1763841600000);
                has_time = has_time || sample.has_time[i];
                assert_true(!has_time || line.time_ms == sample.times[i]);
            }
            assert_int_equal(logs_reader_next(&reader, &line, &has_line), SHOAL_OK);
            assert_false(has_line);
            logs_reader_release(&reader);
        }
        sample_close(&sample);
    }
}

static void the_last_lines_fit_a_budget(void **state)
{
    struct sample sample;
    int64_t place;
    (void)state;
    sample_make(&sample, 3, 400, false);
    for (size_t until = 0; until <= 400; until += 7) {
        for (size_t lines = 1; lines < 30; lines += 5) {
            struct logs_budget budget = {lines, SIZE_MAX};
            size_t expected = until > lines ? until - lines : 0;
            assert_int_equal(
                logs_stream_back(&sample.stream, sample.places[until], 0, budget, &place),
                SHOAL_OK);
            assert_int_equal(place, sample.places[expected]);
        }
        struct logs_budget bytes = {400, 500};
        size_t spent = 0, from = until;
        while (from > 0) {
            spent += (size_t)(sample.places[from] - sample.places[from - 1]) - LOGS_TIME_BYTES - 1 +
                     LOGS_EVENT_EXTRA_BYTES;
            if (spent > 500 && from < until)
                break;
            from--;
        }
        assert_int_equal(logs_stream_back(&sample.stream, sample.places[until], 0, bytes, &place),
                         SHOAL_OK);
        assert_int_equal(place, sample.places[from]);
    }
    sample_close(&sample);
}

static void long_lines_come_whole_up_to_what_supervisors_write(void **state)
{
    struct sample sample;
    struct logs_reader reader;
    struct logs_line line;
    bool has_line;
    size_t bytes = LOGS_TIME_BYTES + JOB_LOG_LINE_BYTES_MAX + 1;
    char *text = malloc(2 * bytes);
    (void)state;
    memset(text, 'x', 2 * bytes);
    memcpy(text, "1763841600123 ", LOGS_TIME_BYTES);
    text[bytes - 1] = '\n';
    memcpy(text + bytes, "1763841600124 ", LOGS_TIME_BYTES);
    text[2 * bytes - 1] = '\n';
    sample_open(&sample, text, 2 * bytes);
    assert_int_equal(logs_reader_init(&sample.stream, 0, sample.stream.end, &reader), SHOAL_OK);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(logs_reader_next(&reader, &line, &has_line), SHOAL_OK);
        assert_int_equal(line.bytes, JOB_LOG_LINE_BYTES_MAX);
        assert_int_equal(line.time_ms, 1763841600123 + i);
    }
    logs_reader_release(&reader);
    sample_close(&sample);
    free(text);
}

/* Gigabytes that take no room on the disk: two lines, and a hole between them. */
static void a_long_file_is_not_read_as_a_whole(void **state)
{
    struct sample sample;
    struct logs_line line;
    struct logs_reader reader;
    bool has_line;
    int64_t place;
    const char first[] = "1763841600123 first\n", last[] = "\n1763841700000 last\n";
    const int64_t hole = INT64_C(1) << 20;
    (void)state;
    sample_open(&sample, first, strlen(first));
    logs_stream_close(&sample.stream);
    int fd = open(sample.path, O_RDWR | O_CLOEXEC);
    assert_int_equal(pwrite(fd, last, strlen(last), hole), strlen(last));
    close(fd);
    assert_int_equal(logs_stream_open(sample.path, &sample.stream), SHOAL_OK);
    assert_int_equal(logs_stream_find(&sample.stream, 1763841600124, &place), SHOAL_OK);
    assert_true(place == hole + 1 || place == (int64_t)strlen(first));
    assert_int_equal(logs_reader_init(&sample.stream, hole + 1, sample.stream.end, &reader),
                     SHOAL_OK);
    assert_int_equal(logs_reader_next(&reader, &line, &has_line), SHOAL_OK);
    assert_memory_equal(line.text, "last", 4);
    logs_reader_release(&reader);
    sample_close(&sample);
}

static void take_any_line(void *user, char *data, size_t count, uint64_t round)
{
    struct logs_line line = {0};
    bool has_time = logs_line_read(data, count, &line);
    (void)user;
    (void)round;
    assert_true(line.text >= data && line.text + line.bytes == data + count);
    assert_true(has_time == (line.bytes + LOGS_TIME_BYTES == count));
    json_t *json = logs_line_json(&line), *again = json_stringn(line.text, line.bytes);
    assert_true(json != NULL || again == NULL); /* without memory */
    if (again != NULL)
        assert_true(json_equal(json, again));
    json_decref(json);
    json_decref(again);
}

/* Every line, of whatever bytes, is read and becomes JSON; what was UTF-8 stays as it was. */
static void random_lines_become_json(void **state)
{
    static const struct fuzz_text texts[] = {FUZZ_TEXT("1763841600123 loss=0.5 \xC3\xA9\x1b[0m"),
                                             FUZZ_TEXT("no time \xF0\x9F\x90\x9F\xFF")};
    struct fuzz fuzz = FUZZ(texts, NULL, 20000, .bytes_max = 400);
    (void)state;
    fuzz_run(&fuzz, take_any_line, NULL);
    assert_int_equal(base_memory_blocks(), 0);
}

static void bytes_that_are_not_utf8_are_replaced(void **state)
{
    const struct {
        const char *in, *out;
    } cases[] = {
        {"plain", "plain"},
        {"\xC3\xA9", "\xC3\xA9"},
        {"a\xFF!", "a\xEF\xBF\xBD!"},
        {"\xC0\x80", "\xEF\xBF\xBD\xEF\xBF\xBD"},
        {"\xED\xA0\x80", "\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD"},
        {"\xF0\x9F\x90\x9F|\xF0\x9F", "\xF0\x9F\x90\x9F|\xEF\xBF\xBD\xEF\xBF\xBD"},
        {"\x1b[31mred", "\x1b[31mred"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct logs_line line = {.text = cases[i].in, .bytes = strlen(cases[i].in)};
        json_t *json = logs_line_json(&line);
        assert_string_equal(json_string_value(json), cases[i].out);
        json_decref(json);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(open_ends_behind_the_last_newline),
        cmocka_unit_test(times_are_found),
        cmocka_unit_test(damage_does_not_lose_lines),
        cmocka_unit_test(lines_are_read_from_any_place),
        cmocka_unit_test(the_last_lines_fit_a_budget),
        cmocka_unit_test(long_lines_come_whole_up_to_what_supervisors_write),
        cmocka_unit_test(a_long_file_is_not_read_as_a_whole),
        cmocka_unit_test(random_lines_become_json),
        cmocka_unit_test(bytes_that_are_not_utf8_are_replaced),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
