//! The arguments and replies of the graph functions, byte by byte, little-endian.
//!
//! The key of an invocation is the key of the record that it reads first, so it is routed to where that
//! record lives.
//!
//! | Function | Key | Arguments | Reply |
//! |---|---|---|---|
//! | obj_get | object | | the record (see [`crate::object`]), or nothing |
//! | obj_add | object, id 2^64 - 1 for a new one | otype u32, data | id u64 |
//! | obj_update | object | otype u32, data | found u8 |
//! | obj_delete | object | | found u8 |
//! | assoc_get | head | high u64, low u64, id2 u64 ... | entries (see [`crate::entry`]) |
//! | assoc_range | head | position u32, limit u32 | entries |
//! | assoc_time_range | head | high u64, low u64, limit u32 | entries |
//! | assoc_count | head | | count u64 |
//! | assoc_add | head | id2 u64, time u64, data | new u8 |
//! | assoc_delete | head | id2 u64 | found u8 |
//! | assoc_declare | type | inverse type u32 | |
//! | friends | head | limit u32, objects u8 | count u32, id2 u64 ..., objects |
//! | friends_of_friends | head | limit u32, visits u32, objects u8 | see [`FriendsOfFriends`] |
//!
//! Objects at the end of a reply are there when the caller asked for them (1): for each id its bytes u32
//! and its record, or `u32::MAX` when there is no such object.

mod answer;
mod call;

pub use answer::Friends;
pub use answer::FriendsOfFriends;
pub use answer::NO_OBJECT;
pub use answer::decode_count;
pub use answer::decode_flag;
pub use call::Call;
