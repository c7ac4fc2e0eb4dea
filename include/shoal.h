/* SPDX-License-Identifier: Apache-2.0 */
/*
 * shoal.h: many processes act as one group and exchange data. The whole public API.
 *
 * C99, usable from C++. Handles are opaque. Option structs start with their own size, so that a
 * program built against an older header keeps working.
 *
 * Rules that hold for every call:
 *  - A call returns SHOAL_OK or says what went wrong; outputs are written only on success.
 *    shoal_last_error() gives the text: what, where, who (rank, host), and what to do.
 *  - Collective calls are made by every rank of the group, in the same order. Every message carries
 *    the operation, dtype, count and sequence number, so ranks that disagree get
 *    SHOAL_ERR_MISMATCH which names both sides; they never hang and never get a wrong sum.
 *  - Every wait has a deadline (the group's timeout). A group in which something broke stays
 *    broken: all pending and later calls end with the same cause, until shoal_group_free().
 *  - The order of every sum is fixed by the layout, never by timing: the same inputs give the same
 *    bits on every rank and in every run.
 *  - Counts are in elements of the dtype, per rank as said at each call, and may be 0 or exceed
 *    2^31. Buffers need no alignment. NULL is a valid buffer where its count is 0.
 *  - "In place" is stated per call; input and output that overlap in any other way are
 *    SHOAL_ERR_ARGUMENT. Buffers of operations that are under way at the same time must lie apart
 *    where one of them writes; that is not looked for.
 *  - Any thread may call. Calls on one group from several threads at once are safe, but their order
 *    is then the threads' order, which must be the same on every rank.
 */
#ifndef SHOAL_H
#define SHOAL_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define SHOAL_VERSION_MAJOR  0
#define SHOAL_VERSION_MINOR  1
#define SHOAL_VERSION_PATCH  0
#define SHOAL_VERSION_STRING "0.1.0"

#ifndef SHOAL_API
#if defined(__GNUC__)
#define SHOAL_API __attribute__((visibility("default")))
#else
#define SHOAL_API
#endif
#endif

/* ---- status ---------------------------------------------------------------------------------- */

/* Grouped by what must be put right before going on. */
enum shoal_status {
    SHOAL_OK = 0,
    SHOAL_IN_PROGRESS = 1, /* shoal_request_test: not done yet */

    /* The call: correct it and call again; nothing has changed. */
    SHOAL_ERR_ARGUMENT = 100,    /* an argument is out of range or NULL */
    SHOAL_ERR_UNSUPPORTED = 101, /* a combination without meaning, such as max of complex64 */
    SHOAL_ERR_OPTION = 102,      /* an option or environment variable is wrong */
    SHOAL_ERR_STATE = 103,       /* not allowed now, such as a call in a forked child */
    SHOAL_ERR_LIMIT = 104,       /* a stated maximum is reached */

    /* This process: its memory, files or system calls. */
    SHOAL_ERR_MEMORY = 200,
    SHOAL_ERR_SYSTEM = 201,
    SHOAL_ERR_FORMAT = 202, /* a file or message could not be understood */

    /* One peer. The group is broken. */
    SHOAL_ERR_PEER_LOST = 300,        /* a process of the group ended or its link broke */
    SHOAL_ERR_PEER_UNREACHABLE = 301, /* no link could be opened */
    SHOAL_ERR_PEER_REFUSED = 302,     /* one end could not prove that it belongs to the job */

    /* The group. */
    SHOAL_ERR_TIMEOUT = 400,    /* a deadline passed; the text names who is late */
    SHOAL_ERR_MISMATCH = 401,   /* ranks called different things; the text names both sides */
    SHOAL_ERR_ABORTED = 402,    /* shoal_group_abort() was called here or on a peer */
    SHOAL_ERR_RANK_TAKEN = 403, /* a second process came with the same rank */

    SHOAL_ERR_INTERNAL = 500 /* a bug of shoal: please report the text */
};

/* A short name such as "SHOAL_ERR_TIMEOUT". Never NULL. */
SHOAL_API const char *shoal_status_name(enum shoal_status status);

typedef struct shoal_group *shoal_group_t;
typedef struct shoal_request *shoal_request_t;

/* The text of the last error: of this thread's last failed call on `group`, or, with group NULL, of
 * this thread's last failed call at all. Empty string if none. Valid until the thread's next call.
 */
SHOAL_API const char *shoal_last_error(shoal_group_t group);

/* "0.1.0" of the library that runs. */
SHOAL_API const char *shoal_version(void);

/* ---- element types and operations ---------------------------------------------------------------
 */

enum shoal_dtype {
    SHOAL_F64 = 0,
    SHOAL_F32,
    SHOAL_F16,
    SHOAL_BF16,
    SHOAL_I8,
    SHOAL_U8,
    SHOAL_I16,
    SHOAL_I32,
    SHOAL_I64,
    SHOAL_U16,
    SHOAL_U32,
    SHOAL_U64,
    SHOAL_BOOL,      /* one byte, 0 or 1 */
    SHOAL_COMPLEX64, /* two f32 */
    SHOAL_COMPLEX128,
    SHOAL_DTYPE_COUNT
};

/* Which op has a meaning on which dtype: docs/kernel.md. f16 and bf16 accumulate in f32 and round
 * once. Integer sums wrap. Float min and max propagate NaN. */
enum shoal_op {
    SHOAL_SUM = 0,
    SHOAL_AVG, /* the sum divided by the group's size; integers truncate toward zero */
    SHOAL_PROD,
    SHOAL_MIN,
    SHOAL_MAX,
    SHOAL_BAND,
    SHOAL_BOR,
    SHOAL_BXOR,
    SHOAL_LAND,
    SHOAL_LOR,
    SHOAL_LXOR,
    SHOAL_PREMUL_SUM, /* each rank's input times its own factor, then the sum; see shoal_op_args */
    SHOAL_OP_COUNT
};

/* Size of one element in bytes, 0 for an unknown dtype. */
SHOAL_API size_t shoal_dtype_bytes(enum shoal_dtype dtype);
SHOAL_API const char *shoal_dtype_name(enum shoal_dtype dtype); /* "f32", "?" if unknown */
SHOAL_API const char *shoal_op_name(enum shoal_op op);          /* "sum", "?" if unknown */
/* 1 if `op` has a meaning on `dtype`, else 0. */
SHOAL_API int shoal_op_supported(enum shoal_op op, enum shoal_dtype dtype);

/* ---- start
 * ---------------------------------------------------------------------------------------- */

/* Names a group that does not exist yet. One process makes it and carries it to the others by any
 * means (128 bytes). The process that made it serves the
 * meeting until the group stands, or until it exits. */
struct shoal_unique_id {
    unsigned char bytes[128];
};
SHOAL_API enum shoal_status shoal_unique_id_create(struct shoal_unique_id *out);

/* A key-value store of the caller's own through which the ranks meet, such as the one a framework
 * has already. Both functions return 0 on success, 1 when `timeout_ms` passed, another value on
 * failure; they may block and are called only from within shoal_group_create. */
struct shoal_store {
    size_t struct_bytes; /* sizeof(struct shoal_store) */
    void *user;
    int (*set)(void *user, const char *key, const void *value, size_t bytes);
    /* Waits until key exists; copies at most `capacity` bytes; *bytes is the value's whole size. */
    int (*get)(void *user, const char *key, void *value, size_t capacity, size_t *bytes,
               int64_t timeout_ms);
};

