/* SPDX-License-Identifier: Apache-2.0 */
/* transport.c: what all transports share: the check that one is complete. */
#include "net/transport.h"

#include "base/status.h"

void net_transport_check(const struct net_transport *transport)
{
    BASE_ASSERT(transport != NULL);
    BASE_ASSERT(transport->name != NULL && transport->name[0] != '\0');
    BASE_ASSERT(transport->open != NULL);
    BASE_ASSERT(transport->set_peers != NULL);
    BASE_ASSERT(transport->send != NULL);
    BASE_ASSERT(transport->withdraw != NULL);
    BASE_ASSERT(transport->divert != NULL);
    BASE_ASSERT(transport->poll != NULL);
    BASE_ASSERT(transport->descriptor != NULL);
    BASE_ASSERT(transport->arm != NULL);
    BASE_ASSERT(transport->disarm != NULL);
    BASE_ASSERT(transport->wake != NULL);
    BASE_ASSERT(transport->flow != NULL);
    BASE_ASSERT(transport->use_streams != NULL);
    BASE_ASSERT(transport->close != NULL);
}

bool net_no_flow(struct net_endpoint *endpoint, int peer, struct net_flow *out)
{
    (void)endpoint;
    (void)peer;
    (void)out;
    return false;
}

void net_no_streams(struct net_endpoint *endpoint, int count)
{
    (void)endpoint;
    (void)count;
}
