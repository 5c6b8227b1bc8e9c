#include "dpdk.h"

int splinter_errno(void) { return rte_errno; }

uint16_t splinter_receive(uint16_t device, uint16_t queue, struct rte_mbuf **packets, uint16_t count) {
  return rte_eth_rx_burst(device, queue, packets, count);
}

uint16_t splinter_send(uint16_t device, uint16_t queue, struct rte_mbuf **packets, uint16_t count) {
  return rte_eth_tx_burst(device, queue, packets, count);
}

int splinter_allocate(struct rte_mempool *pool, struct rte_mbuf **packets, uint16_t count) {
  return rte_pktmbuf_alloc_bulk(pool, packets, count);
}

/* "None" says that the sum in the packet is not filled in, and that the packet is as it was sent. */
static uint8_t checksum(uint64_t found, uint64_t good, uint64_t bad, uint64_t none) {
  return found == good || found == none ? SPLINTER_RIGHT : found == bad ? SPLINTER_WRONG : SPLINTER_UNKNOWN;
}

struct splinter_view splinter_look(const struct rte_mbuf *packet) {
  uint64_t flags = packet->ol_flags;
  struct splinter_view view = {
      .data = rte_pktmbuf_mtod(packet, const uint8_t *),
      .bytes = packet->data_len,
      .segments = packet->nb_segs,
      .ipv4_checksum = checksum(flags & RTE_MBUF_F_RX_IP_CKSUM_MASK, RTE_MBUF_F_RX_IP_CKSUM_GOOD,
                                RTE_MBUF_F_RX_IP_CKSUM_BAD, RTE_MBUF_F_RX_IP_CKSUM_NONE),
      .udp_checksum = checksum(flags & RTE_MBUF_F_RX_L4_CKSUM_MASK, RTE_MBUF_F_RX_L4_CKSUM_GOOD,
                               RTE_MBUF_F_RX_L4_CKSUM_BAD, RTE_MBUF_F_RX_L4_CKSUM_NONE),
  };
  return view;
}

uint8_t *splinter_room(const struct rte_mbuf *packet, uint32_t *bytes) {
  *bytes = rte_pktmbuf_tailroom(packet);
  return rte_pktmbuf_mtod(packet, uint8_t *);
}

void splinter_fill(struct rte_mbuf *packet, uint16_t bytes, bool leaves_ipv4, bool leaves_udp) {
  packet->data_len = bytes;
  packet->pkt_len = bytes;
  if (leaves_ipv4 || leaves_udp) {
    packet->ol_flags |= RTE_MBUF_F_TX_IPV4 | (leaves_ipv4 ? RTE_MBUF_F_TX_IP_CKSUM : 0) |
                        (leaves_udp ? RTE_MBUF_F_TX_UDP_CKSUM : 0);
    packet->l2_len = sizeof(struct rte_ether_hdr);
    packet->l3_len = sizeof(struct rte_ipv4_hdr);
  }
}
