//! One DPDK device: its description, its start with all queues, its flow rules, and bursts in both directions.
//!
//! One call configures a device, creates its queues and starts it. Its drop stops and closes it, before the
//! environment ends.

use std::ffi::c_void;
use std::mem::zeroed;
use std::ptr::{null, null_mut};

use super::DpdkError;
use super::mbuf::{BURST, Mbuf, Pool, SendList};
use super::sys::bindings as d;
use super::sys::{Environment, checked, last_error, text};
use crate::packet::{Mac, Offloaded};

/// Requested descriptors per queue; a device may have fewer.
const DESCRIPTORS: u16 = 1024;

/// The capabilities that a device reports.
#[derive(Clone, Debug)]
pub(super) struct Description {
    pub(super) driver: String,
    pub(super) mac: Mac,
    /// Maximum number of queues in each direction.
    pub(super) queues_max: u16,
    pub(super) mtu_bytes_max: u16,
    /// Checksums that it verifies on receipt.
    pub(super) checks: Offloaded,
    /// Checksums that it fills in on sending.
    pub(super) fills: Offloaded,
}

/// The setup of a device.
pub(super) struct Setup<'s> {
    pub(super) mtu_bytes: u16,
    /// One pool per pair of queues, for the packets that the queue receives.
    pub(super) pools: &'s [&'s Pool],
    pub(super) description: &'s Description,
    /// Whether packets without a rule are left to the kernel.
    pub(super) isolate: bool,
}

/// The first device of the environment.
pub(super) struct Ethdev {
    number: u16,
    started: bool,
}

impl Ethdev {
    pub(super) fn first(_: &Environment) -> Result<Self, DpdkError> {
        // SAFETY: no pointers.
        match unsafe { d::rte_eth_dev_count_avail() } {
            0 => Err(DpdkError::NoDevice),
            _ => Ok(Self { number: 0, started: false }),
        }
    }

    pub(super) fn number(&self) -> u16 {
        self.number
    }

    pub(super) fn describe(&self) -> Result<Description, DpdkError> {
        // SAFETY: zero is a valid value of every field, and the functions fill in the structures passed to them.
        let (info, mac) = unsafe {
            let (mut info, mut mac): (d::rte_eth_dev_info, d::rte_ether_addr) = (zeroed(), zeroed());
            checked("description", d::rte_eth_dev_info_get(self.number, &raw mut info))?;
            checked("hardware address", d::rte_eth_macaddr_get(self.number, &raw mut mac))?;
            (info, mac)
        };
        let can = |capabilities: u64, capability: u64| capabilities & capability != 0;
        let (receives, sends) = (info.rx_offload_capa, info.tx_offload_capa);
        Ok(Description {
            driver: text(info.driver_name),
            mac: Mac(mac.addr_bytes),
            queues_max: info.max_rx_queues.min(info.max_tx_queues),
            // Some drivers limit only the packet size.
            mtu_bytes_max: info
                .max_mtu
                .min((info.max_rx_pktlen - 18.min(info.max_rx_pktlen)).min(u16::MAX.into()) as u16),
            checks: Offloaded {
                ipv4: can(receives, d::SPLINTER_RECEIVES_IPV4_CHECKED),
                udp: can(receives, d::SPLINTER_RECEIVES_UDP_CHECKED),
            },
            fills: Offloaded {
                ipv4: can(sends, d::SPLINTER_SENDS_IPV4_CHECKED),
                udp: can(sends, d::SPLINTER_SENDS_UDP_CHECKED),
            },
        })
    }

    /// Configures the device, creates its queues and starts it.
    pub(super) fn start(&mut self, setup: &Setup<'_>) -> Result<(), DpdkError> {
        let (number, queues) = (self.number, setup.pools.len() as u16);
        if setup.isolate {
            // SAFETY: a null error is not filled in.
            checked("isolation of flows", unsafe { d::rte_flow_isolate(number, 1, null_mut()) })?;
        }
        // SAFETY: zero is the default value of every field.
        let mut configuration: d::rte_eth_conf = unsafe { zeroed() };
        let bit = |is_set: bool, bit: u64| if is_set { bit } else { 0 };
        let Description { checks, fills, .. } = *setup.description;
        configuration.rxmode.mtu = u32::from(setup.mtu_bytes);
        configuration.rxmode.offloads = bit(checks.ipv4, d::SPLINTER_RECEIVES_IPV4_CHECKED)
            | bit(checks.udp, d::SPLINTER_RECEIVES_UDP_CHECKED);
        configuration.txmode.offloads =
            bit(fills.ipv4, d::SPLINTER_SENDS_IPV4_CHECKED) | bit(fills.udp, d::SPLINTER_SENDS_UDP_CHECKED);
        let (mut receiving, mut sending) = (DESCRIPTORS, DESCRIPTORS);
        // SAFETY: the structure and both numbers live across the calls, which copy the structure and fill in the
        // numbers; a null configuration of a queue selects the device's default; pools live until the device is closed.
        unsafe {
            let configured = d::rte_eth_dev_configure(number, queues, queues, &raw const configuration);
            checked("configuration", configured)?;
            let adjusted = d::rte_eth_dev_adjust_nb_rx_tx_desc(number, &raw mut receiving, &raw mut sending);
            checked("number of descriptors", adjusted)?;
            let socket = d::rte_eth_dev_socket_id(number).max(0) as u32;
            for (queue, pool) in (0..queues).zip(setup.pools) {
                let pool = pool.raw();
                let made = d::rte_eth_rx_queue_setup(number, queue, receiving, socket, null(), pool);
                checked("receiving queue", made)?;
                checked("sending queue", d::rte_eth_tx_queue_setup(number, queue, sending, socket, null()))?;
            }
            checked("start", d::rte_eth_dev_start(number))?;
        }
        self.started = true;
        if !setup.isolate {
            // A device without promiscuous mode has no filter either, or filters by its own address, which is enough.
            // SAFETY: no pointers.
            unsafe { d::rte_eth_promiscuous_enable(number) };
        }
        Ok(())
    }

