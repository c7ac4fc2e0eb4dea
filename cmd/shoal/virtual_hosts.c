/* SPDX-License-Identifier: Apache-2.0 */
/*
 * virtual_hosts.c: makes, connects and removes virtual hosts. Their processes are in
 * virtual_hosts_process.c.
 *
 * The network is set up by `ip -batch` and `tc -batch` that run inside the namespaces, so that
 * nothing of the machine's own network is touched.
 *
 * The shaper's bucket is kept small (about 1 ms of the rate), for a larger one would let short
 * transfers pass above the rate, yet above the 64 KiB that one segmentation-offload packet may
 * have.
 */
#include "virtual_hosts.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/memory.h"
#include "base/status.h"
#include "virtual_hosts_process.h"

#define NAMES_VARIABLE    "SHOAL_VHOSTS"
#define PIDS_VARIABLE     "SHOAL_VHOSTS_PIDS"
#define TOOL_OUTPUT_BYTES 512
#define RATE_BYTES        32
#define PORT_BYTES        32
#define NETWORK_FIRST     77 /* 10.77.0.0/16 and fd77::/64 are the first links' */

/* ---- rates
 * --------------------------------------------------------------------------------------- */

static enum shoal_status parse_rate(const char *text, uint64_t *rate_bits_per_s)
{
    static const struct {
        const char *unit;
        double bits;
    } units[] = {{"bit", 1}, {"kbit", 1e3}, {"mbit", 1e6}, {"gbit", 1e9}};
    if (strcmp(text, "none") == 0) {
        *rate_bits_per_s = 0;
        return SHOAL_OK;
    }
    char *end = NULL;
    double number = text[0] >= '0' && text[0] <= '9' ? strtod(text, &end) : 0;
    for (size_t i = 0; end != NULL && i < sizeof(units) / sizeof(units[0]); i++) {
        if (strcasecmp(end, units[i].unit) != 0)
            continue;
        double bits = number * units[i].bits;
        if (bits < 1e6 || bits > 1e11)
            return base_error(SHOAL_ERR_ARGUMENT,
                              "rate '%s' is outside 1mbit to 100gbit (none: no limit)", text);
        *rate_bits_per_s = (uint64_t)bits;
        return SHOAL_OK;
    }
    return base_error(SHOAL_ERR_ARGUMENT,
                      "can't read rate '%s'; write a number and kbit, mbit or gbit, for example "
                      "1gbit, or none",
                      text);
}

enum shoal_status vhosts_parse_rates(const char *text, struct vhosts_rates *rates)
{
    struct vhosts_rates parsed = {.count = 0};
    for (bool more = true; more;) {
        char word[RATE_BYTES];
        size_t bytes = strcspn(text, ",");
        if (parsed.count == VHOSTS_MAX)
            return base_error(SHOAL_ERR_ARGUMENT, "more than %d rates", VHOSTS_MAX);
        snprintf(word, sizeof(word), "%.*s", (int)bytes, text);
        TRY(parse_rate(word, &parsed.bits_per_s[parsed.count++]));
        more = text[bytes] == ',';
        text += bytes + more;
    }
    *rates = parsed;
    return SHOAL_OK;
}

static uint64_t rate_of(const struct vhosts *vhosts, int host)
{
    const struct vhosts_rates *rates = &vhosts->rates;
    BASE_ASSERT(rates->count > 0);
    return rates->bits_per_s[host < rates->count ? host : rates->count - 1];
}

/* ---- the network
 * ---------------------------------------------------------------------------------- */

/* Commands for `ip -batch` or `tc -batch`: text in a memfd. */
struct batch {
    int fd;
    bool failed;
};

