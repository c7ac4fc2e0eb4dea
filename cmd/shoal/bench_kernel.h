/* SPDX-License-Identifier: Apache-2.0 */
/* bench_kernel.h: `shoal bench kernel`. */
#ifndef SHOAL_CMD_BENCH_KERNEL_H
#define SHOAL_CMD_BENCH_KERNEL_H

/* argv[0] is "kernel". Returns the exit status. */
int bench_kernel(int argc, char **argv);

#endif
