//! Transfers within a closed economy, after YCSB+T (Dey et al., 2014): however many transfers run, fail or
//! conflict, the sum of all balances stays what it was.
//!
//! An account is a record of 16 bytes under its number (u64): balance i64, transfers paid u64. The second
//! number counts what left the account, so that "each transfer exactly once" can be checked as well.
//!
//! | Function | Key | Arguments | Reply |
//! |---|---|---|---|
//! | `open` | account | balance i64, not negative | none |
//! | `transfer` | account that pays | amount i64, not negative; account that gets u64 | the payer's record |
//! | `balance` | account | none | the record |
//! | `sum`, `audit` | any | first account u64, how many u32 | balances i64, transfers u64, accounts found u32 |
//!
//! `sum` reads the accounts one by one, while others may transfer; `audit` reads them as at one moment, or
//! ends with `Conflict`.
#![no_std]
#![deny(unused_must_use)]

use sandstorm::Args;
use sandstorm::Condition;
use sandstorm::Db;
use sandstorm::Error;
use sandstorm::Reader;
use sandstorm::Record;
use sandstorm::Reply;
use sandstorm::Table;

sandstorm::extension! { write open, write transfer, read balance, read sum, write audit }

/// The paying account has less than the amount; the message is its record.
const NOT_ENOUGH: Error = Error::Application(1);
/// The record under the key is no account.
const NOT_AN_ACCOUNT: Error = Error::Application(2);

/// Accounts fetched together.
const BATCH_ACCOUNTS: usize = 64;
/// Bytes of an account's record, and of its key.
const RECORD_BYTES: usize = 16;
const KEY_BYTES: usize = 8;

/// An account.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Account {
    balance: i64,
    transfers: u64,
}

impl Account {
    /// Takes a record apart.
    fn decode(record: &[u8]) -> Result<Account, Error> {
        if record.len() != RECORD_BYTES {
            return Err(NOT_AN_ACCOUNT);
        }
        let mut reader = Reader::new(record);
        Ok(Account { balance: reader.i64()?, transfers: reader.u64()? })
    }

    /// Puts a record together.
    fn encode(self) -> [u8; RECORD_BYTES] {
        let mut record = [0; RECORD_BYTES];
        record[..8].copy_from_slice(&self.balance.to_le_bytes());
        record[8..].copy_from_slice(&self.transfers.to_le_bytes());
        record
    }

    /// The account under a key.
    async fn read(db: &Db<'_>, table: Table, key: &[u8]) -> Result<Account, Error> {
        Account::decode(db.get(table, key).await?.ok_or(Error::NotFound)?)
    }
}

/// Opens an account with a balance (i64); fails when there is one.
/// Arguments: balance i64, 0 or more; the key is an account u64
async fn open(db: &Db<'_>, args: Args<'_>, _: &mut Reply<'_>) -> Result<(), Error> {
    let mut reader = args.reader();
    let balance = reader.i64()?;
    reader.finish()?;
    if balance < 0 || args.key().len() != KEY_BYTES {
        return Err(Error::BadArguments);
    }
    let account = Account { balance, transfers: 0 };
    db.put_if(args.table(), args.key(), &account.encode(), Condition::Absent).await
}

