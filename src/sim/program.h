/* SPDX-License-Identifier: Apache-2.0 */
/*
 * program.h: the schedules of all ranks, packed for simulation.
 *
 * Most algorithms do the same on every host: turn the numbers of the hosts by one (ring, direct
 * exchanges), or flip a bit in all of them (halving, doubling), and every rank does what another
 * one did, step for step. Then the programs of the first host's ranks stand for all; peers are
 * turned or flipped likewise. So 4,096 ranks need the memory of a few; and where the platform too
 * is the same for all hosts, simulating one host is simulating all of them.
 *
 * That an algorithm has such a symmetry is not claimed but looked for: the programs of eight other
 * hosts, the last and some between, are compared step for step with what they should be. The tests
 * compare all hosts, up to 64. Some algorithms (two_level) have the same messages everywhere but
 * make their parts in another order; then the first host stands for the others nearly, not exactly.
 */
#ifndef SHOAL_SIM_PROGRAM_H
#define SHOAL_SIM_PROGRAM_H

#include <stdbool.h>
#include <stdint.h>

#include "coll/coll.h"
#include "comm/schedule.h"

struct sim_step {
    enum step_kind kind;
    int peer;                          /* of messages */
    uint32_t message;                  /* number of this message between the pair, this direction */
    uint32_t partner;                  /* of messages: the step at the other end */
    uint32_t after_first, after_count; /* in edges: steps that wait for this one */
    uint32_t wait_count;
    double bytes; /* of the message or copy; of a reduce: of all its sources */
};

struct sim_program {
    struct sim_step *steps;
    uint32_t *edges;
    uint32_t step_count, edge_count;
};

enum sim_symmetry { SIM_NONE, SIM_TURN, SIM_FLIP };

struct sim_programs {
    int size, host_count;
    int server_count; /* of size, the last ones */
    int *host_of;     /* [size] */
    int ranks_per_host;
    enum sim_symmetry symmetry; /* SIM_NONE: one program per rank; else per rank of host 0 */
    bool exact;                 /* the hosts' steps also wait for each other alike */
    struct sim_program *programs;
    int program_count;
    const char *algorithm;
    uint64_t step_count;   /* of all ranks together */
    uint64_t messages_max; /* sent by one rank */
};

/* The programs of an algorithm for a shape whose rank is ignored; its hosts have equally many
 * ranks, which are numbered host by host. `symmetric`: look for a symmetry first; without one, and
 * with more steps than memory is meant for, SHOAL_ERR_LIMIT. */
enum shoal_status sim_programs_create(const struct coll_algorithm *algorithm,
                                      const struct coll_shape *shape, bool symmetric,
                                      struct sim_programs **out);
/* Of schedules that exist; hosts may have any number of ranks. */
enum shoal_status sim_programs_pack(const struct coll_shape *shape,
                                    struct schedule *const *schedules, struct sim_programs **out);
void sim_programs_free(struct sim_programs *programs);

static inline const struct sim_program *sim_program_of(const struct sim_programs *programs,
                                                       int rank)
{
    bool each = programs->symmetry == SIM_NONE;
    return &programs->programs[each ? rank : rank % programs->ranks_per_host];
}

/* The rank that `rank` sends to, or receives from, where its program says `peer`. */
static inline int sim_peer(const struct sim_programs *programs, int rank, int peer)
{
    int each = programs->ranks_per_host;
    if (programs->symmetry == SIM_NONE)
        return peer;
    int turned = peer / each + rank / each;
    if (programs->symmetry == SIM_FLIP)
        turned = (peer / each) ^ (rank / each);
    else if (turned >= programs->host_count)
        turned -= programs->host_count;
    return turned * each + peer % each;
}

#endif
