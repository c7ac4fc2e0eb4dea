/* SPDX-License-Identifier: Apache-2.0 */
/*
 * start.c: from a list of hosts to running ranks.
 *
 * Phase by phase, each when all hosts have ended the one before, so that nothing runs anywhere
 * before it is known that everything can run everywhere: the program is there, the store and rank
 * 0's host can be reached.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/memory.h"
#include "base/options.h"
#include "base/status.h"
#include "launch/job.h"
#include "launch/process.h"
#include "launch/survey.h"
#include "net/proof.h"

#define LOOPBACK "127.0.0.1"

static bool all_local(const struct job *job)
{
    for (int i = 0; i < job->connection_count; i++)
        if (!job->connections[i].local)
            return false;
    return job->options->part == NULL;
}

/* ---- survey ---- */

/* Where only servers are, neither the program nor its directory need be: servers are this program
 * itself. */
static enum shoal_status survey_put(const struct job *job, const struct launch_host *host,
                                    struct launch_bytes *payload)
{
    const struct launch_options *options = job->options;
    char here[4096] = "/";
    const char *directory = options->directory;
    if (directory == NULL)
        directory = getcwd(here, sizeof(here)) != NULL ? here : "/";
    const char *path = NULL;
    if (options->variables != NULL)
        path = launch_variables_get(options->variables, "PATH");
    if (path == NULL)
        path = getenv("PATH");
    bool has_ranks = host->rank_count > 0;
    TRY(launch_put_text(payload, has_ranks ? directory : "/"));
    TRY(launch_put_text(payload, has_ranks ? options->argv[0] : LAUNCH_OWN_PROGRAM));
    TRY(launch_put_text(payload, path != NULL ? path : ""));
    TRY(launch_put_text(payload, options->interface != NULL ? options->interface : ""));
    return launch_put_number(payload, (uint32_t)options->master_port);
}

static enum shoal_status surveys_send(struct job *job)
{
    enum shoal_status status = SHOAL_OK;
    for (int i = 0; i < job->connection_count && status == SHOAL_OK; i++) {
        struct launch_connection *connection = &job->connections[i];
        struct launch_bytes payload = {0};
        bool with_port = i == 0 && job->first_rank == 0;
        status = survey_put(job, connection->host, &payload);
        if (status == SHOAL_OK)
            status = launch_message_put(&connection->out, LAUNCH_SURVEY, 0, with_port, &payload);
        launch_bytes_release(&payload);
    }
    return status;
}

enum shoal_status launch_job_survey_read(struct launch_connection *connection,
                                         struct launch_message *message)
{
    const char **texts = NULL;
    int count = 0;
    TRY(launch_read_texts(&message->payload, &texts, &count));
    struct launch_addresses *addresses = &connection->addresses;
    for (int i = 0; i < count && i < LAUNCH_ADDRESSES_MAX; i++)
        snprintf(addresses->text[addresses->count++], LAUNCH_ADDRESS_BYTES, "%s", texts[i]);
    connection->port = (int)message->value;
    base_free(texts);
    return SHOAL_OK;
}

/* ---- probe ---- */

static enum shoal_status addresses_put(const struct launch_addresses *addresses, int port,
                                       struct launch_bytes *payload)
{
    TRY(launch_put_number(payload, (uint32_t)addresses->count));
    for (int i = 0; i < addresses->count; i++) {
        char text[LAUNCH_ADDRESS_BYTES + 16];
        launch_address_join(addresses->text[i], port, text, sizeof(text));
        TRY(launch_put_text(payload, text));
    }
    return SHOAL_OK;
}

static enum shoal_status probe_send(struct job *job, struct launch_connection *connection)
{
    static const struct launch_addresses none;
    const struct launch_connection *first = &job->connections[0];
    struct launch_bytes payload = {0};
    enum shoal_status status = addresses_put(connection->local ? &none : &job->addresses,
                                             boot_store_port(job->server), &payload);
    if (status == SHOAL_OK)
        status =
            addresses_put(connection == first ? &none : &first->addresses, first->port, &payload);
    if (status == SHOAL_OK)
        status = launch_message_put(&connection->out, LAUNCH_PROBE, 0, 0, &payload);
    launch_bytes_release(&payload);
    return status;
}

