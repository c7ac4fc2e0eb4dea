/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bench_roof.c: measures roofs with the rounds of bench_measure.c, by giving it "libraries" whose
 * one operation is a copy, an exchange of flags, or raw sockets.
 *
 * The copy: an operation that must load L and store S bytes over all p ranks is matched by p copies
 * of (L + S) / 2p bytes each; where p ranks share c < p cores, each time is one of p / c turns. The
 * flags: every rank writes 8 bytes beside a number that counts up, in a cache line of its own, and
 * waits for the lines of all others; two sets of lines take turns, so no rank overwrites what
 * another still reads. Their shortest round counts, for whoever loses its core for a moment tells
 * nothing of the hardware. With more ranks than cores the waiting yields at once.
 */
#include "bench_roof.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/memory.h"
#include "base/shared.h"
#include "base/status.h"
#include "base/wait.h"
#include "bench_wire.h"

#define STREAMS_FROM_BYTES (256 * 1024) /* below, one stream per peer */
#define PAUSES             2000         /* some tens of microseconds */
#define SWEEP_FROM_BYTES   (1024 * 1024)

struct flag_line {
    _Alignas(64) atomic_uint_fast64_t number;
    uint64_t payload;
};

/* The forms in which bytes go between hosts. */
enum wire_form {
    WIRE_DIRECT,     /* everybody sends everything to everybody: one round */
    WIRE_SHARDED,    /* one part for each host, to it and back: two rounds */
    WIRE_PARTS,      /* one part for each host: one round */
    WIRE_ROOT_ALL,   /* the first host sends everything to the second */
    WIRE_ROOT_PARTS, /* the first host sends one part to each */
    WIRE_PING_PONG   /* 8 bytes to the second host and back */
};

struct bench_roof {
    const struct bench_library *library;
    shoal_group_t group;
    struct bench_wire *wire; /* NULL: one host */
    struct bench_flow *flows;
    enum wire_form form; /* of the measurement that runs, and its streams */
    int streams;
    int best_streams; /* 0: not known yet */
    double pingpong_us;
    struct base_shared shared; /* the flags */
    struct flag_line *lines;   /* [2 * size], NULL: none */
    uint64_t number;
    int cores;
    int pause_count; /* before yielding */
    double flags_us;
};

/* ---- a raw operation in the clothes of a library
 * --------------------------------------------------- */

static int meet(void *user)
{
    const struct bench_roof *roof = user;
    return roof->library->barrier(roof->library->user);
}

static int take_maximum(void *user, double *values, size_t count)
{
    const struct bench_roof *roof = user;
    return roof->library->maximum(roof->library->user, values, count);
}

static int allocate(void *user, size_t bytes, void **out)
{
    (void)user;
    if (base_alloc(bytes, "the roof's buffers", out) == SHOAL_OK)
        return 0;
    fprintf(stderr, "shoal bench: %s\n", base_error_text());
    return -1;
}

static void release(void *user, void *memory)
{
    (void)user;
    base_free(memory);
}

/* Time of run(bytes), the slowest rank's each round: the median of the rounds, or the shortest. */
static enum shoal_status time_raw(struct bench_roof *roof, const struct bench_settings *settings,
                                  int (*run)(void *, const struct bench_call *), uint64_t bytes,
                                  bool shortest, double *out_us)
{
    struct bench_library raw = *roof->library;
    struct bench_settings raw_settings = BENCH_SETTINGS_INIT;
    struct bench_result result;
    raw.user = roof;
    raw.run = run;
    raw.barrier = meet;
    raw.maximum = take_maximum;
    raw.allocate = allocate;
    raw.release = release;
    raw_settings.dtype = BENCH_U8;
    raw_settings.check = false;
    raw_settings.size_ms = settings->size_ms / 4 + 10;
    if (bench_measure(&raw, &raw_settings, bytes, &result) != 0)
        return base_error(SHOAL_ERR_SYSTEM, "measuring the roof failed");
    *out_us = shortest ? result.min_us : result.p50_us;
    return SHOAL_OK;
}

/* ---- memory
 * ------------------------------------------------------------------------------------------ */

static int run_copy(void *user, const struct bench_call *call)
{
    (void)user;
    memcpy(call->out, call->in, call->count);
    return 0;
}

