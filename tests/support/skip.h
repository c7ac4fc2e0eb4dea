/* SPDX-License-Identifier: Apache-2.0 */
/* skip.h: a test that can't run here, and says why. After cmocka.h. */
#ifndef SHOAL_TESTS_SKIP_H
#define SHOAL_TESTS_SKIP_H

/* Ends the test as skipped. The reason is a format and what belongs to it. */
#define skip_because(...)           \
    do {                            \
        print_message("skipped: "); \
        print_message(__VA_ARGS__); \
        print_message("\n");        \
        skip();                     \
    } while (0)

#endif
