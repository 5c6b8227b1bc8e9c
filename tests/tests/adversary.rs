//! One tenant does what it can to harm the others: every misdeed of `ext/misbehave`, in numbers, and guesses at
//! what is not its own.
//!
//! Three neighbours share its core, check every answer that they get and note how long it took (printed, not
//! judged). The attacker gets the typed status that its misdeed deserves, nothing it wrote before is ever
//! seen, and the server serves it and everybody else afterwards.
//!
//! Modules that no check of sources has seen do the same over the network: `second_wall`, `refused_modules`.
//!
//! A binary of its own: what servers waited for a processor is added up over all children of the process.

mod adversary {
    pub mod attacks;
    pub mod beside_attacks;
    pub mod guesses;
    pub mod hoarding;
    pub mod installing;
    pub mod latency;
    pub mod misdeeds;
    pub mod modules;
    pub mod neighbours;
    pub mod refused_modules;
    pub mod second_wall;
    pub mod stage;
    pub mod victim;
}
