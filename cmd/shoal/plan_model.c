/* SPDX-License-Identifier: Apache-2.0 */
/* plan_model.c: `shoal plan-model`: what a model that is cut over several processes will do. */
#include "plan_model_pipeline.h"

int cmd_plan_model(int argc, char **argv);

int cmd_plan_model(int argc, char **argv)
{
    return plan_model_stages(argc, argv);
}