static enum shoal_status store_unreachable(const struct job *job)
{
    char tried[256] = "";
    for (int i = 0; i < job->addresses.count; i++)
        snprintf(tried + strlen(tried), sizeof(tried) - strlen(tried), "%s%s", i > 0 ? ", " : "",
                 job->addresses.text[i]);
    return base_error(SHOAL_ERR_PEER_UNREACHABLE,
                      "it does not reach this host: tried %s, port %d; --interface names the "
                      "network to use",
                      tried, boot_store_port(job->server));
}

enum shoal_status launch_job_probe_read(struct job *job, struct launch_connection *connection,
                                        struct launch_message *message)
{
    uint32_t count = 0, index = 0;
    int first_store = -1;
    TRY(launch_read_number(&message->payload, &count));
    for (uint32_t i = 0; i < count; i++) {
        TRY(launch_read_number(&message->payload, &index));
        first_store = first_store < 0 ? (int)index : first_store;
    }
    if (!connection->local && first_store < 0)
        return store_unreachable(job);
    if (!connection->local && first_store < job->addresses.count)
        launch_address_join(job->addresses.text[first_store], boot_store_port(job->server),
                            connection->store, sizeof(connection->store));
    TRY(launch_read_number(&message->payload, &count));
    for (uint32_t i = 0; i < count; i++) {
        TRY(launch_read_number(&message->payload, &index));
        if (index < LAUNCH_ADDRESSES_MAX)
            connection->reaches_first[index] = true;
    }
    return SHOAL_OK;
}

/* The first of rank 0's host's addresses that all others reach. */
static enum shoal_status master_choose(struct job *job)
{
    const struct launch_connection *first = &job->connections[0];
    int late = 1;
    for (int address = 0; address < first->addresses.count; address++) {
        int reached = 1;
        while (reached < job->connection_count && job->connections[reached].reaches_first[address])
            reached++;
        late = reached;
        if (reached < job->connection_count)
            continue;
        snprintf(job->master, sizeof(job->master), "%s", first->addresses.text[address]);
        return SHOAL_OK;
    }
    launch_job_fail(
        job, LAUNCH_EXIT_LAUNCH,
        "host %s does not reach host %s, where rank 0 is: no address of it answers all hosts; "
        "--interface names the network to use",
        job->connections[late].host->name, first->host->name);
    return SHOAL_OK;
}

/* ---- start ---- */

#define SERVER_HOSTS_BYTES 8192 /* of more than fit here none are named */

static const char *server_host(const struct job *job, int server)
{
    for (int i = 0; i < job->connection_count; i++) {
        const struct launch_host *host = job->connections[i].host;
        if (server >= host->first_server && server < host->first_server + host->server_count)
            return host->name;
    }
    return "?";
}

/* "f,g,g": ranks name a server by its host also when it never comes. */
static enum shoal_status server_hosts_put(const struct job *job, struct launch_variables *out)
{
    char text[SERVER_HOSTS_BYTES] = "";
    size_t used = 0;
    for (int server = 0; server < job->server_count && used < sizeof(text); server++)
        used += (size_t)snprintf(text + used, sizeof(text) - used, "%s%s", server > 0 ? "," : "",
                                 server_host(job, server));
    if (job->server_count == 0 || used >= sizeof(text))
        return SHOAL_OK;
    return launch_variables_set(out, base_options()[OPTION_SERVER_HOSTS].name, text);
}