struct shoal_group_options {
    size_t struct_bytes; /* sizeof(struct shoal_group_options) */
    int rank;            /* 0 to size-1; -1: from the environment */
    int size;            /* 1 or more; -1: from the environment */
    const char *store;   /* "host:port" where rank 0 serves the meeting (IPv6 as "[::1]:port") */
    const struct shoal_unique_id *unique_id; /* instead of store */
    const struct shoal_store *user_store;    /* instead of store */
    const char *secret;    /* proves membership; NULL: from the environment, the id or the store */
    const char *name;      /* for messages; NULL: "world" */
    const char *interface; /* as SHOAL_INTERFACE: names or address prefixes; NULL: by the route */
    int64_t timeout_ms;    /* of every operation; 0: option SHOAL_TIMEOUT_MS */
    int reproducible;      /* 1: bits don't depend on size, split or transport; -1: the option */
    /* Asked a few times a second on the thread that makes the group, while a blocking call on it,
     * or on a group split from it, waits for other ranks there. Not 0: the call's group is aborted,
     * and the call ends. May not call the library, nor wait for a thread that is inside a call of
     * it. NULL: never. */
    int (*interrupted)(void *user);
    void *interrupted_user;
};
#define SHOAL_GROUP_OPTIONS_INIT                                                               \
    {                                                                                          \
        sizeof(struct shoal_group_options), -1, -1, NULL, NULL, NULL, NULL, NULL, NULL, 0, -1, \
            NULL, NULL                                                                         \
    }

/* Joins the group; every rank calls it. options NULL: everything from the environment, as set by
 * `shoal run`, torchrun, Open MPI's, MPICH's or Intel MPI's mpirun, or srun; a program started by
 * none of them is a group of one. Blocks until all ranks are here, at most the timeout. */
SHOAL_API enum shoal_status shoal_group_create(const struct shoal_group_options *options,
                                               shoal_group_t *out);

/* Makes this process a server of the job that the environment names (SHOAL_SERVER, SHOAL_SERVERS,
 * SHOAL_SIZE, SHOAL_STORE, as set by `shoal run --servers`): no rank, but one that sums shards of
 * large buffers for all ranks. Serves all groups of all of the job's ranks, one rank per host, and
 * returns when the ranks have left and their store is gone. */
SHOAL_API enum shoal_status shoal_serve(void);

/* New groups from the ranks of `group` that give the same color, ordered by key, then rank.
 * Collective over `group`. color < 0: this rank is in none, *out is NULL. Opens no connection. */
SHOAL_API enum shoal_status shoal_group_split(shoal_group_t group, int color, int key,
                                              shoal_group_t *out);

/* A new group of the `count` ranks of `group` listed in `ranks` (no repeats; their order is the
 * order in the new group). Called by these ranks only, each with the same list and the same `name`,
 * which tells apart groups with equal members. Opens no connection and sends no message. */
SHOAL_API enum shoal_status shoal_group_subset(shoal_group_t group, const int *ranks, int count,
                                               const char *name, shoal_group_t *out);

/* Leaves. Ends pending requests with SHOAL_ERR_ABORTED; they are still waited for, now or later, to
 * be freed. Does not wait for the other ranks, but for
 * data that is on its way to them, a few seconds at most. NULL is allowed. Sub-groups go before
 * their parent, else SHOAL_ERR_STATE. */
SHOAL_API enum shoal_status shoal_group_free(shoal_group_t group);

/* Leaves all groups of this process in good order, as exit() does by itself: for programs that end
 * by _exit, as children of Python's multiprocessing do. Operations under way stop here, and end
 * with SHOAL_ERR_PEER_LOST on ranks that need more of this one. Later calls end with
 * SHOAL_ERR_STATE, but shoal_group_free, which has nothing left to do. Does not wait for the other
 * ranks, but for data that is on its way to them, a few seconds at most. Any thread. */
SHOAL_API void shoal_leave(void);

/* Breaks the group on all ranks: every pending and later call on it ends with SHOAL_ERR_ABORTED
 * and `reason` (may be NULL). Any thread; does not block. */
SHOAL_API enum shoal_status shoal_group_abort(shoal_group_t group, const char *reason);

/* SHOAL_OK while the group works, else the cause, with its text in shoal_last_error(group). */
SHOAL_API enum shoal_status shoal_group_health(shoal_group_t group);

SHOAL_API int shoal_group_rank(shoal_group_t group);
SHOAL_API int shoal_group_size(shoal_group_t group);
/* Rank among, and number of, the ranks on this host; index and number of hosts. */
SHOAL_API int shoal_group_local_rank(shoal_group_t group);
SHOAL_API int shoal_group_local_size(shoal_group_t group);
SHOAL_API int shoal_group_host(shoal_group_t group);
SHOAL_API int shoal_group_host_count(shoal_group_t group);
/* Timeout of operations started from now on, in ms, 1 or more. */
SHOAL_API enum shoal_status shoal_group_set_timeout(shoal_group_t group, int64_t timeout_ms);

/* What this rank has done in a group since it was made. An operation's bytes are those of the
 * larger of this rank's two buffers: an allreduce of n elements counts n, an allgather p*n. */
struct shoal_counters {
    size_t struct_bytes; /* sizeof(struct shoal_counters); returned: how much of it was filled */
    uint64_t operations; /* collectives, sends and receives begun; a split makes one allgather */
    uint64_t requests; /* of these, non-blocking ones, and blocking ones that had to wait behind */
    uint64_t bytes;    /* of all: the five ways below, and copies in a group of one */
    /* Between ranks of one host through shared memory (docs/local.md): */
    uint64_t inline_bytes;    /* in the cache line that says that they are there */
    uint64_t symmetric_bytes; /* staged whole, and summed by every rank that needs the sum */
    uint64_t staged_bytes;    /* staged block by block */
    uint64_t direct_bytes;    /* in memory from shoal_alloc, read and written where it lies */
    uint64_t engine_bytes;    /* sent as messages: all other operations */
    uint64_t streamed_bytes;  /* of staged and direct: outputs were stored around the caches */
    /* Payloads of messages to and from other ranks; of these, to and from other hosts: */
    uint64_t sent_bytes, received_bytes;
    uint64_t network_sent_bytes, network_received_bytes;
    uint64_t sleeps; /* how often a call went to sleep to wait for other ranks */
};
#define SHOAL_COUNTERS_INIT                                                     \
    {                                                                           \
        sizeof(struct shoal_counters), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 \
    }
/* Any thread, at any time; does not block. Operations that run meanwhile may be counted in part. */
SHOAL_API enum shoal_status shoal_group_counters(shoal_group_t group, struct shoal_counters *out);

/* ---- requests
 * --------------------------------------------------------------------------------------- Every
 * operation has a last argument `request`. NULL: the call blocks until the operation is done.
 * Otherwise it returns at once and *request must be given to shoal_request_wait, or tested until
 * done; buffers belong to the operation until then. */

/* SHOAL_IN_PROGRESS, or the result, which frees the request and sets *request to NULL. */
SHOAL_API enum shoal_status shoal_request_test(shoal_request_t *request);
/* Waits. timeout_ms < 0: until the operation's own deadline. When an explicit timeout passes first:
 * SHOAL_ERR_TIMEOUT, and the request goes on (wait again, or abort the group). Otherwise the
 * result, which frees the request. */
