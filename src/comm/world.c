/* SPDX-License-Identifier: Apache-2.0 */
/*
 * world.c: making and freeing a world.
 *
 * Order of the making: identity and store -> tcp endpoint (its address goes on the card) -> cards
 * of all ranks -> which share this host -> shared regions -> shm endpoint -> engine -> root group
 * -> progress thread -> all stand. Whatever fails, comm_world_free undoes what there is in reverse.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/sysinfo.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/options.h"
#include "comm/comm.h"
#include "comm/meet.h"
#include "net/proof.h"
#include "net/shm.h"

#define RINGS_BYTES_MAX  ((size_t)2 << 20)
#define RING_BYTES_MIN   ((size_t)16 << 10)
#define SHARED_MAX_BYTES (UINT64_C(64) << 30)

/* What the making passes from step to step. */
struct making {
    struct comm_world *world;
    const struct shoal_group_options *options;
    const struct comm_serving *serving; /* NULL: a rank */
    struct meeting meeting;
    struct meet_card card;
    struct meet_card *cards; /* [size] */
    void *parts[COMM_LOCAL_MAX];
    struct base_bell *bells[COMM_LOCAL_MAX];
    char tuning_fault[BASE_ERROR_TEXT_BYTES]; /* why the file of `shoal tune` is not used */
};

static int64_t wall_now_ns(void *user)
{
    (void)user;
    return base_now_ns();
}

/* ---- steps
 * ---------------------------------------------------------------------------------------------- */

static enum shoal_status make_engine(struct making *making)
{
    struct comm_world *world = making->world;
    TRY(BASE_NEW_ARRAY(&world->host_names, world->size, "host names"));
    struct comm_engine_options options = {.rank = world->rank,
                                          .size = world->size,
                                          .eager_bytes =
                                              (uint64_t)base_option_int(OPTION_EAGER_BYTES),
                                          .now_ns = wall_now_ns,
                                          .host_names = (const char *const *)world->host_names};
    if (making->serving)
        options.serving = *making->serving;
    return comm_engine_create(&options, &world->engine);
}

static void endpoint_options(const struct making *making, struct net_endpoint_options *out)
{
    const struct boot_identity *identity = &making->meeting.identity;
    *out = (struct net_endpoint_options){
        .rank = identity->rank,
        .size = making->world->size,
        .interface =
            making->options->interface ? making->options->interface : base_option_text(OPTION_INTERFACE),
        .streams = (int)base_option_int(OPTION_STREAMS),
        .connect_timeout_ms = base_option_int(OPTION_CONNECT_TIMEOUT_MS)};
    memcpy(out->job, identity->job, sizeof(out->job));
    memcpy(out->secret, identity->secret, sizeof(out->secret));
}

static enum shoal_status open_tcp(struct making *making)
{
    struct net_endpoint_options options;
    struct net_events events;
    size_t address_bytes = sizeof(making->card.address);
    if (making->world->size == 1)
        return SHOAL_OK;
    endpoint_options(making, &options);
    comm_engine_events(making->world->engine, &events);
    TRY(net_tcp.open(&options, &events, making->card.address, &address_bytes, &making->world->tcp));
    making->card.address_bytes = (uint32_t)address_bytes;
    return SHOAL_OK;
}

static enum shoal_status exchange_cards(struct making *making)
{
    struct meet_card *card = &making->card;
    TRY(boot_host_key(card->host_key));
    card->cores = base_cores_granted();
    meet_settings(making->options, card);
    if (making->world->size > 1 && base_tuning_load(&card->tuning) != SHOAL_OK)
        snprintf(making->tuning_fault, sizeof(making->tuning_fault), "%s", base_error_text());
    return meet_exchange(&making->meeting, card, &making->cards);
}

/* Whether rank 0's machine is several hosts, as containers are, which have more ranks together than
 * it has cores: others will be like it. Hosts of one machine have the kernel's start in common. */
static bool is_crowded(const struct making *making)
{
    const struct meet_card *cards = making->cards;
    size_t start_bytes = strcspn(cards[0].host_key, "/") + 1;
    bool several_hosts = false;
    int ranks = 0;
    for (int i = 0; i < making->world->size; i++) {
        if (strncmp(cards[i].host_key, cards[0].host_key, start_bytes) != 0)
            continue;
        several_hosts |= strcmp(cards[i].host_key, cards[0].host_key) != 0;
        ranks++;
    }
    return several_hosts && ranks > cards[0].cores;
}