/* (loads + stores) / 2p that the operation can't avoid: every input read once, every output written
 * once. `bytes` is the larger buffer of a rank. */
static uint64_t copy_bytes(enum bench_operation operation, uint64_t bytes, int ranks)
{
    uint64_t p = (uint64_t)ranks;
    switch (operation) {
    case BENCH_ALLREDUCE:
    case BENCH_ALLTOALL: return bytes;
    case BENCH_ALLGATHER:
    case BENCH_REDUCE_SCATTER:
    case BENCH_REDUCE: return bytes * (p + 1) / (2 * p);
    case BENCH_BROADCAST: return bytes / 2;
    case BENCH_GATHER:
    case BENCH_SCATTER: return bytes / p;
    default: return 0;
    }
}

/* Where the first rank of a host keeps the flags. */
struct flags_place {
    int32_t host, local_rank, pid, fd;
};

static int run_flags(void *user, const struct bench_call *call)
{
    struct bench_roof *roof = user;
    int size = roof->library->size;
    (void)call;
    uint64_t number = ++roof->number;
    struct flag_line *lines = roof->lines + (size_t)size * (number & 1);
    struct flag_line *own = &lines[roof->library->rank];
    own->payload = number + (uint64_t)roof->library->rank;
    atomic_store_explicit(&own->number, number, memory_order_release);
    for (int rank = 0; rank < size; rank++) {
        for (int tries = 0;
             atomic_load_explicit(&lines[rank].number, memory_order_acquire) < number; tries++) {
            if (tries > roof->pause_count)
                sched_yield();
            else
                base_pause();
        }
        if (lines[rank].payload != number + (uint64_t)rank)
            return -1;
    }
    return 0;
}

/* Maps the flags of the host's first rank. */
static enum shoal_status map_flags(struct bench_roof *roof, const struct flags_place *places)
{
    char path[64];
    const struct flags_place *place = places;
    while (place->local_rank != 0)
        place++;
    snprintf(path, sizeof(path), "/proc/%d/fd/%d", (int)place->pid, (int)place->fd);
    int fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd < 0)
        return base_error_errno(SHOAL_ERR_SYSTEM, errno, "opening the roof's flags at %s", path);
    return base_shared_map(fd, &roof->shared);
}

/* Shares one page of flags between the ranks of a single host. */
static enum shoal_status share_flags(struct bench_roof *roof, struct flags_place *places)
{
    int size = roof->library->size;
    size_t bytes = sizeof(struct flag_line) * 2 * (size_t)size;
    struct flags_place own = {
        .local_rank = shoal_group_local_rank(roof->group), .pid = (int32_t)getpid(), .fd = -1};
    enum shoal_status status = SHOAL_OK;
    if (own.local_rank == 0) {
        status = base_shared_create("bench flags", bytes, BASE_FORK_DROPS, &roof->shared);
        if (status == SHOAL_OK)
            status = base_shared_commit(&roof->shared, 0, bytes);
        own.fd = status == SHOAL_OK ? roof->shared.fd : -1;
    }
    if (shoal_allgather(&own, places, sizeof(own), SHOAL_U8, roof->group, NULL) != SHOAL_OK)
        return base_error(SHOAL_ERR_SYSTEM, "%s", shoal_last_error(roof->group));
    if (status == SHOAL_OK && own.local_rank != 0)
        status = map_flags(roof, places);
    double failed = status != SHOAL_OK;
    if (roof->library->maximum(roof->library->user, &failed, 1) != 0)
        return base_error(SHOAL_ERR_SYSTEM, "%s", shoal_last_error(roof->group));
    if (failed == 0)
        roof->lines = roof->shared.address;
    return status;
}

static enum shoal_status flags_create(struct bench_roof *roof)
{
    struct flags_place *places;
    TRY(BASE_NEW_ARRAY(&places, roof->library->size, "the roof's flags"));
    roof->pause_count = roof->cores < roof->library->size ? 0 : PAUSES;
    enum shoal_status status = share_flags(roof, places);
    base_free(places);
    return status;
}

