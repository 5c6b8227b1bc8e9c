/* What of DPDK is inline in its headers, as functions that can be linked. See net/src/dpdk/mbuf.rs. */
#include <rte_config.h>
#include <rte_eal.h>
#include <rte_errno.h>
#include <rte_ethdev.h>
#include <rte_flow.h>
#include <rte_lcore.h>
#include <rte_mbuf.h>
#include <rte_mempool.h>
#include <stdbool.h>

enum splinter_checksum { SPLINTER_UNKNOWN, SPLINTER_RIGHT, SPLINTER_WRONG };

/* What a device can do about checksums; macros in DPDK's headers, which bindgen does not follow. */
static const uint64_t SPLINTER_RECEIVES_IPV4_CHECKED = RTE_ETH_RX_OFFLOAD_IPV4_CKSUM;
static const uint64_t SPLINTER_RECEIVES_UDP_CHECKED = RTE_ETH_RX_OFFLOAD_UDP_CKSUM;
static const uint64_t SPLINTER_SENDS_IPV4_CHECKED = RTE_ETH_TX_OFFLOAD_IPV4_CKSUM;
static const uint64_t SPLINTER_SENDS_UDP_CHECKED = RTE_ETH_TX_OFFLOAD_UDP_CKSUM;

/* A received packet. */
struct splinter_view {
  const uint8_t *data;
  uint32_t bytes;
  uint16_t segments;
  uint8_t ipv4_checksum;
  uint8_t udp_checksum;
};

int splinter_errno(void);
uint16_t splinter_receive(uint16_t device, uint16_t queue, struct rte_mbuf **packets, uint16_t count);
uint16_t splinter_send(uint16_t device, uint16_t queue, struct rte_mbuf **packets, uint16_t count);
int splinter_allocate(struct rte_mempool *pool, struct rte_mbuf **packets, uint16_t count);
struct splinter_view splinter_look(const struct rte_mbuf *packet);
uint8_t *splinter_room(const struct rte_mbuf *packet, uint32_t *bytes);
void splinter_fill(struct rte_mbuf *packet, uint16_t bytes, bool leaves_ipv4, bool leaves_udp);
