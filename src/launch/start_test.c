/* SPDX-License-Identifier: Apache-2.0 */
/* start_test.c: what a start needs: agent commands, environments, programs, addresses. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/memory.h"
#include "base/status.h"
#include "launch/agent_command.h"
#include "launch/process.h"
#include "launch/reach.h"
#include "launch/survey.h"
#include "launch/variables.h"

static void expect_command_of(const char *shoal, const char *pattern, const char *description)
{
    struct launch_agent_command command;
    char text[256];
    assert_int_equal(launch_agent_command_make(pattern, "h 1", shoal, &command), SHOAL_OK);
    *text = '\0';
    for (int i = 0; i < command.count; i++)
        snprintf(text + strlen(text), sizeof(text) - strlen(text), "<%s>", command.words[i]);
    assert_null(command.words[command.count]);
    assert_string_equal(text, description);
    launch_agent_command_release(&command);
}

static void expect_command(const char *pattern, const char *description)
{
    expect_command_of("/bin/shoal", pattern, description);
}

static void agent_commands_are_split_like_a_shell(void **state)
{
    struct launch_agent_command command;
    (void)state;
    expect_command("ssh {host}", "<ssh><h 1></bin/shoal><run-agent>");
    expect_command("  ssh  -o 'A B' me@{host}:{host} ",
                   "<ssh><-o><A B><me@h 1:h 1></bin/shoal><run-agent>");
    expect_command("a\\ b \"c '{host}'\" ''", "<a b><c 'h 1'><></bin/shoal><run-agent>");
    expect_command(NULL, "</bin/shoal><run-agent>");
    assert_int_equal(launch_agent_command_make("ssh", "h", "s", &command), SHOAL_ERR_OPTION);
    assert_int_equal(launch_agent_command_make("'{host}", "h", "s", &command), SHOAL_ERR_OPTION);
    assert_int_equal(base_memory_blocks(), 0);
}

static void the_shell_behind_ssh_gets_a_quoted_path(void **state)
{
    (void)state;
    expect_command_of("/a b/it's$x", "ssh {host}", "<ssh><h 1></a\\ b/it\\'s\\$x><run-agent>");
    expect_command_of("/a b", "/usr/bin/ssh {host}", "</usr/bin/ssh><h 1></a\\ b><run-agent>");
    expect_command_of("~/é+-_.,:@%=1", "ssh {host}", "<ssh><h 1><~/é+-_.,:@%=1><run-agent>");
    expect_command_of("/a b", "notssh {host}", "<notssh><h 1></a b><run-agent>");
    expect_command_of("/a b", NULL, "</a b><run-agent>");
    assert_int_equal(base_memory_blocks(), 0);
}

static void variables_replace_and_travel(void **state)
{
    struct launch_variables variables = {0};
    (void)state;
    for (int i = 0; i < 200; i++) {
        char name[16];
        snprintf(name, sizeof(name), "N%d", i % 100);
        assert_int_equal(launch_variables_set_number(&variables, name, i), SHOAL_OK);
    }
    assert_int_equal(variables.count, 100);
    assert_null(variables.entries[100]);
    assert_string_equal(launch_variables_get(&variables, "N7"), "107");
    assert_null(launch_variables_get(&variables, "N"));
    assert_int_equal(launch_variables_put(&variables, "N7=a=b"), SHOAL_OK);
    assert_string_equal(launch_variables_get(&variables, "N7"), "a=b");
    assert_int_equal(launch_variables_put(&variables, "novalue"), SHOAL_ERR_ARGUMENT);
    launch_variables_release(&variables);
    assert_true(launch_variable_travels("PATH=/bin"));
    assert_true(launch_variable_travels("HOMES=x"));
    assert_false(launch_variable_travels("HOME=/root"));
    assert_false(launch_variable_travels("SSH_CONNECTION=x"));
    assert_false(launch_variable_travels("broken"));
    assert_int_equal(base_memory_blocks(), 0);
}

static void programs_are_found_as_execvp_does(void **state)
{
    char path[4096];
    int code = 0;
    (void)state;
    assert_int_equal(
        launch_program_find("/", "sh", "/no/such:/usr/bin:/bin", path, sizeof(path), &code),
        SHOAL_OK);
    assert_int_equal(access(path, X_OK), 0);
    assert_int_equal(launch_program_find("/bin", "./sh", "", path, sizeof(path), &code), SHOAL_OK);
    assert_string_equal(path, "/bin/./sh");
    assert_int_equal(launch_program_find("/bin", "sh", ":/x", path, sizeof(path), &code), SHOAL_OK);
    assert_string_equal(path, "/bin/sh");
    assert_int_equal(launch_program_find("/", "nope", "/bin", path, sizeof(path), &code),
                     SHOAL_ERR_ARGUMENT);
    assert_int_equal(code, 127);
    assert_int_equal(launch_program_find("/", "/etc", "/bin", path, sizeof(path), &code),
                     SHOAL_ERR_ARGUMENT);
    assert_int_equal(code, 126);
    assert_int_equal(launch_program_find("/nope", "sh", "/bin", path, sizeof(path), &code),
                     SHOAL_ERR_ARGUMENT);
    assert_int_equal(code, 125);
}

static void probes_tell_who_answers(void **state)
{
    int fd = -1, port = 0, closed_fd = -1, closed_port = 0, reached[LAUNCH_ADDRESSES_MAX];
    char open_address[64], closed_address[64], why[128] = "";
    int count = 0;
    (void)state;
    assert_int_equal(launch_port_open(0, &fd, &port), SHOAL_OK);
    assert_int_equal(launch_port_open(0, &closed_fd, &closed_port), SHOAL_OK);
    launch_fd_close(&closed_fd);
    launch_address_join("127.0.0.1", port, open_address, sizeof(open_address));
    launch_address_join("127.0.0.1", closed_port, closed_address, sizeof(closed_address));
    const char *addresses[] = {closed_address, open_address};
    assert_int_equal(launch_probe(addresses, 2, 10000, reached, &count, why, sizeof(why)),
                     SHOAL_OK);
    assert_int_equal(count, 1);
    assert_int_equal(reached[0], 1);
    assert_non_null(strstr(why, closed_address));
    assert_non_null(strstr(why, "refused"));
    int second_fd = -1, second_port = 0;
    assert_int_equal(launch_port_open(port, &second_fd, &second_port), SHOAL_ERR_SYSTEM);
    assert_non_null(strstr(base_error_text(), "in use"));
    launch_fd_close(&fd);
    const char *broken[] = {"1.2.3.4", "x:1", "[::1:2"};
    for (int i = 0; i < 3; i++)
        assert_int_not_equal(launch_probe(&broken[i], 1, 100, reached, &count, NULL, 0), SHOAL_OK);
}

static void nearness_of_names(void **state)
{
    char own[256];
    (void)state;
    gethostname(own, sizeof(own));
    assert_int_equal(launch_nearness("localhost", false), LAUNCH_LOCAL);
    assert_int_equal(launch_nearness(own, false), LAUNCH_LOCAL);
    assert_int_equal(launch_nearness("127.0.0.1", true), LAUNCH_LOOPBACK);
    assert_int_equal(launch_nearness("::1", true), LAUNCH_LOOPBACK);
    assert_int_equal(launch_nearness("198.51.100.7", true), LAUNCH_REMOTE);
    assert_int_equal(launch_nearness("no-such-host-name", false), LAUNCH_REMOTE);
    struct launch_addresses addresses = {.count = 0};
    assert_int_equal(launch_addresses_read(NULL, &addresses), SHOAL_OK);
    assert_true(addresses.count > 0);
    assert_int_not_equal(launch_nearness(addresses.text[0], false), LAUNCH_REMOTE);
    assert_int_equal(launch_addresses_read("no-such0", &addresses), SHOAL_ERR_OPTION);
}

static void exits_have_words(void **state)
{
    char text[128];
    (void)state;
    assert_int_equal(launch_exit_code(W_EXITCODE(7, 0)), 7);
    assert_int_equal(launch_exit_code(W_EXITCODE(0, 9)), 137);
    launch_exit_describe(W_EXITCODE(7, 0), text, sizeof(text));
    assert_string_equal(text, "exited with code 7");
    launch_exit_describe(W_EXITCODE(0, 9), text, sizeof(text));
    assert_string_equal(text, "was killed by SIGKILL");
    launch_exit_describe(WCOREFLAG | 11, text, sizeof(text));
    assert_string_equal(text, "was killed by SIGSEGV (core dumped)");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(agent_commands_are_split_like_a_shell),
        cmocka_unit_test(the_shell_behind_ssh_gets_a_quoted_path),
        cmocka_unit_test(variables_replace_and_travel),
        cmocka_unit_test(programs_are_found_as_execvp_does),
        cmocka_unit_test(probes_tell_who_answers),
        cmocka_unit_test(nearness_of_names),
        cmocka_unit_test(exits_have_words),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
