/* SPDX-License-Identifier: Apache-2.0 */
/*
 * environment.c: the table of readers, the two plainest of them (shoal run or by hand; torchrun and
 * its like), and what all readers share.
 *
 * Order matters where one launcher runs inside another: the innermost sets its variables last and
 * is asked first, as far as that can be told. `shoal run` always wins, because its variables have
 * names of their own.
 */
#include "boot/environment.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/options.h"
#include "base/status.h"
#include "boot/address.h"
#include "boot/environment_reader.h"
#include "boot/store.h"
#include "net/proof.h"

#define PLACE_PORTS   4 /* tried one after the other, when the first is in use */
#define PORT_FIRST    10000
#define PORT_COUNT    20000
#define SECRET_DIGITS (2 * NET_SECRET_BYTES)

/* ---- variables ------------------------------------------------------------------------------- */

const char *boot_variable(const char *name)
{
    const char *value = getenv(name);
    return value != NULL && value[0] != '\0' ? value : NULL;
}

enum shoal_status boot_variable_int(const char *name, int minimum, int maximum, int *out)
{
    const char *text = boot_variable(name);
    if (text == NULL)
        return base_error(SHOAL_ERR_OPTION, "the variable %s is missing", name);
    char *end;
    errno = 0;
    long number = strtol(text, &end, 10);
    if (end == text || *end != '\0' || errno != 0 || number < minimum || number > maximum)
        return base_error(SHOAL_ERR_OPTION, "%s=\"%.60s\" is not a number from %d to %d", name,
                          text, minimum, maximum);
    *out = (int)number;
    return SHOAL_OK;
}

enum shoal_status boot_variable_int_optional(const char *name, int minimum, int maximum, int *out)
{
    if (boot_variable(name) != NULL)
        return boot_variable_int(name, minimum, maximum, out);
    *out = -1;
    return SHOAL_OK;
}

/* ---- store and secret ------------------------------------------------------------------------ */

int boot_port_from_text(const char *text)
{
    unsigned char digest[NET_JOB_BYTES];
    net_job_from_text(text, digest);
    return PORT_FIRST + (digest[0] | digest[1] << 8) % PORT_COUNT;
}

bool boot_identity_is_placed(void)
{
    return base_option_text(OPTION_STORE) != NULL;
}

/* The addresses at host:port and the next ports, of which rank 0 takes the first that is free. */
static enum shoal_status list_ports(struct boot_identity *identity, const char *host, int port)
{
    bool is_number = strchr(host, ':') != NULL;
    size_t used = 0;
    for (int i = 0; i < PLACE_PORTS; i++) {
        int bytes = snprintf(identity->store + used, sizeof(identity->store) - used,
                             is_number ? "%s[%s]:%d" : "%s%s:%d", i > 0 ? "," : "", host,
                             port + PLACE_PORTS > 65536 ? port - i : port + i);
        if (used + (size_t)bytes >= sizeof(identity->store)) {
            identity->store[used] = '\0';
            break;
        }
        used += (size_t)bytes;
    }
    if (used == 0)
        return base_error(SHOAL_ERR_OPTION, "the name of rank 0's host is too long: \"%.60s…\"",
                          host);
    return SHOAL_OK;
}

/* The user's own address, which may be several as well. */
static enum shoal_status check_given(const char *addresses)
{
    for (const char *at = addresses;; at++) {
        char one[BOOT_ADDRESS_HOST_BYTES + 16], host[BOOT_ADDRESS_HOST_BYTES];
        int port;
        size_t bytes = strcspn(at, ",");
        snprintf(one, sizeof(one), "%.*s", (int)bytes, at);
        if (boot_address_split(one, host, &port) != SHOAL_OK)
            return base_error_context(SHOAL_ERR_OPTION, "SHOAL_STORE");
        at += bytes;
        if (*at == '\0')
            return SHOAL_OK;
    }
}

enum shoal_status boot_identity_place(struct boot_identity *identity, const char *host, int port,
                                      const char *weak_secret)
{
    const char *given = base_option_text(OPTION_STORE), *secret = base_option_text(OPTION_SECRET);
    if (given != NULL) {
        TRY(check_given(given));
        snprintf(identity->store, sizeof(identity->store), "%s", given);
    } else {
        TRY(list_ports(identity, host, port));
    }
    identity->guessable = secret == NULL;
    if (secret == NULL)
        secret = weak_secret != NULL ? weak_secret : identity->store;
    net_secret_from_text(secret, identity->secret);
    identity->serve_here = identity->rank == 0;
    return SHOAL_OK;
}

