//! Tests of streams over 127.0.0.1: whole records, limits, deadlines, stopping.

use std::io::Write;
use std::net::{SocketAddr, TcpStream};
use std::thread;
use std::time::Duration;

use net::{Listener, Stream, StreamError};

const SECOND: Duration = Duration::from_secs(1);

fn any() -> SocketAddr {
    ([127, 0, 0, 1], 0).into()
}

/// Returns two ends of one stream; at the second, a begun record must complete within `record_timeout`.
fn pair(record_timeout: Duration) -> (Stream, Stream) {
    let listener = Listener::bind(any()).unwrap();
    let near = Stream::connect(listener.local().unwrap(), SECOND, 5 * SECOND).unwrap();
    let (far, peer) = listener.accept(record_timeout).unwrap().unwrap();
    assert_eq!(peer, near.local().unwrap());
    (near, far)
}

fn raw_pair(record_timeout: Duration) -> (TcpStream, Stream) {
    let listener = Listener::bind(any()).unwrap();
    let near = TcpStream::connect(listener.local().unwrap()).unwrap();
    let (far, _) = listener.accept(record_timeout).unwrap().unwrap();
    (near, far)
}

fn head_of(head: &[u8], body_bytes: usize) -> Vec<u8> {
    let length = (head.len() + body_bytes) as u32;
    [length.to_le_bytes().as_slice(), head].concat()
}

#[test]
fn records_of_all_sizes_cross_whole() {
    let (mut near, mut far) = pair(5 * SECOND);
    let sizes = [0usize, 1, 4, 1000, 300_000, 3 << 20];
    let writer = thread::spawn(move || {
        for size in sizes {
            near.write_record(&head_of(b"head", size), &vec![size as u8; size]).unwrap();
        }
        near
    });
    let mut record = Vec::new();
    for size in sizes {
        far.read_record(&mut record, SECOND, 4 << 20).unwrap();
        assert_eq!(&record[..4], b"head");
        assert!(record.len() == 4 + size && record[4..].iter().all(|&byte| byte == size as u8));
    }
    drop(writer.join().unwrap());
    assert!(matches!(far.read_record(&mut record, SECOND, 100), Err(StreamError::Closed)));
}

#[test]
fn silent_peer_is_idle_and_may_still_speak() {
    let (mut near, mut far) = pair(SECOND);
    let mut record = Vec::new();
    let silent = far.read_record(&mut record, Duration::from_millis(20), 100);
    assert!(matches!(silent, Err(StreamError::Idle)));
    near.write_record(&head_of(b"late", 0), b"").unwrap();
    far.read_record(&mut record, SECOND, 100).unwrap();
    assert_eq!(record, b"late");
}

#[test]
fn record_beyond_the_limit_is_refused_before_its_bytes_come() {
    let (mut near, mut far) = raw_pair(SECOND);
    near.write_all(&u32::MAX.to_le_bytes()).unwrap();
    let refused = far.read_record(&mut Vec::new(), SECOND, 1000);
    assert!(matches!(refused, Err(StreamError::TooLarge { record_bytes: 0xffff_ffff, limit: 1000 })));
}

#[test]
fn peer_that_stalls_inside_a_record_is_cut_off() {
    let (mut near, mut far) = raw_pair(Duration::from_millis(50));
    near.write_all(&100u32.to_le_bytes()).unwrap();
    near.write_all(&[1; 10]).unwrap();
    // Otherwise the record would be read forever.
    let stalled = far.read_record(&mut Vec::new(), 60 * SECOND, 1000);
    assert!(matches!(stalled, Err(StreamError::Broken(_))), "{stalled:?}");
}

#[test]
fn drip_of_single_bytes_cannot_hold_a_record_open() {
    let (mut near, mut far) = raw_pair(Duration::from_millis(100));
    let drip = thread::spawn(move || {
        let _ = near.write_all(&1_000u32.to_le_bytes());
        // Half a minute until the whole record has arrived.
        for _ in 0..1_000 {
            thread::sleep(Duration::from_millis(30));
            if near.write_all(&[0]).is_err() {
                break;
            }
        }
    });
    assert!(matches!(far.read_record(&mut Vec::new(), 60 * SECOND, 2000), Err(StreamError::Broken(_))));
    drop(far);
    drip.join().unwrap();
}

#[test]
fn peer_that_vanishes_inside_a_record_breaks_the_stream() {
    let (mut near, mut far) = raw_pair(SECOND);
    near.write_all(&100u32.to_le_bytes()).unwrap();
    near.write_all(&[1; 10]).unwrap();
    drop(near);
    assert!(matches!(far.read_record(&mut Vec::new(), SECOND, 1000), Err(StreamError::Broken(_))));
}

#[test]
fn closer_ends_a_blocked_read() {
    let (_near, mut far) = pair(SECOND);
    let closer = far.closer().unwrap();
    let reader = thread::spawn(move || far.read_record(&mut Vec::new(), 30 * SECOND, 100));
    thread::sleep(Duration::from_millis(30));
    closer.close();
    assert!(matches!(reader.join().unwrap(), Err(StreamError::Closed)));
}

#[test]
fn a_burst_of_connections_waits_until_it_is_accepted() {
    let allowed = std::fs::read_to_string("/proc/sys/net/core/somaxconn").unwrap();
    let burst = allowed.trim().parse::<usize>().unwrap().min(500);
    let listener = Listener::bind(any()).unwrap();
    let address = listener.local().unwrap();
    // No thread accepts meanwhile, so a connection beyond the backlog would never be established.
    let near: Vec<_> =
        (0..burst).map(|_| Stream::connect(address, 60 * SECOND, SECOND).expect("room to wait")).collect();
    for one in near {
        let (_, peer) = listener.accept(SECOND).unwrap().unwrap();
        assert_eq!(peer, one.local().unwrap());
    }
}

#[test]
fn stop_handle_ends_a_blocked_accept_for_good() {
    let listener = Listener::bind(any()).unwrap();
    let stop = listener.stop_handle();
    let stopper = thread::spawn(move || {
        thread::sleep(Duration::from_millis(30));
        stop.stop();
    });
    assert!(listener.accept(SECOND).unwrap().is_none());
    assert!(listener.accept(SECOND).unwrap().is_none());
    stopper.join().unwrap();
}

#[test]
#[should_panic(expected = "a record begins with its length")]
fn record_with_a_wrong_length_is_a_fault_of_the_caller() {
    let (mut near, _far) = pair(SECOND);
    let _ = near.write_record(&[9, 0, 0, 0], b"12345678");
}
