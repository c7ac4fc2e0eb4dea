/* SPDX-License-Identifier: Apache-2.0 */
/* start_facts_test.c: what an instance is told, well and badly, and which command comes of it. */
#include "job/start_facts.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/memory.h"
#include "base/status.h"
#include "job/start_command.h"
#include "support/files.h"
#include "support/fuzz.h"

static const char resources[] =
    "{\"current_host\": \"algo-2\", \"hosts\": [\"algo-1\", \"algo-2\"],"
    "\"current_group_name\": \"g\", \"instance_groups\": [{\"instance_group_name\": \"g\","
    "\"instance_type\": \"ml.m5.large\", \"hosts\": [\"algo-1\", \"algo-2\"]}]}";

static char folder[] = "/tmp/shoal-facts-XXXXXX";

static enum shoal_status read_facts(const char *resource_config, const char *hyperparameters,
                                    struct start_facts *facts)
{
    put_file(folder, "resourceconfig.json", resource_config);
    put_file(folder, "hyperparameters.json", hyperparameters);
    return start_facts_read(folder, facts);
}

/* The command of a job, with these hyperparameters. */
static enum shoal_status command_of(const char *hyperparameters, enum start_entry entry,
                                    struct start_command *command, json_t *variables)
{
    struct start_facts facts = {0};
    char path[64];
    snprintf(path, sizeof(path), "%s/hosts.json", folder);
    assert_int_equal(read_facts(resources, hyperparameters, &facts), SHOAL_OK);
    enum shoal_status status =
        start_command_make(&facts, entry, "python3", path, variables, command);
    start_facts_release(&facts);
    return status;
}

static const char *word(const json_t *words, size_t index)
{
    return json_string_value(json_array_get(words, index));
}

static void hyperparameters_are_sorted(void **state)
{
    struct start_facts facts;
    (void)state;
    assert_int_equal(read_facts(resources,
                                "{\"lr\": \"0.5\", \"sagemaker_program\": \"\\\"a.py\\\"\","
                                "\"sagemaker_mpi_enabled\": \"true\", \"raw\": \"x y\"}",
                                &facts),
                     SHOAL_OK);
    assert_string_equal(facts.program, "a.py");
    assert_string_equal(facts.leader, "algo-1");
    assert_string_equal(facts.interface, "eth0");
    assert_true(start_facts_enabled(&facts, "sagemaker_mpi_enabled"));
    assert_int_equal(json_object_size(facts.hyperparameters), 2);
    assert_int_equal(json_object_size(facts.framework), 1);
    assert_true(json_real_value(json_object_get(facts.hyperparameters, "lr")) == 0.5);
    assert_int_equal(json_array_size(facts.distribution_hosts), 2);
    start_facts_release(&facts);
}

static void entry_points_have_their_commands(void **state)
{
    struct start_command command;
    json_t *variables = json_object();
    (void)state;
    assert_int_equal(command_of("{\"sagemaker_program\": \"a.py\", \"k\": \"1\"}", START_PACKAGE,
                                &command, variables),
                     SHOAL_OK);
    assert_null(command.way);
    assert_string_equal(word(command.words, 1), "-m");
    assert_string_equal(word(command.words, 2), "a");
    assert_string_equal(word(command.words, 3), "-k");
    start_command_release(&command);
    assert_int_equal(
        command_of("{\"sagemaker_program\": \"a.sh\"}", START_SHELL, &command, variables),
        SHOAL_OK);
    assert_string_equal(word(command.words, 0), "./a.sh");
    start_command_release(&command);
    json_decref(variables);
}

static void options_of_mpirun_give_variables(void **state)
{
    struct start_command command;
    json_t *variables = json_object();
    (void)state;
    assert_int_equal(
        command_of("{\"sagemaker_program\": \"a.py\", \"sagemaker_mpi_enabled\": \"true\","
                   "\"sagemaker_mpi_custom_mpi_options\": \"\\\"-x A=b=c -x HOME --NCCL_DEBUG INFO "
                   "-mca btl ^openib -x\\\"\"}",
                   START_SCRIPT, &command, variables),
        SHOAL_OK);
    assert_string_equal(command.way, "mpi");
    assert_int_equal(json_object_size(variables), 2);
    assert_string_equal(json_string_value(json_object_get(variables, "A")), "b=c");
    assert_string_equal(json_string_value(json_object_get(variables, "NCCL_DEBUG")), "INFO");
    start_command_release(&command);
    json_decref(variables);
}

static void what_can_not_be_started_is_said(void **state)
{
    static const char torch[] =
        "{\"sagemaker_program\": \"a.py\", \"sagemaker_torch_distributed_enabled\": \"true\"}";
    static const char xla[] = "{\"sagemaker_program\": \"a.py\","
                              "\"sagemaker_pytorch_xla_multi_worker_enabled\": \"true\"}";
    struct start_command command;
    json_t *variables = json_object();
    (void)state;
    assert_int_equal(command_of(torch, START_PACKAGE, &command, variables), SHOAL_ERR_ARGUMENT);
    assert_non_null(strstr(base_error_text(), "Python packages are not supported"));
    assert_int_equal(command_of(torch, START_SHELL, &command, variables), SHOAL_ERR_ARGUMENT);
    assert_int_equal(command_of(xla, START_SCRIPT, &command, variables), SHOAL_ERR_ARGUMENT);
    assert_non_null(strstr(base_error_text(), "pytorchxla is not there"));
    json_decref(variables);
}

