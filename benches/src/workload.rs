//! The requests of each workload, one after another.
//!
//! A [`Generator`] owns the buffers that its requests borrow, so that drawing the next request allocates
//! nothing. The same seed gives the same requests. YCSB's letters are those of its paper (Cooper et al.,
//! SoCC 2010): A half reads and half updates, B 95 % reads, C reads alone.

use clap::ValueEnum;
use fastrand::Rng;
use serde::Serialize;
use tao::mix::{self, Mix, Question};
use wire::{Condition, Keys, Request};

use crate::dataset::Dataset;
use crate::popularity::{Popularity, scramble};
