/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mail.h: messages between the ranks of a pipe, over the engine.
 *
 * A letter is one message of point to point with tag 0: a header of 64 bytes and a body. Each rank
 * keeps receives posted for them, from any rank. A value's data that is too large for a letter, and
 * that the other rank cannot look at in shared memory, is a message with a tag of its own, which
 * the letter before it names, and goes from the home's memory to the route's.
 */
#ifndef SHOAL_PIPE_MAIL_H
#define SHOAL_PIPE_MAIL_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "comm/comm.h"

#define MAIL_SLOTS      16
#define MAIL_PARTS_MAX  3
#define MAIL_BODY_MAX   (SHOAL_PIPE_BLOB_MAX + 8 * SHOAL_PIPE_NEEDS_MAX)
#define MAIL_POOL_BYTES 960 /* body of letters that are kept for reuse */
#define MAIL_POOL_MAX   256

struct pipe;
struct pipe_value;

enum pipe_letter_type {
    LETTER_TASK,   /* body: needs, blob */
    LETTER_ROUTE,  /* to the home: a task on rank `count` needs the value */
    LETTER_VALUE,  /* body: bytes of each buffer, descriptor, and the data if way is inline */
    LETTER_DROP,   /* to the home: no more needs come; to a route: it has `count` of them */
    LETTER_RETURN, /* to the home: nothing looks at its memory any more */
    LETTER_OVER,   /* a microbatch has ended where it started */
    LETTER_MARK,   /* one of two at the end of a step */
    LETTER_ASK,    /* what are you doing? */
    LETTER_TELL,
    LETTER_BYE, /* the sender frees the pipe */
    LETTER_TYPE_COUNT
};

enum pipe_way { WAY_INLINE, WAY_SHARED, WAY_MESSAGE };

struct pipe_header {
    uint32_t type;   /* enum pipe_letter_type */
    uint32_t number; /* of the letter between these two ranks, from 1 */
    uint64_t id;     /* of the value */
    int32_t kind, module, microbatch;
    uint32_t count;       /* needs, or buffers */
    uint32_t small_bytes; /* of blob or descriptor */
    uint32_t way;         /* enum pipe_way; of a task: whether it keeps memory */
    uint32_t tag;         /* of the data's own message */
    uint32_t doing;       /* enum pipe_doing */
    uint64_t bytes;       /* of the data; or for how many ms */
    uint64_t offset;      /* of the data in the sender's region */
};
_Static_assert(sizeof(struct pipe_header) == 64, "a header is a cache line");

/* Something to send: a letter, or the data of a value. */
struct pipe_letter {
    struct pipe_letter *next;
    struct pipe *pipe;
    struct pipe_value *value; /* whose data it is; NULL: a letter */
    int to, tag;
    const void *data;
    uint64_t bytes;
    size_t capacity; /* of the body */
    struct pipe_header header;
    unsigned char body[];
};

/* What is posted and not yet given to the engine. Under the pipe's lock. */
struct pipe_outbox {
    struct pipe_letter *first, **end;
    struct pipe_letter *pool;
    int pool_count;
    bool urgent;       /* one of them is waited for by somebody */
    int out;           /* letters that are not sent yet, these too */
    uint32_t *numbers; /* [size] of the last letter to each rank */
    uint32_t *tags;    /* [size] of the last data to each rank */
};

/* A posted receive. */
struct pipe_slot {
    struct pipe *pipe;
    struct pipe_slot *next; /* arrived or held */
    struct shoal_recv_info info;
    bool posted;
    unsigned char *bytes; /* [MAIL_SLOT_BYTES] */
};

/* Token held, but for doorbell_queued. */
struct pipe_mail {
    struct pipe_slot slots[MAIL_SLOTS];
    unsigned char *memory;
    uint32_t *expected; /* [size] number of the next letter from each rank */
    struct pipe_slot *arrived, **arrived_end;
    struct pipe_slot *held; /* came before their turn */
    bool reading, closing;
    uint64_t sequence;
    struct comm_request doorbell; /* gives what is posted to the engine */
    atomic_bool doorbell_queued;
};

struct pipe_part {
    const void *data;
    size_t bytes;
};

enum shoal_status pipe_mail_make(struct pipe *pipe);
/* Posts the receives: from now on messages come. */
void pipe_mail_open(struct pipe *pipe);
/* Takes back what the engine has of a pipe that is not broken; the others send nothing any more. */
void pipe_mail_close(struct pipe *pipe);
/* The group is closed. */
void pipe_mail_release(struct pipe *pipe);

/* Lock held: puts a letter in the outbox, from another rank's point of view behind all before it.
 * One that only gives memory back goes out with the next that does more, or when this rank waits.
 * header's type and meaning are filled in. Breaks the pipe if there is no memory. */
void pipe_post(struct pipe *pipe, int to, struct pipe_header header, const struct pipe_part *parts,
               int part_count);
/* Lock held: the data of a value, which counts it in sends_out until it is sent. */
void pipe_post_data(struct pipe *pipe, int to, uint32_t tag, struct pipe_value *value);
/* Lock held. */
uint32_t pipe_next_tag(struct pipe *pipe, int to);
/* Lock not held: sees to it that what is posted goes out; here: maybe on this thread, which has
 * nothing better to do. */
void pipe_mail_go(struct pipe *pipe, bool here);
/* Token held, in receive.c: the data of the value comes from its home; takes it where its memory
 * is. */
void pipe_mail_expect(struct pipe *pipe, int from, uint32_t tag, struct pipe_value *value);

#endif
