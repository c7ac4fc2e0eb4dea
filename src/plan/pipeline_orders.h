/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pipeline_orders.h: the families of schedules. Each writes the operations of all stages into a
 * pipeline that is complete but for them.
 */
#ifndef SHOAL_PLAN_PIPELINE_ORDERS_H
#define SHOAL_PLAN_PIPELINE_ORDERS_H

#include "plan/pipeline.h"

/* simple, interleaved and zero-bubble-v follow a rule, in the given times. As plan_clock_run. */
enum shoal_status plan_order_ready(struct plan_pipeline *pipeline,
                                   const struct shoal_pipeline_costs *costs);
enum shoal_status plan_order_zero_bubble_v(struct plan_pipeline *pipeline,
                                           const struct shoal_pipeline_costs *costs);
/* 1f1b, interleaved-1f1b and zero-bubble don't depend on times. */
void plan_order_1f1b(struct plan_pipeline *pipeline);
void plan_order_interleaved_1f1b(struct plan_pipeline *pipeline);
void plan_order_zero_bubble(struct plan_pipeline *pipeline);

/* How many forwards a stage begins with before its first backward is due. */
int plan_warm_up_interleaved_1f1b(const struct plan_pipeline *pipeline, int stage);

#endif