SHOAL_API enum shoal_status shoal_request_wait(shoal_request_t *request, int64_t timeout_ms);
/* Calls back once, from a thread of the library or one that is inside a call of it, when the
 * request is done, or at once if it is; the callback must not block, call the library or free the
 * request. At most one callback per request. */
SHOAL_API enum shoal_status
shoal_request_on_done(shoal_request_t request,
                      void (*callback)(void *user, enum shoal_status status), void *user);

/* ---- operations
 * ------------------------------------------------------------------------------------- p = size of
 * the group. shapes: in[n], out[n] are arrays of n elements. */

/* in[count] on each rank -> out[count], the same on all. In place: in == out. */
SHOAL_API enum shoal_status shoal_allreduce(const void *in, void *out, uint64_t count,
                                            enum shoal_dtype dtype, enum shoal_op op,
                                            shoal_group_t group, shoal_request_t *request);

/* As shoal_allreduce with SHOAL_PREMUL_SUM: each rank's input is multiplied by its own *factor (one
 * element of dtype, read during the call) before the sum. In place: in == out. */
SHOAL_API enum shoal_status shoal_allreduce_premul(const void *in, void *out, uint64_t count,
                                                   enum shoal_dtype dtype, const void *factor,
                                                   shoal_group_t group, shoal_request_t *request);

/* in[count] on each rank -> out[count] on root. out is ignored elsewhere. In place: in == out. */
SHOAL_API enum shoal_status shoal_reduce(const void *in, void *out, uint64_t count,
                                         enum shoal_dtype dtype, enum shoal_op op, int root,
                                         shoal_group_t group, shoal_request_t *request);

/* buffer[count] of root -> buffer[count] on all. Always in place. */
SHOAL_API enum shoal_status shoal_broadcast(void *buffer, uint64_t count, enum shoal_dtype dtype,
                                            int root, shoal_group_t group,
                                            shoal_request_t *request);

/* in[count] on each rank -> out[p*count], in rank order. In place: in == out + rank*count. */
SHOAL_API enum shoal_status shoal_allgather(const void *in, void *out, uint64_t count,
                                            enum shoal_dtype dtype, shoal_group_t group,
                                            shoal_request_t *request);

/* in[counts[rank]] -> out, rank i's part at out + displs[i] (elements; NULL: packed in rank order).
 * counts[p], displs[p] are the same on all ranks and are copied. In place as above. */
SHOAL_API enum shoal_status shoal_allgatherv(const void *in, void *out, const uint64_t *counts,
                                             const uint64_t *displs, enum shoal_dtype dtype,
                                             shoal_group_t group, shoal_request_t *request);

/* in[count] -> out[p*count] on root. In place at root: in == out + root*count. */
SHOAL_API enum shoal_status shoal_gather(const void *in, void *out, uint64_t count,
                                         enum shoal_dtype dtype, int root, shoal_group_t group,
                                         shoal_request_t *request);
/* counts[p] is given, and the same, on all ranks; displs[p] matters at root (NULL: packed). */
SHOAL_API enum shoal_status shoal_gatherv(const void *in, void *out, const uint64_t *counts,
                                          const uint64_t *displs, enum shoal_dtype dtype, int root,
                                          shoal_group_t group, shoal_request_t *request);

/* in[p*count] -> out[count]: rank i gets the i-th block of the sum. In place: out == in +
 * rank*count; the other blocks of in keep their values. */
SHOAL_API enum shoal_status shoal_reduce_scatter(const void *in, void *out, uint64_t count,
                                                 enum shoal_dtype dtype, enum shoal_op op,
                                                 shoal_group_t group, shoal_request_t *request);
/* in holds p blocks packed in rank order, block i of counts[i] elements -> out[counts[rank]]. */
SHOAL_API enum shoal_status shoal_reduce_scatterv(const void *in, void *out, const uint64_t *counts,
                                                  enum shoal_dtype dtype, enum shoal_op op,
                                                  shoal_group_t group, shoal_request_t *request);
/* As shoal_reduce_scatter with SHOAL_PREMUL_SUM; see shoal_allreduce_premul. */
SHOAL_API enum shoal_status shoal_reduce_scatter_premul(const void *in, void *out, uint64_t count,
                                                        enum shoal_dtype dtype, const void *factor,
                                                        shoal_group_t group,
                                                        shoal_request_t *request);

/* in[p*count] on root -> out[count]. In place at root: out == in + root*count. */
SHOAL_API enum shoal_status shoal_scatter(const void *in, void *out, uint64_t count,
                                          enum shoal_dtype dtype, int root, shoal_group_t group,
                                          shoal_request_t *request);
SHOAL_API enum shoal_status shoal_scatterv(const void *in, void *out, const uint64_t *counts,
                                           const uint64_t *displs, enum shoal_dtype dtype, int root,
                                           shoal_group_t group, shoal_request_t *request);

/* in[p*count] -> out[p*count]: block i of in goes to rank i. Not in place. */
SHOAL_API enum shoal_status shoal_alltoall(const void *in, void *out, uint64_t count,
                                           enum shoal_dtype dtype, shoal_group_t group,
                                           shoal_request_t *request);
/* send_counts[i] elements at in + send_displs[i] go to rank i, and likewise for out (displs NULL:
 * packed). Both sides of a pair must agree. Not in place. */
SHOAL_API enum shoal_status shoal_alltoallv(const void *in, const uint64_t *send_counts,
                                            const uint64_t *send_displs, void *out,
                                            const uint64_t *recv_counts,
                                            const uint64_t *recv_displs, enum shoal_dtype dtype,
                                            shoal_group_t group, shoal_request_t *request);

/* Returns after every rank has called it. */
SHOAL_API enum shoal_status shoal_barrier(shoal_group_t group, shoal_request_t *request);

#define SHOAL_ANY_SOURCE (-1)
#define SHOAL_ANY_TAG    (-1)

struct shoal_recv_info {
    int source;     /* group rank of the sender */
    int tag;        /* 0 or more */
    uint64_t bytes; /* received */
};

/* Sends to `destination`; matches a receive by (source, tag) in the order of the sends. Done when
 * the buffer may be reused. tag 0 to 2^31-1. To oneself is allowed with a pending receive. */
SHOAL_API enum shoal_status shoal_send(const void *in, uint64_t count, enum shoal_dtype dtype,
                                       int destination, int tag, shoal_group_t group,
                                       shoal_request_t *request);
/* Receives at most `count` elements; a longer message is SHOAL_ERR_MISMATCH. `info` (may be NULL)
 * is written when the operation is done and must stay valid until then. */
SHOAL_API enum shoal_status shoal_recv(void *out, uint64_t count, enum shoal_dtype dtype,
                                       int source, int tag, struct shoal_recv_info *info,
                                       shoal_group_t group, shoal_request_t *request);

/* ---- memory
 * -------------------------------------------------------------------------------------------- */

/* Memory that the ranks of this host share: peers read and write operations' buffers in it where
 * they lie, instead of copying them twice (docs/local.md says which buffers of which operation).
 * 64-byte aligned; what it holds at first is not said. Not collective. Leaves nothing behind
 * however the process ends. */
SHOAL_API enum shoal_status shoal_alloc(shoal_group_t group, size_t bytes, void **out);
/* Gives memory from shoal_alloc back; no operation may use it any more. NULL is allowed. */
SHOAL_API enum shoal_status shoal_free(shoal_group_t group, void *memory);

