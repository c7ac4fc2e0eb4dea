/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pmix.c: PMIx, with which Open MPI's mpirun (5 and later) and srun --mpi=pmix tell their processes
 * who they are, and carry rank 0's card to all.
 *
 * Only the headers are needed to build; the library is opened at run time, first the one that the
 * process has loaded already, then the launcher's own, then the system's: an installation of Shoal
 * needs no PMIx, and client and launcher fit together. Calls that wait for other ranks are the
 * non-blocking ones, because only those can be given a deadline.
 *
 * As with PMI, the library is finished at exit: see environment_pmi.c. A program that uses Open MPI
 * itself has to call MPI_Init before it makes a group: Open MPI cannot follow another user of PMIx.
 */
#include "boot/environment_reader.h"

#ifdef HAVE_PMIX

#include <dlfcn.h>
#include <errno.h>
#include <pmix.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/status.h"

#define LIBRARY_NAME "libpmix.so.2"
#define CARD_KEY     "shoal.card"
#define PATH_BYTES   1024

/* The functions that are used, with the types that the headers declare. */
struct pmix_library {
    __typeof__(PMIx_Init) *init;
    __typeof__(PMIx_Finalize) *finalize;
    __typeof__(PMIx_Put) *put;
    __typeof__(PMIx_Commit) *commit;
    __typeof__(PMIx_Fence_nb) *fence;
    __typeof__(PMIx_Get) *get;
    __typeof__(PMIx_Get_nb) *get_later;
    __typeof__(PMIx_Error_string) *error_string;
};

/* What a callback brings. Static, because one that comes after its deadline still writes here. */
struct pmix_answer {
    pthread_mutex_t lock;
    pthread_cond_t came;
    bool is_here;
    pmix_status_t status;
    char text[BOOT_CARD_BYTES];
};

static struct pmix_library library;
static struct pmix_answer answer = {.lock = PTHREAD_MUTEX_INITIALIZER};
static pthread_mutex_t pmix_lock = PTHREAD_MUTEX_INITIALIZER;
static pmix_proc_t self;
static pid_t owner; /* 0: not initialized */
static bool is_broken, is_searched, is_known;
static struct boot_identity known; /* the exchange's result */

/* ---- the library ----------------------------------------------------------------------------- */

static bool find_functions(void *handle)
{
    const struct {
        const char *name;
        void *place;
    } functions[] = {
        {"PMIx_Init", &library.init},        {"PMIx_Finalize", &library.finalize},
        {"PMIx_Put", &library.put},          {"PMIx_Commit", &library.commit},
        {"PMIx_Fence_nb", &library.fence},   {"PMIx_Get", &library.get},
        {"PMIx_Get_nb", &library.get_later}, {"PMIx_Error_string", &library.error_string},
    };
    for (size_t i = 0; i < sizeof(functions) / sizeof(functions[0]); i++) {
        void *address = dlsym(handle, functions[i].name);
        if (address == NULL)
            return false;
        memcpy(functions[i].place, &address, sizeof(address));
    }
    return true;
}

static bool open_library(const char *path)
{
    void *handle = dlopen(path, RTLD_NOW | RTLD_GLOBAL);
    if (handle == NULL)
        return false;
    if (find_functions(handle)) {
        base_log(BASE_LOG_DEBUG, "PMIx library: %s", path);
        return true;
    }
    dlclose(handle);
    return false;
}

/* The launcher's own copy: beside its library folder, or in a folder below. */
static bool open_launchers_library(void)
{
    static const char *const variables[] = {"PMIX_PREFIX", "OPAL_PREFIX", "PRTE_PREFIX",
                                            "OMPI_LIBDIR_LOC"};
    static const char *const folders[] = {"lib/", "lib/openmpi/", "lib64/", "", "openmpi/"};
    for (size_t v = 0; v < sizeof(variables) / sizeof(variables[0]); v++) {
        const char *prefix = boot_variable(variables[v]);
        for (size_t f = 0; prefix != NULL && f < sizeof(folders) / sizeof(folders[0]); f++) {
            char path[PATH_BYTES];
            snprintf(path, sizeof(path), "%.900s/%s%s", prefix, folders[f], LIBRARY_NAME);
            if (access(path, R_OK) == 0 && open_library(path))
                return true;
        }
    }
    return false;
}

