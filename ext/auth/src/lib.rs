//! Passwords: stored salted and stretched, verified beside the record, which never leaves the store.
//!
//! The record under a user's key holds no password but PBKDF2-HMAC-SHA-256 of it:
//!
//! | Record | |
//! |---|---|
//! | version | u8, 1 |
//! | rounds | u32 |
//! | salt | 16 bytes |
//! | key | 32 bytes |
//!
//! | Function | Arguments | Reply |
//! |---|---|---|
//! | `set_password` | rounds u32 (0: 10,000), salt (16 random bytes), password (the rest) | none |
//! | `verify` | password | u8: 1 right, 0 wrong |
//!
//! An extension has no randomness, so whoever sets a password brings the salt. A user that does not exist is
//! answered as a wrong password is, after as much work. Rounds are bounded by what one invocation may use
//! of the processor; a record that asks for more is refused before any work. Both functions make room for
//! others every few microseconds.
#![no_std]
#![deny(unused_must_use)]

#[cfg(test)]
mod hex;
mod pbkdf2;
mod sha256;

use core::hint::black_box;

use sandstorm::Args;
use sandstorm::Db;
use sandstorm::Error;
use sandstorm::Reader;
use sandstorm::Reply;

use pbkdf2::Stretch;
use sha256::DIGEST_BYTES;
use sha256::Digest;

sandstorm::extension! { write set_password, read verify }

/// Rounds when the caller does not say: some 5 ms.
const ROUNDS: u32 = 10_000;
/// Fewer rounds than this are refused: they would protect nothing.
const ROUNDS_MIN: u32 = 1_000;
/// More rounds than this are refused: some 50 ms, half of what an invocation may use.
const ROUNDS_MAX: u32 = 100_000;
/// Rounds between two yields: some 25 us.
const ROUNDS_PER_TURN: u32 = 50;
/// Bytes of a salt.
const SALT_BYTES: usize = 16;
/// Bytes of the longest password.
const PASSWORD_BYTES_MAX: usize = 1024;
/// The format of the record.
const VERSION: u8 = 1;
/// Bytes of the record.
const RECORD_BYTES: usize = 1 + 4 + SALT_BYTES + DIGEST_BYTES;

/// The record under the key holds no password.
const NOT_A_PASSWORD: Error = Error::Application(1);
/// The number of rounds is not one that is taken.
const ROUNDS_REFUSED: Error = Error::Application(2);
/// The password is empty or too long.
const PASSWORD_REFUSED: Error = Error::Application(3);

/// What a password is verified against.
struct Stored {
    rounds: u32,
    salt: [u8; SALT_BYTES],
    key: Digest,
}

impl Stored {
    /// What a user that does not exist is verified against; no password has this key.
    const NOBODY: Stored = Stored { rounds: ROUNDS, salt: [0; SALT_BYTES], key: [0; DIGEST_BYTES] };

    /// Takes a record apart.
    fn decode(record: &[u8]) -> Result<Stored, Error> {
        if record.len() != RECORD_BYTES || record[0] != VERSION {
            return Err(NOT_A_PASSWORD);
        }
        let mut reader = Reader::new(&record[1..]);
        let stored = Stored { rounds: reader.u32()?, salt: reader.array()?, key: reader.array()? };
        check_rounds(stored.rounds)?;
        Ok(stored)
    }

    /// Puts a record together.
    fn encode(&self) -> [u8; RECORD_BYTES] {
        let mut record = [0; RECORD_BYTES];
        record[0] = VERSION;
        record[1..5].copy_from_slice(&self.rounds.to_le_bytes());
        record[5..5 + SALT_BYTES].copy_from_slice(&self.salt);
        record[5 + SALT_BYTES..].copy_from_slice(&self.key);
        record
    }
}

/// Stores a password under the key: rounds u32 (0 for the default), salt (16 bytes), password.
/// Arguments: rounds u32, salt 16 bytes, password
async fn set_password(db: &Db<'_>, args: Args<'_>, _: &mut Reply<'_>) -> Result<(), Error> {
    let mut reader = args.reader();
    let rounds = match reader.u32()? {
        0 => ROUNDS,
        rounds => rounds,
    };
    let salt = reader.array()?;
    let password = reader.rest();
    check_rounds(rounds)?;
    check_password(password)?;
    let key = stretch(db, password, &salt, rounds).await;
    db.put(args.table(), args.key(), &Stored { rounds, salt, key }.encode()).await
}

