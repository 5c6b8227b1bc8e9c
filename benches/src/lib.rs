//! Load generator: drives a running server over the client library and measures what comes back.
//!
//! `splinter-bench` is the command ([`command`], [`options`]); its parts are here so that they can be tested. A run is one
//! thread, pinned to a core if asked: it draws requests ([`workload`]) over generated data ([`dataset`], [`popularity`])
//! that [`loading`] has written, sends them over its sessions ([`fleet`]) when they are due, and checks, counts and times
//! the answers ([`drive`], [`measure`]); [`absences`] are when something else had the cores. [`echo`] measures the floor
//! under all of it.
//!
//! [`neighbour`], [`density`] and [`fairness`] are about several tenants at once: an [`operator`] makes them, they
//! invoke [`spin`]. [`in_process`] measures the store alone, without a server, beside maps of the Rust world; [`scan`]
//! ordered tables beside Redis; [`clients`] the interfaces of the client; [`placement`] a function at the server and at the client;
//! [`migration`] what clients see while objects move from one server to another, and how fast they do; [`recovery`] what they see while others recover a server that dies, and how fast they do; [`transports`] a get over
//! every way that frames travel. These start the servers that they need ([`server`], [`etcd`]); [`intervals`] are what is
//! seen over time.
//! [`report`] and [`plot`] show what came out.

pub mod absences;
pub mod clients;
pub mod command;
pub mod dataset;
pub mod density;
pub mod drive;
pub mod echo;
pub mod etcd;
pub mod fairness;
pub mod fleet;
pub mod in_process;
pub mod intervals;
pub mod loading;
pub mod machine;
pub mod measure;
pub mod migration;
pub mod neighbour;
pub mod operator;
pub mod options;
pub mod placement;
pub mod plot;
pub mod popularity;
pub mod process;
pub mod recovery;
pub mod report;
pub mod scan;
pub mod server;
pub mod spin;
pub mod transports;
pub mod workload;