static bool has_library(void)
{
    pthread_mutex_lock(&pmix_lock);
    if (!is_searched) {
        is_searched = true;
        if (!find_functions(RTLD_DEFAULT) && !open_launchers_library() &&
            !open_library(LIBRARY_NAME))
            library.init = NULL;
    }
    pthread_mutex_unlock(&pmix_lock);
    return library.init != NULL;
}

/* ---- calls ----------------------------------------------------------------------------------- */

static enum shoal_status pmix_error(pmix_status_t cause, const char *what)
{
    return base_error(SHOAL_ERR_SYSTEM,
                      "PMIx cannot %s: %s (set SHOAL_STORE=host:port to do without)", what,
                      library.error_string(cause));
}

/* At exit. */
static void finish(void)
{
    if (owner == getpid() && !is_broken)
        library.finalize(NULL, 0);
}

static enum shoal_status initialize(void)
{
    if (owner != 0 && owner != getpid())
        return base_error(SHOAL_ERR_STATE, "a forked child cannot use its parent's PMIx");
    if (is_broken)
        return base_error(SHOAL_ERR_STATE, "an earlier exchange over PMIx did not end");
    if (owner != 0)
        return SHOAL_OK;
    pmix_status_t result = library.init(&self, NULL, 0);
    if (result != PMIX_SUCCESS)
        return pmix_error(result, "reach the launcher");
    owner = getpid();
    atexit(finish);
    return SHOAL_OK;
}

/* A number that the launcher told this process at its start. */
static enum shoal_status get_number(pmix_rank_t rank, const char *key, int *out)
{
    pmix_proc_t who = self;
    pmix_value_t *value = NULL;
    who.rank = rank;
    pmix_status_t result = library.get(&who, key, NULL, 0, &value);
    if (result != PMIX_SUCCESS || value == NULL)
        return pmix_error(result, key);
    if (value->type == PMIX_UINT32)
        *out = (int)value->data.uint32;
    else if (value->type == PMIX_UINT16)
        *out = (int)value->data.uint16;
    else
        *out = -1;
    free(value);
    return SHOAL_OK;
}

/* The condition waits by the clock of the deadlines. */
static void answer_init(void)
{
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&answer.came, &monotonic);
    pthread_condattr_destroy(&monotonic);
}

static void answer_begin(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, answer_init);
    answer.is_here = false;
    answer.text[0] = '\0';
}

static void answer_come(pmix_status_t status, const char *text)
{
    pthread_mutex_lock(&answer.lock);
    answer.status = status;
    snprintf(answer.text, sizeof(answer.text), "%s", text);
    answer.is_here = true;
    pthread_cond_signal(&answer.came);
    pthread_mutex_unlock(&answer.lock);
}

static void on_fence(pmix_status_t status, void *user)
{
    (void)user;
    answer_come(status, "");
}

static void on_value(pmix_status_t status, pmix_value_t *value, void *user)
{
    (void)user;
    bool is_text = status == PMIX_SUCCESS && value != NULL && value->type == PMIX_STRING;
    answer_come(status, is_text ? value->data.string : "");
}

/* Waits for the callback of a call that returned `result`. */
static enum shoal_status answer_wait(pmix_status_t result, int64_t deadline_ns, const char *what)
{
    if (result != PMIX_SUCCESS)
        return pmix_error(result, what);
    struct timespec until = {.tv_sec = deadline_ns / BASE_NS_PER_S,
                             .tv_nsec = deadline_ns % BASE_NS_PER_S};
    pthread_mutex_lock(&answer.lock);
    while (!answer.is_here && pthread_cond_timedwait(&answer.came, &answer.lock, &until) == 0) {}
    bool is_here = answer.is_here;
    pmix_status_t status = answer.status;
    pthread_mutex_unlock(&answer.lock);
    if (!is_here) {
        is_broken = true;
        return base_error(SHOAL_ERR_TIMEOUT, "PMIx did not %s in time: not all ranks came", what);
    }
    return status == PMIX_SUCCESS ? SHOAL_OK : pmix_error(status, what);
}

