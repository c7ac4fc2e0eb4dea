/* SPDX-License-Identifier: Apache-2.0 */
/* lines_test.c: streams become whole lines: tagged, plain, JSON, on terminals, in any pieces. */
#include "launch/lines.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/memory.h"

struct setting {
    struct launch_sink sink;
    struct launch_stream a, b;
};

static void setting_init(struct setting *setting, enum launch_lines_form form, bool live)
{
    *setting = (struct setting){.sink = {.fd = -1, .form = form, .live = live}};
    setting->a =
        (struct launch_stream){.rank = 0, .host = "h", .name = "stdout", .sink = &setting->sink};
    setting->b =
        (struct launch_stream){.rank = 1, .host = "h", .name = "stderr", .sink = &setting->sink};
}

static void setting_release(struct setting *setting)
{
    launch_stream_release(&setting->a);
    launch_stream_release(&setting->b);
    launch_sink_release(&setting->sink);
    assert_int_equal(base_memory_blocks(), 0);
}

static void write_text(struct launch_stream *stream, const char *text)
{
    assert_int_equal(launch_stream_write(stream, text, strlen(text)), SHOAL_OK);
}

static void expect_queue(struct setting *setting, const char *text)
{
    size_t count = launch_bytes_count(&setting->sink.queue);
    assert_int_equal(count, strlen(text));
    assert_memory_equal(launch_bytes_front(&setting->sink.queue), text, count);
}

static void lines_wait_until_they_are_whole(void **state)
{
    struct setting it;
    (void)state;
    setting_init(&it, LAUNCH_LINES_TAG, false);
    write_text(&it.a, "one");
    write_text(&it.b, "two\nthr");
    write_text(&it.a, " more\n");
    write_text(&it.b, "ee\n\n");
    expect_queue(&it, "[1] two\n[0] one more\n[1] three\n[1] \n");
    assert_string_equal(it.b.last, "three");
    setting_release(&it);
}

static void an_open_line_is_ended_before_another_stream(void **state)
{
    struct setting it;
    (void)state;
    setting_init(&it, LAUNCH_LINES_TAG, false);
    write_text(&it.a, "part");
    assert_int_equal(launch_stream_flush(&it.a), SHOAL_OK);
    write_text(&it.a, "-goes-on");
    assert_int_equal(launch_stream_flush(&it.a), SHOAL_OK);
    write_text(&it.b, "two\n");
    write_text(&it.a, " end\n");
    assert_int_equal(launch_sink_note(&it.sink, "note"), SHOAL_OK);
    expect_queue(&it, "[0] part-goes-on\n[1] two\n[0]  end\nshoal: note\n");
    setting_release(&it);
}

static void plain_streams_are_not_altered(void **state)
{
    struct setting it;
    char data[200000];
    unsigned seed = 3;
    (void)state;
    setting_init(&it, LAUNCH_LINES_PLAIN, false);
    for (size_t i = 0; i < sizeof(data); i++)
        data[i] = (char)(rand_r(&seed) % 256);
    for (size_t at = 0, count; at < sizeof(data); at += count) {
        count = (size_t)rand_r(&seed) % 9000;
        count = at + count > sizeof(data) ? sizeof(data) - at : count;
        assert_int_equal(launch_stream_write(&it.a, data + at, count), SHOAL_OK);
    }
    assert_int_equal(launch_stream_flush(&it.a), SHOAL_OK);
    assert_int_equal(launch_bytes_count(&it.sink.queue), sizeof(data));
    assert_memory_equal(launch_bytes_front(&it.sink.queue), data, sizeof(data));
    setting_release(&it);
}

static void long_lines_are_bounded(void **state)
{
    struct setting it;
    static char data[3 * LAUNCH_LINE_BYTES];
    (void)state;
    setting_init(&it, LAUNCH_LINES_TAG, false);
    memset(data, 'x', sizeof(data));
    assert_int_equal(launch_stream_write(&it.a, data, sizeof(data) - 10), SHOAL_OK);
    assert_true(launch_bytes_count(&it.a.partial) < LAUNCH_LINE_BYTES);
    write_text(&it.a, "\n");
    assert_int_equal(launch_bytes_count(&it.sink.queue), sizeof(data) - 10 + strlen("[0] \n"));
    assert_int_equal(strlen(it.a.last), LAUNCH_LAST_BYTES - 1);
    setting_release(&it);
}

