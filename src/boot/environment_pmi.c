/* SPDX-License-Identifier: Apache-2.0 */
/*
 * environment_pmi.c: PMI-1, the line protocol that Hydra (MPICH, Intel MPI) and srun --mpi=pmi2
 * speak with the processes they start, over an inherited socket (PMI_FD) or a connection
 * (PMI_PORT).
 *
 * Used for one thing: rank 0 puts its card (store address and secret) into the launcher's key-value
 * space, all pass a barrier, the others get it.
 *
 * The connection stays for the process's life and is finished at exit: the launcher takes the end
 * of an unfinished one for a crash, and an MPI library in the same process may use it before or
 * after (then it finishes).
 */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <netdb.h>
#include <poll.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/status.h"
#include "boot/address.h"
#include "boot/environment_reader.h"
#include "boot/slurm.h"

#define LINE_BYTES  2048
#define NAME_BYTES  256
#define FINALIZE_MS 1000
#define ANSWER_MS   10000 /* of everything but the barrier */
#define CARD_KEY    "shoal-card"

struct pmi {
    int fd;         /* -1: not open */
    bool is_broken; /* an answer is outstanding */
    pid_t owner;    /* who opened it: a forked child must not speak on it */
    dev_t device;   /* of the socket, to know it again at exit */
    ino_t inode;
    int rank, size; /* by PMI_PORT the launcher tells them here */
    bool is_known;  /* the exchange was made: this was its result */
    struct boot_identity known;
    char space[NAME_BYTES];
    char buffer[LINE_BYTES]; /* read, but no whole line yet */
    size_t buffered;
};

static struct pmi pmi = {.fd = -1, .rank = -1, .size = -1};
static pthread_mutex_t pmi_lock = PTHREAD_MUTEX_INITIALIZER;

/* ---- lines ----------------------------------------------------------------------------------- */

static enum shoal_status pmi_broken(enum shoal_status status, const char *what)
{
    pmi.is_broken = true;
    return base_error(status, "the launcher's PMI connection: %s", what);
}

static enum shoal_status send_line(const char *line)
{
    size_t bytes = strlen(line);
    while (bytes > 0) {
        ssize_t done = send(pmi.fd, line, bytes, MSG_NOSIGNAL);
        if (done < 0 && errno == ENOTSOCK)
            done = write(pmi.fd, line, bytes);
        if (done < 0 && errno == EINTR)
            continue;
        if (done <= 0)
            return pmi_broken(SHOAL_ERR_SYSTEM, "cannot send");
        line += done;
        bytes -= (size_t)done;
    }
    return SHOAL_OK;
}

/* Takes a line out of the buffer; false if there is none yet. */
static bool take_line(char line[LINE_BYTES])
{
    char *end = memchr(pmi.buffer, '\n', pmi.buffered);
    if (end == NULL)
        return false;
    size_t bytes = (size_t)(end - pmi.buffer);
    memcpy(line, pmi.buffer, bytes);
    line[bytes] = '\0';
    pmi.buffered -= bytes + 1;
    memmove(pmi.buffer, end + 1, pmi.buffered);
    return true;
}

static enum shoal_status receive_line(int64_t deadline_ns, char line[LINE_BYTES])
{
    while (!take_line(line)) {
        struct pollfd one = {.fd = pmi.fd, .events = POLLIN};
        int left_ms = base_left_ms(deadline_ns);
        int ready = poll(&one, 1, left_ms);
        if (ready < 0 && errno != EINTR)
            return pmi_broken(SHOAL_ERR_SYSTEM, "cannot wait");
        if (ready == 0 && left_ms == 0)
            return pmi_broken(SHOAL_ERR_TIMEOUT, "no answer in time");
        if (ready <= 0)
            continue;
        if (pmi.buffered == sizeof(pmi.buffer))
            return pmi_broken(SHOAL_ERR_FORMAT, "a line without end");
        ssize_t got = read(pmi.fd, pmi.buffer + pmi.buffered, sizeof(pmi.buffer) - pmi.buffered);
        if (got == 0)
            return pmi_broken(SHOAL_ERR_PEER_LOST, "the launcher closed it");
        if (got < 0 && errno != EINTR && errno != EAGAIN)
            return pmi_broken(SHOAL_ERR_SYSTEM, "cannot receive");
        if (got > 0)
            pmi.buffered += (size_t)got;
    }
    return SHOAL_OK;
}

/* The value of `name` in a line of name=value words. */
static bool line_value(const char *line, const char *name, char *value, size_t bytes)
{
    size_t name_bytes = strlen(name);
    for (const char *at = line; *at != '\0'; at += strcspn(at, " "), at += strspn(at, " ")) {
        if (strncmp(at, name, name_bytes) == 0 && at[name_bytes] == '=') {
            const char *from = at + name_bytes + 1;
            size_t length = strcspn(from, " ");
            if (length >= bytes)
                return false;
            memcpy(value, from, length);
            value[length] = '\0';
            return true;
        }
    }
    return false;
}

