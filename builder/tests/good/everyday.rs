//! What authors write every day: structs, enums, traits, iterators, closures, alloc, formatting, modules.
#![cfg_attr(not(test), no_std)]
#![deny(missing_docs)]
#![allow(clippy::needless_range_loop, reason = "shown on purpose")]

extern crate alloc;

use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec;
use alloc::vec::Vec;
use core::cmp::Ordering;
use core::fmt;
use sandstorm::{Args, Condition, Db, Error, Level, Record, Reply, Table};

use self::shapes as forms;

sandstorm::extension! {
    read everyday,
    write store_it,
}

/// A constant table.
pub const PRIMES: [u64; 4] = [2, 3, 5, 7];
const NAMES: &[(&'static str, u32)] = &[("one", 1), ("two", 2)];

/// A module within the file.
pub mod shapes {
    /// A shape.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
    #[repr(u8)]
    pub enum Shape {
        /// Round.
        #[default]
        Circle = 1,
        /// Not round.
        Square = 2,
    }

    impl Shape {
        /// Its corners.
        #[inline(always)]
        #[must_use = "a count"]
        pub fn corners(self) -> u32 {
            match self {
                Shape::Circle => 0,
                Shape::Square => 4,
            }
        }
    }
}

/// Something with an area.
pub trait Area {
    /// How many sides are looked at.
    const SIDES: usize;
    /// The area.
    fn area(&self) -> u64;
    /// Twice the area.
    fn twice(&self) -> u64 {
        self.area() * 2
    }
}

struct Rectangle<'a, const N: usize> {
    sides: &'a [u64; N],
}

impl<const N: usize> Area for Rectangle<'_, N> {
    const SIDES: usize = N;

    fn area(&self) -> u64 {
        self.sides.iter().copied().fold(1, |area, side| area.wrapping_mul(side))
    }
}

impl<const N: usize> fmt::Display for Rectangle<'_, N> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}x", N)?;
        writeln!(out, "{:?}", self.sides)
    }
}

struct Countdown(u32);

impl Iterator for Countdown {
    type Item = u32;

    fn next(&mut self) -> Option<u32> {
        self.0 = self.0.checked_sub(1)?;
        Some(self.0)
    }
}

impl Drop for Countdown {
    fn drop(&mut self) {
        debug_assert!(self.0 < u32::MAX, "never");
    }
}

fn largest<'t, T: Ord + ?Sized, I>(items: I) -> Option<&'t T>
where
    I: IntoIterator<Item = &'t T>,
{
    items.into_iter().max()
}

fn apply(values: &mut [u64], change: impl Fn(u64) -> u64) {
    for value in values.iter_mut() {
        *value = change(*value);
    }
}

fn swap_ends(values: &mut [u64]) {
    let last = values.len() - 1;
    let first = values[0];
    values[0] = values[last];
    values[last] = first;
    values[..1][0] += 1;
}

fn evens(limit: u32) -> impl Iterator<Item = u32> {
    (0..limit).filter(|number| number % 2 == 0)
}

/// Does a bit of everything.
///
/// In two paragraphs.
#[cold]
async fn everyday(db: &Db<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Error> {
    let mut reader = args.reader();
    let (Ok(first), second) = (reader.u8(), reader.rest()) else { return Err(Error::BadArguments) };
    let mut counts: BTreeMap<String, Vec<u32>> = BTreeMap::new();
    'outer: for round in 0..u32::from(first) {
        for (name, number) in NAMES {
            if round == 3 && *number == 2 {
                break 'outer;
            }
            counts.entry(name.to_string()).or_default().push(round + number);
        }
    }
    let text = format!("{counts:?} {0:>5} {x}", PRIMES[1], x = second.len());
    db.log(Level::Debug, format_args!("{text} {:#x}", 255));
    let mut values = vec![1u64; 4];
    apply(&mut values, |value| value << 3 | 1);
    swap_ends(&mut values);
    let rectangle = Rectangle { sides: &PRIMES };
    assert_eq!(rectangle.twice(), 420, "an area");
    let shape = if matches!(first, 0 | 1 if second.is_empty()) {
        forms::Shape::Circle
    } else {
        forms::Shape::Square
    };
    reply.u32(shape.corners() + Countdown(5).sum::<u32>() + evens(10).sum::<u32>())?;
    reply.write(rectangle.to_string().as_bytes())?;
    reply.u64(*largest(&values).unwrap_or(&0) + Rectangle::<'_, 2>::SIDES as u64)?;
    let at = usize::from(first) % PRIMES.len();
    match (PRIMES[at], PRIMES[(at + 1) % PRIMES.len()]) {
        (prime, next) if next > prime && next - prime < 5 || !second.is_empty() => reply.u64(prime)?,
        (prime, _) if values[0] == 9 && prime > 2 => reply.u64(NAMES[first as usize & 1].1 as u64)?,
        _ => reply.write(&second[..second.len() / 2])?,
    }
    let letter = char::from(first);
    let word = <[u8; 2]>::try_from(&second[..2.min(second.len())]).unwrap_or_default();
    match word {
        [high, _] if letter == '-' || letter.is_ascii_digit() && high.saturating_sub(1) > 3 => reply.u32(1)?,
        [high, low] if usize::from(high).min(PRIMES.len()) > usize::from(low) => reply.u32(2)?,
        _ => reply.u64(PRIMES[usize::from(first).min(PRIMES.len() - 1)])?,
    }
    let mut count = 0;
    reply.u32(loop {
        count += 1;
        if values.contains(&count) {
            break 1;
        }
        if count > 9 {
            break 2;
        }
    })?;
    match second.len().cmp(&10) {
        Ordering::Less | Ordering::Equal => db.yield_now().await,
        Ordering::Greater => unreachable!("{}", second.len()),
    }
    Ok(())
}

/// Writes.
async fn store_it(db: &Db<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Error> {
    let table: Table = db.table("other").await?;
    let record: Option<Record<'_>> = db.get_record(args.table(), args.key()).await?;
    let version = record.map_or(0, |record| record.version);
    let condition = if version == 0 { Condition::Absent } else { Condition::Version(version) };
    db.put_if(table, args.key(), args.bytes(), condition).await?;
    let later = async { db.increment(table, b"count", 1).await };
    reply.i64(later.await?)?;
    db.delete_if(args.table(), args.key(), Condition::Present).await
}

#[cfg(test)]
mod tests {
    use std::fs;

    #[test]
    fn unit_tests_may_do_what_they_like() {
        unsafe { std::hint::assert_unchecked(true) };
        assert!(fs::exists("/").unwrap());
    }
}
