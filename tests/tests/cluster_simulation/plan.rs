//! What a simulated run has and does, and what came of it.

use std::ops::AddAssign;

use cluster::migration::MigrationMode;
use control::Durability;

use crate::caller::Reads;
use crate::mover::Fault;

/// What a simulated run has and does.
#[derive(Clone, Debug)]
pub struct Plan {
    pub servers: u32,
    /// Servers that own tablets at first.
    pub owners: u32,
    pub workers: usize,
    pub clients: u32,
    pub keys: u64,
    /// Lists in the table that transactions read and append to at a time; where one has its length, another one follows. None where
    /// something of it is to be lost.
    pub lists: u64,
    /// Tablets of the table at first.
    pub tablets: usize,
    /// Objects beside those of the clients, so that a move takes several pulls.
    pub fill_objects: u64,
    /// For how long clients and operators are active.
    pub active_us: u64,
    pub loss_percent: u8,
    /// Clients read more than they write.
    pub reads: bool,
    /// For how long a client rests at most between two operations.
    pub rest_us: u64,
    /// How long those that ask both sides wait for the source.
    pub patience_us: u64,
    /// Mean time between two acts of the operator.
    pub act_every_us: u64,
    pub crashes: bool,
    pub outages: bool,
    /// One server at a time cannot reach the records for a while; if tables are synced, or several.
    pub cut_offs: bool,
    /// Servers are drained, and all of them balanced.
    pub plans: bool,
    /// Of the table. If it is on disks, servers have each other's logs; if it is written, no more of
    /// them die or stand still than have each log, before all is on disks again.
    pub durability: Durability,
    /// Longest time until a server that died comes back.
    pub away_us: u64,
    /// Longest time between two looks of the log's thread of a server.
    pub step_us: u64,
    /// Operators move tablets.
    pub moves: bool,
    /// What is wrong on purpose.
    pub fault: Fault,
    /// Clients make requests elsewhere too early.
    pub hasty: bool,
    /// Clients commit whatever has become of what they read.
    pub careless: bool,
    /// Clients believe what was frozen, whatever the target says.
    pub credulous: bool,
}

/// What has happened, to be told.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tally {
    /// Migrations that have begun, of servers, and of coordinators' plans.
    pub rocksteady: u64,
    pub cooperative: u64,
    pub pre_copy: u64,
    /// Sides of them that waited for a slot.
    pub queued: u64,
    pub reads: Reads,
    /// Transactions that appended to one list, and to several; those that were not committed, and those of which nobody knows.
    pub appended: u64,
    pub appended_to_several: u64,
    pub not_committed: u64,
    pub unknown: u64,
    pub aborts: u64,
    pub splits: u64,
    pub merges: u64,
    pub crashes: u64,
    pub outages: u64,
    pub cut_offs: u64,
    /// Migrations that ended because somebody was gone.
    pub taken: u64,
    /// Cuts that logs have written.
    pub cuts: u64,
    /// Tablets that others recovered, and logs that ended before what others recovered of them.
    pub recovered: u64,
    pub behind: u64,
    /// Streams to backups that broke.
    pub broken: u64,
    /// Servers that stood still for a while.
    pub freezes: u64,
    /// How often promises of all others let a server serve on.
    pub promised: u64,
    pub plans: u64,
    /// How often somebody began to coordinate.
    pub elections: u64,
    /// Steps that coordinators have taken.
    pub steps: u64,
    pub frames: u64,
    pub events: u64,
}

impl AddAssign for Tally {
    fn add_assign(&mut self, other: Tally) {
        self.rocksteady += other.rocksteady;
        self.cooperative += other.cooperative;
        self.pre_copy += other.pre_copy;
        self.queued += other.queued;
        self.reads += other.reads;
        self.appended += other.appended;
        self.appended_to_several += other.appended_to_several;
        self.not_committed += other.not_committed;
        self.unknown += other.unknown;
        self.aborts += other.aborts;
        self.splits += other.splits;
        self.merges += other.merges;
        self.crashes += other.crashes;
        self.outages += other.outages;
        self.cut_offs += other.cut_offs;
        self.taken += other.taken;
        self.cuts += other.cuts;
        self.recovered += other.recovered;
        self.behind += other.behind;
        self.broken += other.broken;
        self.freezes += other.freezes;
        self.promised += other.promised;
        self.plans += other.plans;
        self.elections += other.elections;
        self.steps += other.steps;
        self.frames += other.frames;
        self.events += other.events;
    }
}

impl Tally {
    /// A migration has begun.
    pub fn begin(&mut self, mode: MigrationMode) {
        *(match mode {
            MigrationMode::Rocksteady => &mut self.rocksteady,
            MigrationMode::Cooperative => &mut self.cooperative,
            MigrationMode::PreCopy => &mut self.pre_copy,
            MigrationMode::StopAndCopy | MigrationMode::Recovery => unreachable!("nobody begins one"),
        }) += 1;
    }
}
