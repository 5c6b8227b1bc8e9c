//! An extension: functions that run inside the store, beside the data.
#![cfg_attr(not(test), no_std)]
#![deny(unused_must_use)]

use sandstorm::Args;
use sandstorm::Db;
use sandstorm::Error;
use sandstorm::Reply;

sandstorm::extension! { read greet }

/// Greets the name stored under the key.
/// Arguments: greeting text
async fn greet(db: &Db<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Error> {
    let name = db.get(args.table(), args.key()).await?.ok_or(Error::NotFound)?;
    reply.write(args.bytes())?;
    reply.write(b", ")?;
    reply.write(name)
}

#[cfg(test)]
mod tests {
    use sandstorm::Error;
    use sandstorm::testing::MemoryDb;

    use super::greet;

    #[test]
    fn greets_by_name() {
        let db = MemoryDb::new();
        let people = db.table("people");
        db.put(people, b"1", b"Ada");
        assert_eq!(db.call_read(greet, people, b"1", b"Hello").unwrap(), b"Hello, Ada");
        assert_eq!(db.call_read(greet, people, b"2", b"Hello"), Err(Error::NotFound));
    }
}
