// What the compiler of AssemblyScript calls: memory for objects, strings and arrays, and the end of a function that fails.
//
// Memory is the arena's. It is zero at first, as the compiler expects, and freed with the invocation, nothing before.
import { OBJECT, TOTAL_OVERHEAD } from "rt/common";
import { abandon } from "./splinter";

// The beginning of the call block, which the host writes before the first poll: the arena is free from `next` to `end`.
@unmanaged
class Block {
  next: usize;
  end: usize;
  panics: u32;
  asked: u32;
}

const ALIGN: usize = 16;
const HEAD: usize = (TOTAL_OVERHEAD + ALIGN - 1) & ~(ALIGN - 1); // keeps what follows an object's head aligned

// Ends the invocation with the first 80 characters of the string at an address. The compiler brings abort() so late that
// what it calls must not take objects.
function fail(kind: u32, text: usize): void {
  const length = min<u32>(changetype<OBJECT>(text - TOTAL_OVERHEAD).rtSize >> 1, 80);
  const bytes = memory.data(240);
  abandon(kind, bytes, <u32>String.UTF8.encodeUnsafe(text, length, bytes));
}

// For checks and `throw` (--use abort=runtime/abort).
function abort(message: string | null, file: string | null, line: u32, column: u32): void {
  fail(0, changetype<usize>(message ? message : "aborted"));
}

function allocate(bytes: u64): usize {
  const block = changetype<Block>(65408);
  const from = (block.next + ALIGN - 1) & ~(ALIGN - 1);
  const end = from + bytes;
  if (end > block.end) {
    block.asked = <u32>min<u64>(end, u32.MAX_VALUE);
    fail(1, changetype<usize>("the invocation's memory is used up"));
  }
  block.next = <usize>end;
  return from;
}

// @ts-ignore: decorator
@global @unsafe
function __alloc(bytes: usize): usize { return allocate(bytes); }

// @ts-ignore: decorator
@global @unsafe
function __new(bytes: usize, id: u32): usize {
  const address = allocate(<u64>HEAD + bytes) + HEAD;
  const object = changetype<OBJECT>(address - TOTAL_OVERHEAD);
  object.rtId = id;
  object.rtSize = <u32>bytes;
  return address;
}

// @ts-ignore: decorator
@global @unsafe
function __renew(address: usize, bytes: usize): usize {
  const object = changetype<OBJECT>(address - TOTAL_OVERHEAD);
  if (bytes <= object.rtSize) {
    object.rtSize = <u32>bytes;
    return address;
  }
  const larger = __new(bytes, object.rtId);
  memory.copy(larger, address, object.rtSize);
  return larger;
}

// @ts-ignore: decorator
@global @unsafe
function __free(address: usize): void {}
// @ts-ignore: decorator
@global @unsafe
function __link(parent: usize, child: usize, many: bool): void {}
// @ts-ignore: decorator
@global @unsafe
function __pin(address: usize): usize { return address; }
// @ts-ignore: decorator
@global @unsafe
function __unpin(address: usize): void {}
// @ts-ignore: decorator
@global @unsafe
function __collect(): void {}