/* ---- the exchange ---------------------------------------------------------------------------- */

static enum shoal_status put_card(struct boot_identity *identity)
{
    char card[BOOT_CARD_BYTES];
    TRY(boot_identity_make_card(identity, card));
    pmix_value_t value;
    memset(&value, 0, sizeof(value));
    value.type = PMIX_STRING;
    value.data.string = card;
    pmix_status_t result = library.put(PMIX_GLOBAL, CARD_KEY, &value);
    return result == PMIX_SUCCESS ? SHOAL_OK : pmix_error(result, "put rank 0's card");
}

static enum shoal_status exchange(int64_t deadline_ns, struct boot_identity *identity)
{
    if (identity->rank == 0)
        TRY(put_card(identity));
    pmix_status_t result = library.commit();
    if (result != PMIX_SUCCESS)
        return pmix_error(result, "commit");
    pmix_proc_t who = self;
    who.rank = PMIX_RANK_WILDCARD;
    answer_begin();
    TRY(answer_wait(library.fence(&who, 1, NULL, 0, on_fence, NULL), deadline_ns,
                    "bring all ranks together"));
    if (identity->rank == 0)
        return SHOAL_OK;
    who.rank = 0;
    answer_begin();
    TRY(answer_wait(library.get_later(&who, CARD_KEY, NULL, 0, on_value, NULL), deadline_ns,
                    "bring rank 0's card"));
    return boot_identity_take_card(identity, answer.text);
}

static enum shoal_status ask_launcher(int64_t deadline_ns, struct boot_identity *identity)
{
    identity->rank = (int)self.rank;
    TRY(get_number(PMIX_RANK_WILDCARD, PMIX_JOB_SIZE, &identity->size));
    TRY(get_number(self.rank, PMIX_LOCAL_RANK, &identity->local_rank));
    TRY(get_number(PMIX_RANK_WILDCARD, PMIX_LOCAL_SIZE, &identity->local_size));
    if (identity->size < 1)
        return base_error(SHOAL_ERR_FORMAT, "PMIx does not tell the number of ranks");
    if (identity->size == 1)
        return SHOAL_OK;
    if (boot_identity_is_placed())
        return boot_identity_place(identity, NULL, 0, NULL);
    return exchange(deadline_ns, identity);
}

static enum shoal_status read_locked(int64_t deadline_ns, struct boot_identity *identity)
{
    TRY(initialize());
    if (is_known) {
        *identity = known;
        return SHOAL_OK;
    }
    TRY(ask_launcher(deadline_ns, identity));
    known = *identity;
    is_known = true;
    return SHOAL_OK;
}

static enum shoal_status read_identity(int64_t deadline_ns, struct boot_identity *identity)
{
    snprintf(identity->launcher, sizeof(identity->launcher), "%s",
             boot_variable("OMPI_COMM_WORLD_SIZE") != NULL   ? "openmpi"
             : boot_variable("SLURM_STEP_NUM_TASKS") != NULL ? "slurm"
                                                             : "pmix");
    pthread_mutex_lock(&pmix_lock);
    enum shoal_status status = read_locked(deadline_ns, identity);
    pthread_mutex_unlock(&pmix_lock);
    return status;
}

static bool applies(void)
{
    return boot_variable("PMIX_NAMESPACE") != NULL && boot_variable("PMIX_RANK") != NULL &&
           has_library();
}

#else /* built without PMIx's headers */

static bool applies(void)
{
    return false;
}

static enum shoal_status read_identity(int64_t deadline_ns, struct boot_identity *identity)
{
    (void)deadline_ns;
    (void)identity;
    return SHOAL_ERR_UNSUPPORTED;
}

#endif

const struct boot_reader boot_reader_pmix = {"pmix", applies, read_identity};