enum shoal_status boot_identity_make_card(struct boot_identity *identity,
                                          char card[BOOT_CARD_BYTES])
{
    const char *given = base_option_text(OPTION_SECRET);
    char digits[SECRET_DIGITS + 1] = "";
    if (given != NULL) {
        net_secret_from_text(given, identity->secret);
    } else {
        TRY(net_random(identity->secret, sizeof(identity->secret)));
        for (int i = 0; i < NET_SECRET_BYTES; i++)
            snprintf(digits + 2 * i, 3, "%02x", identity->secret[i]);
    }
    TRY(boot_store_serve(NULL, 0, identity->secret, &identity->server));
    enum shoal_status status = boot_address_list_local(boot_store_port(identity->server),
                                                       identity->store, sizeof(identity->store));
    if (status == SHOAL_OK)
        status = boot_store_keep(identity->server, identity->store);
    if (status != SHOAL_OK) {
        boot_store_stop(identity->server, 0);
        identity->server = NULL;
        return status;
    }
    /* Neither blanks nor '=' or ';': the launchers' protocols use them. */
    snprintf(card, BOOT_CARD_BYTES, "shoal1/%s/%s", digits, identity->store);
    return SHOAL_OK;
}

static bool secret_from_digits(const char *digits, unsigned char secret[NET_SECRET_BYTES])
{
    for (int i = 0; i < NET_SECRET_BYTES; i++) {
        unsigned byte;
        if (sscanf(digits + 2 * i, "%2x", &byte) != 1)
            return false;
        secret[i] = (unsigned char)byte;
    }
    return true;
}

enum shoal_status boot_identity_take_card(struct boot_identity *identity, const char *card)
{
    static const char head[] = "shoal1/";
    const char *digits = card + strlen(head);
    const char *slash = strncmp(card, head, strlen(head)) == 0 ? strchr(digits, '/') : NULL;
    if (slash == NULL || (slash != digits && slash - digits != SECRET_DIGITS) ||
        strlen(slash + 1) >= sizeof(identity->store))
        return base_error(SHOAL_ERR_FORMAT,
                          "rank 0's card, as the launcher gave it, cannot be read: do all ranks "
                          "use the same release?");
    const char *given = base_option_text(OPTION_SECRET);
    if (given != NULL)
        net_secret_from_text(given, identity->secret);
    else if (slash == digits)
        return base_error(SHOAL_ERR_OPTION, "SHOAL_SECRET is set on rank 0, but not here");
    else if (!secret_from_digits(digits, identity->secret))
        return base_error(SHOAL_ERR_FORMAT, "the secret on rank 0's card cannot be read");
    snprintf(identity->store, sizeof(identity->store), "%s", slash + 1);
    return SHOAL_OK;
}

/* ---- shoal run, or by hand ------------------------------------------------------------------- */

static bool shoal_applies(void)
{
    return base_option_is_set(OPTION_RANK) || base_option_is_set(OPTION_SIZE);
}

static enum shoal_status shoal_read(int64_t deadline_ns, struct boot_identity *identity)
{
    (void)deadline_ns;
    TRY(boot_variable_int("SHOAL_RANK", 0, INT_MAX - 1, &identity->rank));
    TRY(boot_variable_int("SHOAL_SIZE", 1, INT_MAX, &identity->size));
    TRY(boot_variable_int_optional("SHOAL_LOCAL_RANK", 0, INT_MAX, &identity->local_rank));
    TRY(boot_variable_int_optional("SHOAL_LOCAL_SIZE", 1, INT_MAX, &identity->local_size));
    if (identity->size == 1)
        return SHOAL_OK;
    if (!boot_identity_is_placed())
        return base_error(SHOAL_ERR_OPTION,
                          "SHOAL_SIZE=%d, but SHOAL_STORE (host:port where the ranks meet) is "
                          "missing",
                          identity->size);
    TRY(boot_identity_place(identity, NULL, 0, NULL));
    if (boot_variable("SHOAL_LAUNCHED_BY") != NULL)
        identity->serve_here = false; /* the launcher serves */
    return SHOAL_OK;
}

static const struct boot_reader shoal_reader = {"shoal", shoal_applies, shoal_read};

/* ---- torchrun -------------------------------------------------------------------------------- */

static bool torchrun_applies(void)
{
    bool rank = boot_variable("RANK") != NULL, size = boot_variable("WORLD_SIZE") != NULL;
    return (rank && size) || ((rank || size) && boot_variable("MASTER_ADDR") != NULL);
}