static enum shoal_status check_answer(const char *line, const char *expected)
{
    char text[NAME_BYTES];
    if (!line_value(line, "cmd", text, sizeof(text)) || strcmp(text, expected) != 0) {
        pmi.is_broken = true;
        return base_error(SHOAL_ERR_FORMAT,
                          "the launcher's PMI connection: \"%.100s\" where %s was expected", line,
                          expected);
    }
    if (line_value(line, "rc", text, sizeof(text)) && strcmp(text, "0") != 0)
        return base_error(SHOAL_ERR_SYSTEM, "the launcher refuses a PMI request: \"%.200s\"", line);
    return SHOAL_OK;
}

/* Sends a request and receives its answer. */
static enum shoal_status ask(int64_t deadline_ns, const char *expected, char answer[LINE_BYTES],
                             const char *format, ...) __attribute__((format(printf, 4, 5)));
static enum shoal_status ask(int64_t deadline_ns, const char *expected, char answer[LINE_BYTES],
                             const char *format, ...)
{
    char line[LINE_BYTES];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(line, sizeof(line), format, arguments);
    va_end(arguments);
    TRY(send_line(line));
    TRY(receive_line(deadline_ns, answer));
    return check_answer(answer, expected);
}

/* ---- the connection -------------------------------------------------------------------------- */

/* Whether an MPI library in this process uses the connection too; then ending it is its business.
 */
static bool mpi_uses_it(void)
{
    int (*initialized)(int *flag) = NULL;
    void *address = dlsym(RTLD_DEFAULT, "MPI_Initialized");
    int flag = 0;
    memcpy(&initialized, &address, sizeof(address));
    return initialized != NULL && initialized(&flag) == 0 && flag != 0;
}

/* At exit. The descriptor may be another file by now, if somebody closed the socket. */
static void finish(void)
{
    struct stat file;
    char answer[LINE_BYTES];
    if (mpi_uses_it() || pmi.fd < 0 || pmi.is_broken || pmi.owner != getpid() ||
        fstat(pmi.fd, &file) != 0 || file.st_dev != pmi.device || file.st_ino != pmi.inode)
        return;
    ask(base_deadline_ns(FINALIZE_MS), "finalize_ack", answer, "cmd=finalize\n");
    close(pmi.fd);
    pmi.fd = -1;
}

static enum shoal_status use_descriptor(void)
{
    int fd;
    TRY(boot_variable_int("PMI_FD", 0, INT_MAX, &fd));
    if (fcntl(fd, F_GETFD) < 0)
        return base_error(SHOAL_ERR_OPTION,
                          "PMI_FD=%d is not open here: something between the launcher and this "
                          "program closed it; set SHOAL_STORE=host:port to do without",
                          fd);
    pmi.fd = fd;
    TRY(boot_variable_int("PMI_RANK", 0, INT_MAX - 1, &pmi.rank));
    return boot_variable_int("PMI_SIZE", 1, INT_MAX, &pmi.size);
}

