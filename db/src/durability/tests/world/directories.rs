//! The directories on the disk beside the segments that they tell of.

use std::collections::BTreeSet;

use disk::Disk;

use super::World;
use crate::durability::LogLayout;
use crate::durability::log_reader::{self, SegmentBytes};

impl World {
    /// Checks that the directories on the disk tell what their segments have.
    pub(super) fn check_directories(&mut self, seed: u64) {
        let layout = LogLayout::of(self.disk.frame_bytes(), self.frames_max);
        let end = log_reader::find_end(&mut self.disk, layout).expect("a sound log");
        let mut log = |end: log_reader::FoundEnd| end.log(&mut self.disk, layout, (u64::MAX, None));
        let mut found = end.map_or_else(Default::default, |end| log(end).expect("a sound log"));
        self.directories += found.directories.len();
        for (sequence, directory) in std::mem::take(&mut found.directories) {
            let (segment, mut content) = (&found.state.segments[&sequence], SegmentBytes::default());
            let into = (&mut None, &mut content);
            log_reader::read_segment(&mut self.disk, layout, sequence, segment, into).expect("a sound disk");
            let of_segment = content.words().expect("a sound segment");
            let counts = |word: &&u64| ((**word & 0xff_ffff) as usize * 8) < content.bytes.len();
            let told: BTreeSet<u64> = directory.blocks().flatten().filter(counts).copied().collect();
            assert_eq!(told, of_segment.into_iter().collect(), "seed {seed}: the directory of {sequence}");
        }
    }
}
