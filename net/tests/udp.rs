//! Tests of UDP ports over 127.0.0.1: batches, merged frames, datagrams that are never delivered, waking.

use std::net::{SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use net::{Batch, Outbox, Port, SharedPort, UdpConfig, UdpPort};

const PATIENCE: Duration = Duration::from_secs(5);

fn any() -> SocketAddr {
    ([127, 0, 0, 1], 0).into()
}

fn config(segmentation: bool) -> UdpConfig {
    UdpConfig { segmentation, ..UdpConfig::default() }
}

/// Receives until `count` frames have arrived.
fn gather(port: &mut UdpPort, count: usize) -> Vec<(Vec<u8>, SocketAddr)> {
    let deadline = Instant::now() + PATIENCE;
    let mut batch = Batch::new();
    let mut frames = Vec::new();
    while frames.len() < count && Instant::now() < deadline {
        if port.receive(&mut batch).unwrap() == 0 {
            port.wait(Duration::from_millis(20)).unwrap();
        }
        frames.extend(batch.frames().map(|(frame, peer)| (frame.to_vec(), peer)));
    }
    frames
}

/// Returns frames of several lengths: equal runs, a short one inside, the largest, single bytes.
fn uneven_frames() -> Vec<Vec<u8>> {
    let lengths = [100, 100, 100, 40, 40, 1472, 1472, 1472, 7, 1, 1, 900, 901, 900, 1472];
    lengths.iter().enumerate().map(|(index, &length)| vec![index as u8; length]).collect()
}

#[test]
fn frames_cross_whole_and_in_order_with_and_without_merging() {
    for (sender_merges, receiver_merges) in [(false, false), (true, false), (false, true), (true, true)] {
        let mut receiver = UdpPort::bind(any(), config(receiver_merges)).unwrap();
        let mut sender = UdpPort::bind(any(), config(sender_merges)).unwrap();
        let mut out = Outbox::new(sender.frame_bytes_max());
        let frames = uneven_frames();
        for frame in &frames {
            assert!(out.push(frame, receiver.local()));
        }
        assert_eq!(sender.send(&mut out).unwrap(), frames.len());
        assert!(out.is_empty());
        let received = gather(&mut receiver, frames.len());
        let bytes: Vec<_> = received.iter().map(|(frame, _)| frame.clone()).collect();
        assert_eq!(bytes, frames, "sender merges: {sender_merges}, receiver: {receiver_merges}");
        assert!(received.iter().all(|(_, peer)| *peer == sender.local()));
        assert_eq!((receiver.drops(), sender.send_drops()), (0, 0));
    }
}

#[test]
fn frames_of_alternating_peers_reach_their_own_peer() {
    let mut receivers: Vec<_> = (0..3).map(|_| UdpPort::bind(any(), config(true)).unwrap()).collect();
    let mut sender = UdpPort::bind(any(), config(true)).unwrap();
    let mut out = Outbox::with_frames(30, sender.frame_bytes_max());
    let mut last: [Option<usize>; 3] = [None; 3];
    for round in 0..10u8 {
        for (who, receiver) in receivers.iter().enumerate() {
            let index = match last[who] {
                Some(index) => out.open_next(index),
                None => out.open(receiver.local()),
            };
            let index = index.unwrap();
            out.buffer(index)[..2].copy_from_slice(&[who as u8, round]);
            out.set_bytes(index, 2);
            last[who] = Some(index);
        }
    }
    assert!(out.is_full() && out.open(receivers[0].local()).is_none());
    assert_eq!(sender.send(&mut out).unwrap(), 30);
    for (who, receiver) in receivers.iter_mut().enumerate() {
        let got: Vec<_> = gather(receiver, 10).into_iter().map(|(frame, _)| frame).collect();
        let sent: Vec<_> = (0..10u8).map(|round| vec![who as u8, round]).collect();
        assert_eq!(got, sent);
    }
}

#[test]
fn more_frames_than_one_call_takes_all_arrive() {
    let mut receiver = UdpPort::bind(any(), config(true)).unwrap();
    let mut sender = UdpPort::bind(any(), config(true)).unwrap();
    let mut out = Outbox::with_frames(200, sender.frame_bytes_max());
    for index in 0..200u16 {
        assert!(out.push(&[index.to_le_bytes().as_slice(), &[9; 700]].concat(), receiver.local()));
    }
    assert_eq!(sender.send(&mut out).unwrap(), 200);
    let numbers: Vec<_> = gather(&mut receiver, 200)
        .iter()
        .map(|(frame, _)| u16::from_le_bytes([frame[0], frame[1]]))
        .collect();
    assert_eq!(numbers, (0..200).collect::<Vec<_>>());
}

/// Returns the number of frames that one receive of one message returns: several if the sender's kernel merged them.
fn frames_of_one_message(receiver: &mut UdpPort) -> usize {
    let (handle, mut batch) = (receiver.handle(), Batch::new());
    let deadline = Instant::now() + PATIENCE;
    while receiver.receive_at(&handle, &mut batch, 1).unwrap() == 0 && Instant::now() < deadline {
        receiver.wait(Duration::from_millis(20)).unwrap();
    }
    batch.frames().count()
}

#[test]
fn a_peer_that_takes_no_merged_frames_leaves_merging_on_for_others() {
    let mut receiver = UdpPort::bind(any(), config(true)).unwrap();
    let mut sender = UdpPort::bind(any(), config(true)).unwrap();
    let mut out = Outbox::new(sender.frame_bytes_max());
    // The kernel refuses merged frames to port 0, like frames that are too long for the path.
    let unreachable: SocketAddr = ([127, 0, 0, 1], 0).into();
    for _ in 0..3 {
        for peer in [unreachable, receiver.local()] {
            (0..10).for_each(|_| assert!(out.push(&[7; 100], peer)));
            sender.send(&mut out).unwrap();
        }
        assert_eq!(frames_of_one_message(&mut receiver), 10);
    }
    assert_eq!(sender.send_drops(), 30);
}

#[test]
fn connected_port_exchanges_frames_with_its_peer() {
    let mut server = UdpPort::bind(any(), config(true)).unwrap();
    let mut client = UdpPort::connect(server.local(), config(true)).unwrap();
    let mut out = Outbox::new(client.frame_bytes_max());
    assert!(out.push(b"question", server.local()));
    assert_eq!(client.send(&mut out).unwrap(), 1);
    let (question, from) = gather(&mut server, 1).remove(0);
    assert_eq!(question, b"question");
    for _ in 0..3 {
        assert!(out.push(b"answer", from));
    }
    assert_eq!(server.send(&mut out).unwrap(), 3);
    let answers = gather(&mut client, 3);
    assert!(
        answers.len() == 3
            && answers.iter().all(|(frame, peer)| frame == b"answer" && *peer == server.local())
    );
}

#[test]
fn a_port_that_forgets_its_peer_speaks_with_others() {
    let mut servers = [0, 1].map(|_| UdpPort::bind(any(), config(true)).unwrap());
    let mut client = UdpPort::connect(servers[0].local(), config(true)).unwrap();
    client.forget_peer().unwrap();
    let mut out = Outbox::new(client.frame_bytes_max());
    for server in &mut servers {
        assert!(out.push(b"question", server.local()));
        assert_eq!(client.send(&mut out).unwrap(), 1);
        let (question, from) = gather(server, 1).remove(0);
        assert_eq!(question, b"question");
        assert!(out.push(b"answer", from));
        assert_eq!(server.send(&mut out).unwrap(), 1);
        assert_eq!(gather(&mut client, 1), [(b"answer".to_vec(), server.local())]);
    }
}

#[test]
fn connected_port_survives_an_absent_peer() {
    let gone = UdpSocket::bind(any()).unwrap().local_addr().unwrap();
    let mut client = UdpPort::connect(gone, config(true)).unwrap();
    let mut out = Outbox::new(client.frame_bytes_max());
    let mut batch = Batch::new();
    for _ in 0..5 {
        assert!(out.push(b"anybody?", gone));
        client.send(&mut out).unwrap();
        assert_eq!(client.receive(&mut batch).unwrap(), 0);
    }
}

#[test]
fn oversized_and_empty_datagrams_are_dropped_and_counted() {
    for merge in [false, true] {
        let mut receiver = UdpPort::bind(any(), config(merge)).unwrap();
        let plain = UdpSocket::bind(any()).unwrap();
        for datagram in [vec![], vec![1; 1473], vec![2; 9000], vec![3; 60_000], vec![4; 1472]] {
            plain.send_to(&datagram, receiver.local()).unwrap();
        }
        let received = gather(&mut receiver, 1);
        assert_eq!(received[0].0, vec![4; 1472]);
        assert_eq!(received.len(), 1);
        assert_eq!(receiver.drops(), 4, "merging: {merge}");
    }
}

#[test]
fn empty_frames_are_not_sent() {
    let mut receiver = UdpPort::bind(any(), config(true)).unwrap();
    let mut sender = UdpPort::bind(any(), config(true)).unwrap();
    let mut out = Outbox::new(sender.frame_bytes_max());
    for frame in [&b""[..], b"a", b"", b"b", b""] {
        assert!(out.push(frame, receiver.local()));
    }
    assert_eq!(sender.send(&mut out).unwrap(), 2);
    assert_eq!(gather(&mut receiver, 2).len(), 2);
    assert_eq!(receiver.drops(), 0);
}

#[test]
fn kernel_drops_of_a_full_queue_are_counted() {
    let small = UdpConfig { receive_buffer_bytes: 4096, ..config(false) };
    let mut receiver = UdpPort::bind(any(), small).unwrap();
    let plain = UdpSocket::bind(any()).unwrap();
    for _ in 0..200 {
        plain.send_to(&[0; 1000], receiver.local()).unwrap();
    }
    let mut arrived = 0;
    let mut batch = Batch::new();
    while receiver.receive(&mut batch).unwrap() > 0 {
        arrived += batch.len() as u64;
    }
    // The count arrives with the next delivered datagram.
    plain.send_to(&[0; 1000], receiver.local()).unwrap();
    arrived += gather(&mut receiver, 1).len() as u64;
    assert!(arrived < 201);
    assert_eq!(arrived + receiver.drops(), 201);
}

#[test]
fn wait_ends_by_frame_by_waker_and_by_time() {
    let mut receiver = UdpPort::bind(any(), config(true)).unwrap();
    let plain = UdpSocket::bind(any()).unwrap();
    let (local, waker) = (receiver.local(), receiver.waker());
    let started = Instant::now();
    let other = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(30));
        plain.send_to(b"frame", local).unwrap();
        std::thread::sleep(Duration::from_millis(60));
        waker.wake();
    });
    receiver.wait(PATIENCE).unwrap();
    assert_eq!(gather(&mut receiver, 1).len(), 1);
    receiver.wait(PATIENCE).unwrap();
    assert!(started.elapsed() >= Duration::from_millis(80) && started.elapsed() < PATIENCE);
    other.join().unwrap();
    let started = Instant::now();
    receiver.wait(Duration::from_millis(10)).unwrap();
    assert!(started.elapsed() >= Duration::from_millis(9) && started.elapsed() < PATIENCE);
}