/* Numbers the hosts and the ranks on each. */
static enum shoal_status place_ranks(struct making *making)
{
    struct comm_world *world = making->world;
    const struct meet_card *cards = making->cards;
    TRY(BASE_NEW_ARRAY(&world->host_of, world->size, "host numbers"));
    TRY(BASE_NEW_ARRAY(&world->local_index, world->size, "local ranks"));
    TRY(BASE_NEW_ARRAY(&world->local_ranks, world->size, "local ranks"));
    int hosts = 0;
    for (int i = 0; i < world->size; i++) {
        TRY(base_strdup(cards[i].host_name, "a host name", &world->host_names[i]));
        int same = 0;
        while (same < i && strcmp(cards[same].host_key, cards[i].host_key) != 0)
            same++;
        world->host_of[i] = same < i ? world->host_of[same] : hosts++;
        for (int j = 0; j < i; j++)
            world->local_index[i] += world->host_of[j] == world->host_of[i];
    }
    for (int i = 0; i < world->size; i++)
        if (world->host_of[i] == world->host_of[world->rank])
            world->local_ranks[world->local_size++] = i;
    world->local_rank = world->local_index[world->rank];
    world->crowded = is_crowded(making);
    if (world->local_size > COMM_LOCAL_MAX)
        return base_error(SHOAL_ERR_LIMIT, "%d ranks on host %s: at most %d", world->local_size,
                          world->host_names[world->rank], COMM_LOCAL_MAX);
    return SHOAL_OK;
}

/* The ranks of a host may have different files, by user or by HOME, and must do the same. */
static void adopt_tuning(struct making *making)
{
    static atomic_flag warned = ATOMIC_FLAG_INIT;
    struct comm_world *world = making->world;
    world->tuning = making->cards[world->local_ranks[0]].tuning;
    if (world->local_rank == 0 && world->local_size > 1 && making->tuning_fault[0] != '\0' &&
        !atomic_flag_test_and_set(&warned))
        base_log(BASE_LOG_WARN,
                 "the default thresholds are used, not those of `shoal tune`: %s; run it again or "
                 "remove the file",
                 making->tuning_fault);
}

static size_t region_bytes(void)
{
    uint64_t asked = (uint64_t)base_option_int(OPTION_SHARED_BYTES);
    if (asked > 0)
        return asked;
    struct sysinfo info;
    uint64_t memory = sysinfo(&info) == 0 ? (uint64_t)info.totalram * info.mem_unit : 0;
    if (memory == 0 || memory > SHARED_MAX_BYTES)
        memory = SHARED_MAX_BYTES;
    return memory;
}

/* A number that the ranks of this host share and no other host or group of the job has: hosts that
 * SHOAL_HOST_ID made out of one machine meet at the same place. */
static uint64_t host_nonce(const struct making *making)
{
    const struct comm_world *world = making->world;
    uint64_t nonce = UINT64_C(14695981039346656037) + (uint64_t)world->host_of[world->rank];
    for (int i = 0; i < world->size; i++)
        nonce = (nonce ^ making->cards[i].nonce) * UINT64_C(1099511628211);
    return nonce;
}

/* Of each pair of local ranks: with many ranks the rings are smaller, so that a rank's rings stay
 * within RINGS_BYTES_MAX when all its peers write to it. */
static size_t ring_bytes_for(int local_size)
{
    size_t ring_bytes = (size_t)base_option_int(OPTION_RING_BYTES);
    while (ring_bytes * (size_t)local_size > RINGS_BYTES_MAX && ring_bytes > RING_BYTES_MIN)
        ring_bytes /= 2;
    return ring_bytes;
}

static enum shoal_status share_memory(struct making *making)
{
    struct comm_world *world = making->world;
    size_t ring_bytes = ring_bytes_for(world->local_size);
    size_t part_bytes = net_shm_part_bytes(world->local_size, ring_bytes);
    size_t heap_offset = (REGION_CONTROL_BYTES + part_bytes + 4095) / 4096 * 4096;
    size_t head_bytes =
        base_shared_can_populate() ? net_shm_head_bytes(world->local_size) : part_bytes;
    struct boot_host_options options = {.local_rank = world->local_rank,
                                        .local_size = world->local_size,
                                        .job = making->meeting.identity.job,
                                        .secret = making->meeting.identity.secret,
                                        .nonce = host_nonce(making),
                                        .region_bytes = region_bytes(),
                                        .commit_bytes = REGION_CONTROL_BYTES + head_bytes,
                                        .deadline_ns = making->meeting.deadline_ns};
    if (options.region_bytes < 2 * heap_offset)
        options.region_bytes = 2 * heap_offset;
    TRY(boot_host_meet(&options, &world->host));
    for (int i = 0; i < world->local_size; i++) {
        char *start = world->host->regions[i].address;
        making->parts[i] = start + REGION_CONTROL_BYTES;
        making->bells[i] = &comm_region_control_of(&world->host->regions[i])->bell;
    }
    return comm_region_open(&world->host->regions[world->local_rank], heap_offset, &world->region);
}

