/* SPDX-License-Identifier: Apache-2.0 */
/*
 * direct.h: operations on buffers from shoal_alloc, which peers read and write where they lie.
 *
 * A rank whose buffers allow it offers them in its stamp instead of staging the first block. If all
 * ranks offer, each does its part on everybody's buffers: sums its slice of all inputs into all
 * outputs, or copies what it needs; then it publishes `reduced`, and the operation is over for a
 * rank when all have. If one does not offer, the operation goes through the stages: those that
 * offered put their first block then, and publish `staged`.
 *
 * Invariants
 *  1. Whether an operation can be offered depends on the call alone, so all ranks agree that stamps
 *     are to be read as answers.
 *  2. While a rank touches others' memory its `working` is set, and it looks for a failure after it
 *     set it. A rank that fails writes its failure first and then waits for all `working` to end;
 *     so memory is the caller's own again when the call returns, also with an error.
 */
#ifndef SHOAL_LOCAL_DIRECT_H
#define SHOAL_LOCAL_DIRECT_H

#include "local/slot.h"

/* Fills offerable and offers; after the layout. */
void local_direct_consider(struct local_op *op);
/* Writes the offer, or that there is none, into the stamp of the first block. */
void local_direct_answer(const struct local_op *op, struct local_stamp *stamp);
/* Whether that rank's stamp, which was seen, offers its buffers. */
bool local_direct_offered(const struct local_op *op, int rank);
/* This rank's part of the operation; all ranks have offered. Stops early, and
 * says so in op->stopped, if the group fails. */
void local_direct_work(struct local_op *op);
/* After a failure: returns when no peer touches this rank's memory any more. A peer that stands
 * still for long (it was stopped) may do so later; then the region keeps what is freed. */
void local_direct_quiesce(const struct local_op *op);

#endif