static void bad_files_are_named(void **state)
{
    static const char *const wrong[] = {
        "",
        "[]",
        "{",
        "{}",
        "{\"hosts\": [\"algo-1\"]}",
        "{\"current_host\": \"algo-9\", \"hosts\": [\"algo-1\"]}",
        "{\"current_host\": \"a\", \"hosts\": [\"a\", 1]}",
        ("{\"current_host\": \"a\", \"hosts\": [\"a\"], \"current_group_name\": \"g\","
         "\"instance_groups\": [{\"instance_group_name\": \"g\", \"hosts\": [1]}]}"),
        "{\"current_host\": \"a\", \"hosts\": \"a\"}"};
    struct start_facts facts;
    (void)state;
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        assert_int_equal(read_facts(wrong[i], "{\"sagemaker_mpi_enabled\": \"true\"}", &facts),
                         SHOAL_ERR_FORMAT);
        assert_non_null(strstr(base_error_text(), "resourceconfig.json"));
    }
    assert_int_equal(read_facts(resources, "{\"a\"}", &facts), SHOAL_ERR_FORMAT);
    assert_non_null(strstr(base_error_text(), "hyperparameters.json"));
}

/* Two files, one behind the other with a bar between them. */
static void take_any_files(void *user, char *text, size_t count, uint64_t round)
{
    struct start_facts facts = {0};
    struct start_command command = {0};
    json_t *variables = json_object();
    char path[64], *bar = strchr(text, '|');
    (void)user;
    (void)count;
    snprintf(path, sizeof(path), "%s/hosts.json", folder);
    if (bar != NULL)
        *bar = '\0';
    if (read_facts(text, bar != NULL ? bar + 1 : "{}", &facts) == SHOAL_OK &&
        start_facts_variables(&facts, variables) == SHOAL_OK)
        start_command_make(&facts, (enum start_entry)(round % 3), "python3", path, variables,
                           &command);
    start_command_release(&command);
    start_facts_release(&facts);
    json_decref(variables);
}

/* Good files with changes: taken or refused, and nothing is lost. */
static void any_file_is_read_or_refused(void **state)
{
#define RESOURCES                                                                           \
    "{\"current_host\": \"algo-2\", \"hosts\": [\"algo-1\", \"algo-2\"],"                   \
    "\"current_group_name\": \"g\", \"instance_groups\": [{\"instance_group_name\": \"g\"," \
    "\"instance_type\": \"ml.m5.large\", \"hosts\": [\"algo-1\", \"algo-2\"]}]}|"
    static const struct fuzz_text texts[] = {
        FUZZ_TEXT(
            RESOURCES
            "{\"sagemaker_program\": \"\\\"a.py\\\"\", \"sagemaker_mpi_enabled\": \"true\","
            "\"sagemaker_distribution_instance_groups\": \"[\\\"g\\\", 1]\", \"x\": \"[1, {}]\"}"),
        FUZZ_TEXT(RESOURCES "{\"sagemaker_program\": \"a.py\", \"sagemaker_mpi_enabled\": \"true\","
                            "\"sagemaker_mpi_custom_mpi_options\": \"\\\"-x A=b -x HOME\\\"\","
                            "\"mp_parameters\": \"{\\\"partitions\\\": 2, \\\"ddp\\\": true}\"}"),
        FUZZ_TEXT(RESOURCES "{\"sagemaker_program\": \"a.py\", \"lr\": \"1e-3\", \"k\": \"null\","
                            "\"sagemaker_torch_distributed_enabled\": \"true\"}")};
    static const char *const words[] = {"\"sagemaker_program\"",
                                        "\\\"",
                                        "null",
                                        "true",
                                        "{}",
                                        "[]",
                                        "-x ",
                                        "|",
                                        "\\u0000",
                                        "sagemaker_",
                                        NULL};
    struct fuzz fuzz = FUZZ(texts, words, 1500, .is_string = true, .is_alone = true);
    (void)state;
    fuzz_run(&fuzz, take_any_files, NULL);
}

static int make_folder(void **state)
{
    (void)state;
    return mkdtemp(folder) != NULL ? 0 : -1;
}

static int remove_folder(void **state)
{
    static const char *const names[] = {"resourceconfig.json", "hyperparameters.json",
                                        "hosts.json"};
    char path[64];
    (void)state;
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        snprintf(path, sizeof(path), "%s/%s", folder, names[i]);
        unlink(path);
    }
    return rmdir(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(hyperparameters_are_sorted),
        cmocka_unit_test(entry_points_have_their_commands),
        cmocka_unit_test(options_of_mpirun_give_variables),
        cmocka_unit_test(what_can_not_be_started_is_said),
        cmocka_unit_test(bad_files_are_named),
        cmocka_unit_test(any_file_is_read_or_refused),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