/* ---- fusion buffers
 * ------------------------------------------------------------------------------------
 * The gradients of a model are summed while the backward pass still makes them. A fuse is made once
 * with the list of tensors; each step then adds every tensor once, in any order, from any thread,
 * and finishes. Tensors lie one behind the other in memory of the fuse, which is cut in buffers of
 * one size without regard to where tensors begin; a buffer goes out, as one allreduce, as soon as
 * all that lies in it was added. docs/fuse.md has the reasons.
 *
 *     shoal_fuse_create(group, &options, &fuse);
 *     each step:  shoal_fuse_add(fuse, tensor, NULL, NULL, count);   as each gradient is ready
 *                 shoal_fuse_finish(fuse);                           now all of them are reduced
 */

typedef struct shoal_fuse *shoal_fuse_t;

/* As what gradients of f32 travel: as they are, or rounded to fewer bits. docs/compression.md. */
enum shoal_compression {
    SHOAL_COMPRESSION_NONE = 0,
    SHOAL_COMPRESSION_BF16, /* summed in f32, and the sum rounded once more */
    SHOAL_COMPRESSION_F16,  /* likewise; what is beyond 65504 becomes infinite */
    SHOAL_COMPRESSION_INT8  /* 8 bits with a scale for each 256 elements, summed in f32; not in
                             * reproducible groups */
};

struct shoal_fuse_options {
    size_t struct_bytes; /* sizeof(struct shoal_fuse_options) */
    /* The tensors, in the order in which the forward pass needs them: what it needs first is
     * reduced first, among buffers that wait. */
    int tensor_count;
    const uint64_t *counts;          /* [tensor_count] elements of each, 0 or more */
    const char *const *tensor_names; /* [tensor_count] for messages; NULL: by number only */
    const char *name;                /* of the fuse, for messages; NULL: "gradients" */
    enum shoal_dtype dtype;          /* of all tensors */
    enum shoal_op op;                /* SHOAL_SUM or SHOAL_AVG */
    /* [tensor_count] every tensor once, in the order in which gradients become ready: they lie in
     * memory in this order. NULL: the first step shows it, as rank 0 sees it. */
    const int *order;
    uint64_t buffer_bytes; /* 0: option SHOAL_FUSE_BYTES; rounded up to a multiple of 64 */
    int in_flight;         /* buffers on their way at a time; 0: option SHOAL_FUSE_IN_FLIGHT */
    enum shoal_compression compression; /* other than none: of SHOAL_F32 only */
    int error_feedback; /* 1: what rounding loses on a rank is added there in the next step; 0: not
                         */
};
#define SHOAL_FUSE_OPTIONS_INIT                                                                   \
    {                                                                                             \
        sizeof(struct shoal_fuse_options), 0, NULL, NULL, NULL, SHOAL_F32, SHOAL_AVG, NULL, 0, 0, \
            SHOAL_COMPRESSION_NONE, 1                                                             \
    }

/* Collective over `group`, with the same options on every rank, else SHOAL_ERR_MISMATCH on all of
 * them, which names the first difference. All memory is taken now: for the tensors, each rounded up
 * to 64 bytes, memory that the ranks of a host share, if there are several; and as much private
 * memory until the first step has shown the order; with compression as much again for what rounding
 * loses, and with int8 half of it more. The fuse has sub-groups of its own: what goes
 * wrong in it breaks them and not `group`, and its operations may run beside any others. A group
 * that breaks or is aborted takes its fuses along. Fuses are freed before their group. The texts of
 * their errors are shoal_last_error(group)'s. */
SHOAL_API enum shoal_status
shoal_fuse_create(shoal_group_t group, const struct shoal_fuse_options *options, shoal_fuse_t *out);
/* Not collective, but ranks that are in a step with this one get an error. Home addresses end. NULL
 * is allowed. */
SHOAL_API enum shoal_status shoal_fuse_free(shoal_fuse_t fuse);

/* Where the tensor lies in the fuse's memory: count elements, 64-byte aligned. Gradients that are
 * made here are not copied. The address holds until the first shoal_fuse_finish returns and, asked
 * for again after that, for good; values move with it. With options.order it holds from the start.
 * The caller writes here from the end of one step until it adds the tensor in the next. */
SHOAL_API enum shoal_status shoal_fuse_home(shoal_fuse_t fuse, int tensor, void **out);

/* The tensor's gradient is ready: in[count], copied home during the call; NULL: it is at home.
 * Later the result is at home, and is copied to out[count] by whoever waits for it, unless out is
 * NULL. out may equal in; both belong to the fuse's step until then, as home does. Never waits for
 * other ranks. The first tensor begins a step. Any thread; several at once, for different tensors.
 * A tensor that is added twice in a step, or with another count, breaks the fuse on every rank:
 * SHOAL_ERR_MISMATCH. */
SHOAL_API enum shoal_status shoal_fuse_add(shoal_fuse_t fuse, int tensor, const void *in, void *out,
                                           uint64_t count);
/* No more gradients come on this rank in this step: each tensor that was not added counts as zeros,
 * and gets the result at home. For parameters that a pass did not use, and for ranks that have run
 * out of data. No other thread adds meanwhile. */
SHOAL_API enum shoal_status shoal_fuse_flush(shoal_fuse_t fuse);

/* Waits until the tensor's result of this step is there; at once if no step is under way. Not
 * needed before shoal_fuse_finish; it lets the next forward pass begin with what is there. One
 * thread at a time for each tensor. */
SHOAL_API enum shoal_status shoal_fuse_wait(shoal_fuse_t fuse, int tensor);
/* Waits until all tensors were added here and all results are there, and ends the step. Every rank
 * ends each step with it, one thread. If a tensor is not added here until the deadline, the fuse
 * breaks on every rank with an error that names rank and tensor. The first call on each rank ends
 * with the agreement about the order. */
SHOAL_API enum shoal_status shoal_fuse_finish(shoal_fuse_t fuse);

/* What this rank's fuse has done since it was made. Times are in ns. */
struct shoal_fuse_counters {
    size_t struct_bytes;  /* sizeof(struct shoal_fuse_counters); returned: how much was filled */
    uint64_t steps;       /* finished */
    uint64_t buffers;     /* sent */
    uint64_t bytes;       /* of these */
    uint64_t copied;      /* bytes of gradients and results that were not at home */
    uint64_t held_back;   /* buffers that were ready while as many as allowed were on their way */
    uint64_t overtakings; /* of these, sent before one that was ready earlier */
    uint64_t flight_ns;   /* at least one buffer was on its way */
    uint64_t waited_ns;   /* a caller waited in shoal_fuse_wait or shoal_fuse_finish */
    uint64_t exposed_ns;  /* both at once: communication that no computation hid */
    uint64_t wire_bytes;  /* what the buffers had as they were sent: less if they are compressed */
    uint64_t in_flight;   /* not counted: so many operations may be on their way at a time */
    uint64_t joined;      /* of the buffers, sent in the operation of another one */
};
#define SHOAL_FUSE_COUNTERS_INIT                                               \
    {                                                                          \
        sizeof(struct shoal_fuse_counters), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 \
    }