static void batch_add(struct batch *batch, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
static void batch_add(struct batch *batch, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    if (batch->failed || vdprintf(batch->fd, format, args) < 0)
        batch->failed = true;
    va_end(args);
}

/* Runs `tool -batch -` in a host; its stderr is the error's text. */
static enum shoal_status run_batch(struct vhosts *vhosts, int host, const char *tool, int batch_fd)
{
    char *const argv[] = {(char *)tool, (char *)"-batch", (char *)"-", NULL};
    char name[16], output[TOOL_OUTPUT_BYTES];
    int output_fd = memfd_create("tool output", MFD_CLOEXEC), wait_status = 0;
    if (output_fd < 0 || lseek(batch_fd, 0, SEEK_SET) != 0) {
        close(output_fd);
        return base_error_errno(SHOAL_ERR_SYSTEM, errno, "making a memory file");
    }
    pid_t pid;
    enum shoal_status status =
        vhosts_spawn(vhosts, host, argv, NULL, (int[]){batch_fd, output_fd, output_fd}, &pid);
    if (status == SHOAL_OK) {
        while (waitpid(pid, &wait_status, 0) < 0 && errno == EINTR)
            continue;
        ssize_t got = pread(output_fd, output, sizeof(output) - 1, 0);
        output[got > 0 ? got : 0] = '\0';
        output[strcspn(output, "\n")] = '\0';
        if (wait_status != 0)
            status = base_error(SHOAL_ERR_SYSTEM, "setting up the network of host %s: %s: %s",
                                vhosts_name(host, name), tool, output);
    }
    close(output_fd);
    return status;
}

static enum shoal_status batch_run(struct batch *batch, struct vhosts *vhosts, int host,
                                   const char *tool)
{
    enum shoal_status status =
        batch->failed ? base_error_errno(SHOAL_ERR_SYSTEM, errno, "writing a memory file")
                      : run_batch(vhosts, host, tool, batch->fd);
    if (batch->fd >= 0)
        close(batch->fd);
    return status;
}

static struct batch batch_start(void)
{
    int fd = memfd_create("tool input", MFD_CLOEXEC);
    return (struct batch){.fd = fd, .failed = fd < 0};
}

static void add_shaper(struct batch *batch, const char *interface, uint64_t rate_bits_per_s)
{
    uint64_t burst_bytes = rate_bits_per_s / 8 / 1000;
    if (rate_bits_per_s == 0)
        return;
    if (burst_bytes < 80 * 1024)
        burst_bytes = 80 * 1024;
    batch_add(batch,
              "qdisc add dev %s root tbf rate %" PRIu64 "bit burst %" PRIu64 " latency 50ms\n",
              interface, rate_bits_per_s, burst_bytes);
}

static bool have_ipv6(void)
{
    return access("/proc/net/if_inet6", F_OK) == 0;
}

/* The head's end of a host's link: vp3, or vp3-1 for its second one. */
static const char *port_name(int host, int link, char buffer[PORT_BYTES])
{
    if (link == 0)
        snprintf(buffer, PORT_BYTES, "vp%d", host);
    else
        snprintf(buffer, PORT_BYTES, "vp%d-%d", host, link);
    return buffer;
}

static void add_bridge(struct batch *batch, const struct vhosts *vhosts, int link)
{
    char port[PORT_BYTES];
    int network = NETWORK_FIRST + link;
    batch_add(batch, "link add br%d type bridge\naddr add 10.%d.0.1/16 dev br%d\n", link, network,
              link);
    if (have_ipv6())
        batch_add(batch, "addr add fd%d::1/64 dev br%d nodad\n", network, link);
    for (int i = 0; i < vhosts->count; i++) {
        port_name(i, link, port);
        batch_add(batch,
                  "link add %s mtu %d type veth peer name eth%d mtu %d netns %d\n"
                  "link set %s master br%d up\n",
                  port, VHOSTS_MTU_BYTES, link, VHOSTS_MTU_BYTES, (int)vhosts->head_view[i], port,
                  link);
    }
    batch_add(batch, "link set br%d up\n", link);
}

static enum shoal_status connect_head(struct vhosts *vhosts)
{
    struct batch batch = batch_start();
    char port[PORT_BYTES];
    batch_add(&batch, "link set lo up\n");
    for (int link = 0; link < vhosts->links; link++)
        add_bridge(&batch, vhosts, link);
    TRY(batch_run(&batch, vhosts, VHOSTS_HEAD, "ip"));
    batch = batch_start();
    for (int i = 0; i < vhosts->count * vhosts->links; i++) {
        int host = i / vhosts->links;
        add_shaper(&batch, port_name(host, i % vhosts->links, port), rate_of(vhosts, host));
    }
    return batch_run(&batch, vhosts, VHOSTS_HEAD, "tc");
}

static enum shoal_status connect_host(struct vhosts *vhosts, int host)
{
    struct batch batch = batch_start();
    char interface[PORT_BYTES];
    batch_add(&batch, "link set lo up\n");
    for (int link = 0; link < vhosts->links; link++) {
        int network = NETWORK_FIRST + link;
        batch_add(&batch, "addr add 10.%d.1.%d/16 dev eth%d\n", network, host + 1, link);
        if (have_ipv6())
            batch_add(&batch, "addr add fd%d::1:%x/64 dev eth%d nodad\n", network, host + 1, link);
        batch_add(&batch, "link set eth%d up\n", link);
    }
    TRY(batch_run(&batch, vhosts, host, "ip"));
    if (rate_of(vhosts, host) == 0)
        return SHOAL_OK;
    batch = batch_start();
    for (int link = 0; link < vhosts->links; link++) {
        snprintf(interface, sizeof(interface), "eth%d", link);
        add_shaper(&batch, interface, rate_of(vhosts, host));
    }
    return batch_run(&batch, vhosts, host, "tc");
}

/* ---- making and removing
 * --------------------------------------------------------------------------- */

/* /etc/hosts for all: names of the hosts and the head, both address families. Freed by base_free.
 */
static enum shoal_status hosts_text_create(int count, char **out)
{
    size_t capacity = 256 + (size_t)count * 64, used;
    char *text;
    TRY(BASE_NEW_ARRAY(&text, capacity, "the virtual hosts' names"));
    used = (size_t)snprintf(text, capacity,
                            "127.0.0.1 localhost\n::1 localhost ip6-localhost ip6-loopback\n"
                            "10.77.0.1 %s\n",
                            VHOSTS_HEAD_NAME);
    for (int i = 0; i < count; i++)
        used += (size_t)snprintf(text + used, capacity - used, "10.77.1.%d vh%d\n", i + 1, i);
    for (int i = 0; have_ipv6() && i < count; i++)
        used += (size_t)snprintf(text + used, capacity - used, "fd77::1:%x vh%d\n", i + 1, i);
    *out = text;
    return SHOAL_OK;
}

static enum shoal_status require_tool(const char *tool)
{
    const char *path = getenv("PATH");
    char directories[4096], candidate[4200];
    snprintf(directories, sizeof(directories), "%s", path != NULL ? path : "");
    char *rest = NULL;
    for (char *directory = strtok_r(directories, ":", &rest); directory != NULL;
         directory = strtok_r(NULL, ":", &rest)) {
        snprintf(candidate, sizeof(candidate), "%s/%s", directory, tool);
        if (access(candidate, X_OK) == 0)
            return SHOAL_OK;
    }
    return base_error(SHOAL_ERR_SYSTEM,
                      "virtual hosts need the program '%s', which is not in PATH; it is in the "
                      "package iproute2 (and often in /usr/sbin)",
                      tool);
}

static enum shoal_status build_hosts(struct vhosts *vhosts)
{
    char *hosts_text;
    TRY(hosts_text_create(vhosts->count, &hosts_text));
    enum shoal_status status = vhosts_start_holders(vhosts, hosts_text);
    base_free(hosts_text);
    TRY(status);
    TRY(connect_head(vhosts));
    for (int i = 0; i < vhosts->count; i++)
        TRY(connect_host(vhosts, i));
    return SHOAL_OK;
}

static enum shoal_status vhosts_allocate(int count, struct vhosts **out)
{
    struct vhosts *vhosts;
    TRY(BASE_NEW(&vhosts, "virtual hosts"));
    vhosts->count = count;
    vhosts->life_fd = -1;
    vhosts->head_pid = -1;
    enum shoal_status status = BASE_NEW_ARRAY(&vhosts->pids, count, "virtual hosts");
    if (status == SHOAL_OK)
        status = BASE_NEW_ARRAY(&vhosts->head_view, count, "virtual hosts");
    if (status != SHOAL_OK) {
        vhosts_free(vhosts);
        return status;
    }
    *out = vhosts;
    return SHOAL_OK;
}

enum shoal_status vhosts_create(int count, int links, const struct vhosts_rates *rates,
                                struct vhosts **out)
{
    if (count < 1 || count > VHOSTS_MAX)
        return base_error(SHOAL_ERR_ARGUMENT, "%d virtual hosts: 1 to %d are possible", count,
                          VHOSTS_MAX);
    if (links < 1 || links > VHOSTS_LINKS_MAX)
        return base_error(SHOAL_ERR_ARGUMENT, "%d links of a host: 1 to %d are possible", links,
                          VHOSTS_LINKS_MAX);
    if (geteuid() != 0)
        return base_error(SHOAL_ERR_SYSTEM,
                          "virtual hosts need root: namespaces, veth pairs and tc are made; run "
                          "this with sudo");
    TRY(require_tool("ip"));
    TRY(require_tool("tc"));
    struct vhosts *vhosts;
    TRY(vhosts_allocate(count, &vhosts));
    vhosts->owned = true;
    vhosts->rates = *rates;
    vhosts->links = links;
    enum shoal_status status = build_hosts(vhosts);
    if (status != SHOAL_OK) {
        vhosts_free(vhosts);
        return status;
    }
    *out = vhosts;
    return SHOAL_OK;
}

void vhosts_free(struct vhosts *vhosts)
{
    if (vhosts == NULL)
        return;
    if (vhosts->owned && vhosts->head_pid > 0) {
        kill(vhosts->head_pid, SIGKILL);
        vhosts_reap_programs(vhosts);
        vhosts_wait_for(vhosts->head_pid);
    }
    if (vhosts->life_fd >= 0)
        close(vhosts->life_fd);
    base_free(vhosts->head_view);
    base_free(vhosts->pids);
    base_free(vhosts);
}

int vhosts_count(const struct vhosts *vhosts)
{
    return vhosts->count;
}

/* ---- passing them on
 * -------------------------------------------------------------------------------- */

enum shoal_status vhosts_export(const struct vhosts *vhosts)
{
    char names[VHOSTS_MAX * 8], pids[VHOSTS_MAX * 12];
    size_t names_used = 0, pids_used = 0;
    for (int i = 0; i < vhosts->count; i++) {
        const char *gap = i > 0 ? " " : "";
        names_used +=
            (size_t)snprintf(names + names_used, sizeof(names) - names_used, "%svh%d", gap, i);
        pids_used += (size_t)snprintf(pids + pids_used, sizeof(pids) - pids_used, "%s%d", gap,
                                      (int)vhosts->head_view[i]);
    }
    if (setenv(NAMES_VARIABLE, names, 1) != 0 || setenv(PIDS_VARIABLE, pids, 1) != 0)
        return base_error_errno(SHOAL_ERR_MEMORY, errno, "setting " NAMES_VARIABLE);
    return SHOAL_OK;
}

enum shoal_status vhosts_attach(struct vhosts **out)
{
    pid_t pids[VHOSTS_MAX];
    const char *text = getenv(PIDS_VARIABLE);
    int count = 0;
    if (text == NULL)
        return base_error(SHOAL_ERR_STATE, PIDS_VARIABLE " is not set; this works only in a "
                                                         "program started by `shoal vhosts`");
    while (*text != '\0' && count < VHOSTS_MAX) {
        char *end;
        long pid = strtol(text, &end, 10);
        if (end == text || pid < 1 || pid > INT_MAX)
            return base_error(SHOAL_ERR_FORMAT, "can't read " PIDS_VARIABLE "='%s'",
                              getenv(PIDS_VARIABLE));
        pids[count++] = (pid_t)pid;
        text = *end == ' ' ? end + 1 : end;
    }
    struct vhosts *vhosts;
    TRY(vhosts_allocate(count, &vhosts));
    memcpy(vhosts->pids, pids, (size_t)count * sizeof(pids[0]));
    memcpy(vhosts->head_view, pids, (size_t)count * sizeof(pids[0]));
    vhosts->head_pid = 1; /* the head's own first process, seen from inside */
    *out = vhosts;
    return SHOAL_OK;
}

enum shoal_status vhosts_find(const struct vhosts *vhosts, const char *name, int *host)
{
    char buffer[16];
    for (int i = VHOSTS_HEAD; i < vhosts->count; i++) {
        if (strcmp(name, vhosts_name(i, buffer)) == 0) {
            *host = i;
            return SHOAL_OK;
        }
    }
    return base_error(SHOAL_ERR_ARGUMENT,
                      "there is no virtual host '%s'; there are vh0 to vh%d and %s", name,
                      vhosts->count - 1, VHOSTS_HEAD_NAME);
}
