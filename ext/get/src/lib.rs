//! A get as an extension: what one read costs when it is pushed down.
#![no_std]
#![deny(unused_must_use)]

use sandstorm::Args;
use sandstorm::Db;
use sandstorm::Error;
use sandstorm::Reply;

sandstorm::extension! { read get }

/// Replies with the value under the key; not found is an error.
async fn get(db: &Db<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Error> {
    match db.get(args.table(), args.key()).await? {
        Some(value) => reply.write(value),
        None => Err(Error::NotFound),
    }
}

#[cfg(test)]
mod tests {
    use sandstorm::Error;
    use sandstorm::testing::MemoryDb;

    use super::get;

    #[test]
    fn replies_with_the_value_or_not_found() {
        let db = MemoryDb::new();
        let table = db.table("t");
        db.put(table, b"key", b"value");
        db.put(table, b"", b"under the empty key");
        assert_eq!(db.call_read(get, table, b"key", b"").unwrap(), b"value");
        assert_eq!(db.call_read(get, table, b"", b"").unwrap(), b"under the empty key");
        assert_eq!(db.call_read(get, table, b"other", b""), Err(Error::NotFound));
    }
}