/* Any thread; does not block. */
SHOAL_API enum shoal_status shoal_fuse_counters(shoal_fuse_t fuse, struct shoal_fuse_counters *out);
/* As shoal_group_counters, of the sub-groups in which the fuse's buffers are reduced. */
SHOAL_API enum shoal_status shoal_fuse_traffic(shoal_fuse_t fuse, struct shoal_counters *out);

/* One buffer in the step under way, or else in the last one. Times are CLOCK_MONOTONIC in ns, 0 for
 * what has not happened. */
struct shoal_fuse_times {
    size_t struct_bytes;    /* sizeof(struct shoal_fuse_times); returned: how much was filled */
    uint64_t bytes;         /* of the buffer */
    int priority;           /* the first of its tensors that the forward pass needs */
    int sent_as;            /* the how-manieth it was sent, from 0; -1: not yet */
    int64_t first_added_ns; /* the first of its gradients was ready */
    int64_t last_added_ns;  /* the last one was */
    int64_t packed_ns;      /* and lay in the buffer */
    int64_t sent_ns;        /* its allreduce began here */
    int64_t reduced_ns;     /* and ended */
    int64_t back_ns;        /* a caller waited for a result in it, and has it */
};
#define SHOAL_FUSE_TIMES_INIT                                       \
    {                                                               \
        sizeof(struct shoal_fuse_times), 0, 0, -1, 0, 0, 0, 0, 0, 0 \
    }
/* Number of buffers; -1 for NULL. */
SHOAL_API int shoal_fuse_buffer_count(shoal_fuse_t fuse);
/* buffer: 0 to shoal_fuse_buffer_count - 1, as they lie in memory. Any thread; does not block. */
SHOAL_API enum shoal_status shoal_fuse_times(shoal_fuse_t fuse, int buffer,
                                             struct shoal_fuse_times *out);

/* ---- plans
 * ------------------------------------------------------------------------------------------ A
 * model that is too large for one process is cut over several devices. The planner gets the tree of
 * its modules, with what each costs, and says which device runs which. It is pure computation, for
 * any thread, without a group. docs/plan.md has the method and the reasons. */

struct shoal_plan_module {
    const char *name; /* "transformer.h.0.attn", for messages */
    int parent; /* number of the module that holds it, a smaller one; -1: module 0, the root */
    int shares; /* number of an earlier one whose parameters it uses too, on one device; -1: none */
    int device; /* where it is placed by hand, with all that is in it; -1: not */
    /* Its own, without those of the modules in it; shared parameters only where they are first. Per
     * microbatch, but for the parameters: */
    uint64_t parameter_bytes;
    uint64_t activation_bytes; /* kept from the forward to the backward pass */
    uint64_t forward_ns, backward_ns, output_bytes;
};
#define SHOAL_PLAN_MODULE_INIT          \
    {                                   \
        NULL, -1, -1, -1, 0, 0, 0, 0, 0 \
    }

struct shoal_plan_options {
    size_t struct_bytes; /* sizeof(struct shoal_plan_options) */
    size_t module_bytes; /* sizeof(struct shoal_plan_module) */
    /* [module_count] A module comes before those in it, which come in the order in which they run.
     * Its own work runs before theirs. */
    const struct shoal_plan_module *modules;
    int module_count;
    int device_count;
    double memory_weight; /* 0 to 1: cost = so much memory, the rest time, as shares of the whole */
    int auto_partition;   /* 1: modules that are not placed by hand go where they fit best */
    int default_device;   /* 0: they go there */
    const uint64_t *memory_limits; /* [device_count] bytes, 0: unlimited; NULL: all of them */
    /* What memory is counted: parameters so many times (with gradients and the optimizer's state,
     * in fp32 with Adam: 4), and the activations of so many microbatches at a time. */
    int parameter_copies;
    const int *in_flight; /* [device_count]; NULL: 1 each */
};
#define SHOAL_PLAN_OPTIONS_INIT                                                                  \
    {                                                                                            \
        sizeof(struct shoal_plan_options), sizeof(struct shoal_plan_module), NULL, 0, 1, 0.8, 1, \
            0, NULL, 1, NULL                                                                     \
    }

enum shoal_plan_method {
    SHOAL_PLAN_PUBLISHED = 0, /* the published method */
    SHOAL_PLAN_BALANCED,      /* that was too uneven, or too large for a device: borders moved */
    SHOAL_PLAN_MANUAL         /* without auto_partition */
};

/* Costs are shares of the whole model's. */
struct shoal_plan_report {
    size_t struct_bytes; /* sizeof(struct shoal_plan_report); returned: how much of it was filled */
    enum shoal_plan_method method;
    int devices_used;
    double largest_cost, mean_cost; /* of the devices */
    double optimum_cost;     /* the least possible largest one, with modules in their order */
    double published_cost;   /* the published method's largest one; 0: was not tried */
    int crossings;           /* how often a microbatch goes to another device in the forward pass */
    uint64_t crossing_bytes; /* of a microbatch's */
};
#define SHOAL_PLAN_REPORT_INIT                                                      \
    {                                                                               \
        sizeof(struct shoal_plan_report), SHOAL_PLAN_PUBLISHED, 0, 0, 0, 0, 0, 0, 0 \
    }

/* What one device has to do, per microbatch. */
struct shoal_plan_load {
    size_t struct_bytes; /* sizeof(struct shoal_plan_load); returned: how much of it was filled */
    double cost;
    uint64_t parameter_bytes, activation_bytes, forward_ns, backward_ns;
    uint64_t memory_bytes; /* with copies of parameters and microbatches in flight */
    uint64_t
        output_bytes; /* to other devices in the forward pass, from them in the backward pass */
    int visits;       /* how often a microbatch comes here in the forward pass */
    int module_count; /* that do something here, other than hold others */
};
#define SHOAL_PLAN_LOAD_INIT                                      \
    {                                                             \
        sizeof(struct shoal_plan_load), 0, 0, 0, 0, 0, 0, 0, 0, 0 \
    }

typedef struct shoal_plan *shoal_plan_t;

/* Cuts a model; copies what it needs. SHOAL_ERR_ARGUMENT and SHOAL_ERR_LIMIT, also where devices'
 * memory is too small, name the module. The same input gives the same plan everywhere. */
SHOAL_API enum shoal_status shoal_plan_create(const struct shoal_plan_options *options,
                                              shoal_plan_t *out);
SHOAL_API enum shoal_status shoal_plan_free(shoal_plan_t plan); /* NULL is allowed */
/* Which device runs the module's own work; -1 if there is no such module. */
SHOAL_API int shoal_plan_device(shoal_plan_t plan, int module);
SHOAL_API enum shoal_status shoal_plan_report(shoal_plan_t plan, struct shoal_plan_report *out);
SHOAL_API enum shoal_status shoal_plan_load(shoal_plan_t plan, int device,
                                            struct shoal_plan_load *out);

/* ---- placements
 * ------------------------------------------------------------------------------------ Ranks have
 * places on three axes: pipeline (P, which part of the model), tensor (T, which slice of each
 * tensor) and data (D, which copy of all that). docs/plan.md. */
struct shoal_placement {
    size_t struct_bytes;  /* sizeof(struct shoal_placement) */
    const char *strategy; /* "cluster" (DPT, also NULL), "spread" (TPD), or another order of D, P
                           * and T, of which the last varies fastest with the rank */
    int size;             /* ranks; a multiple of the product of the degrees */
    int pipeline_degree, tensor_degree;
};
#define SHOAL_PLACEMENT_INIT                          \
    {                                                 \
        sizeof(struct shoal_placement), NULL, 1, 1, 1 \
    }

