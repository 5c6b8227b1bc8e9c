//! The protocol from outside: what a client or a hostile sender can do with bytes.
//!
//! Random tests print their seed and take it from `SPLINTER_SEED`; `SPLINTER_FULL=1` runs millions of inputs.

mod decode;
mod documents;
mod exactly_once;
mod frames;
mod messages;
mod opening;
mod parts;
mod peer;
mod requester;
mod samples;
mod seed;
mod window;