#[test]
fn ports_speak_ipv6_with_its_own_frame_size() {
    let Ok(mut receiver) = UdpPort::bind("[::1]:0".parse().unwrap(), config(true)) else {
        eprintln!("no IPv6 on this machine: nothing to show");
        return;
    };
    let mut sender = UdpPort::connect(receiver.local(), config(true)).unwrap();
    assert_eq!(sender.frame_bytes_max(), 1452);
    let mut out = Outbox::new(sender.frame_bytes_max());
    assert!(!out.push(&[0; 1453], receiver.local()));
    for byte in 0..9 {
        assert!(out.push(&[byte; 1452], receiver.local()));
    }
    assert_eq!(sender.send(&mut out).unwrap(), 9);
    let frames = gather(&mut receiver, 9);
    assert!(frames.len() == 9 && frames.iter().all(|(frame, peer)| frame.len() == 1452 && peer.is_ipv6()));
}

#[test]
fn a_port_of_both_families_takes_the_largest_frames_of_either() {
    let Ok(mut receiver) = UdpPort::bind("[::]:0".parse().unwrap(), config(true)) else {
        eprintln!("no IPv6 on this machine: nothing to show");
        return;
    };
    let at = ([127, 0, 0, 1], receiver.local().port()).into();
    let mut sender = UdpPort::connect(at, config(true)).unwrap();
    let mut out = Outbox::new(sender.frame_bytes_max());
    assert!(out.push(&[4; 1472], at));
    assert_eq!(sender.send(&mut out).unwrap(), 1);
    let frames = gather(&mut receiver, 1);
    assert_eq!((frames[0].0.len(), receiver.drops()), (1472, 0));
    // Sent frames fit both families.
    assert_eq!(receiver.frame_bytes_max(), 1452);
}

