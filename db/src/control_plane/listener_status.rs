//! Status of the shared-memory listener: the endpoint for clients, and the counters of channels.

use std::sync::atomic::{AtomicU64, Ordering};

use net::shm::{ChannelCounts, ChannelPoint};
use wire::ShmEndpoint;

/// A counter of each core's channels.
#[derive(Debug)]
pub struct ChannelFigure {
    /// The name in statistics.
    pub name: &'static str,
    /// One sentence for people.
    pub text: &'static str,
    of: fn(&ChannelCounts) -> &AtomicU64,
}

/// Number of channels.
pub const LINKS: ChannelFigure =
    ChannelFigure { name: "shm_links", text: "Open shared-memory channels.", of: |it| &it.links };

/// Counters that only grow.
pub const LINK_COUNTERS: [ChannelFigure; 5] = [
    ChannelFigure { name: "shm_links_made", text: "Shared-memory channels made.", of: |it| &it.links_made },
    ChannelFigure {
        name: "shm_links_cut",
        text: "Shared-memory channels cut off because their client wrote what no correct client writes.",
        of: |it| &it.lies,
    },
    ChannelFigure {
        name: "shm_frames_received",
        text: "Frames received over shared-memory channels.",
        of: |it| &it.frames_received,
    },
    ChannelFigure {
        name: "shm_frames_sent",
        text: "Frames sent over shared-memory channels.",
        of: |it| &it.frames_sent,
    },
    ChannelFigure {
        name: "shm_frames_lost",
        text: "Frames lost because a client's ring was full, or in use by others for too long.",
        of: |it| &it.frames_lost,
    },
];

/// The status of a shared-memory listener.
#[derive(Debug)]
pub struct ListenerStatus {
    /// The endpoint announced to clients.
    pub told: ShmEndpoint,
    points: Vec<ChannelPoint>,
    refused: AtomicU64,
}

impl ListenerStatus {
    pub(crate) fn new(told: ShmEndpoint, points: Vec<ChannelPoint>) -> Self {
        Self { told, points, refused: AtomicU64::new(0) }
    }

    /// Returns a figure of each core.
    pub fn of_cores(&self, figure: &ChannelFigure) -> impl Iterator<Item = u64> {
        let of = figure.of;
        self.points.iter().map(move |point| of(point.counts()).load(Ordering::Relaxed))
    }

    pub(crate) fn count_refused(&self) {
        self.refused.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns the number of refused attempts to attach.
    #[must_use]
    pub fn refused(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }
}