/* Whose members differ in what. */
enum shoal_placement_group {
    SHOAL_PLACEMENT_WORLD = 0,
    SHOAL_PLACEMENT_MP, /* P and T: one copy of the model */
    SHOAL_PLACEMENT_DP, /* D and T: those with the same part of the pipeline */
    SHOAL_PLACEMENT_PP, /* P */
    SHOAL_PLACEMENT_TP, /* T */
    SHOAL_PLACEMENT_RDP /* D: those with the same parameters */
};

/* The ranks of the group of this kind that `rank` is in, in the order of their numbers there: at
 * most `capacity` into ranks. *count is how many there are, *index which of them `rank` is; both
 * may be NULL. SHOAL_ERR_ARGUMENT if the degrees don't divide the ranks. Any thread. */
SHOAL_API enum shoal_status shoal_placement_group(const struct shoal_placement *placement,
                                                  enum shoal_placement_group kind, int rank,
                                                  int *ranks, int capacity, int *count, int *index);

/* ---- pipelines
 * -------------------------------------------------------------------------------------- A model is
 * cut in chunks that follow each other; each lies on one of several stages (processes). A step
 * brings every microbatch forward through all chunks and backward through them again. A pipeline is
 * the order in which each stage does its share of that: data, made and checked before anything
 * runs, and the same for the same options everywhere. docs/pipeline.md shows the schedules. */

enum shoal_pipeline_kind {
    SHOAL_PIPELINE_SIMPLE = 0,       /* all forwards, then all backwards */
    SHOAL_PIPELINE_INTERLEAVED,      /* a backward that is ready goes before a forward */
    SHOAL_PIPELINE_1F1B,             /* a forward and a backward by turns */
    SHOAL_PIPELINE_INTERLEAVED_1F1B, /* the same with several chunks on each stage */
    /* Backwards in two: the gradient of a chunk's input, and later that of its weights. */
    SHOAL_PIPELINE_ZERO_BUBBLE,
    SHOAL_PIPELINE_ZERO_BUBBLE_V, /* with two chunks on each stage, the second ones in reverse */
    SHOAL_PIPELINE_KIND_COUNT
};

enum shoal_pipeline_work {
    SHOAL_WORK_FORWARD = 0,
    SHOAL_WORK_BACKWARD,       /* both gradients at once */
    SHOAL_WORK_BACKWARD_INPUT, /* the gradient of the chunk's input, which the chunk before needs */
    SHOAL_WORK_BACKWARD_WEIGHT, /* the gradient of its weights; after that of its input */
};

struct shoal_pipeline_operation {
    enum shoal_pipeline_work work;
    int microbatch; /* from 0 */
    int chunk;      /* from 0, of the whole model */
};

/* What one microbatch costs. Arrays have an element for each chunk of the model; a time is 0 to
 * 2^38 ns, a size up to 2^40 bytes. */
struct shoal_pipeline_costs {
    size_t struct_bytes; /* sizeof(struct shoal_pipeline_costs) */
    const int64_t *forward_ns;
    const int64_t *backward_input_ns, *backward_weight_ns; /* a whole backward takes both */
    const uint64_t *activation_bytes;                      /* kept from the forward on; NULL: 0 */
    const uint64_t *weight_input_bytes; /* of these, still kept from the input gradient until the
                                           weight gradient; NULL: all */
    const uint64_t *output_bytes;       /* to the next chunk, and back as gradient; NULL: 0 */
    double bytes_per_ns; /* of the link between two stages, each way; 0: without limit */
    int64_t latency_ns;  /* from the last byte sent to the last one there */
    int transfers_block; /* 1: a stage does nothing else while what it made is carried */
};
#define SHOAL_PIPELINE_COSTS_INIT                                                          \
    {                                                                                      \
        sizeof(struct shoal_pipeline_costs), NULL, NULL, NULL, NULL, NULL, NULL, 0.0, 0, 0 \
    }

struct shoal_pipeline_options {
    size_t struct_bytes; /* sizeof(struct shoal_pipeline_options) */
    enum shoal_pipeline_kind kind;
    int stage_count;      /* 1 to 1024 */
    int microbatch_count; /* 1 to 65536 */
    int chunk_count;      /* of the model; 0: one for each stage, where the kind has several two */
    const int *chunk_stages; /* simple, interleaved: where each chunk lies; every stage has one or
                                more, and a microbatch may come back to a stage. NULL: by turns,
                                0, 1, ..., 0, 1, ... */
    /* interleaved: microbatches under way at most; 0: stages + 2. 1f1b, zero_bubble, zero_bubble_v:
     * microbatches whose activations a stage keeps at most; 0: stages. zero_bubble stands still
     * less with more, up to 2 * stages - 1. Others: 0. */
    int active_microbatches;
    /* interleaved, simple and zero_bubble_v have the order that these times lead to. NULL: chunks
     * are equal, a forward and each half of a backward take the same. */
    const struct shoal_pipeline_costs *costs;
};
#define SHOAL_PIPELINE_OPTIONS_INIT                                                        \
    {                                                                                      \
        sizeof(struct shoal_pipeline_options), SHOAL_PIPELINE_1F1B, 1, 1, 0, NULL, 0, NULL \
    }

typedef struct shoal_pipeline *shoal_pipeline_t;

/* "interleaved-1f1b"; "?" if unknown. */
SHOAL_API const char *shoal_pipeline_name(enum shoal_pipeline_kind kind);
/* Makes the order and proves it right: every microbatch passes every chunk once each way, stages
 * never wait for each other in a circle whatever the times are, and nobody keeps more than allowed.
 * Borrows nothing. SHOAL_ERR_LIMIT beyond 2^22 operations of all stages. */
SHOAL_API enum shoal_status shoal_pipeline_create(const struct shoal_pipeline_options *options,
                                                  shoal_pipeline_t *out);
SHOAL_API enum shoal_status shoal_pipeline_free(shoal_pipeline_t pipeline); /* NULL is allowed */

/* Chunks of the model; -1 for NULL. The stage of one; -1 if there is no such chunk. */
SHOAL_API int shoal_pipeline_chunk_count(shoal_pipeline_t pipeline);
SHOAL_API int shoal_pipeline_chunk_stage(shoal_pipeline_t pipeline, int chunk);
/* Operations of one stage, or with stage -1 of all together; -1 if there is no such stage. */
SHOAL_API int shoal_pipeline_operation_count(shoal_pipeline_t pipeline, int stage);
/* A stage's operations in their order, valid as long as the pipeline; with stage -1 all of them,
 * stage by stage. NULL if there is no such stage. */
SHOAL_API const struct shoal_pipeline_operation *
shoal_pipeline_operations(shoal_pipeline_t pipeline, int stage);

/* When one operation began and ended, and what one stage did, from the beginning of the step. */
struct shoal_pipeline_times {
    int64_t start_ns, end_ns;
};
struct shoal_pipeline_stage {
    int64_t start_ns, end_ns; /* of its first and its last operation */
    int64_t busy_ns;
    int peak_activations; /* of one microbatch in one chunk each */
    uint64_t peak_bytes;
};

