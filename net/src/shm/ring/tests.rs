//! Tests of the ring alone: frames arrive in order and whole, never more than fit, across the wrap of the sequence and
//! against every forged number; under loom, every interleaving of its smallest case.

#[cfg(loom_model)]
use loom::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering, fence};
#[cfg(not(loom_model))]
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering, fence};

use super::{Consumer, Lie, Producer, RingMemory};

const FRAME_WORDS: usize = 4;
const FRAME_BYTES_MAX: usize = 8 * FRAME_WORDS;

/// A ring of atomics in this process, with the orderings of the real one; a frame consists of words, each relaxed.
struct Slots {
    words: Vec<AtomicU64>,
    frames: Vec<[AtomicU64; FRAME_WORDS]>,
    taken: AtomicU32,
    asleep: AtomicBool,
}

impl Slots {
    fn new(slots: u32) -> Self {
        let word = || AtomicU64::new(0);
        Self {
            words: (0..slots).map(|_| word()).collect(),
            frames: (0..slots).map(|_| [word(), word(), word(), word()]).collect(),
            taken: AtomicU32::new(0),
            asleep: AtomicBool::new(false),
        }
    }

    fn at(&self, position: u32) -> usize {
        position as usize % self.words.len()
    }
}

impl RingMemory for Slots {
    fn slots(&self) -> u32 {
        self.words.len() as u32
    }

    fn word(&self, position: u32) -> u64 {
        self.words[self.at(position)].load(Ordering::Acquire)
    }

    fn publish(&self, position: u32, word: u64) {
        self.words[self.at(position)].store(word, Ordering::Release);
    }

    fn write(&self, position: u32, frame: &[u8]) {
        for (word, bytes) in self.frames[self.at(position)].iter().zip(frame.chunks(8)) {
            let mut whole = [0; 8];
            whole[..bytes.len()].copy_from_slice(bytes);
            word.store(u64::from_le_bytes(whole), Ordering::Relaxed);
        }
    }

    fn read(&self, position: u32, to: &mut [u8]) {
        for (word, bytes) in self.frames[self.at(position)].iter().zip(to.chunks_mut(8)) {
            bytes.copy_from_slice(&word.load(Ordering::Relaxed).to_le_bytes()[..bytes.len()]);
        }
    }

    fn taken(&self) -> u32 {
        self.taken.load(Ordering::Acquire)
    }

    fn set_taken(&self, position: u32) {
        self.taken.store(position, Ordering::Release);
    }

    fn is_asleep(&self) -> bool {
        self.asleep.load(Ordering::Relaxed)
    }

    fn set_asleep(&self, is_asleep: bool) {
        self.asleep.store(is_asleep, Ordering::Relaxed);
    }

    fn fence(&self) {
        fence(Ordering::SeqCst);
    }
}

/// Takes the next frame, if any.
fn take(consumer: &mut Consumer, memory: &Slots) -> Result<Option<Vec<u8>>, Lie> {
    let Some(bytes) = consumer.next(memory, FRAME_BYTES_MAX)? else { return Ok(None) };
    let mut frame = vec![0; bytes];
    consumer.take(memory, &mut frame);
    Ok(Some(frame))
}

#[cfg(not(loom_model))]
mod alone {
    use super::{Consumer, FRAME_BYTES_MAX, Lie, Ordering, Producer, RingMemory, Slots, take};
    use crate::shm::ring::word_of;

    fn seed() -> u64 {
        let given = std::env::var("SPLINTER_SEED").ok().and_then(|seed| seed.parse().ok());
        let seed = given.unwrap_or_else(|| fastrand::u64(..));
        println!("SPLINTER_SEED={seed}");
        seed
    }

    /// Returns both ends at a position, as if everything before it had been sent and taken.
    fn ends_at(memory: &Slots, position: u32) -> (Producer, Consumer) {
        for back in 1..=memory.slots() {
            let before = position.wrapping_sub(back);
            memory.publish(before, word_of(before, 1));
        }
        memory.taken.store(position, Ordering::Relaxed);
        (Producer { position, taken: position }, Consumer { position, told: position })
    }

    #[test]
    fn frames_arrive_whole_and_in_order_and_what_does_not_fit_is_refused() {
        let mut random = fastrand::Rng::with_seed(seed());
        // Excludes positions whose sequence equals that of unwritten memory, because rings begin at 0.
        for start in [0, u32::MAX - 300, random.u32(..u32::MAX - 8)] {
            let memory = Slots::new(8);
            let (mut producer, mut consumer) = ends_at(&memory, start);
            let (mut waiting, mut held) = (std::collections::VecDeque::new(), 0);
            for _ in 0..2_000 {
                if random.bool() {
                    let frame: Vec<u8> =
                        (0..random.usize(1..=FRAME_BYTES_MAX)).map(|_| random.u8(..)).collect();
                    let fits = waiting.len() + held < 8;
                    assert_eq!(producer.push(&memory, &frame), Ok(fits));
                    if fits {
                        waiting.push_back(frame);
                    }
                } else {
                    let taken = take(&mut consumer, &memory).expect("nobody lies");
                    assert_eq!(taken, waiting.pop_front());
                    held += usize::from(taken.is_some());
                }
                if random.u8(..4) == 0 {
                    consumer.release(&memory);
                    held = 0;
                }
            }
        }
    }

