/* SPDX-License-Identifier: Apache-2.0 */
/* An allreduce in ten lines: shoal run -n 4 build/release/examples/allreduce */
#include <shoal.h>
#include <stdio.h>

int main(void)
{
    shoal_group_t group;
    if (shoal_group_create(NULL, &group) != SHOAL_OK)
        return fprintf(stderr, "%s\n", shoal_last_error(NULL)), 1;
    float values[4] = {1, 2, 3, (float)shoal_group_rank(group)};
    if (shoal_allreduce(values, values, 4, SHOAL_F32, SHOAL_SUM, group, NULL) != SHOAL_OK)
        return fprintf(stderr, "%s\n", shoal_last_error(group)), 1;
    printf("%g %g %g %g\n", values[0], values[1], values[2], values[3]);
    return shoal_group_free(group) != SHOAL_OK;
}
