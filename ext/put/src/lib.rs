//! A put as an extension: what one write costs when it is pushed down.
#![no_std]
#![deny(unused_must_use)]

use sandstorm::Args;
use sandstorm::Db;
use sandstorm::Error;
use sandstorm::Reply;

sandstorm::extension! { write put }

/// Writes the arguments under the key; the reply is empty.
async fn put(db: &Db<'_>, args: Args<'_>, _: &mut Reply<'_>) -> Result<(), Error> {
    db.put(args.table(), args.key(), args.bytes()).await
}

#[cfg(test)]
mod tests {
    use sandstorm::Error;
    use sandstorm::testing::MemoryDb;

    use super::put;

    #[test]
    fn writes_the_arguments_under_the_key() {
        let db = MemoryDb::new();
        let table = db.table("t");
        assert_eq!(db.call(put, table, b"key", b"value").unwrap(), b"");
        assert_eq!(db.call(put, table, b"key", b"").unwrap(), b"");
        assert_eq!(db.get(table, b"key").unwrap(), b"");
        assert_eq!(db.call(put, table, &[0; 1 << 16], b""), Err(Error::KeyTooLarge));
        assert_eq!(db.call_read(put, table, b"key", b"new"), Err(Error::ReadOnly));
    }
}