static void terminals_show_progress_bars(void **state)
{
    struct setting it;
    (void)state;
    setting_init(&it, LAUNCH_LINES_TAG, true);
    write_text(&it.a, "10%\r20%\r");
    write_text(&it.b, "hello\r\n");
    write_text(&it.a, "30%\r");
    write_text(&it.a, "\n");
    expect_queue(&it, "[0] 10%\r[0] 20%\r\n[1] hello\r\n[0] 30%\r\n");
    setting_release(&it);
}

static void terminals_show_prompts_after_a_while(void **state)
{
    struct setting it;
    (void)state;
    setting_init(&it, LAUNCH_LINES_TAG, true);
    assert_true(launch_stream_idle_ns(&it.a) == BASE_NO_DEADLINE);
    write_text(&it.a, "name? ");
    assert_true(launch_stream_idle_ns(&it.a) <= base_deadline_ns(LAUNCH_IDLE_MS));
    it.sink.live = false;
    assert_true(launch_stream_idle_ns(&it.a) == BASE_NO_DEADLINE);
    setting_release(&it);
}

static void json_holds_any_bytes(void **state)
{
    struct setting it;
    (void)state;
    setting_init(&it, LAUNCH_LINES_JSON, false);
    write_text(&it.b, "a\"\\\t\x01\x7f\xc3\xa9 \xff\xc3(\xed\xa0\x80\xf0\x9f\x90\x9f\n");
    write_text(&it.a, "open");
    assert_int_equal(launch_stream_flush(&it.a), SHOAL_OK);
    expect_queue(&it,
                 "{\"type\":\"output\",\"rank\":1,\"host\":\"h\",\"stream\":\"stderr\",\"text\":"
                 "\"a\\\"\\\\\\u0009\\u0001\\u007f\xc3\xa9 \xef\xbf\xbd\xef\xbf\xbd("
                 "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xf0\x9f\x90\x9f\"}\n"
                 "{\"type\":\"output\",\"rank\":0,\"host\":\"h\",\"stream\":\"stdout\",\"text\":"
                 "\"open\",\"partial\":true}\n");
    setting_release(&it);
}

static void sinks_write_what_the_reader_takes(void **state)
{
    struct setting it;
    int pipe_ends[2];
    static char data[300000], got[sizeof(data)];
    size_t count = 0;
    (void)state;
    assert_int_equal(pipe(pipe_ends), 0);
    setting_init(&it, LAUNCH_LINES_PLAIN, false);
    it.sink.fd = pipe_ends[1];
    memset(data, '\n', sizeof(data));
    assert_int_equal(launch_sink_raw(&it.sink, data, sizeof(data)), SHOAL_OK);
    launch_sink_flush(&it.sink); /* the pipe is full now, and this call has not blocked */
    assert_true(launch_bytes_count(&it.sink.queue) > 0);
    while (count < sizeof(data)) {
        ssize_t part = read(pipe_ends[0], got + count, sizeof(got) - count);
        assert_true(part > 0);
        count += (size_t)part;
        launch_sink_flush(&it.sink);
    }
    assert_memory_equal(got, data, sizeof(data));
    close(pipe_ends[0]);
    signal(SIGPIPE, SIG_IGN);
    assert_int_equal(launch_sink_raw(&it.sink, "x\n", 2), SHOAL_OK);
    launch_sink_flush(&it.sink);
    assert_true(it.sink.closed);
    close(pipe_ends[1]);
    setting_release(&it);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lines_wait_until_they_are_whole),
        cmocka_unit_test(an_open_line_is_ended_before_another_stream),
        cmocka_unit_test(plain_streams_are_not_altered),
        cmocka_unit_test(long_lines_are_bounded),
        cmocka_unit_test(terminals_show_progress_bars),
        cmocka_unit_test(terminals_show_prompts_after_a_while),
        cmocka_unit_test(json_holds_any_bytes),
        cmocka_unit_test(sinks_write_what_the_reader_takes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
