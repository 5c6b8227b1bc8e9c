// The border between a Splinter server and a module in C: version 1 of it, as docs/modules.md describes it.
//
// A module has one invocation at a time, and is as new for each: static variables are zero at its first poll and keep
// what a function needs from one poll to the next. So a function that has to wait returns SPLINTER_PENDING, is called
// again, and finds its place by its static variables.
#ifndef SPLINTER_H
#define SPLINTER_H

#include <stddef.h>
#include <stdint.h>

// The result of a host call and of a poll. An application's own error has its number in the upper half.
typedef uint64_t splinter_code;
enum {
  SPLINTER_OK = 0,
  SPLINTER_BAD_ARGUMENTS = 2,
  SPLINTER_NOT_FOUND = 3,
  SPLINTER_REPLY_TOO_LARGE = 4,
  SPLINTER_KEY_TOO_LARGE = 5,
  SPLINTER_VALUE_TOO_LARGE = 6,
  SPLINTER_UNKNOWN_TABLE = 7,
  SPLINTER_CONDITION_FAILED = 8,
  SPLINTER_NOT_A_NUMBER = 9,
  SPLINTER_OVERFLOW = 10,
  SPLINTER_OUT_OF_MEMORY = 11,
  SPLINTER_LIMIT_EXCEEDED = 12,
  SPLINTER_READ_ONLY = 13,
  SPLINTER_NOT_PERMITTED = 14,
  SPLINTER_CONFLICT = 15,
  SPLINTER_NOT_LOCAL = 16,
  SPLINTER_STACK_EXHAUSTED = 17,
  SPLINTER_UNAVAILABLE = 18,
  SPLINTER_UNKNOWN = 19,
  SPLINTER_NOT_ORDERED = 20,
  SPLINTER_OUT_OF_RANGE = 21,
  SPLINTER_CURSOR_INVALID = 22,
  SPLINTER_NOT_SERIALIZABLE = 23,
  SPLINTER_SERVER_AWAY = 24,
};
#define SPLINTER_PENDING 0xffffffffull
#define SPLINTER_APPLICATION(number) (1ull | (uint64_t)(number) << 32)

typedef struct {
  const uint8_t *address;
  uint32_t bytes;
} splinter_slice;

// An object; version 0 means that there is none. The value is lent until the invocation ends.
typedef struct {
  splinter_slice value;
  uint64_t version;
} splinter_record;

// An object of a page, lent until the next page.
typedef struct {
  splinter_slice key;
  splinter_record record;
} splinter_entry;

// Flags of a range.
enum { SPLINTER_HAS_TO = 1, SPLINTER_HAS_AFTER = 2, SPLINTER_REVERSE = 4 };

typedef struct {
  splinter_slice from, to, prefix, after;
  uint32_t flags, reserved;
} splinter_range;

// The result of a scan call. Keep it from one page to the next, since the host keeps the memory of the page in `page`. A
// scan may begin with the `page` of one that has ended, or with an empty one.
typedef struct {
  uint32_t count;
  splinter_slice last;
  uint32_t ended;
  splinter_slice page;
} splinter_scanned;

// The result of an enumeration call, to be kept alike. `cursor_bytes` is 0 at the end.
typedef struct {
  uint32_t count, cursor_bytes;
  uint8_t cursor[64];
  splinter_slice page;
} splinter_listed;

// The reply: write at `address + bytes`, at most `capacity`, and raise `bytes` first. splinter_reply does that.
typedef struct {
  uint8_t *address;
  uint32_t bytes, capacity, highest, asked;
} splinter_reply_buffer;

// One invocation.
typedef struct {
  uint32_t host, context; // of no use to a module
  splinter_slice key, arguments;
  splinter_reply_buffer reply;
  void *future; // yours: null at the first poll, then what you leave here
  uint32_t table, reserved;
} splinter_call;

// The call block, which the host writes before the first poll.
typedef struct {
  uint32_t next, end, panics, asked; // the arena: free from `next` to `end`
  splinter_call call;
  uint32_t highest;
} splinter_block;

#define SPLINTER_BLOCK ((splinter_block *)65408)

_Static_assert(sizeof(splinter_record) == 16 && sizeof(splinter_entry) == 24, "as the border says");
_Static_assert(sizeof(splinter_range) == 40 && sizeof(splinter_scanned) == 24, "as the border says");
_Static_assert(sizeof(splinter_listed) == 80 && sizeof(splinter_call) == 56, "as the border says");
_Static_assert(offsetof(splinter_block, call) == 16 && offsetof(splinter_block, highest) == 72, "as the border says");

// Conditions of a write; the version belongs to the last.
enum { SPLINTER_ALWAYS = 0, SPLINTER_IF_ABSENT = 1, SPLINTER_IF_PRESENT = 2, SPLINTER_IF_VERSION = 3 };
// The time to live of an object that does not expire.
#define SPLINTER_FOREVER UINT64_MAX