    #[test]
    fn a_length_that_no_frame_has_is_a_lie() {
        for bytes in [0, FRAME_BYTES_MAX + 1, u32::MAX as usize] {
            let memory = Slots::new(8);
            memory.publish(0, word_of(0, bytes));
            assert_eq!(take(&mut Consumer::default(), &memory), Err(Lie::Length));
        }
    }

    #[test]
    fn a_word_with_any_other_sequence_is_no_frame() {
        let mut random = fastrand::Rng::with_seed(seed());
        let memory = Slots::new(8);
        for _ in 0..10_000 {
            let word = random.u64(..);
            memory.publish(0, word);
            let expected = word >> 32 == 1;
            let found = take(&mut Consumer::default(), &memory);
            assert_eq!(found != Ok(None), expected);
        }
    }

    #[test]
    fn who_says_that_he_took_more_than_was_sent_lies_and_nothing_is_overwritten_for_it() {
        for taken in [9, 100, u32::MAX, 1 << 31] {
            let memory = Slots::new(8);
            let mut producer = Producer::default();
            for number in 0..8 {
                assert_eq!(producer.push(&memory, &[number]), Ok(true));
            }
            memory.set_taken(taken);
            assert_eq!(producer.push(&memory, &[8]), Err(Lie::Taken));
            let mut consumer = Consumer::default();
            assert_eq!(take(&mut consumer, &memory), Ok(Some(vec![0])));
        }
    }

    #[test]
    fn neither_end_panics_or_runs_away_whatever_the_other_writes() {
        let mut random = fastrand::Rng::with_seed(seed());
        for _ in 0..500 {
            let memory = Slots::new(8);
            let (mut producer, mut consumer) = ends_at(&memory, random.u32(..u32::MAX - 8));
            for _ in 0..100 {
                let near = producer.position.wrapping_add(random.u32(0..12)).wrapping_sub(4);
                match random.u8(0..6) {
                    0 => memory.publish(random.u32(..), word_of(near, random.usize(0..64))),
                    1 => memory.set_taken(near),
                    2 => memory.set_asleep(random.bool()),
                    3 => drop(producer.push(&memory, &[1; FRAME_BYTES_MAX])),
                    4 => drop(producer.has_to_ring(&memory)),
                    _ => {
                        // More frames than slots would mean that the consumer follows forged numbers.
                        let taken = (0..9).map_while(|_| take(&mut consumer, &memory).ok().flatten()).count();
                        assert!(taken <= 8);
                        consumer.release(&memory);
                    }
                }
            }
        }
    }

    #[test]
    fn who_is_rung_once_is_not_rung_again_before_it_sleeps_again() {
        let memory = Slots::new(8);
        let (mut producer, mut consumer) = (Producer::default(), Consumer::default());
        assert!(consumer.fall_asleep(&memory));
        assert_eq!(producer.push(&memory, &[1]), Ok(true));
        assert!(producer.has_to_ring(&memory) && !producer.has_to_ring(&memory));
        consumer.wake_up(&memory);
        assert!(!consumer.fall_asleep(&memory), "a frame waits");
        consumer.wake_up(&memory);
        assert!(!producer.has_to_ring(&memory), "it is awake");
        assert_eq!(take(&mut consumer, &memory), Ok(Some(vec![1])));
    }
}

/// Three frames pass two slots: whole, in order, none before it is published, none overwritten before it is taken.
#[cfg(loom_model)]
#[test]
fn loom_frames_pass_whole_and_in_order() {
    loom::model(|| {
        let memory = std::sync::Arc::new(Slots::new(2));
        let sender = {
            let memory = std::sync::Arc::clone(&memory);
            loom::thread::spawn(move || {
                let mut producer = Producer::default();
                for number in 1..=3u64 {
                    while producer.push(&*memory, &number.to_le_bytes()) == Ok(false) {
                        loom::thread::yield_now();
                    }
                }
            })
        };
        let mut consumer = Consumer::default();
        for number in 1..=3u64 {
            let frame = loop {
                match take(&mut consumer, &memory).expect("nobody lies") {
                    Some(frame) => break frame,
                    None => loom::thread::yield_now(),
                }
            };
            assert_eq!(frame, number.to_le_bytes());
            consumer.release(&*memory);
        }
        sender.join().expect("the sender does not panic");
    });
}

/// A frame is sent while its receiver falls asleep: either the receiver sees the frame, or the sender rings.
#[cfg(loom_model)]
#[test]
fn loom_nobody_sleeps_beside_a_frame_without_being_rung() {
    loom::model(|| {
        let memory = std::sync::Arc::new(Slots::new(2));
        let sender = {
            let memory = std::sync::Arc::clone(&memory);
            loom::thread::spawn(move || {
                let mut producer = Producer::default();
                assert_eq!(producer.push(&*memory, &[7; 8]), Ok(true));
                producer.has_to_ring(&*memory)
            })
        };
        let consumer = Consumer::default();
        let sleeps = consumer.fall_asleep(&*memory);
        let rings = sender.join().expect("the sender does not panic");
        assert!(!sleeps || rings, "asleep beside a frame");
    });
}