static enum shoal_status open_shm(struct making *making)
{
    struct comm_world *world = making->world;
    if (world->local_size == 1)
        return SHOAL_OK;
    struct net_endpoint_options options;
    struct net_events events;
    struct net_shm_map map = {.local_rank = world->local_rank,
                              .local_size = world->local_size,
                              .world_ranks = world->local_ranks,
                              .parts = making->parts,
                              .ring_bytes = ring_bytes_for(world->local_size),
                              .bells = making->bells,
                              .event_fds = world->host->event_fds};
    unsigned char address[NET_ADDRESS_BYTES];
    size_t address_bytes = sizeof(address);
    endpoint_options(making, &options);
    options.context = &map;
    comm_engine_events(world->engine, &events);
    return net_shm.open(&options, &events, address, &address_bytes, &world->shm);
}

/* Local peers are reached through shm, the others through tcp. */
static enum shoal_status attach(struct making *making)
{
    struct comm_world *world = making->world;
    bool *near = NULL;
    const unsigned char **addresses = NULL;
    size_t *sizes = NULL;
    enum shoal_status status = BASE_NEW_ARRAY(&near, 2 * world->size, "the map of peers");
    if (status == SHOAL_OK)
        status = BASE_NEW_ARRAY(&addresses, world->size, "the peers' addresses");
    if (status == SHOAL_OK)
        status = BASE_NEW_ARRAY(&sizes, world->size, "the peers' addresses");
    bool *far = near ? near + world->size : NULL;
    for (int i = 0; status == SHOAL_OK && i < world->size; i++) {
        near[i] = i != world->rank && world->host_of[i] == world->host_of[world->rank];
        far[i] = i != world->rank && !near[i];
        addresses[i] = making->cards[i].address;
        sizes[i] = far[i] ? making->cards[i].address_bytes : 0;
    }
    if (status == SHOAL_OK && world->tcp)
        status = net_tcp.set_peers(world->tcp, addresses, sizes);
    if (status == SHOAL_OK && world->tcp)
        status = comm_engine_attach(world->engine, world->tcp, far);
    if (status == SHOAL_OK && world->shm)
        status = comm_engine_attach(world->engine, world->shm, near);
    base_free(near);
    base_free(addresses);
    base_free(sizes);
    return status;
}

static enum shoal_status watch(struct comm_world *world, int fd)
{
    struct epoll_event event = {.events = EPOLLIN, .data.fd = fd};
    if (epoll_ctl(world->watch_fd, EPOLL_CTL_ADD, fd, &event) != 0)
        return base_error_errno(SHOAL_ERR_SYSTEM, errno, "epoll_ctl for the watch");
    return SHOAL_OK;
}

static enum shoal_status make_watch(struct comm_world *world)
{
    world->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    world->watch_fd = epoll_create1(EPOLL_CLOEXEC);
    if (world->wake_fd < 0 || world->watch_fd < 0)
        return base_error_errno(SHOAL_ERR_SYSTEM, errno, "descriptors for the progress thread");
    TRY(watch(world, world->wake_fd));
    for (int i = 0; i < world->local_size; i++)
        if (i != world->local_rank)
            TRY(watch(world, world->host->life_fds[i]));
    return comm_engine_watch(world->engine, world->watch_fd);
}

static enum shoal_status make_root(struct making *making)
{
    struct comm_world *world = making->world;
    int *members = NULL, size = making->serving ? 1 : world->rank_count;
    TRY(BASE_NEW_ARRAY(&members, size, "the root group's members"));
    for (int i = 0; i < size; i++)
        members[i] = making->serving ? world->rank : i;
    const char *name = making->options->name ? making->options->name : "world";
    enum shoal_status status = comm_group_open(world, members, size, name, 1, &world->root);
    base_free(members);
    TRY(status);
    if (making->options->timeout_ms > 0)
        atomic_store(&world->root->timeout_ms, making->options->timeout_ms);
    world->root->is_root = true;
    world->root->reproducible = making->options->reproducible < 0
                                    ? base_option_int(OPTION_REPRODUCIBLE) != 0
                                    : making->options->reproducible != 0;
    return SHOAL_OK;
}

#define THREAD_SPIN_NS 10000

/* The progress thread may share a core with its rank's own work, so it spins shortly, and only
 * while there is an operation under way. */
static void choose_waiting(struct comm_world *world)
{
    int cores = base_cores_granted();
    world->policy = base_wait_policy_make(world->local_size);
    world->thread_spin_ns = cores >= 2 * world->local_size ? world->policy.spin_ns
                            : cores >= world->local_size   ? THREAD_SPIN_NS
                                                           : 0;
}

