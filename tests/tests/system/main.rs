//! The whole system from outside: programs that users start, asked over loopback; a module per subject, in one binary.
//!
//! `cargo test -p tests --test system` runs all, `cargo test -p tests --test system kv::` what is in `kv`, and several names
//! after `--` what is in any of them. A name is looked for anywhere in the path of a test, so no module's name may end with
//! that of another one. What would disturb others, or be disturbed by them, is a binary of its own beside this folder and
//! says why.

mod archive;
mod async_client;
mod at_client;
mod checker;
mod cluster;
mod cluster_backups;
mod cluster_durability;
mod cluster_linearizability;
mod cluster_migration;
mod cluster_queue;
mod cluster_quotas;
mod cluster_reads;
mod cluster_routing;
mod cluster_tagged;
mod durability;
mod edges;
mod eviction;
mod extension;
mod finished;
mod hostile;
mod kv;
mod limits;
mod many;
mod metrics;
mod operator;
mod outage;
mod replies;
mod resume;
mod scan;
mod serializability;
mod shm;
mod tables;
mod tao;
mod tenants;
mod transactions;
mod transfer;
