//! Tests of the in-process network: faults follow the seed, time is real or virtual.

use std::time::{Duration, Instant};

use net::{Batch, Faults, LoopbackClock, LoopbackNetwork, LoopbackPort, Outbox, Port, SharedPort};

const ROUGH: Faults = Faults {
    drop_ppm: 200_000,
    duplicate_ppm: 200_000,
    reorder_ppm: 500_000,
    delay_us_min: 5,
    delay_us_max: 100,
};

fn send(port: &mut LoopbackPort, to: &LoopbackPort, bytes: &[u8]) {
    let mut out = Outbox::with_frames(1, port.frame_bytes_max());
    assert!(out.push(bytes, to.local()));
    assert_eq!(port.send(&mut out).unwrap(), 1);
}

/// Sends 500 frames through [`ROUGH`]; returns those that arrive, in order of arrival.
fn run(seed: u64) -> Vec<u16> {
    let network = LoopbackNetwork::new(seed, ROUGH, LoopbackClock::Virtual);
    let (mut near, mut far) = (network.port().unwrap(), network.port().unwrap());
    let mut batch = Batch::new();
    let mut arrived = Vec::new();
    for number in 0..500u16 {
        send(&mut near, &far, &number.to_le_bytes());
        network.advance_us(3);
        far.receive(&mut batch).unwrap();
        arrived.extend(batch.frames().map(|(frame, _)| u16::from_le_bytes([frame[0], frame[1]])));
    }
    network.advance_us(1000);
    while far.receive(&mut batch).unwrap() > 0 {
        arrived.extend(batch.frames().map(|(frame, _)| u16::from_le_bytes([frame[0], frame[1]])));
    }
    arrived
}

#[test]
fn same_seed_brings_the_same_faults() {
    assert_eq!(run(7), run(7));
    assert_ne!(run(7), run(8));
}

#[test]
fn faults_drop_double_and_reorder() {
    let arrived = run(1);
    let mut sorted = arrived.clone();
    sorted.sort_unstable();
    assert_ne!(arrived, sorted, "nothing was reordered");
    let copies = sorted.len();
    sorted.dedup();
    assert!(sorted.len() < 500, "nothing was lost");
    assert!(sorted.len() < copies, "nothing was doubled");
    assert!(sorted.len() > 300, "far more than a fifth was lost");
}

#[test]
fn without_faults_every_frame_arrives_once_in_order() {
    let network = LoopbackNetwork::new(0, Faults::default(), LoopbackClock::Real);
    let (mut near, mut far) = (network.port().unwrap(), network.port().unwrap());
    for number in 0..100u8 {
        send(&mut near, &far, &[number]);
    }
    let mut batch = Batch::new();
    assert_eq!(far.receive(&mut batch).unwrap(), 100);
    assert!(
        batch
            .frames()
            .enumerate()
            .all(|(index, (frame, peer))| frame == [index as u8] && peer == near.local())
    );
}

#[test]
fn virtual_time_moves_by_waiting_alone() {
    let faults = Faults { delay_us_min: 250, ..Faults::default() };
    let network = LoopbackNetwork::new(0, faults, LoopbackClock::Virtual);
    let (mut near, mut far) = (network.port().unwrap(), network.port().unwrap());
    let mut batch = Batch::new();
    send(&mut near, &far, b"x");
    assert_eq!(far.receive(&mut batch).unwrap(), 0);
    far.wait(Duration::from_secs(1)).unwrap();
    assert_eq!(network.now_us(), 250);
    assert_eq!(far.receive(&mut batch).unwrap(), 1);
    far.wait(Duration::from_millis(2)).unwrap();
    assert_eq!(network.now_us(), 2250);
}

#[test]
fn arriving_frame_ends_a_wait_in_real_time() {
    let network = LoopbackNetwork::new(0, Faults::default(), LoopbackClock::Real);
    let (mut near, mut far) = (network.port().unwrap(), network.port().unwrap());
    let peer = far.local();
    let started = Instant::now();
    let other = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(30));
        let mut out = Outbox::with_frames(1, near.frame_bytes_max());
        assert!(out.push(b"x", peer));
        near.send(&mut out).unwrap();
        near
    });
    far.wait(Duration::from_secs(120)).unwrap();
    assert!(started.elapsed() < Duration::from_secs(100));
    other.join().unwrap();
    assert_eq!(far.receive(&mut Batch::new()).unwrap(), 1);
}

#[test]
fn frames_to_a_port_that_is_gone_are_lost() {
    let network = LoopbackNetwork::new(0, Faults::default(), LoopbackClock::Real);
    let (mut near, far) = (network.port().unwrap(), network.port().unwrap());
    let peer = far.local();
    drop(far);
    let mut out = Outbox::with_frames(1, near.frame_bytes_max());
    assert!(out.push(b"x", peer));
    assert_eq!(near.send(&mut out).unwrap(), 1);
    assert_eq!(near.receive(&mut Batch::new()).unwrap(), 0);
}

#[test]
fn frames_of_a_shared_port_reach_one_of_its_receivers_and_are_answered_from_it() {
    let network = LoopbackNetwork::new(0, Faults::default(), LoopbackClock::Real);
    let (mut client, mut owner, mut other) =
        (network.port().unwrap(), network.port().unwrap(), network.port().unwrap());
    for number in 0..10u8 {
        send(&mut client, &owner, &[number]);
    }
    let (mut taken, mut left) = (Batch::new(), Batch::new());
    let handle = owner.handle();
    assert_eq!(other.receive_at(&handle, &mut taken, 4).unwrap(), 4);
    assert!(taken.is_cut());
    assert_eq!(owner.receive(&mut left).unwrap(), 6);
    assert!(!left.is_cut());
    let numbers: Vec<_> = taken.frames().chain(left.frames()).map(|(frame, _)| frame[0]).collect();
    assert_eq!(numbers, (0..10).collect::<Vec<_>>());
    let mut out = Outbox::with_frames(1, other.frame_bytes_max());
    assert!(out.push(b"answer", client.local()));
    assert_eq!(other.send_at(&handle, &mut out).unwrap(), 1);
    let mut answers = Batch::new();
    assert_eq!(client.receive(&mut answers).unwrap(), 1);
    assert_eq!(answers.frame(0), (&b"answer"[..], owner.local()));
}
