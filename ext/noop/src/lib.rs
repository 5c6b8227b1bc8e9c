//! Does nothing: what an invocation costs by itself.
#![no_std]
#![deny(unused_must_use)]

use sandstorm::Args;
use sandstorm::Db;
use sandstorm::Error;
use sandstorm::Reply;

sandstorm::extension! { read noop }

/// Replies with nothing.
async fn noop(_: &Db<'_>, _: Args<'_>, _: &mut Reply<'_>) -> Result<(), Error> {
    Ok(())
}

#[cfg(test)]
mod tests {
    use sandstorm::testing::MemoryDb;

    use super::noop;

    #[test]
    fn replies_with_nothing() {
        let db = MemoryDb::new();
        assert_eq!(db.call_read(noop, db.table("t"), b"key", b"arguments").unwrap(), b"");
    }
}