/// Moves an amount (i64) from the account under the key to another (u64); replies with what the payer has.
/// Arguments: amount i64, 0 or more, other account u64; the key is an account u64
async fn transfer(db: &Db<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Error> {
    let mut reader = args.reader();
    let amount = reader.i64()?;
    let to = reader.bytes(KEY_BYTES)?;
    reader.finish()?;
    if amount < 0 || to == args.key() {
        return Err(Error::BadArguments);
    }
    let mut payer = Account::read(db, args.table(), args.key()).await?;
    let mut payee = Account::read(db, args.table(), to).await?;
    if payer.balance < amount {
        reply.write(&payer.encode())?;
        return Err(NOT_ENOUGH);
    }
    payer.balance -= amount;
    payer.transfers += 1;
    payee.balance = payee.balance.checked_add(amount).ok_or(Error::Overflow)?;
    db.put(args.table(), args.key(), &payer.encode()).await?;
    db.put(args.table(), to, &payee.encode()).await?;
    reply.write(&payer.encode())
}

/// Replies with the balance (i64) of an account and the number of transfers that it paid (u64).
async fn balance(db: &Db<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Error> {
    reply.write(&Account::read(db, args.table(), args.key()).await?.encode())
}

/// Adds up a range of accounts, one by one: first (u64), how many (u32).
/// Arguments: first account u64, how many u32
async fn sum(db: &Db<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Error> {
    add_up(db, args, reply).await
}

/// Adds up a range of accounts as at one moment: first (u64), how many (u32).
/// Arguments: first account u64, how many u32
async fn audit(db: &Db<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Error> {
    add_up(db, args, reply).await
}

async fn add_up(db: &Db<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Error> {
    let mut reader = args.reader();
    let (first, count) = (reader.u64()?, reader.u32()?);
    reader.finish()?;
    let end = first.checked_add(u64::from(count)).ok_or(Error::BadArguments)?;
    let (mut balances, mut transfers, mut found) = (0i64, 0u64, 0u32);
    let mut next = first;
    while next < end {
        let batch_end = end.min(next + BATCH_ACCOUNTS as u64);
        let mut records = [None; BATCH_ACCOUNTS];
        let records = &mut records[..(batch_end - next) as usize];
        fetch(db, args.table(), next, records).await?;
        for record in records.iter().flatten() {
            let account = Account::decode(record.value)?;
            balances = balances.checked_add(account.balance).ok_or(Error::Overflow)?;
            transfers = transfers.wrapping_add(account.transfers);
            found += 1;
        }
        next = batch_end;
    }
    reply.i64(balances)?;
    reply.u64(transfers)?;
    reply.u32(found)
}

/// Fetches as many accounts from `first` on as `records` has places, [`BATCH_ACCOUNTS`] at most.
async fn fetch<'a>(
    db: &Db<'a>,
    table: Table,
    first: u64,
    records: &mut [Option<Record<'a>>],
) -> Result<(), Error> {
    let mut numbers = [[0; KEY_BYTES]; BATCH_ACCOUNTS];
    for (number, account) in numbers.iter_mut().zip(first..) {
        *number = account.to_le_bytes();
    }
    let mut keys: [&[u8]; BATCH_ACCOUNTS] = [&[]; BATCH_ACCOUNTS];
    for (key, number) in keys.iter_mut().zip(&numbers) {
        *key = number;
    }
    db.get_many(table, &keys[..records.len()], records).await
}

#[cfg(test)]
mod tests {
    extern crate alloc;

    use alloc::vec::Vec;

    use sandstorm::Error;
    use sandstorm::Reader;
    use sandstorm::Table;
    use sandstorm::testing::MemoryDb;

    use super::Account;
    use super::NOT_AN_ACCOUNT;
    use super::NOT_ENOUGH;
    use super::audit;
    use super::balance;
    use super::open;
    use super::sum;
    use super::transfer;

    fn pay(db: &MemoryDb, table: Table, from: u64, amount: i64, to: u64) -> Result<Account, Error> {
        let order = [amount.to_le_bytes(), to.to_le_bytes()].concat();
        Account::decode(&db.call(transfer, table, &from.to_le_bytes(), &order)?)
    }

    fn account(db: &MemoryDb, table: Table, number: u64) -> Result<Account, Error> {
        Account::decode(&db.call_read(balance, table, &number.to_le_bytes(), b"")?)
    }

    fn opened(accounts: u64, balance: i64) -> (MemoryDb, Table) {
        let db = MemoryDb::new();
        let table = db.table("accounts");
        for number in 0..accounts {
            db.call(open, table, &number.to_le_bytes(), &balance.to_le_bytes()).unwrap();
        }
        (db, table)
    }

    fn range(first: u64, count: u32) -> Vec<u8> {
        [&first.to_le_bytes()[..], &count.to_le_bytes()].concat()
    }

    #[test]
    fn a_transfer_moves_money_and_counts_once() {
        let (db, table) = opened(2, 100);
        db.set_stalling(true);
        assert_eq!(pay(&db, table, 0, 30, 1), Ok(Account { balance: 70, transfers: 1 }));
        assert_eq!(pay(&db, table, 0, 70, 1), Ok(Account { balance: 0, transfers: 2 }));
        assert_eq!(pay(&db, table, 1, 0, 0), Ok(Account { balance: 200, transfers: 1 }));
        assert_eq!(account(&db, table, 0), Ok(Account { balance: 0, transfers: 2 }));
        assert_eq!(account(&db, table, 1), Ok(Account { balance: 200, transfers: 1 }));
    }

    #[test]
    fn a_transfer_that_cannot_be_moves_nothing() {
        let (db, table) = opened(2, 100);
        assert_eq!(pay(&db, table, 0, 101, 1), Err(NOT_ENOUGH));
        assert_eq!(pay(&db, table, 0, -1, 1), Err(Error::BadArguments));
        assert_eq!(pay(&db, table, 0, 1, 0), Err(Error::BadArguments));
        assert_eq!(pay(&db, table, 0, 1, 2), Err(Error::NotFound));
        assert_eq!(pay(&db, table, 2, 1, 0), Err(Error::NotFound));
        db.put(table, &3u64.to_le_bytes(), b"text");
        assert_eq!(pay(&db, table, 0, 1, 3), Err(NOT_AN_ACCOUNT));
        let rich = Account { balance: i64::MAX, transfers: 0 };
        db.put(table, &4u64.to_le_bytes(), &rich.encode());
        assert_eq!(pay(&db, table, 0, 1, 4), Err(Error::Overflow));
        assert_eq!(db.call(transfer, table, &0u64.to_le_bytes(), b"short"), Err(Error::BadArguments));
        assert_eq!(account(&db, table, 0), Ok(Account { balance: 100, transfers: 0 }));
        assert_eq!(account(&db, table, 1), Ok(Account { balance: 100, transfers: 0 }));
    }

    #[test]
    fn an_account_is_opened_once() {
        let (db, table) = opened(1, 5);
        let again = db.call(open, table, &0u64.to_le_bytes(), &9i64.to_le_bytes());
        assert_eq!(again, Err(Error::ConditionFailed));
        assert_eq!(account(&db, table, 0), Ok(Account { balance: 5, transfers: 0 }));
        for (key, balance) in [(&b"short"[..], 1i64), (&[7; 8], -1)] {
            assert_eq!(db.call(open, table, key, &balance.to_le_bytes()), Err(Error::BadArguments));
        }
    }

    #[test]
    fn the_sum_of_a_range_stays_what_it_was() {
        for accounts in [0u32, 1, 63, 64, 65, 200] {
            let (db, table) = opened(u64::from(accounts), 10);
            if accounts > 1 {
                pay(&db, table, 0, 7, u64::from(accounts) - 1).unwrap();
            }
            let expected = [
                &(i64::from(accounts) * 10).to_le_bytes()[..],
                &u64::from(accounts > 1).to_le_bytes(),
                &accounts.to_le_bytes(),
            ];
            let range = range(0, accounts + 3);
            assert_eq!(db.call_read(sum, table, b"", &range).unwrap(), expected.concat());
            assert_eq!(db.call(audit, table, b"", &range).unwrap(), expected.concat());
        }
        let (db, table) = opened(10, 10);
        let reply = db.call_read(sum, table, b"", &range(4, 3)).unwrap();
        assert_eq!(Reader::new(&reply).i64(), Ok(30));
        assert_eq!(db.call_read(sum, table, b"", &range(u64::MAX, 1)), Err(Error::BadArguments));
        assert_eq!(db.call_read(sum, table, b"", b"short"), Err(Error::BadArguments));
    }
}