struct shoal_pipeline_result {
    size_t struct_bytes; /* sizeof(struct shoal_pipeline_result); returned: how much was filled */
    int64_t step_ns;     /* until the last stage is done */
    int64_t period_ns; /* the longest that a stage takes from its first operation to its last: steps
                          that follow each other need no more, if no stage waits for all between
                          them */
    double bubble;     /* share of the stages' time that they stand still, 0 to 1 */
    int peak_activations; /* of the stage that keeps most */
    uint64_t peak_bytes;  /* likewise */
};
#define SHOAL_PIPELINE_RESULT_INIT                            \
    {                                                         \
        sizeof(struct shoal_pipeline_result), 0, 0, 0.0, 0, 0 \
    }
/* Runs the order in virtual time: a stage takes its operations one after the other, each as soon as
 * its input is there. Links carry one output at a time each way while stages compute. costs NULL:
 * chunks are equal, a forward and each half of a backward take 1000 ns. stages [stage_count] and
 * times [all operations, stage by stage] may be NULL. Any thread; several at once. */
SHOAL_API enum shoal_status shoal_pipeline_simulate(shoal_pipeline_t pipeline,
                                                    const struct shoal_pipeline_costs *costs,
                                                    struct shoal_pipeline_result *out,
                                                    struct shoal_pipeline_stage *stages,
                                                    struct shoal_pipeline_times *times);

/* ---- messages between pipeline stages
 * ------------------------------------------------------------------------------------
 * A model whose modules live on several ranks runs as tasks and values. A task is a piece of work
 * for one rank: start a microbatch, a module's forward or backward. A value is data that some rank
 * will make, such as a module's output, and that others need. Whoever submits a task names the
 * values it needs; each travels from the rank that makes it to the rank that needs it, as soon as
 * both are known, and the task is ready when all of them are there. No rank waits for another to
 * take what it sends. docs/pipe.md has the reasons.
 *
 *     shoal_pipe_promise(pipe, 1, &y);               rank 1 will make y
 *     shoal_pipe_submit(pipe, &forward_on_1);        whose blob says that its result is y
 *     shoal_pipe_submit(pipe, &forward_on_2);        which needs y: it goes from rank 1 to rank 2
 *     shoal_pipe_drop(pipe, y);                      no further task will need y
 *
 * and on each rank, in one thread at a time:
 *
 *     while (shoal_pipe_next(pipe, -1, &task) == SHOAL_OK)
 *         shoal_pipe_value of each need, the work, shoal_pipe_put of what it made,
 *         shoal_pipe_release of each need
 */

typedef struct shoal_pipe *shoal_pipe_t;

#define SHOAL_PIPE_BLOB_MAX    65536   /* bytes of a task's blob, and of a value's descriptor */
#define SHOAL_PIPE_NEEDS_MAX   1024    /* of one task */
#define SHOAL_PIPE_BUFFERS_MAX 1024    /* of one value */
#define SHOAL_PIPE_TASKS_MAX   65536   /* on one rank at a time */
#define SHOAL_PIPE_VALUES_MAX  1048576 /* known to one rank at a time */
#define SHOAL_PIPE_RANKS_MAX   4096

enum shoal_pipe_kind {
    SHOAL_PIPE_CONTROL = 0, /* what the program likes; given first, also outside of a step */
    SHOAL_PIPE_RESUME,      /* goes on with a thread that waits */
    SHOAL_PIPE_BACKWARD,
    SHOAL_PIPE_FORWARD,
    SHOAL_PIPE_START, /* begins a microbatch */
    SHOAL_PIPE_KIND_COUNT
};

/* Which of the tasks that are ready runs next on a rank. Within a kind the lower microbatch goes
 * first, then the one that was submitted first. */
enum shoal_pipe_order {
    SHOAL_PIPE_INTERLEAVED = 0, /* in the order of shoal_pipe_kind: backward before forward */
    SHOAL_PIPE_SIMPLE           /* backward last, and none while a microbatch that has not come as
                                 * far has anything to do here: all forwards, then all backwards */
};

struct shoal_pipe_options {
    size_t struct_bytes; /* sizeof(struct shoal_pipe_options) */
    const char *name;    /* for messages; NULL: "pipe" */
    enum shoal_pipe_order order;
    /* A START task is held while so many microbatches that started on this rank have not ended
     * there; 0: no limit. */
    int active_microbatches;
    int module_count;                /* modules are 0 to module_count-1 */
    const char *const *module_names; /* [module_count] for messages; NULL: by number only */
    /* [module_count] 1: this rank runs the module, 0: not, so a task of it here is an error; NULL:
     * any. May differ between ranks, as little else may. */
    const unsigned char *runs;
    /* A FORWARD task is held if its microbatch is not kept here, and as many are, one of them
     * earlier: a microbatch is kept from its first FORWARD task with `keeps` until it has had as
     * many BACKWARD tasks here, or has ended where it started. 0: no limit. May differ between
     * ranks, too. */
    int kept_microbatches;
};
#define SHOAL_PIPE_OPTIONS_INIT                                                              \
    {                                                                                        \
        sizeof(struct shoal_pipe_options), NULL, SHOAL_PIPE_INTERLEAVED, 0, 0, NULL, NULL, 0 \
    }

/* Collective over `group`, with the same options on every rank, else SHOAL_ERR_MISMATCH on all of
 * them. The pipe has a sub-group of its own: what goes wrong in it breaks the pipe on every rank,
 * and not `group`; a group that breaks takes its pipes along. Pipes are freed before their group.
 * The texts of their errors are shoal_last_error(group)'s. */
SHOAL_API enum shoal_status
shoal_pipe_create(shoal_group_t group, const struct shoal_pipe_options *options, shoal_pipe_t *out);
/* Collective: waits until all ranks free theirs, at most the group's timeout, unless the pipe is
 * broken. Where tasks or values are left over on a rank, the others get SHOAL_ERR_ABORTED. Memory
 * of values that came from another rank must not be used after it. NULL is allowed. */
SHOAL_API enum shoal_status shoal_pipe_free(shoal_pipe_t pipe);

/* Breaks the pipe on all ranks, as when a module's forward has failed: every call on it ends with
 * SHOAL_ERR_ABORTED, `reason` (may be NULL), this rank, and the task that it runs. Returns when the
 * others have been told, so that this process may end, or after a tenth of a second. Any thread. */
SHOAL_API enum shoal_status shoal_pipe_abort(shoal_pipe_t pipe, const char *reason);
/* SHOAL_OK while the pipe works, else the cause. Any thread. */
SHOAL_API enum shoal_status shoal_pipe_health(shoal_pipe_t pipe);

/* ---- values */

/* A new value, which rank `home` will put. This rank is its maker: only the maker may name it as a
 * need, and drops it. *id is unlike any other that lives, on all ranks, and never 0. Any thread; no
 * message. */
SHOAL_API enum shoal_status shoal_pipe_promise(shoal_pipe_t pipe, int home, uint64_t *id);

struct shoal_pipe_buffer {
    const void *data;
    uint64_t bytes;
};

/* A value that is here. */
struct shoal_pipe_value {
    size_t struct_bytes; /* sizeof(struct shoal_pipe_value); returned: how much was filled */
    const void *descriptor;
    size_t descriptor_bytes;
    const struct shoal_pipe_buffer *buffers; /* [buffer_count] each 64-byte aligned */
    int buffer_count;
};
#define SHOAL_PIPE_VALUE_INIT                             \
    {                                                     \
        sizeof(struct shoal_pipe_value), NULL, 0, NULL, 0 \
    }

