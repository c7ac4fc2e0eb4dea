/* SPDX-License-Identifier: Apache-2.0 */
/* isa_test.c: option SHOAL_ISA at first use, each value in a process of its own. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/options.h"
#include "kernel/form.h"

/* Whether a new process with SHOAL_ISA=value (NULL: unset) uses `expected`. */
static bool child_uses(const char *value, const char *expected)
{
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        if (value == NULL ? unsetenv("SHOAL_ISA") : setenv("SHOAL_ISA", value, 1)) {
            _exit(2);
        }
        base_options_reset();
        _exit(strcmp(kernel_isa(), expected) == 0 ? 0 : 1);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

static const char *best(void)
{
    const char *name = NULL;
    for (const struct kernel_form *form = kernel_forms; form->name != NULL; form++) {
        name = form->supported() ? form->name : name;
    }
    return name;
}

static void the_option_names_the_form(void **state)
{
    (void)state;
    for (const struct kernel_form *form = kernel_forms; form->name != NULL; form++) {
        assert_true(child_uses(form->name, form->supported() ? form->name : best()));
    }
}

static void the_best_is_the_default(void **state)
{
    (void)state;
    assert_true(child_uses(NULL, best()));
    assert_false(child_uses(NULL, "scalar"));
}

static void an_unknown_name_falls_back_to_the_best(void **state)
{
    (void)state;
    assert_true(child_uses("sse9", best()));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_option_names_the_form),
        cmocka_unit_test(the_best_is_the_default),
        cmocka_unit_test(an_unknown_name_falls_back_to_the_best),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