static enum shoal_status measure_memory(struct bench_roof *roof,
                                        const struct bench_settings *settings,
                                        struct bench_result *result)
{
    uint64_t bytes = copy_bytes(settings->operation, result->bytes, roof->library->size);
    double copy_us = 0;
    if (roof->lines != NULL && roof->flags_us == 0)
        TRY(time_raw(roof, settings, run_flags, 8, true, &roof->flags_us));
    if (bytes > 0)
        TRY(time_raw(roof, settings, run_copy, bytes, false, &copy_us));
    if (roof->cores < roof->library->size)
        copy_us *= (double)roof->library->size / roof->cores;
    bool copies = copy_us > roof->flags_us;
    result->roof_us = copies ? copy_us : roof->flags_us;
    if (copies)
        snprintf(result->roof, sizeof(result->roof), "%d copies of %llu bytes at once",
                 roof->library->size, (unsigned long long)bytes);
    else
        snprintf(result->roof, sizeof(result->roof), "8 bytes through shared flags");
    return SHOAL_OK;
}

/* ---- the wire
 * ---------------------------------------------------------------------------------------- */

/* Fills the flows of one round: `bytes` from each end of a pair, at the peer's part of the buffers.
 */
static void flows_between_all(struct bench_roof *roof, const struct bench_call *call,
                              uint64_t bytes, bool parts)
{
    for (int host = 0; host < roof->library->hosts; host++) {
        uint64_t at = parts ? bytes * (uint64_t)host : 0;
        roof->flows[host] = (struct bench_flow){.send = (const unsigned char *)call->in + at,
                                                .receive = (unsigned char *)call->out + at,
                                                .send_bytes = bytes,
                                                .receive_bytes = bytes};
    }
}

/* Flows from the host `from` to hosts first to last alone. */
static void flows_from_one(struct bench_roof *roof, const struct bench_call *call, int from,
                           int first, int last, uint64_t bytes)
{
    int own = shoal_group_host(roof->group);
    flows_between_all(roof, call, 0, false);
    for (int host = first; host <= last; host++) {
        if (own == from)
            roof->flows[host].send_bytes = bytes;
        else if (own == host)
            roof->flows[from].receive_bytes = bytes;
    }
}

static int exchange(struct bench_roof *roof)
{
    if (bench_wire_exchange(roof->wire, roof->flows, roof->streams) == SHOAL_OK)
        return 0;
    fprintf(stderr, "shoal bench: rank %d: %s\n", roof->library->rank, base_error_text());
    return -1;
}

static int run_wire(void *user, const struct bench_call *call)
{
    struct bench_roof *roof = user;
    int hosts = roof->library->hosts;
    uint64_t part = call->count / (uint64_t)hosts;
    switch (roof->form) {
    case WIRE_DIRECT: flows_between_all(roof, call, call->count, false); break;
    case WIRE_SHARDED:
        flows_between_all(roof, call, part, true);
        if (exchange(roof) != 0)
            return -1;
        break;
    case WIRE_PARTS: flows_between_all(roof, call, part, true); break;
    case WIRE_ROOT_ALL: flows_from_one(roof, call, 0, 1, 1, call->count); break;
    case WIRE_ROOT_PARTS: flows_from_one(roof, call, 0, 1, hosts - 1, part); break;
    case WIRE_PING_PONG:
        flows_from_one(roof, call, 0, 1, 1, 8);
        if (exchange(roof) != 0)
            return -1;
        flows_from_one(roof, call, 1, 0, 0, 8);
        break;
    }
    return exchange(roof);
}

/* Times one form with the streams that are best for the size, as found when first needed. */
static enum shoal_status time_form(struct bench_roof *roof, const struct bench_settings *settings,
                                   enum wire_form form, uint64_t bytes, double *out_us)
{
    bool sweeps = bytes >= SWEEP_FROM_BYTES && roof->best_streams == 0;
    roof->form = form;
    roof->streams = 1;
    if (!sweeps && bytes >= STREAMS_FROM_BYTES && roof->best_streams > 0)
        roof->streams = roof->best_streams;
    TRY(time_raw(roof, settings, run_wire, bytes, false, out_us));
    if (!sweeps)
        return SHOAL_OK;
    roof->best_streams = 1;
    for (int streams = 2; streams <= BENCH_STREAMS_MAX; streams *= 2) {
        double time_us = 0;
        roof->streams = streams;
        TRY(time_raw(roof, settings, run_wire, bytes, false, &time_us));
        if (time_us < *out_us) {
            *out_us = time_us;
            roof->best_streams = streams;
        }
    }
    return SHOAL_OK;
}