/* What a launch sets besides what the agent knows itself; the user's own come last, to win. */
static enum shoal_status variables_make(const struct job *job,
                                        const struct launch_connection *connection,
                                        struct launch_variables *out)
{
    const struct launch_variables *own = job->options->variables;
    TRY(launch_variables_set(out, "MASTER_ADDR", job->master));
    TRY(launch_variables_set_number(out, "MASTER_PORT", job->master_port));
    TRY(launch_variables_set(out, "SHOAL_STORE", connection->store));
    TRY(launch_variables_set(out, "SHOAL_SECRET", job->secret));
    TRY(launch_variables_set(out, "SHOAL_LAUNCHED_BY", "shoal"));
    TRY(launch_variables_set_number(out, "SHOAL_SERVERS", job->server_count));
    TRY(server_hosts_put(job, out));
    return own != NULL && own->count > 0 ? launch_variables_put_all(out, own->entries) : SHOAL_OK;
}

/* The launcher's environment, for another host. */
static enum shoal_status environment_put(bool travels, struct launch_bytes *payload)
{
    uint32_t count = 0;
    for (char **entry = environ; travels && *entry != NULL; entry++)
        count += launch_variable_travels(*entry);
    TRY(launch_put_number(payload, count));
    for (char **entry = environ; travels && *entry != NULL; entry++)
        if (launch_variable_travels(*entry))
            TRY(launch_put_text(payload, *entry));
    return SHOAL_OK;
}

static enum shoal_status start_put(const struct job *job,
                                   const struct launch_connection *connection,
                                   const struct launch_variables *variables,
                                   struct launch_bytes *payload)
{
    int words = 0;
    bool is_first = connection->host->first_rank == 0 && connection->host->rank_count > 0;
    while (job->options->argv[words] != NULL)
        words++;
    TRY(launch_put_number(payload, (uint32_t)job->size));
    TRY(launch_put_number(payload, (uint32_t)connection->host->first_rank));
    TRY(launch_put_number(payload, (uint32_t)connection->host->rank_count));
    TRY(launch_put_number(payload, (uint32_t)job->options->grace_ms));
    TRY(launch_put_number(payload, is_first));
    TRY(launch_put_number(payload, (uint32_t)connection->host->first_server));
    TRY(launch_put_number(payload, (uint32_t)connection->host->server_count));
    TRY(launch_put_texts(payload, (const char *const *)job->options->argv, words));
    TRY(environment_put(!connection->local, payload));
    return launch_put_texts(payload, (const char *const *)variables->entries, variables->count);
}

static enum shoal_status start_send(struct job *job, struct launch_connection *connection)
{
    struct launch_variables variables = {0};
    struct launch_bytes payload = {0};
    if (connection->local && job->server != NULL)
        launch_address_join(LOOPBACK, boot_store_port(job->server), connection->store,
                            sizeof(connection->store));
    enum shoal_status status = variables_make(job, connection, &variables);
    if (status == SHOAL_OK)
        status = start_put(job, connection, &variables, &payload);
    if (status == SHOAL_OK)
        status = launch_message_put(&connection->out, LAUNCH_START, 0, 0, &payload);
    launch_variables_release(&variables);
    launch_bytes_release(&payload);
    connection->phase = LAUNCH_PHASE_RUNNING;
    return status;
}

/* ---- phases ---- */

static enum launch_phase phase_reached(const struct job *job)
{
    enum launch_phase phase = LAUNCH_PHASE_FINISHED;
    for (int i = 0; i < job->connection_count; i++)
        if (job->connections[i].phase < phase)
            phase = job->connections[i].phase;
    return phase;
}

static enum shoal_status probes_send(struct job *job)
{
    if (job->options->part == NULL)
        job->master_port = job->connections[0].port;
    for (int i = 0; i < job->connection_count; i++) {
        if (job->connection_count == 1 && job->connections[i].local)
            job->connections[i].phase = LAUNCH_PHASE_PROBED;
        else
            TRY(probe_send(job, &job->connections[i]));
    }
    return SHOAL_OK;
}