    /// Creates the rule that sends UDP datagrams for `port` to `queue`.
    pub(super) fn steer(&self, port: u16, queue: u16) -> Result<(), DpdkError> {
        use d::rte_flow_action_type as action;
        use d::rte_flow_item_type as item;
        // SAFETY: zero matches anything and asks for nothing; all structures live across the call, which copies them.
        unsafe {
            let mut attributes: d::rte_flow_attr = zeroed();
            attributes.set_ingress(1);
            let (mut udp, mut mask): (d::rte_flow_item_udp, d::rte_flow_item_udp) = (zeroed(), zeroed());
            udp.hdr.dst_port = port.to_be();
            mask.hdr.dst_port = u16::MAX;
            let mut pattern: [d::rte_flow_item; 4] = zeroed();
            pattern[0].type_ = item::RTE_FLOW_ITEM_TYPE_ETH;
            pattern[1].type_ = item::RTE_FLOW_ITEM_TYPE_IPV4;
            pattern[2].type_ = item::RTE_FLOW_ITEM_TYPE_UDP;
            pattern[2].spec = (&raw const udp).cast::<c_void>();
            pattern[2].mask = (&raw const mask).cast::<c_void>();
            pattern[3].type_ = item::RTE_FLOW_ITEM_TYPE_END;
            let target = d::rte_flow_action_queue { index: queue };
            let mut actions: [d::rte_flow_action; 2] = zeroed();
            actions[0].type_ = action::RTE_FLOW_ACTION_TYPE_QUEUE;
            actions[0].conf = (&raw const target).cast::<c_void>();
            actions[1].type_ = action::RTE_FLOW_ACTION_TYPE_END;
            let mut error: d::rte_flow_error = zeroed();
            let (pattern, actions) = (pattern.as_ptr(), actions.as_ptr());
            let (attributes, said) = (&raw const attributes, &raw mut error);
            if !d::rte_flow_create(self.number, attributes, pattern, actions, said).is_null() {
                return Ok(());
            }
            let text = if error.message.is_null() { last_error() } else { text(error.message) };
            Err(DpdkError::Device { part: "flow rule", text })
        }
    }

    /// Removes all rules.
    pub(super) fn unsteer(&self) {
        // SAFETY: a null error is not filled in.
        unsafe { d::rte_flow_flush(self.number, null_mut()) };
    }

    /// Returns the number of packets that the device lost for lack of room.
    pub(super) fn missed(&self) -> u64 {
        // SAFETY: zero is a value of every field; the function fills in the structure.
        unsafe {
            let mut statistics: d::rte_eth_stats = zeroed();
            match d::rte_eth_stats_get(self.number, &raw mut statistics) {
                0 => statistics.imissed + statistics.rx_nombuf,
                _ => 0,
            }
        }
    }
}

impl Drop for Ethdev {
    fn drop(&mut self) {
        // SAFETY: no pointers; no call with this device is in progress, since calls borrow its owner.
        unsafe {
            if self.started {
                d::rte_eth_dev_stop(self.number);
            }
            d::rte_eth_dev_close(self.number);
        }
    }
}

/// One queue of a started device, in one direction. Its methods take it exclusively, as DPDK requires; threads that
/// share one put it under a lock.
pub(super) struct Queue {
    device: u16,
    queue: u16,
}

impl Queue {
    pub(super) fn of(device: &Ethdev, queue: u16) -> Self {
        Self { device: device.number(), queue }
    }

    /// Adds up to [`BURST`] arrived packets to `packets`; returns their number. Does not wait.
    #[inline]
    pub(super) fn receive(&mut self, packets: &mut Vec<Mbuf>) -> usize {
        packets.reserve(BURST);
        let free = packets.spare_capacity_mut().as_mut_ptr().cast();
        // SAFETY: the list has room for `BURST` more, an `Mbuf` is a pointer, and no other thread receives here.
        let received = unsafe { d::splinter_receive(self.device, self.queue, free, BURST as u16) };
        // SAFETY: this many packets were written, and this process alone owns each of them now.
        unsafe { packets.set_len(packets.len() + usize::from(received)) };
        received.into()
    }

    /// Passes packets from `first` on to the device, as many as it takes now; returns their number. They stay in the
    /// list until it is settled.
    #[inline]
    pub(super) fn send(&mut self, packets: &mut SendList) -> usize {
        let left = packets.left();
        let count = left.len().min(usize::from(u16::MAX)) as u16;
        // SAFETY: the packets belong to this process, an `Mbuf` is a pointer, and no other thread sends here.
        let sent = unsafe { d::splinter_send(self.device, self.queue, left.as_mut_ptr().cast(), count) };
        packets.count_sent(sent.into());
        sent.into()
    }
}
