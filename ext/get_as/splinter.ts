// The border between a Splinter server and a module in AssemblyScript: version 1 of it, as docs/modules.md describes it.
//
// A module has one invocation at a time, and is as new for each: globals and memory.data() have their initial values at
// its first poll and keep what a function needs from one poll to the next. So a function that has to wait returns
// PENDING, is called again, and finds its place by them.

// The result of a host call and of a poll. An application's own error has its number in the upper half.
export type Code = u64;
export const OK: Code = 0;
export const BAD_ARGUMENTS: Code = 2;
export const NOT_FOUND: Code = 3;
export const REPLY_TOO_LARGE: Code = 4;
export const KEY_TOO_LARGE: Code = 5;
export const VALUE_TOO_LARGE: Code = 6;
export const UNKNOWN_TABLE: Code = 7;
export const CONDITION_FAILED: Code = 8;
export const NOT_A_NUMBER: Code = 9;
export const OVERFLOW: Code = 10;
export const OUT_OF_MEMORY: Code = 11;
export const LIMIT_EXCEEDED: Code = 12;
export const READ_ONLY: Code = 13;
export const NOT_PERMITTED: Code = 14;
export const CONFLICT: Code = 15;
export const NOT_LOCAL: Code = 16;
export const STACK_EXHAUSTED: Code = 17;
export const UNAVAILABLE: Code = 18;
export const UNKNOWN: Code = 19;
export const NOT_ORDERED: Code = 20;
export const OUT_OF_RANGE: Code = 21;
export const CURSOR_INVALID: Code = 22;
export const NOT_SERIALIZABLE: Code = 23;
export const SERVER_AWAY: Code = 24;
export const PENDING: Code = 0xffffffff;
export function application(number: u32): Code {
  return 1 | (<u64>number << 32);
}

// Some bytes.
@unmanaged
export class Slice {
  address: usize;
  bytes: u32;
}

// An object; version 0 means that there is none. The value is lent until the invocation ends.
@unmanaged
export class Record {
  value: usize;
  valueBytes: u32;
  version: u64;
}

// An object of a page, lent until the next page.
@unmanaged
export class Entry {
  key: usize;
  keyBytes: u32;
  value: usize;
  valueBytes: u32;
  version: u64;
}

// Flags of a range.
export const HAS_TO: u32 = 1;
export const HAS_AFTER: u32 = 2;
export const REVERSE: u32 = 4;

@unmanaged
export class Range {
  from: usize;
  fromBytes: u32;
  to: usize;
  toBytes: u32;
  prefix: usize;
  prefixBytes: u32;
  after: usize;
  afterBytes: u32;
  flags: u32;
  reserved: u32;
}

// The result of a scan call. Keep it from one page to the next, since the host keeps the memory of the page in `page`. A
// scan may begin with the page of one that has ended, or with an empty one.
@unmanaged
export class Scanned {
  count: u32;
  last: usize;
  lastBytes: u32;
  ended: u32;
  page: usize;
  pageBytes: u32;
}

// The beginning of the result of an enumeration call, which has 80 bytes and is to be kept alike: the cursor follows, of
// 64 bytes, and the page as in a `Scanned`. `cursorBytes` is 0 at the end.
@unmanaged
export class Listed {
  count: u32;
  cursorBytes: u32;
}

// One invocation.
@unmanaged
export class Call {
  host: u32; // of no use to a module
  context: u32; // nor this
  key: usize;
  keyBytes: u32;
  arguments: usize;
  argumentsBytes: u32;
  reply: usize; // write at `reply + replyBytes`, at most `replyCapacity`, and raise `replyBytes` first
  replyBytes: u32;
  replyCapacity: u32;
  replyHighest: u32;
  replyAsked: u32;
  future: usize; // yours: 0 at the first poll, then what you leave here
  table: u32;
  reserved: u32;
}

// Conditions of a write; the version belongs to the last.
export const ALWAYS: u32 = 0;
export const IF_ABSENT: u32 = 1;
export const IF_PRESENT: u32 = 2;
export const IF_VERSION: u32 = 3;
// The time to live of an object that does not expire.
export const FOREVER: u64 = u64.MAX_VALUE;

// The host's functions. A ticket is the address of eight bytes, 0 before a call and again after a call that was not
// pending; a call that is pending is repeated with the same arguments and the same ticket at the next poll.
@external("splinter", "get")
export declare function get(ticket: usize, table: u32, key: usize, keyBytes: u32, record: Record): Code;
@external("splinter", "get_many")
export declare function getMany(ticket: usize, table: u32, keys: usize, count: u32, records: usize): Code;
@external("splinter", "scan")
export declare function scan(
  ticket: usize, table: u32, range: Range, entries: usize, capacity: u32, scanned: Scanned): Code;
@external("splinter", "enumerate")
export declare function enumerate(
  ticket: usize, table: u32, cursor: usize, cursorBytes: u32, entries: usize, capacity: u32, listed: Listed): Code;
@external("splinter", "put")
export declare function put(
  ticket: usize, table: u32, key: usize, keyBytes: u32, value: usize, valueBytes: u32, condition: u32, version: u64,
  ttlMs: u64): Code;
@external("splinter", "delete")
export declare function remove(
  ticket: usize, table: u32, key: usize, keyBytes: u32, condition: u32, version: u64): Code;
@external("splinter", "increment")
export declare function increment(
  ticket: usize, table: u32, key: usize, keyBytes: u32, delta: i64, sum: usize): Code;
@external("splinter", "increment_float")
export declare function incrementFloat(
  ticket: usize, table: u32, key: usize, keyBytes: u32, delta: f64, sum: usize): Code;
@external("splinter", "table")
export declare function table(ticket: usize, name: usize, nameBytes: u32, id: usize): Code;
@external("splinter", "log") // level: 0 error, 1 warning, 2 information, 3 debug
export declare function log(level: u32, text: usize, textBytes: u32): void;
@external("splinter", "now_ms")
export declare function nowMs(): u64;
@external("splinter", "abandon") // kind: 0 panic, 1 out of memory; never returns
export declare function abandon(kind: u32, text: usize, textBytes: u32): void;

// Appends to the reply, or nothing if it does not fit.
export function reply(call: Call, address: usize, bytes: u32): Code {
  if (bytes > call.replyCapacity - call.replyBytes) {
    call.replyAsked = bytes > u32.MAX_VALUE - call.replyBytes ? u32.MAX_VALUE : call.replyBytes + bytes;
    return REPLY_TOO_LARGE;
  }
  const end = call.reply + call.replyBytes;
  call.replyBytes += bytes;
  memory.copy(end, address, bytes); // a loop, as all of it is with --disable bulk-memory
  return OK;
}