static enum shoal_status connect_to_port(const char *address)
{
    char host[BOOT_ADDRESS_HOST_BYTES], service[16];
    int port;
    TRY(boot_address_split(address, host, &port));
    snprintf(service, sizeof(service), "%d", port);
    struct addrinfo *found, hints = {.ai_socktype = SOCK_STREAM};
    int result = getaddrinfo(host, service, &hints, &found);
    if (result != 0)
        return base_error(SHOAL_ERR_SYSTEM, "PMI_PORT=%.200s: %s", address, gai_strerror(result));
    for (struct addrinfo *at = found; at != NULL && pmi.fd < 0; at = at->ai_next) {
        int fd = socket(at->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
        if (fd >= 0 && connect(fd, at->ai_addr, at->ai_addrlen) == 0)
            pmi.fd = fd;
        else if (fd >= 0)
            close(fd);
    }
    freeaddrinfo(found);
    if (pmi.fd < 0)
        return base_error_errno(SHOAL_ERR_PEER_UNREACHABLE, errno, "PMI_PORT=%.200s", address);
    return SHOAL_OK;
}

/* The launcher greets a connection with the process's rank and size, a line for each setting. */
static enum shoal_status use_port(const char *address, int64_t deadline_ns)
{
    char line[LINE_BYTES], text[32];
    const char *id = boot_variable("PMI_ID");
    if (id == NULL)
        return base_error(SHOAL_ERR_OPTION, "PMI_PORT is set, but PMI_ID is missing");
    TRY(connect_to_port(address));
    TRY(ask(deadline_ns, "initack", line, "cmd=initack pmiid=%.64s\n", id));
    for (int settings = 0; settings < 3; settings++) {
        TRY(receive_line(deadline_ns, line));
        TRY(check_answer(line, "set"));
        if (line_value(line, "rank", text, sizeof(text)))
            pmi.rank = atoi(text);
        if (line_value(line, "size", text, sizeof(text)))
            pmi.size = atoi(text);
    }
    if (pmi.rank < 0 || pmi.size < 1)
        return pmi_broken(SHOAL_ERR_FORMAT, "it did not tell rank and size");
    return SHOAL_OK;
}

static enum shoal_status remember(void)
{
    struct stat file;
    if (fstat(pmi.fd, &file) != 0)
        return pmi_broken(SHOAL_ERR_SYSTEM, "its socket cannot be examined");
    pmi.device = file.st_dev;
    pmi.inode = file.st_ino;
    pmi.owner = getpid();
    atexit(finish);
    return SHOAL_OK;
}

static enum shoal_status open_connection(int64_t deadline_ns)
{
    char line[LINE_BYTES];
    const char *address = boot_variable("PMI_PORT");
    TRY(boot_variable("PMI_FD") == NULL && address != NULL ? use_port(address, deadline_ns)
                                                           : use_descriptor());
    TRY(ask(deadline_ns, "response_to_init", line, "cmd=init pmi_version=1 pmi_subversion=1\n"));
    TRY(remember());
    TRY(ask(deadline_ns, "my_kvsname", line, "cmd=get_my_kvsname\n"));
    if (!line_value(line, "kvsname", pmi.space, sizeof(pmi.space)))
        return pmi_broken(SHOAL_ERR_FORMAT, "it did not tell the name of its key-value space");
    return SHOAL_OK;
}

/* ---- the exchange ---------------------------------------------------------------------------- */

static int64_t sooner(int64_t deadline_ns)
{
    int64_t answer_ns = base_deadline_ns(ANSWER_MS);
    return answer_ns < deadline_ns ? answer_ns : deadline_ns;
}

static enum shoal_status exchange(int64_t deadline_ns, struct boot_identity *identity)
{
    char line[LINE_BYTES], card[BOOT_CARD_BYTES];
    if (identity->rank == 0) {
        TRY(boot_identity_make_card(identity, card));
        TRY(ask(sooner(deadline_ns), "put_result", line, "cmd=put kvsname=%s key=%s value=%s\n",
                pmi.space, CARD_KEY, card));
    }
    enum shoal_status status = ask(deadline_ns, "barrier_out", line, "cmd=barrier_in\n");
    if (status == SHOAL_ERR_TIMEOUT)
        return base_error(status, "not all %d ranks came to the launcher's PMI barrier in time",
                          identity->size);
    TRY(status);
    if (identity->rank == 0)
        return SHOAL_OK;
    TRY(ask(sooner(deadline_ns), "get_result", line, "cmd=get kvsname=%s key=%s\n", pmi.space,
            CARD_KEY));
    if (!line_value(line, "value", card, sizeof(card)))
        return pmi_broken(SHOAL_ERR_FORMAT, "it does not have rank 0's card");
    return boot_identity_take_card(identity, card);
}

static enum shoal_status use_connection(int64_t deadline_ns, struct boot_identity *identity)
{
    if (pmi.is_broken)
        return base_error(SHOAL_ERR_STATE, "the launcher's PMI connection broke earlier");
    if (pmi.owner != 0 && pmi.owner != getpid())
        return base_error(SHOAL_ERR_STATE,
                          "a forked child cannot use the launcher's PMI connection");
    if (pmi.is_known) {
        *identity = pmi.known;
        return SHOAL_OK;
    }
    if (pmi.fd < 0)
        TRY(open_connection(sooner(deadline_ns)));
    identity->rank = pmi.rank;
    identity->size = pmi.size;
    if (identity->size > 1)
        TRY(exchange(deadline_ns, identity));
    pmi.known = *identity;
    pmi.is_known = true;
    return SHOAL_OK;
}

/* ---- the reader ------------------------------------------------------------------------------ */

static bool applies(void)
{
    return boot_variable("PMI_FD") != NULL || boot_variable("PMI_PORT") != NULL;
}

static enum shoal_status read_identity(int64_t deadline_ns, struct boot_identity *identity)
{
    bool hydra = boot_variable("MPI_LOCALRANKID") != NULL;
    if (!hydra && boot_variable("SLURM_STEP_NUM_TASKS") != NULL) {
        snprintf(identity->launcher, sizeof(identity->launcher), "slurm");
        TRY(boot_slurm_local(identity));
    }
    if (hydra) {
        TRY(boot_variable_int_optional("MPI_LOCALRANKID", 0, INT_MAX, &identity->local_rank));
        TRY(boot_variable_int_optional("MPI_LOCALNRANKS", 1, INT_MAX, &identity->local_size));
    }
    /* Rank and size stand in variables where the launcher gives a descriptor. */
    if (boot_identity_is_placed() && boot_variable("PMI_RANK") != NULL) {
        TRY(boot_variable_int("PMI_RANK", 0, INT_MAX - 1, &identity->rank));
        TRY(boot_variable_int("PMI_SIZE", 1, INT_MAX, &identity->size));
        return boot_identity_place(identity, NULL, 0, NULL);
    }
    pthread_mutex_lock(&pmi_lock);
    enum shoal_status status = use_connection(deadline_ns, identity);
    pthread_mutex_unlock(&pmi_lock);
    return status;
}

const struct boot_reader boot_reader_pmi = {"hydra", applies, read_identity};
