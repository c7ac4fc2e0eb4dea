/* SPDX-License-Identifier: Apache-2.0 */
/* client.c: see client.h. */
#include "support/client.h"

#include <arpa/inet.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

int client_dial(int port)
{
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_port = htons((uint16_t)port),
                                  .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct timeval patience = {.tv_sec = CLIENT_PATIENCE_S};
    assert_int_equal(connect(fd, (struct sockaddr *)&address, sizeof(address)), 0);
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
    return fd;
}

void client_put(int fd, const void *bytes, size_t count)
{
    const char *at = bytes;
    while (count > 0) {
        ssize_t sent = send(fd, at, count, MSG_NOSIGNAL);
        if (sent <= 0)
            return;
        at += sent;
        count -= (size_t)sent;
    }
}

const char *client_read_all(int fd)
{
    static char reply[CLIENT_REPLY_BYTES];
    size_t used = 0;
    ssize_t got;
    while (used < sizeof(reply) - 1 &&
           (got = recv(fd, reply + used, sizeof(reply) - 1 - used, 0)) > 0)
        used += (size_t)got;
    reply[used] = '\0';
    close(fd);
    return reply;
}

void expect_in(const char *text, const char *piece)
{
    if (strstr(text, piece) == NULL)
        fail_msg("no '%s' in: %s", piece, text);
}
