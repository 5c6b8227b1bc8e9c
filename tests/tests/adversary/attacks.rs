//! The attacks of modules on a server, each with how it ends: in the attacker's own memory, or in a status that says why.

use client::Status;

use super::modules::forged_calls::END;

/// The call block of a module, and the length of the reply in it.
pub const BLOCK: u64 = 65_408;
const REPLY_BYTES: u64 = BLOCK + 16 + 28;
pub const WORD: u64 = 1 << 32;
pub const MARK: u64 = 0x1357_9bdf_0246_8ace;

/// An attack: the function, its arguments, the status it ends with and a part of the text.
pub type Attack = (&'static str, &'static [u64], Status, &'static str);

pub const PANICKED: Status = Status::ExtensionPanicked;
const OVERFLOWN: Status = Status::ExtensionStackOverflow;
pub const KILLED: Status = Status::ExtensionKilled;
const LIMITED: Status = Status::LimitExceeded;

/// Attacks that end by themselves.
pub const ATTACKS: [Attack; 58] = [
    // Wild reads and writes, and those that are the module's own business.
    ("tools.peek", &[0], Status::Ok, ""),
    ("tools.peek", &[END - 8], Status::Ok, ""),
    ("tools.peek", &[END - 7], PANICKED, ""),
    ("tools.peek", &[END], PANICKED, ""),
    ("tools.peek", &[1 << 31], PANICKED, ""),
    ("tools.peek_far", &[END], PANICKED, ""),
    ("tools.peek_far", &[WORD - 1], PANICKED, ""),
    ("tools.peek_wide", &[1 << 30], PANICKED, ""),
    ("tools.poke", &[65_536, 1, 0], Status::Ok, ""),
    ("tools.poke", &[END - 1, u64::MAX, 0], PANICKED, ""),
    ("tools.poke", &[1 << 30, u64::MAX, 0], PANICKED, ""),
    ("tools.poke", &[WORD - (17 << 20), u64::MAX, 0], PANICKED, ""),
    ("tools.poke", &[WORD - 8, u64::MAX, 0], OVERFLOWN, ""),
    ("tools.poke_far", &[0], PANICKED, ""),
    ("tools.poke_far", &[1 << 31], PANICKED, ""),
    // Claims in the call block: the bounds of the arena, the reply's length and address, the table.
    ("tools.poke", &[BLOCK, u64::MAX, 0], Status::Ok, ""),
    ("tools.poke_word", &[REPLY_BYTES, 1 << 24, 0], Status::Ok, ""),
    ("tools.poke_word", &[REPLY_BYTES, WORD - 1, 0], Status::Ok, ""),
    ("tools.poke", &[REPLY_BYTES - 4, u64::MAX, 0], Status::Ok, ""),
    ("tools.poke_word", &[BLOCK + 16 + 48, 1, 0], Status::Ok, ""),
    ("tools.poke_word", &[BLOCK, 0, 1 << 40 | 1], Status::ExtensionError, "256 "),
    ("tools.poke_word", &[BLOCK, 0, 1 << 31], Status::ExtensionPanicked, "is none of the SDK's"),
    ("tools.fill", &[65_536, END, 8, MARK, 0], Status::Ok, ""),
    ("tools.claim", &[MARK], Status::Ok, ""),
    // Calls through the table: null, of another type, beyond it.
    ("ends.indirect", &[0], Status::Ok, ""),
    ("ends.indirect", &[1], PANICKED, ""),
    ("ends.indirect", &[7], PANICKED, ""),
    ("ends.indirect", &[8], PANICKED, ""),
    ("ends.indirect", &[WORD - 1], PANICKED, ""),
    ("ends.indirect_other", &[0], PANICKED, ""),
    // Traps at the first poll and after some: unreachable, divisions, a conversion, an access, a call, a panic.
    ("ends.trap_later", &[0, 0, 0], PANICKED, ""),
    ("ends.trap_later", &[5, 0, 1], PANICKED, ""),
    ("ends.trap_later", &[0, 0, 2], PANICKED, ""),
    ("ends.trap_later", &[5, 0, 3], PANICKED, ""),
    ("ends.trap_later", &[0, 0, 4], PANICKED, ""),
    ("ends.trap_later", &[5, 0, 5], PANICKED, ""),
    ("ends.trap_later", &[0, 0, 6], PANICKED, "key"),
    ("ends.trap_later", &[5, 100_000, 0], PANICKED, ""),
    // Stacks.
    ("ends.deep", &[], OVERFLOWN, "stack"),
    ("ends.deep_indirect", &[], OVERFLOWN, "stack"),
    ("ends.deep_host", &[], OVERFLOWN, "stack"),
    ("ends.deep_in_memory", &[], OVERFLOWN, "stack"),
    ("ends.dive", &[10, 0], Status::Ok, ""),
    ("ends.dive", &[1 << 20, 1], OVERFLOWN, "stack"),
    ("ends.dive", &[1 << 20, 3], OVERFLOWN, "stack"),
    // Budgets.
    ("ends.lend", &[3], Status::Ok, ""),
    ("ends.lend", &[1 << 20], LIMITED, "lent_bytes_of_an_invocation"),
    ("ends.pages", &[1 << 20, 0], LIMITED, "lent_bytes_of_an_invocation"),
    ("ends.pages", &[1 << 20, u64::MAX], LIMITED, "lent_bytes_of_an_invocation"),
    ("ends.pages", &[1 << 20, 0xffff_0000_0001_0000], LIMITED, "lent_bytes_of_an_invocation"),
    ("ends.writes", &[1 << 20, 3], LIMITED, "invocation_writes"),
    ("ends.writes", &[1 << 20, 1 << 20], LIMITED, "invocation_write"),
    ("ends.logs", &[1_000], Status::Ok, ""),
    ("ends.grow", &[1], Status::Ok, ""),
    ("ends.grow", &[65_536], Status::Ok, ""),
    ("ends.no_memory", &[WORD - 1], Status::ExtensionOutOfMemory, "invocation_arena_bytes"),
    ("ends.copy", &[], Status::Ok, ""),
    ("ends.left_read", &[], Status::Ok, ""),
];

/// Attacks that the server has to end.
pub const LOOPS: [Attack; 12] = [
    ("ends.spin", &[], KILLED, "invocation_cpu_us"),
    ("ends.spin_calls", &[], KILLED, "invocation_cpu_us"),
    ("ends.spin_indirect", &[], KILLED, "invocation_cpu_us"),
    ("ends.spin_host", &[], KILLED, "invocation_cpu_us"),
    ("ends.spin_grow", &[], KILLED, "invocation_cpu_us"),
    ("ends.spin_log", &[], KILLED, "invocation_cpu_us"),
    ("ends.spin_get", &[], KILLED, "invocation_"),
    ("ends.spin_get_many", &[], KILLED, "invocation_"),
    ("ends.spin_scan", &[], KILLED, "invocation_"),
    ("ends.spin_touch", &[], KILLED, "invocation_cpu_us"),
    ("ends.pend", &[], KILLED, "invocation_"),
    ("ends.trap_later", &[1 << 30, 0, 0], KILLED, "invocation_"),
];
