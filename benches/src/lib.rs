//! Load generator: drives a running server over the client library and measures what comes back.
//!
//! `splinter-bench` is the command; its parts are here so that they can be tested. A run is one thread,
//! pinned to a core if asked: it draws requests ([`workload`]) over a generated data set ([`dataset`],
//! [`popularity`]), sends them when they are due ([`arrival`]), and counts and times the answers
//! ([`measure`]). [`echo`] measures the floor under all of it.

pub mod arrival;
pub mod dataset;
pub mod echo;
pub mod machine;
pub mod measure;
pub mod popularity;