/* MASTER_PORT belongs to the framework's own store, so ours is on the next one that is free. */
static enum shoal_status torchrun_read(int64_t deadline_ns, struct boot_identity *identity)
{
    (void)deadline_ns;
    int port = 0;
    TRY(boot_variable_int("RANK", 0, INT_MAX - 1, &identity->rank));
    TRY(boot_variable_int("WORLD_SIZE", 1, INT_MAX, &identity->size));
    TRY(boot_variable_int_optional("LOCAL_RANK", 0, INT_MAX, &identity->local_rank));
    TRY(boot_variable_int_optional("LOCAL_WORLD_SIZE", 1, INT_MAX, &identity->local_size));
    if (identity->size == 1)
        return SHOAL_OK;
    if (boot_identity_is_placed())
        return boot_identity_place(identity, NULL, 0, NULL);
    const char *host = boot_variable("MASTER_ADDR"), *run = boot_variable("TORCHELASTIC_RUN_ID");
    if (host == NULL)
        return base_error(SHOAL_ERR_OPTION, "WORLD_SIZE=%d, but MASTER_ADDR is missing",
                          identity->size);
    TRY(boot_variable_int("MASTER_PORT", 1, 65535, &port));
    char weak[512];
    snprintf(weak, sizeof(weak), "torchrun/%.128s/%.256s/%d", run != NULL ? run : "", host, port);
    return boot_identity_place(identity, host, port < 65535 ? port + 1 : port - 1, weak);
}

static const struct boot_reader torchrun_reader = {"torchrun", torchrun_applies, torchrun_read};

/* ---- none ------------------------------------------------------------------------------------ */

static bool always(void)
{
    return true;
}

static enum shoal_status none_read(int64_t deadline_ns, struct boot_identity *identity)
{
    (void)deadline_ns;
    identity->rank = identity->local_rank = 0;
    identity->size = identity->local_size = 1;
    return SHOAL_OK;
}

static const struct boot_reader none_reader = {"none", always, none_read};

/* ---- the table ------------------------------------------------------------------------------- */

static const struct boot_reader *const readers[] = {
    &shoal_reader,    &torchrun_reader,   &boot_reader_pmix,      &boot_reader_openmpi,
    &boot_reader_pmi, &boot_reader_slurm, &boot_reader_sagemaker, &none_reader,
};

static enum shoal_status check(const struct boot_identity *identity)
{
    if (identity->rank >= identity->size)
        return base_error(SHOAL_ERR_OPTION, "rank %d of %d: ranks go from 0 to %d", identity->rank,
                          identity->size, identity->size - 1);
    if (identity->local_size > identity->size)
        return base_error(SHOAL_ERR_OPTION, "%d local ranks, but only %d ranks",
                          identity->local_size, identity->size);
    if (identity->local_size > 0 && identity->local_rank >= identity->local_size)
        return base_error(SHOAL_ERR_OPTION, "local rank %d of %d", identity->local_rank,
                          identity->local_size);
    return SHOAL_OK;
}

/* The job is named by a digest of its secret: equal on all ranks, unlike any other job's, and
 * telling nothing. */
static void name_job(struct boot_identity *identity)
{
    char digits[SECRET_DIGITS + 1];
    for (int i = 0; i < NET_SECRET_BYTES; i++)
        snprintf(digits + 2 * i, 3, "%02x", identity->secret[i]);
    net_job_from_text(digits, identity->job);
}

enum shoal_status boot_identity_read(int64_t deadline_ns, struct boot_identity *out)
{
    TRY(base_options_load());
    const struct boot_reader *const *reader = readers;
    while (!(*reader)->applies())
        reader++;
    struct boot_identity identity = {.local_rank = -1, .local_size = -1};
    snprintf(identity.launcher, sizeof(identity.launcher), "%s", (*reader)->launcher);
    enum shoal_status status = (*reader)->read(deadline_ns, &identity);
    if (status == SHOAL_OK)
        status = check(&identity);
    if (status != SHOAL_OK) {
        boot_store_stop(identity.server, 0);
        return base_error_context(status, "environment of %s", (*reader)->launcher);
    }
    name_job(&identity);
    identity.server_count = identity.size > 1 ? (int)base_option_int(OPTION_SERVERS) : 0;
    base_log(BASE_LOG_INFO, "rank %d of %d by %s, store %s", identity.rank, identity.size,
             identity.launcher, identity.store);
    *out = identity;
    return SHOAL_OK;
}

enum shoal_status boot_identity_read_server(struct boot_identity *out)
{
    struct boot_identity identity = {.local_rank = -1, .local_size = -1, .is_server = true};
    int number = 0;
    TRY(base_options_load());
    TRY(boot_variable_int("SHOAL_SERVERS", 1, INT_MAX, &identity.server_count));
    TRY(boot_variable_int("SHOAL_SERVER", 0, identity.server_count - 1, &number));
    TRY(boot_variable_int("SHOAL_SIZE", 2, INT_MAX - identity.server_count, &identity.size));
    if (!boot_identity_is_placed())
        return base_error(SHOAL_ERR_OPTION,
                          "SHOAL_STORE (host:port where ranks and servers meet) is missing");
    identity.rank = identity.size + number;
    TRY(boot_identity_place(&identity, NULL, 0, NULL));
    identity.serve_here = false;
    name_job(&identity);
    *out = identity;
    return SHOAL_OK;
}
