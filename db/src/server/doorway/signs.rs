//! The shm listener as the control plane and the statistics see it: what clients are told, and what is counted of links.

use std::sync::atomic::{AtomicU64, Ordering};

use net::shm::{LinkCounts, LinkPoint};
use wire::HostDoor;

/// What is counted of the links of each core.
#[derive(Debug)]
pub struct LinkFigure {
    /// As statistics name it.
    pub name: &'static str,
    /// One sentence for people.
    pub text: &'static str,
    of: fn(&LinkCounts) -> &AtomicU64,
}

/// How many links there are.
pub const LINKS: LinkFigure =
    LinkFigure { name: "shm_links", text: "Links over shared memory that there are.", of: |it| &it.links };

/// What only grows.
pub const LINK_COUNTERS: [LinkFigure; 5] = [
    LinkFigure { name: "shm_links_made", text: "Links that were made.", of: |it| &it.links_made },
    LinkFigure {
        name: "shm_links_cut",
        text: "Links that were cut off, since their client wrote what no honest one does.",
        of: |it| &it.lies,
    },
    LinkFigure {
        name: "shm_frames_received",
        text: "Frames that arrived over links.",
        of: |it| &it.frames_received,
    },
    LinkFigure {
        name: "shm_frames_sent",
        text: "Frames that were sent over links.",
        of: |it| &it.frames_sent,
    },
    LinkFigure {
        name: "shm_frames_lost",
        text: "Frames for which a client's ring had no room, or that others held up.",
        of: |it| &it.frames_lost,
    },
];

/// What the control plane knows of a door.
#[derive(Debug)]
pub struct Signs {
    /// What clients are told.
    pub told: HostDoor,
    points: Vec<LinkPoint>,
    refused: AtomicU64,
}

impl Signs {
    pub(super) fn new(told: HostDoor, points: Vec<LinkPoint>) -> Self {
        Self { told, points, refused: AtomicU64::new(0) }
    }

    /// A figure of each core.
    pub fn of_cores(&self, figure: &LinkFigure) -> impl Iterator<Item = u64> {
        let of = figure.of;
        self.points.iter().map(move |point| of(point.counts()).load(Ordering::Relaxed))
    }

    pub(super) fn count_refused(&self) {
        self.refused.fetch_add(1, Ordering::Relaxed);
    }

    /// Who knocked and was not let in.
    #[must_use]
    pub fn refused(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }
}