struct wire_choice {
    enum wire_form form;
    const char *name;
    uint64_t bytes; /* of the buffers that the form cuts up */
};

/* The forms that can be the fastest for an operation; returns their number. With several ranks on
 * a host, what they send to another host goes as one piece. */
static int choose_forms(const struct bench_roof *roof, enum bench_operation operation,
                        uint64_t bytes, struct wire_choice choices[2])
{
    uint64_t ranks_on_host = (uint64_t)(roof->library->size / roof->library->hosts);
    choices[0] = (struct wire_choice){WIRE_PARTS, "one part for each host", bytes};
    choices[1] = (struct wire_choice){WIRE_SHARDED, "one part for each host, and back", bytes};
    switch (operation) {
    case BENCH_BARRIER:
        choices[0] = (struct wire_choice){WIRE_DIRECT, "8 bytes to every host", 8};
        return 1;
    case BENCH_ALLREDUCE:
        choices[0] = (struct wire_choice){WIRE_DIRECT, "everything to every host", bytes};
        return 2;
    case BENCH_BROADCAST:
    case BENCH_REDUCE:
        choices[0] = (struct wire_choice){WIRE_ROOT_ALL, "everything to one host", bytes};
        return 1;
    case BENCH_GATHER:
    case BENCH_SCATTER:
        choices[0] =
            (struct wire_choice){WIRE_ROOT_PARTS, "one part for each host from one", bytes};
        return 1;
    case BENCH_ALLTOALL:
        choices[0].bytes = bytes * (ranks_on_host > 0 ? ranks_on_host : 1);
        return 1;
    default: return 1;
    }
}

static enum shoal_status measure_wire(struct bench_roof *roof,
                                      const struct bench_settings *settings,
                                      struct bench_result *result)
{
    struct wire_choice choices[2];
    int count = choose_forms(roof, settings->operation, result->bytes, choices);
    if (roof->pingpong_us == 0) {
        roof->form = WIRE_PING_PONG;
        roof->streams = 1;
        TRY(time_raw(roof, settings, run_wire, 8, false, &roof->pingpong_us));
    }
    result->pingpong_us = roof->pingpong_us / 2;
    for (int i = 0; i < count; i++) {
        double time_us = 0;
        /* Sending all to all costs at least as much as the parts from two hosts on. */
        if (choices[i].form == WIRE_DIRECT && choices[i].bytes > STREAMS_FROM_BYTES &&
            roof->library->hosts > 2)
            continue;
        TRY(time_form(roof, settings, choices[i].form, choices[i].bytes, &time_us));
        if (result->roof_us > 0 && time_us >= result->roof_us)
            continue;
        result->roof_us = time_us;
        snprintf(result->roof, sizeof(result->roof), "sockets, %s, %d streams", choices[i].name,
                 roof->streams == 1 ? 1 : roof->best_streams);
    }
    return SHOAL_OK;
}

/* ---- both
 * --------------------------------------------------------------------------------------------- */

static enum shoal_status roof_prepare(struct bench_roof *roof)
{
    if (roof->library->hosts == 1)
        return roof->library->size > 1 ? flags_create(roof) : SHOAL_OK;
    TRY(BASE_NEW_ARRAY(&roof->flows, roof->library->hosts, "the roof's flows"));
    return bench_wire_create(roof->group, &roof->wire);
}

enum shoal_status bench_roof_create(const struct bench_library *library, shoal_group_t group,
                                    struct bench_roof **out)
{
    struct bench_roof *roof;
    TRY(BASE_NEW(&roof, "the roof"));
    roof->library = library;
    roof->group = group;
    roof->shared.fd = -1;
    roof->cores = base_cores_granted();
    enum shoal_status status = roof_prepare(roof);
    if (status != SHOAL_OK) {
        bench_roof_free(roof);
        return status;
    }
    *out = roof;
    return SHOAL_OK;
}

enum shoal_status bench_roof_measure(struct bench_roof *roof, const struct bench_settings *settings,
                                     struct bench_result *result)
{
    return roof->wire != NULL ? measure_wire(roof, settings, result)
                              : measure_memory(roof, settings, result);
}

void bench_roof_free(struct bench_roof *roof)
{
    if (roof == NULL)
        return;
    bench_wire_free(roof->wire);
    base_shared_release(&roof->shared);
    base_free(roof->flows);
    base_free(roof);
}
