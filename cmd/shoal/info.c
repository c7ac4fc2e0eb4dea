/* SPDX-License-Identifier: Apache-2.0 */
/* info.c: `shoal info`: version, machine, libraries and options. */
#include <arpa/inet.h>
#include <ctype.h>
#include <gnu/libc-version.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <openssl/crypto.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "arguments.h"
#include "base/options.h"
#include "base/status.h"
#include "base/tuning.h"
#include "base/wait.h"
#include "boot/host.h"
#include "kernel/kernel.h"
#include "launch/lines.h"

#define VALUE_BYTES 1024

int cmd_info(int argc, char **argv);

enum { INFO_OPTIONS, INFO_MARKDOWN, INFO_JSON, INFO_HELP, INFO_COUNT };

static const struct argument table[INFO_COUNT] = {
    [INFO_OPTIONS] = {"options", 0, NULL, "only the table of options"},
    [INFO_MARKDOWN] = {"markdown", 0, NULL,
                       "the table as the page docs/options.md, without values"},
    [INFO_JSON] = {"json", 0, NULL, "as one JSON object"},
    [INFO_HELP] = {"help", 'h', NULL, "this text"},
};

/* ---- facts ---- */

struct fact {
    const char *name;
    char value[VALUE_BYTES];
};

#define FACTS_MAX 24

struct facts {
    struct fact facts[FACTS_MAX];
    int count;
};

