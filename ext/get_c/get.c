// ext/get in C: a get as an extension.
#include "splinter.h"

// Replies with the value under the key; not found is an error.
SPLINTER_FUNCTION(get) {
  static uint64_t ticket; // lives from poll to poll
  splinter_record found;
  splinter_code code = splinter_get(&ticket, call->table, call->key.address, call->key.bytes, &found);
  if (code != SPLINTER_OK) return code; // also SPLINTER_PENDING: polled again, the same call is repeated
  if (found.version == 0) return SPLINTER_NOT_FOUND;
  return splinter_reply(call, found.value.address, found.value.bytes);
}
