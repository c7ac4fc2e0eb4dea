/* SPDX-License-Identifier: Apache-2.0 */
/*
 * lines.h: many streams of bytes become whole lines in one output.
 *
 * Every stream (a rank's stdout or stderr) gathers its bytes until a line is whole, then the line
 * goes to the sink, with the rank in front. Nothing is lost and nothing is altered; a line longer
 * than LAUNCH_LINE_BYTES goes in pieces. When another stream's line comes between two pieces, a
 * newline is put between them, and the next piece carries its rank again.
 *
 * On a terminal two things make progress bars and prompts work: a carriage return ends a piece too,
 * and a part of a line that has waited for LAUNCH_IDLE_MS is shown.
 */
#ifndef SHOAL_LAUNCH_LINES_H
#define SHOAL_LAUNCH_LINES_H

#include <stdbool.h>

#include "launch/bytes.h"

#define LAUNCH_LINE_BYTES  65536
#define LAUNCH_IDLE_MS     100
#define LAUNCH_LAST_BYTES  512
#define LAUNCH_SINK_BYTES  (1 << 20) /* above it nothing more should be written to the sink */
#define LAUNCH_CHUNK_BYTES 4096      /* what poll promises to take on a pipe: PIPE_BUF */

enum launch_lines_form { LAUNCH_LINES_TAG, LAUNCH_LINES_PLAIN, LAUNCH_LINES_JSON };

struct launch_stream;

struct launch_sink {
    int fd;
    enum launch_lines_form form;
    bool live;   /* a terminal */
    bool color;  /* of the ranks' tags */
    bool closed; /* the reader went away; what is written is dropped */
    struct launch_bytes queue;
    struct launch_stream *open; /* whose piece without a newline stands last */
};

struct launch_stream { /* set what is up to `sink`, zero the rest */
    int rank;
    bool is_server;   /* `rank` is a server's number */
    const char *host; /* for JSON; borrowed */
    const char *name; /* "stdout" or "stderr"; borrowed */
    struct launch_sink *sink;
    struct launch_bytes partial;
    int64_t arrived_ns;           /* when partial last grew */
    bool continued;               /* the last piece had no end, so the next needs no tag */
    bool returned;                /* it ended with a carriage return */
    char last[LAUNCH_LAST_BYTES]; /* last line that was not blank, cut */
};

/* Looks at what fd is (terminal, NO_COLOR) and at its own width of writes. */
void launch_sink_init(struct launch_sink *sink, int fd, enum launch_lines_form form);
bool launch_sink_full(const struct launch_sink *sink);
/* A line of the launcher's own, with "shoal: " in front. In JSON form it is the `text` of an object
 * of type "note". */
enum shoal_status launch_sink_note(struct launch_sink *sink, const char *text);
/* Bytes as they are, after ending an open line. */
enum shoal_status launch_sink_raw(struct launch_sink *sink, const void *data, size_t count);
/* Writes what can be written without blocking. EPIPE and other errors set `closed`. */
void launch_sink_flush(struct launch_sink *sink);
/* Ends an open line (tagged form), then writes everything; blocks while the reader is slow, at most
 * until the deadline. */
enum shoal_status launch_sink_finish(struct launch_sink *sink, int64_t deadline_ns);
void launch_sink_release(struct launch_sink *sink);

enum shoal_status launch_stream_write(struct launch_stream *stream, const void *data, size_t count);
/* When a waiting part is to be shown (launch_stream_idle), or BASE_NO_DEADLINE. */
int64_t launch_stream_idle_ns(const struct launch_stream *stream);
/* Shows the part that waits. */
enum shoal_status launch_stream_flush(struct launch_stream *stream);
void launch_stream_release(struct launch_stream *stream);

/* Appends text as a JSON string with its quotes; bytes that are not UTF-8 become U+FFFD. */
enum shoal_status launch_json_text(struct launch_bytes *out, const void *text, size_t count);
/* Appends formatted text; at most 4095 bytes. */
enum shoal_status launch_put_format(struct launch_bytes *out, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

#endif