static void fact_add(struct facts *facts, const char *name, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

static void fact_add(struct facts *facts, const char *name, const char *format, ...)
{
    va_list arguments;
    if (facts->count == FACTS_MAX)
        return;
    struct fact *fact = &facts->facts[facts->count++];
    fact->name = name;
    va_start(arguments, format);
    vsnprintf(fact->value, sizeof(fact->value), format, arguments);
    va_end(arguments);
}

static void build_facts(struct facts *facts)
{
    fact_add(facts, "version", "%s", shoal_version());
#if defined(__clang__)
    fact_add(facts, "compiler", "clang %s", __clang_version__);
#else
    fact_add(facts, "compiler", "gcc %s", __VERSION__);
#endif
    fact_add(facts, "isa", "%s", kernel_isa());
}

static void memory_facts(struct facts *facts)
{
    double gib = 1024.0 * 1024.0 * 1024.0;
    double page = (double)sysconf(_SC_PAGESIZE);
    fact_add(facts, "memory", "%.1f GiB, %.1f GiB free",
             (double)sysconf(_SC_PHYS_PAGES) * page / gib,
             (double)sysconf(_SC_AVPHYS_PAGES) * page / gib);
}

static void host_facts(struct facts *facts)
{
    struct utsname system;
    char key[BOOT_HOST_KEY_BYTES];
    if (uname(&system) == 0) {
        fact_add(facts, "host", "%s", system.nodename);
        fact_add(facts, "kernel", "%s %s %s", system.sysname, system.release, system.machine);
    }
    fact_add(facts, "host identity", "%s",
             boot_host_key(key) == SHOAL_OK ? key : base_error_text());
    fact_add(facts, "cores granted", "%d of %ld", base_cores_granted(),
             sysconf(_SC_NPROCESSORS_ONLN));
    memory_facts(facts);
}

/* "eth0 10.0.0.1, eth0 fd00::1" */
static void interface_facts(struct facts *facts)
{
    struct ifaddrs *list = NULL;
    char value[VALUE_BYTES] = "";
    size_t length = 0;
    if (getifaddrs(&list) != 0)
        return;
    for (const struct ifaddrs *entry = list; entry != NULL; entry = entry->ifa_next) {
        char text[INET6_ADDRSTRLEN];
        if (entry->ifa_addr == NULL || (entry->ifa_flags & IFF_UP) == 0)
            continue;
        int family = entry->ifa_addr->sa_family;
        const void *raw = &((const struct sockaddr_in *)entry->ifa_addr)->sin_addr;
        if (family == AF_INET6)
            raw = &((const struct sockaddr_in6 *)entry->ifa_addr)->sin6_addr;
        if ((family != AF_INET && family != AF_INET6) ||
            inet_ntop(family, raw, text, sizeof(text)) == NULL)
            continue;
        snprintf(value + length, sizeof(value) - length, "%s%s %s", length > 0 ? ", " : "",
                 entry->ifa_name, text);
        length = strlen(value);
    }
    freeifaddrs(list);
    fact_add(facts, "interfaces", "%s", value);
}

/* Thresholds between ranks of one host: measured ones, or why there are none. */
static void tuning_facts(struct facts *facts)
{
    char path[BASE_TUNING_PATH_BYTES], value[VALUE_BYTES] = "", row[BASE_TUNING_ROW_BYTES];
    struct base_tuning_table table;
    if (base_option_int(OPTION_TUNE) == 0) {
        fact_add(facts, "thresholds", "default: SHOAL_TUNE=0");
        return;
    }
    if (base_tuning_path(path) != SHOAL_OK || base_tuning_read(path, &table) != SHOAL_OK) {
        fact_add(facts, "thresholds", "default: %s", base_error_text());
        return;
    }
    for (int64_t i = 0; i < table.count; i++) {
        size_t used = strlen(value);
        base_tuning_row_text(&table.rows[i], row);
        snprintf(value + used, sizeof(value) - used, "%s%s", i > 0 ? "; " : "", row);
    }
    if (table.count == 0)
        fact_add(facts, "thresholds", "default: `shoal tune` would make %s", path);
    else
        fact_add(facts, "thresholds", "%s, from %s", value, path);
}

static void library_facts(struct facts *facts)
{
    fact_add(facts, "libc", "glibc %s", gnu_get_libc_version());
    fact_add(facts, "openssl", "%s", OpenSSL_version(OPENSSL_VERSION));
}

static void facts_gather(struct facts *facts)
{
    build_facts(facts);
    host_facts(facts);
    interface_facts(facts);
    tuning_facts(facts);
    library_facts(facts);
}

/* ---- options ---- */

static const char *option_value(int row)
{
    static char number[32];
    const struct base_option *option = &base_options()[row];
    const char *set = getenv(option->name);
    if (row == OPTION_SECRET)
        return set != NULL ? "(hidden)" : "";
    if (set != NULL)
        return set;
    snprintf(number, sizeof(number), "%s", option->default_text);
    return number;
}

static const char *option_source(int row)
{
    return base_option_is_set((enum base_option_id)row) ? "environment" : "default";
}

static const char *or_dash(const char *text)
{
    return *text != '\0' ? text : "-";
}

static void options_print(void)
{
    printf("%-26s %-16s %-12s %s\n", "option", "value", "from", "default");
    for (int row = 0; row < OPTION_COUNT; row++) {
        const struct base_option *option = &base_options()[row];
        char range[128];
        base_option_range((enum base_option_id)row, range, sizeof(range));
        printf("%-26s %-16s %-12s %s\n", option->name, or_dash(option_value(row)),
               option_source(row), or_dash(option->default_text));
        printf("    %s\n    takes: %s\n", option->help, range);
    }
}

/* '|' would end a cell. */
static void cell_print(const char *text)
{
    for (; *text != '\0'; text++)
        printf(*text == '|' ? "\\%c" : "%c", *text);
}

static void options_markdown(void)
{
    printf("# Options\n\n"
           "Made by `shoal info --options --markdown`; the table itself stands in\n"
           "`src/base/options.c`. Each row is an environment variable, read once when a process\n"
           "starts its first group, and an option of `shoal run`: `--timeout-ms 60000` sets\n"
           "`SHOAL_TIMEOUT_MS` for all ranks (those for rank, size, store and secret are set by\n"
           "`shoal run` itself). Set them alike on all ranks. Bytes are written as `4096`, `64K`,\n"
           "`4M` or `1G`. `shoal info --options` shows the values in force and where they come "
           "from.\n\n"
           "| Variable | Default | Takes | What, and when to change it |\n"
           "|---|---|---|---|\n");
    for (int row = 0; row < OPTION_COUNT; row++) {
        const struct base_option *option = &base_options()[row];
        char range[128];
        base_option_range((enum base_option_id)row, range, sizeof(range));
        printf("| `%s` | %s%s%s | ", option->name, *option->default_text ? "`" : "",
               option->default_text, *option->default_text ? "`" : "");
        cell_print(range);
        printf(" | ");
        cell_print(option->help);
        printf(" |\n");
    }
}

/* ---- forms ---- */

static void facts_print(const struct facts *facts)
{
    for (int i = 0; i < facts->count; i++)
        printf("%-16s %s\n", facts->facts[i].name, facts->facts[i].value);
    printf("\nOptions: shoal info --options\n");
}

static enum shoal_status json_pair(struct launch_bytes *out, const char *name, const char *value,
                                   bool more)
{
    TRY(launch_json_text(out, name, strlen(name)));
    TRY(launch_put_format(out, ":"));
    TRY(launch_json_text(out, value, strlen(value)));
    return launch_put_format(out, more ? "," : "");
}

static enum shoal_status json_make(const struct facts *facts, struct launch_bytes *out)
{
    TRY(launch_put_format(out, "{"));
    for (int i = 0; i < facts->count; i++)
        TRY(json_pair(out, facts->facts[i].name, facts->facts[i].value, true));
    TRY(launch_put_format(out, "\"options\":["));
    for (int row = 0; row < OPTION_COUNT; row++) {
        const struct base_option *option = &base_options()[row];
        TRY(launch_put_format(out, row > 0 ? ",{" : "{"));
        TRY(json_pair(out, "name", option->name, true));
        TRY(json_pair(out, "value", option_value(row), true));
        TRY(json_pair(out, "from", option_source(row), true));
        TRY(json_pair(out, "default", option->default_text, true));
        TRY(json_pair(out, "help", option->help, false));
        TRY(launch_put_format(out, "}"));
    }
    return launch_put_format(out, "]}\n");
}

static enum shoal_status json_print(const struct facts *facts)
{
    struct launch_bytes out = {0};
    enum shoal_status status = json_make(facts, &out);
    if (status == SHOAL_OK)
        fwrite(launch_bytes_front(&out), 1, launch_bytes_count(&out), stdout);
    launch_bytes_release(&out);
    return status;
}

static void help_print(void)
{
    printf("usage: shoal info [--options [--markdown]] [--json]\n\n"
           "Shows version, build, machine, network and libraries.\n\n");
    arguments_help(table, INFO_COUNT, stdout);
}

static enum shoal_status argument_use(void *user, int id, const char *value)
{
    bool *asked = user;
    (void)value;
    asked[id] = true;
    return SHOAL_OK;
}

static enum shoal_status arguments_read(int argc, char **argv, bool *asked)
{
    struct arguments arguments = {.command = "info",
                                  .table = table,
                                  .count = INFO_COUNT,
                                  .argc = argc,
                                  .argv = argv,
                                  .take = argument_use,
                                  .user = asked,
                                  .at = 1};
    TRY(arguments_take_all(&arguments));
    if (asked[INFO_MARKDOWN] && !asked[INFO_OPTIONS])
        return base_error(SHOAL_ERR_ARGUMENT, "--markdown goes with --options");
    return SHOAL_OK;
}

static int fail(int exit_code)
{
    fprintf(stderr, "shoal info: %s\n", base_error_text());
    return exit_code;
}

int cmd_info(int argc, char **argv)
{
    bool asked[INFO_COUNT] = {false};
    struct facts facts = {.count = 0};
    if (arguments_read(argc, argv, asked) != SHOAL_OK)
        return fail(EXIT_USAGE);
    if (asked[INFO_HELP]) {
        help_print();
        return 0;
    }
    if (asked[INFO_MARKDOWN]) {
        options_markdown();
        return 0;
    }
    enum shoal_status options = base_options_load();
    if (options != SHOAL_OK)
        fprintf(stderr, "shoal info: %s\n", base_error_text());
    facts_gather(&facts);
    if (asked[INFO_JSON] && json_print(&facts) != SHOAL_OK)
        return fail(1);
    if (!asked[INFO_JSON] && asked[INFO_OPTIONS])
        options_print();
    else if (!asked[INFO_JSON])
        facts_print(&facts);
    return options == SHOAL_OK ? 0 : 1;
}
