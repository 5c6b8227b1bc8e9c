// ext/get in AssemblyScript: a get as an extension.
import { Call, Code, get, NOT_FOUND, OK, Record, reply } from "./splinter";

export { __heap_base }; // the server asks for it

const ticket = memory.data(8); // lives from poll to poll
const found = changetype<Record>(memory.data(16));

// Replies with the value under the key; not found is an error.
export function run_get(call: Call): Code {
  const code = get(ticket, call.table, call.key, call.keyBytes, found);
  if (code != OK) return code; // also PENDING: polled again, the same call is repeated
  if (found.version == 0) return NOT_FOUND;
  return reply(call, found.value, found.valueBytes);
}