/* The value's data, on its home: a descriptor of at most SHOAL_PIPE_BLOB_MAX bytes and 0 to
 * SHOAL_PIPE_BUFFERS_MAX buffers. Copies them, once, into memory that the ranks of this host share
 * where others may need it, and returns; the caller's buffers are free again. Once for each value:
 * a second time breaks the pipe. A value that cannot be kept for want of memory breaks it too:
 * SHOAL_ERR_MEMORY. Any thread; does not wait for other ranks. */
SHOAL_API enum shoal_status shoal_pipe_put(shoal_pipe_t pipe, uint64_t id, const void *descriptor,
                                           size_t descriptor_bytes,
                                           const struct shoal_pipe_buffer *buffers,
                                           int buffer_count);
/* A view of a value that is here: put here, or a need of a task that shoal_pipe_next has given.
 * Not to be written: other ranks of the host may look at the same memory. It holds until the last
 * need of it here is released and its maker has dropped it. SHOAL_ERR_STATE if it is not here. Any
 * thread. */
SHOAL_API enum shoal_status shoal_pipe_value(shoal_pipe_t pipe, uint64_t id,
                                             struct shoal_pipe_value *out);
/* Lets go of one need of a task that shoal_pipe_next has given; each need of each task is released
 * once. Any thread. */
SHOAL_API enum shoal_status shoal_pipe_release(shoal_pipe_t pipe, uint64_t id);
/* By its maker: no further task will need it. Tasks that were submitted before still get it; when
 * the last of them has released it, it is gone everywhere, also where it was not yet put. Any
 * thread. */
SHOAL_API enum shoal_status shoal_pipe_drop(shoal_pipe_t pipe, uint64_t id);

/* ---- tasks */

struct shoal_pipe_task {
    size_t struct_bytes; /* sizeof(struct shoal_pipe_task) */
    int rank;            /* submit: which is to run it; next: which has submitted it */
    enum shoal_pipe_kind kind;
    int module;     /* 0 to module_count-1, or -1: none */
    int microbatch; /* 0 or more */
    const void *blob;
    size_t blob_bytes;     /* 0 to SHOAL_PIPE_BLOB_MAX */
    const uint64_t *needs; /* [need_count] values */
    int need_count;        /* 0 to SHOAL_PIPE_NEEDS_MAX */
    int keeps;             /* 1: a FORWARD that keeps memory until a BACKWARD */
};
#define SHOAL_PIPE_TASK_INIT                                                              \
    {                                                                                     \
        sizeof(struct shoal_pipe_task), 0, SHOAL_PIPE_CONTROL, -1, 0, NULL, 0, NULL, 0, 0 \
    }

/* Gives the task to its rank, this one or another. What it points to is copied. A rank's tasks for
 * one other rank come there in the order in which they were submitted. Any thread; does not wait
 * for other ranks. */
SHOAL_API enum shoal_status shoal_pipe_submit(shoal_pipe_t pipe,
                                              const struct shoal_pipe_task *task);
/* The next task to run on this rank, by the order; what it points to holds until the next call. The
 * task that was given before counts as ended. Waits: timeout_ms at most, then SHOAL_IN_PROGRESS;
 * timeout_ms < 0: for as long as it takes. But if a task waits longer than the group's timeout for
 * a value, counted from this rank's last task, the pipe breaks: SHOAL_ERR_TIMEOUT with the task,
 * the value, its home, and what that rank is doing. So it does, in a step, where nothing is here
 * for that long while another rank does not answer, is in no step, or runs one task for nearly as
 * long. Tasks other than CONTROL are given only in a step. One thread at a time, else
 * SHOAL_ERR_STATE. */
SHOAL_API enum shoal_status shoal_pipe_next(shoal_pipe_t pipe, int64_t timeout_ms,
                                            struct shoal_pipe_task *out);
/* The microbatch of the task that runs, which started on this rank, has ended: one more may start,
 * and no rank keeps anything of it. */
SHOAL_API enum shoal_status shoal_pipe_microbatch_end(shoal_pipe_t pipe);

/* Begins a step on this rank; tasks may have come before. */
SHOAL_API enum shoal_status shoal_pipe_step_begin(shoal_pipe_t pipe);
/* Ends it. Collective: waits until all ranks have called it, at most the group's timeout. Nothing
 * may be left to be done: a task that was not taken, or a value that was dropped and not put,
 * breaks the pipe, SHOAL_ERR_STATE, and is named. Values that are held (not dropped by their maker,
 * or not released) live on. */
SHOAL_API enum shoal_status shoal_pipe_step_end(shoal_pipe_t pipe);

/* ---- what a rank has done in a pipe since it was made */

struct shoal_pipe_counters {
    size_t struct_bytes; /* sizeof(struct shoal_pipe_counters); returned: how much was filled */
    uint64_t steps;      /* ended */
    uint64_t tasks[SHOAL_PIPE_KIND_COUNT]; /* given by shoal_pipe_next */
    uint64_t values;                       /* put */
    uint64_t messages;                     /* sent to other ranks */
    uint64_t shared_bytes;  /* of values, to ranks of this host through shared memory */
    uint64_t message_bytes; /* of values, in messages */
    uint64_t waited_ns;     /* in shoal_pipe_next with nothing ready: the bubble */
    uint64_t tasks_deepest; /* most tasks that were here at a time */
    uint64_t values_most;   /* most values known here at a time */
    uint64_t kept_bytes;    /* of values that were put here and are still kept */
    uint64_t kept_most;     /* most of them at a time */
};
#define SHOAL_PIPE_COUNTERS_INIT                                                          \
    {                                                                                     \
        sizeof(struct shoal_pipe_counters), 0, {0, 0, 0, 0, 0}, 0, 0, 0, 0, 0, 0, 0, 0, 0 \
    }
/* Any thread; does not block. */
SHOAL_API enum shoal_status shoal_pipe_counters(shoal_pipe_t pipe, struct shoal_pipe_counters *out);

/* One task as it ran on this rank; CLOCK_MONOTONIC in ns. */
struct shoal_pipe_run {
    int64_t begin_ns, end_ns; /* end_ns 0: it runs */
    enum shoal_pipe_kind kind;
    int module, microbatch;
};
/* The tasks that ran here in the step under way, or else in the last one, in their order: at most
 * the first `capacity` of them. *count: how many there are (the first 65536 of a step are kept).
 * Any thread. */
SHOAL_API enum shoal_status shoal_pipe_timeline(shoal_pipe_t pipe, struct shoal_pipe_run *runs,
                                                int capacity, int *count);

/* In each later step this rank runs exactly these tasks, in this order (kind, module, microbatch;
 * times are not read): those of a step's shoal_pipe_timeline, or of a schedule. It waits for the
 * next one of the list, whatever else is ready; active_microbatches and the pipe's order don't hold
 * what is listed. Kinds that the list does not have, and CONTROL, are given as without it, first. A
 * list that can't go on for the group's timeout breaks the pipe, SHOAL_ERR_TIMEOUT, with what it
 * has come to and what is ready instead; so does one that a step does not come to the end of,
 * SHOAL_ERR_STATE. count 0: no list any more. Lists are this rank's own; between steps. */
SHOAL_API enum shoal_status shoal_pipe_list(shoal_pipe_t pipe, const struct shoal_pipe_run *runs,
                                            int count);

#ifdef __cplusplus
}
#endif

#endif