#[test]
fn two_threads_that_share_a_port_take_each_frame_once_and_answer_a_connected_client() {
    let mut owner = UdpPort::bind(any(), config(true)).unwrap();
    let mut other = UdpPort::bind(any(), config(true)).unwrap();
    // The client is connected, so it receives only from the owner's address.
    let mut client = UdpPort::connect(owner.local(), config(true)).unwrap();
    let handle = owner.handle();
    let count = 400u32;
    for number in 0..count {
        let mut out = Outbox::with_frames(1, client.frame_bytes_max());
        assert!(out.push(&number.to_le_bytes(), owner.local()));
        client.send(&mut out).unwrap();
    }
    let answer = |batch: &Batch, send: &mut dyn FnMut(&mut Outbox)| {
        let mut out = Outbox::with_frames(batch.len().max(1), 1472);
        batch.frames().for_each(|(frame, peer)| assert!(out.push(frame, peer)));
        send(&mut out);
    };
    let deadline = Instant::now() + PATIENCE;
    std::thread::scope(|scope| {
        let helping = scope.spawn(|| {
            let (mut batch, mut taken) = (Batch::new(), 0);
            while other.receive_at(&handle, &mut batch, 4).unwrap() > 0 && Instant::now() < deadline {
                taken += batch.len();
                answer(&batch, &mut |out| assert_eq!(other.send_at(&handle, out).unwrap(), batch.len()));
            }
            taken
        });
        let (mut batch, mut taken) = (Batch::new(), 0);
        while owner.receive(&mut batch).unwrap() > 0 && Instant::now() < deadline {
            taken += batch.len();
            answer(&batch, &mut |out| assert_eq!(owner.send(out).unwrap(), batch.len()));
        }
        assert_eq!(taken + helping.join().unwrap(), count as usize);
    });
    let answers = gather(&mut client, count as usize);
    let mut numbers: Vec<_> =
        answers.iter().map(|(frame, _)| u32::from_le_bytes(frame[..4].try_into().unwrap())).collect();
    numbers.sort_unstable();
    assert_eq!(numbers, (0..count).collect::<Vec<_>>());
}