static enum shoal_status make_all(struct making *making)
{
    struct comm_world *world = making->world;
    TRY(making->serving ? meet_begin_server(&making->meeting)
                        : meet_begin(making->options, &making->meeting));
    world->rank = making->meeting.identity.rank;
    world->rank_count = making->meeting.identity.size;
    world->size = world->rank_count + making->meeting.identity.server_count;
    if (making->serving)
        base_log_set_server(world->rank - world->rank_count);
    else
        base_log_set_rank(world->rank);
    enum shoal_status ready = make_engine(making);
    if (ready == SHOAL_OK)
        ready = open_tcp(making);
    if (ready != SHOAL_OK)
        return meet_decline(&making->meeting, &making->card, ready);
    TRY(exchange_cards(making));
    TRY(place_ranks(making));
    adopt_tuning(making);
    TRY(share_memory(making));
    choose_waiting(world);
    TRY(open_shm(making));
    TRY(attach(making));
    TRY(make_watch(world));
    TRY(make_root(making));
    TRY(comm_progress_start(world));
    return meet_end(&making->meeting);
}

/* ---- life
 * ---------------------------------------------------------------------------------------------------
 */

/* serving NULL: as a rank. */
static enum shoal_status create(const struct shoal_group_options *options,
                                const struct comm_serving *serving, struct comm_group **root)
{
    struct making *making = NULL;
    comm_process_watch();
    TRY(BASE_NEW(&making, "the making of a group"));
    making->options = options;
    making->serving = serving;
    enum shoal_status status = BASE_NEW(&making->world, "a world");
    if (status == SHOAL_OK) {
        struct comm_world *world = making->world;
        world->wake_fd = world->watch_fd = -1;
        world->queue_end = &world->queue;
        world->interrupt = (struct comm_interrupt){.ask = options->interrupted,
                                                   .user = options->interrupted_user,
                                                   .thread = pthread_self()};
        pthread_mutex_init(&world->token, NULL);
        pthread_mutex_init(&world->queue_lock, NULL);
        pthread_mutex_init(&world->region_lock, NULL);
        status = make_all(making);
    }
    if (status == SHOAL_OK) {
        comm_process_add(making->world);
        *root = making->world->root;
    } else {
        meet_give_up(&making->meeting);
        if (making->world && making->world->root) {
            comm_progress_stop(making->world);
            comm_engine_remove_group(making->world->engine, making->world->root);
            comm_group_dispose(making->world->root);
        }
        comm_world_free(making->world);
    }
    base_free(making->cards);
    base_free(making);
    return status;
}

enum shoal_status comm_world_create(const struct shoal_group_options *options,
                                    struct comm_group **root)
{
    return create(options, NULL, root);
}

enum shoal_status comm_world_create_server(const struct comm_serving *serving,
                                           struct comm_group **root)
{
    struct shoal_group_options options = SHOAL_GROUP_OPTIONS_INIT;
    options.name = "server";
    return create(&options, serving, root);
}

static void close_fd(int fd)
{
    if (fd >= 0)
        close(fd);
}

void comm_world_depart(struct comm_world *world, int64_t linger_ms)
{
    comm_progress_stop(world);
    if (world->host)
        atomic_store(&comm_region_control_of(&world->host->regions[world->local_rank])->left, 1);
    if (world->shm)
        net_shm.close(world->shm, linger_ms);
    if (world->tcp)
        net_tcp.close(world->tcp, linger_ms);
    world->shm = world->tcp = NULL;
}

void comm_world_free(struct comm_world *world)
{
    if (!world)
        return;
    comm_process_remove(world);
    comm_world_depart(world, world->linger_ms);
    comm_engine_free(world->engine);
    comm_region_close(&world->region);
    boot_host_free(world->host);
    close_fd(world->wake_fd);
    close_fd(world->watch_fd);
    for (int i = 0; world->host_names && i < world->size; i++)
        base_free(world->host_names[i]);
    base_free(world->host_names);
    base_free(world->host_of);
    base_free(world->local_index);
    base_free(world->local_ranks);
    pthread_mutex_destroy(&world->token);
    pthread_mutex_destroy(&world->queue_lock);
    pthread_mutex_destroy(&world->region_lock);
    base_free(world);
}

/* ---- memory that the ranks of a host share
 * ----------------------------------------------------------------------------------------------
 */

enum shoal_status comm_shared_alloc(struct comm_world *world, size_t bytes, void **out)
{
    size_t offset = 0;
    pthread_mutex_lock(&world->region_lock);
    enum shoal_status status = comm_region_alloc(&world->region, bytes, &offset);
    pthread_mutex_unlock(&world->region_lock);
    if (status == SHOAL_OK)
        *out = (char *)world->region.shared->address + offset;
    return status;
}

enum shoal_status comm_shared_free(struct comm_world *world, void *memory)
{
    size_t offset = (size_t)((char *)memory - (char *)world->region.shared->address);
    pthread_mutex_lock(&world->region_lock);
    enum shoal_status status = comm_region_free(&world->region, offset);
    pthread_mutex_unlock(&world->region_lock);
    return status;
}