/// Replies 1 when the arguments are the password stored under the key, else 0.
async fn verify(db: &Db<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Error> {
    let password = args.bytes();
    check_password(password)?;
    let record = db.get(args.table(), args.key()).await?;
    let stored = match record {
        Some(record) => Stored::decode(record)?,
        None => Stored::NOBODY,
    };
    let key = stretch(db, password, &stored.salt, stored.rounds).await;
    reply.u8(u8::from(equal(&key, &stored.key) & record.is_some()))
}

fn check_rounds(rounds: u32) -> Result<(), Error> {
    if (ROUNDS_MIN..=ROUNDS_MAX).contains(&rounds) { Ok(()) } else { Err(ROUNDS_REFUSED) }
}

fn check_password(password: &[u8]) -> Result<(), Error> {
    if (1..=PASSWORD_BYTES_MAX).contains(&password.len()) { Ok(()) } else { Err(PASSWORD_REFUSED) }
}

/// Derives the key of a password, a few rounds a turn.
async fn stretch(db: &Db<'_>, password: &[u8], salt: &[u8; SALT_BYTES], rounds: u32) -> Digest {
    let mut stretch = Stretch::new(password, salt, rounds);
    while stretch.step(ROUNDS_PER_TURN) {
        db.yield_now().await;
    }
    stretch.key()
}

/// Compares in a time that does not depend on where the first difference is.
fn equal(left: &Digest, right: &Digest) -> bool {
    let difference = left.iter().zip(right).fold(0, |all, (left, right)| black_box(all | (left ^ right)));
    difference == 0
}

#[cfg(test)]
mod tests {
    extern crate alloc;

    use alloc::vec;
    use alloc::vec::Vec;

    use sandstorm::Error;
    use sandstorm::Table;
    use sandstorm::testing::MemoryDb;

    use super::DIGEST_BYTES;
    use super::NOT_A_PASSWORD;
    use super::PASSWORD_BYTES_MAX;
    use super::PASSWORD_REFUSED;
    use super::ROUNDS_MAX;
    use super::ROUNDS_MIN;
    use super::ROUNDS_REFUSED;
    use super::SALT_BYTES;
    use super::Stored;
    use super::equal;
    use super::set_password;
    use super::verify;

    const SALT: [u8; SALT_BYTES] = *b"0123456789abcdef";

    fn order(rounds: u32, password: &[u8]) -> Vec<u8> {
        [&rounds.to_le_bytes(), &SALT[..], password].concat()
    }

    fn is_right(db: &MemoryDb, table: Table, user: &[u8], password: &[u8]) -> Result<bool, Error> {
        db.call_read(verify, table, user, password).map(|reply| reply == [1])
    }

    #[test]
    fn the_right_password_alone_is_right() {
        let db = MemoryDb::new();
        let users = db.table("users");
        db.call(set_password, users, b"ann", &order(ROUNDS_MIN, b"correct horse")).unwrap();
        assert_eq!(is_right(&db, users, b"ann", b"correct horse"), Ok(true));
        for wrong in [&b"correct hors"[..], b"correct horse ", b"Correct horse", b"x"] {
            assert_eq!(is_right(&db, users, b"ann", wrong), Ok(false));
        }
        db.call(set_password, users, b"ann", &order(ROUNDS_MIN + 1, b"another")).unwrap();
        assert_eq!(is_right(&db, users, b"ann", b"correct horse"), Ok(false));
        assert_eq!(is_right(&db, users, b"ann", b"another"), Ok(true));
    }

    #[test]
    fn the_record_holds_rounds_and_salt_and_a_known_key() {
        let db = MemoryDb::new();
        let users = db.table("users");
        db.call(set_password, users, b"ann", &order(0, b"correct horse")).unwrap();
        let record = db.get(users, b"ann").unwrap();
        // PBKDF2-HMAC-SHA-256 of these by another author's implementation.
        let key = [
            0x4c, 0x8d, 0xa0, 0xae, 0xdb, 0xd5, 0xd4, 0x75, 0xb9, 0x9f, 0x3d, 0xab, 0x05, 0x8e, 0x2d, 0x72,
            0xd9, 0x6b, 0x98, 0xe8, 0xf9, 0x6d, 0x9b, 0x34, 0x77, 0x0f, 0x63, 0xf0, 0xd1, 0xe9, 0x45, 0x17,
        ];
        assert_eq!(record, [&[1, 0x10, 0x27, 0, 0], &SALT[..], &key].concat());
    }

    #[test]
    fn who_has_no_password_is_told_what_a_wrong_one_is_told() {
        let db = MemoryDb::new();
        let users = db.table("users");
        assert_eq!(is_right(&db, users, b"nobody", b"anything"), Ok(false));
        assert_eq!(db.call_read(verify, users, b"nobody", b""), Err(PASSWORD_REFUSED));
    }

    #[test]
    fn what_costs_too_little_or_too_much_is_refused() {
        let db = MemoryDb::new();
        let users = db.table("users");
        for rounds in [1, ROUNDS_MIN - 1, ROUNDS_MAX + 1, u32::MAX] {
            assert_eq!(db.call(set_password, users, b"u", &order(rounds, b"p")), Err(ROUNDS_REFUSED));
        }
        for password in [vec![], vec![b'p'; PASSWORD_BYTES_MAX + 1]] {
            assert_eq!(db.call(set_password, users, b"u", &order(0, &password)), Err(PASSWORD_REFUSED));
            assert_eq!(db.call_read(verify, users, b"u", &password), Err(PASSWORD_REFUSED));
        }
        assert_eq!(db.call(set_password, users, b"u", b"short"), Err(Error::BadArguments));
        assert_eq!(db.get(users, b"u"), None);
    }

    #[test]
    fn a_record_that_is_no_password_is_refused() {
        let db = MemoryDb::new();
        let users = db.table("users");
        let expensive = Stored { rounds: u32::MAX, salt: SALT, key: [0; DIGEST_BYTES] }.encode();
        db.put(users, b"expensive", &expensive);
        assert_eq!(db.call_read(verify, users, b"expensive", b"p"), Err(ROUNDS_REFUSED));
        for record in [&expensive[1..], &[&[2], &expensive[1..]].concat(), b""] {
            db.put(users, b"damaged", record);
            assert_eq!(db.call_read(verify, users, b"damaged", b"p"), Err(NOT_A_PASSWORD));
        }
    }

    #[test]
    fn digests_are_equal_when_every_byte_is() {
        let one = [7; DIGEST_BYTES];
        assert!(equal(&one, &one));
        for at in 0..DIGEST_BYTES {
            let mut other = one;
            other[at] ^= 1 << (at % 8);
            assert!(!equal(&one, &other), "byte {at}");
        }
    }
}
