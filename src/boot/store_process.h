/* SPDX-License-Identifier: Apache-2.0 */
/*
 * store_process.h: the store servers of this process: those that last at an address are found
 * again, a forked child lets go of the ports, and all are stopped when the process exits.
 */
#ifndef SHOAL_BOOT_STORE_PROCESS_H
#define SHOAL_BOOT_STORE_PROCESS_H

#include "boot/store_listen.h"

/* A server's place in the list; the list borrows it until it is removed. */
struct store_listed {
    struct store_listed *next;
    struct store_listeners *listeners;
    char *lasting_address; /* serves there until the process ends; NULL: until stopped */
    /* Stops and frees the server that this is part of, and removes it. */
    void (*stop)(struct store_listed *listed);
};

/* Any thread. */
void store_process_add(struct store_listed *listed);
void store_process_remove(const struct store_listed *listed);
/* The one that lasts at an address, NULL if there is none. */
struct store_listed *store_process_find(const char *address);

#endif
