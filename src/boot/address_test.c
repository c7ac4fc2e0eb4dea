/* SPDX-License-Identifier: Apache-2.0 */
/* address_test.c: addresses as users write them, and names that lead back to this host. */
#include "boot/address.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/options.h"
#include "base/status.h"
#include "boot/store.h"
#include "net/transport.h"
#include "support/skip.h"

static void right_addresses_are_split(void **state)
{
    (void)state;
    const struct {
        const char *text, *host;
        int port;
    } cases[] = {
        {"host:80", "host", 80}, {"192.0.2.1:0", "192.0.2.1", 0}, {"[::1]:65535", "::1", 65535},
        {":7", "", 7},           {"a.b-c_d:1", "a.b-c_d", 1},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char host[BOOT_ADDRESS_HOST_BYTES];
        int port;
        assert_int_equal(boot_address_split(cases[i].text, host, &port), SHOAL_OK);
        assert_string_equal(host, cases[i].host);
        assert_int_equal(port, cases[i].port);
    }
}

static void wrong_addresses_are_told(void **state)
{
    (void)state;
    const char *cases[] = {"",
                           "host",
                           "host:",
                           "host:x",
                           "host:-1",
                           "host:+1",
                           "h:1x",
                           "h:65536",
                           "::1:80",
                           "a:b:1",
                           "h:99999999999999999999"};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char host[BOOT_ADDRESS_HOST_BYTES];
        int port;
        if (boot_address_split(cases[i], host, &port) != SHOAL_ERR_ARGUMENT ||
            strstr(base_error_text(), cases[i]) == NULL)
            fail_msg("\"%s\": \"%s\"", cases[i], base_error_text());
    }
    char text[1000], host[BOOT_ADDRESS_HOST_BYTES];
    int port;
    memset(text, 'h', sizeof(text));
    strcpy(text + sizeof(text) - 4, ":12");
    assert_int_equal(boot_address_split(text, host, &port), SHOAL_ERR_ARGUMENT);
}

static void loopback_is_known(void **state)
{
    (void)state;
    const char *loopback[] = {"localhost", "127.0.0.1", "127.3.4.5", "::1", "LOCALHOST"};
    const char *others[] = {"host", "128.0.0.1", "::2", "", "10.0.0.1"};
    for (size_t i = 0; i < 5; i++) {
        assert_true(boot_address_host_is_loopback(loopback[i]));
        assert_false(boot_address_host_is_loopback(others[i]));
    }
}

static void this_host_has_addresses(void **state)
{
    (void)state;
    char list[1024], small[24];
    assert_int_equal(boot_address_list_local(4321, list, sizeof(list)), SHOAL_OK);
    const char *last = strrchr(list, ',');
    char *loopback = strstr(list, "127.0.0.1:4321");
    assert_non_null(loopback);
    /* Loopback only after all others. */
    assert_true(loopback == list || last != NULL);
    for (char *at = strstr(loopback, ","); at != NULL; at = strchr(at + 1, ','))
        assert_true(strncmp(at + 1, "127.", 4) == 0 || strncmp(at + 1, "[::1]", 5) == 0);
    /* What does not fit is left out, never cut in the middle. */
    assert_int_equal(boot_address_list_local(1, small, sizeof(small)), SHOAL_OK);
    assert_string_equal(strrchr(small, ':'), ":1");
    /* An interface that the user names comes first. */
    setenv("SHOAL_INTERFACE", "lo", 1);
    base_options_reset();
    assert_int_equal(boot_address_list_local(4321, list, sizeof(list)), SHOAL_OK);
    assert_true(strncmp(list, "127.", 4) == 0 || strncmp(list, "[::1]", 5) == 0);
    unsetenv("SHOAL_INTERFACE");
    base_options_reset();
}

static void words_name_interfaces_and_addresses(void **state)
{
    (void)state;
    assert_true(boot_address_is_named("eth0", "10.0.0.2", "eth0"));
    assert_true(boot_address_is_named("eth1", "10.0.0.2", "eth0,eth1"));
    assert_true(boot_address_is_named("eth1", "10.0.0.2", "192.168.,10.0."));
    assert_false(boot_address_is_named("eth1", "10.0.0.2", "eth,eth10,10.1."));
    assert_false(boot_address_is_named("eth1", "10.0.0.2", ""));
    assert_false(boot_address_is_named("eth1", "10.0.0.2", ",,"));
}

/* /etc/hosts of many systems makes the host's own name lead to loopback. */
static void a_name_that_leads_back_here_is_told(void **state)
{
    (void)state;
    char name[128], address[160];
    struct addrinfo *found, hints = {.ai_socktype = SOCK_STREAM};
    gethostname(name, sizeof(name));
    bool all_loopback = getaddrinfo(name, NULL, &hints, &found) == 0;
    if (all_loopback) {
        for (struct addrinfo *at = found; at != NULL; at = at->ai_next)
            all_loopback &= boot_address_is_loopback(at->ai_addr);
        freeaddrinfo(found);
    }
    if (!all_loopback || boot_address_host_is_loopback(name))
        skip_because("the name %s does not lead to loopback here", name);
    unsigned char secret[NET_SECRET_BYTES] = {1};
    struct boot_store *store;
    snprintf(address, sizeof(address), "%s:1", name);
    assert_int_equal(boot_store_connect(address, secret, base_deadline_ns(100), &store),
                     SHOAL_ERR_PEER_UNREACHABLE);
    assert_non_null(strstr(base_error_text(), "this name resolves to this host itself"));
    assert_non_null(strstr(base_error_text(), "127."));
    assert_non_null(strstr(base_error_text(), "/etc/hosts"));
}

static void an_unknown_holder_is_no_error(void **state)
{
    (void)state;
    char text[64] = "untouched";
    assert_false(boot_address_port_holder(1, text, sizeof(text)));
    assert_string_equal(text, "untouched");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(right_addresses_are_split),
        cmocka_unit_test(wrong_addresses_are_told),
        cmocka_unit_test(loopback_is_known),
        cmocka_unit_test(this_host_has_addresses),
        cmocka_unit_test(words_name_interfaces_and_addresses),
        cmocka_unit_test(a_name_that_leads_back_here_is_told),
        cmocka_unit_test(an_unknown_holder_is_no_error),
    };
    return cmocka_run_group_tests_name("boot address", tests, NULL, NULL);
}