static enum shoal_status starts_send(struct job *job)
{
    if (job->options->part == NULL && job->connection_count == 1)
        snprintf(job->master, sizeof(job->master), "%s", LOOPBACK);
    else if (job->options->part == NULL)
        TRY(master_choose(job));
    for (int i = 0; i < job->connection_count && !job->failure.set; i++)
        TRY(start_send(job, &job->connections[i]));
    return SHOAL_OK;
}

enum shoal_status launch_job_start_advance(struct job *job)
{
    while (phase_reached(job) > job->phase && job->peers_ready && !job->failure.set) {
        job->phase++;
        if (job->phase == LAUNCH_PHASE_GREETED)
            TRY(surveys_send(job));
        else if (job->phase == LAUNCH_PHASE_SURVEYED)
            TRY(probes_send(job));
        else if (job->phase == LAUNCH_PHASE_PROBED)
            TRY(starts_send(job));
    }
    return SHOAL_OK;
}

/* A fresh one, unless the user or the other launchers have one. */
static enum shoal_status secret_make(struct job *job)
{
    const struct launch_options *options = job->options;
    const char *given = options->part != NULL ? options->part->secret : NULL;
    if (given == NULL && options->variables != NULL)
        given = launch_variables_get(options->variables, "SHOAL_SECRET");
    if (given != NULL) {
        snprintf(job->secret, sizeof(job->secret), "%s", given);
    } else {
        TRY(net_random(job->key, sizeof(job->key)));
        for (size_t i = 0; i < sizeof(job->key); i++)
            snprintf(job->secret + 2 * i, 3, "%02x", job->key[i]);
    }
    net_secret_from_text(job->secret, job->key);
    return SHOAL_OK;
}

static bool has_ranks_here(const struct job *job)
{
    for (int i = 0; i < job->connection_count; i++)
        if (job->connections[i].local)
            return true;
    return false;
}

/* Where no ranks are, such as on a login node, interfaces may have other names: then any of this
 * host's addresses may be the one that the ranks' hosts reach. */
static enum shoal_status own_addresses_read(struct job *job)
{
    enum shoal_status status = launch_addresses_read(job->options->interface, &job->addresses);
    if (status == SHOAL_ERR_OPTION && !has_ranks_here(job))
        status = launch_addresses_read(NULL, &job->addresses);
    return status;
}

static enum shoal_status store_serve(struct job *job)
{
    const struct launch_options *options = job->options;
    TRY(secret_make(job));
    if (options->part != NULL && options->part->index > 0)
        return SHOAL_OK;
    if (options->part == NULL && !all_local(job))
        TRY(own_addresses_read(job));
    return boot_store_serve(all_local(job) ? LOOPBACK : "", options->store_port, job->key,
                            &job->server);
}

/* The part's own way: everybody knows where the first launcher is. */
static enum shoal_status part_join(struct job *job)
{
    const struct launch_part *part = job->options->part;
    struct launch_connection *own = &job->connections[0];
    int port = job->options->store_port;
    snprintf(job->master, sizeof(job->master), "%s", part->first_host);
    job->master_port = job->options->master_port;
    launch_address_join(part->first_host, port, own->store, sizeof(own->store));
    return part->count == 1 ? SHOAL_OK
                            : launch_peers_open(own->store, job->key, part->index, part->count,
                                                job->start_deadline_ns, &job->peers);
}

enum shoal_status launch_job_start(struct job *job)
{
    const struct launch_options *options = job->options;
    char path[LAUNCH_PATH_BYTES];
    TRY(launch_own_path(path));
    TRY(store_serve(job));
    job->peers_ready = options->part == NULL || options->part->count == 1;
    if (options->part != NULL)
        TRY(part_join(job));
    for (int i = 0; i < job->connection_count; i++) {
        struct launch_connection *connection = &job->connections[i];
        struct launch_connection_events events = connection->events;
        TRY(launch_connection_open(
            connection, options->agent != NULL ? options->agent : LAUNCH_AGENT_DEFAULT,
            options->remote_shoal != NULL ? options->remote_shoal : path, &events));
    }
    return SHOAL_OK;
}