// The host's functions. A ticket is 0 before a call and again after a call that was not pending; a call that is pending
// is repeated with the same arguments and the same ticket at the next poll.
#define SPLINTER_IMPORT(name) __attribute__((import_module("splinter"), import_name(#name))) extern
SPLINTER_IMPORT(get)
splinter_code splinter_get(uint64_t *ticket, uint32_t table, const void *key, uint32_t key_bytes, splinter_record *record);
SPLINTER_IMPORT(get_many)
splinter_code splinter_get_many(uint64_t *ticket, uint32_t table, const splinter_slice *keys, uint32_t count,
                                splinter_record *records);
SPLINTER_IMPORT(scan)
splinter_code splinter_scan(uint64_t *ticket, uint32_t table, const splinter_range *range, splinter_entry *entries,
                            uint32_t capacity, splinter_scanned *scanned);
SPLINTER_IMPORT(enumerate)
splinter_code splinter_enumerate(uint64_t *ticket, uint32_t table, const void *cursor, uint32_t cursor_bytes,
                                 splinter_entry *entries, uint32_t capacity, splinter_listed *listed);
SPLINTER_IMPORT(put)
splinter_code splinter_put(uint64_t *ticket, uint32_t table, const void *key, uint32_t key_bytes, const void *value,
                           uint32_t value_bytes, uint32_t condition, uint64_t version, uint64_t ttl_ms);
SPLINTER_IMPORT(delete)
splinter_code splinter_delete(uint64_t *ticket, uint32_t table, const void *key, uint32_t key_bytes, uint32_t condition,
                              uint64_t version);
SPLINTER_IMPORT(increment)
splinter_code splinter_increment(uint64_t *ticket, uint32_t table, const void *key, uint32_t key_bytes, int64_t delta,
                                 int64_t *value);
SPLINTER_IMPORT(increment_float)
splinter_code splinter_increment_float(uint64_t *ticket, uint32_t table, const void *key, uint32_t key_bytes,
                                       double delta, double *value);
SPLINTER_IMPORT(table)
splinter_code splinter_table(uint64_t *ticket, const void *name, uint32_t name_bytes, uint32_t *id);
SPLINTER_IMPORT(log) // level: 0 error, 1 warning, 2 information, 3 debug
void splinter_log(uint32_t level, const void *text, uint32_t text_bytes);
SPLINTER_IMPORT(now_ms) uint64_t splinter_now_ms(void);
SPLINTER_IMPORT(abandon) // kind: 0 panic, 1 out of memory
_Noreturn void splinter_abandon(uint32_t kind, const void *text, uint32_t text_bytes);

// Defines a function that functions.toml lists: SPLINTER_FUNCTION(get) { .. return SPLINTER_OK; }
#define SPLINTER_FUNCTION(name) \
  __attribute__((export_name("run_" #name))) splinter_code run_##name(splinter_call *call)

// What the compiler calls to move memory: loops, which the server can interrupt.
typedef struct __attribute__((packed, may_alias)) {
  uint64_t word;
} splinter_word;

__attribute__((weak)) void *memmove(void *to, const void *from, size_t bytes) {
  uint8_t *target = to;
  const uint8_t *source = from;
  size_t at = 0;
  if ((uintptr_t)to - (uintptr_t)from >= bytes) {
    for (; at + 8 <= bytes; at += 8) *(splinter_word *)(target + at) = *(const splinter_word *)(source + at);
    for (; at < bytes; at++) target[at] = source[at];
  } else {
    for (at = bytes; at > 0; at--) target[at - 1] = source[at - 1];
  }
  return to;
}

__attribute__((weak)) void *memcpy(void *restrict to, const void *restrict from, size_t bytes) {
  return memmove(to, from, bytes);
}

__attribute__((weak)) void *memset(void *to, int byte, size_t bytes) {
  uint8_t *target = to;
  for (size_t at = 0; at < bytes; at++) target[at] = (uint8_t)byte;
  return to;
}

// Allocates from the arena, which is freed with the invocation; ends the invocation if it is used up.
static inline void *splinter_allocate(uint32_t bytes, uint32_t align) {
  splinter_block *block = SPLINTER_BLOCK;
  uint64_t from = ((uint64_t)block->next + align - 1) & ~(uint64_t)(align - 1);
  if (from + bytes > block->end) {
    static const char text[] = "the invocation's memory is used up";
    block->asked = from + bytes > UINT32_MAX ? UINT32_MAX : (uint32_t)(from + bytes);
    splinter_abandon(1, text, sizeof text - 1);
  }
  block->next = (uint32_t)(from + bytes);
  return (void *)(uintptr_t)from;
}

// Appends to the reply, or nothing if it does not fit.
static inline splinter_code splinter_reply(splinter_call *call, const void *bytes, uint32_t count) {
  splinter_reply_buffer *reply = &call->reply;
  if (count > reply->capacity - reply->bytes) {
    reply->asked = count > UINT32_MAX - reply->bytes ? UINT32_MAX : reply->bytes + count;
    return SPLINTER_REPLY_TOO_LARGE;
  }
  uint8_t *end = reply->address + reply->bytes;
  reply->bytes += count;
  memcpy(end, bytes, count);
  return SPLINTER_OK;
}

#endif
