//! Tests that packets of other systems are read, that written packets follow the specifications, and that all other
//! packets are refused.

use std::net::{Ipv4Addr, SocketAddrV4};

use super::{
    Arp, ArpOperation, Datagram, ETHERNET_HEADER_BYTES, Endpoint, HEADERS_BYTES, Mac, Offloaded,
    PACKET_BYTES_MIN, Packet, PacketRefusal, read,
};

const CLIENT: Endpoint = Endpoint {
    mac: Mac([0x52, 0x54, 0, 0x12, 0x34, 0x56]),
    socket: SocketAddrV4::new(Ipv4Addr::new(10, 9, 0, 2), 40_000),
};
const SERVER: Endpoint = Endpoint {
    mac: Mac([0x02, 0, 0, 0, 0, 0x01]),
    socket: SocketAddrV4::new(Ipv4Addr::new(10, 9, 0, 1), 7700),
};
const OWN: Ipv4Addr = Ipv4Addr::new(10, 9, 0, 1);

/// "hello" from the client to the server, as Linux sends it.
const FROM_LINUX: [u8; 60] = [
    0x02, 0x00, 0x00, 0x00, 0x00, 0x01, 0x52, 0x54, 0x00, 0x12, 0x34, 0x56, 0x08, 0x00, // Ethernet
    0x45, 0x00, 0x00, 0x21, 0xcf, 0xb6, 0x40, 0x00, 0x40, 0x11, 0x57, 0x01, 10, 9, 0, 2, 10, 9, 0,
    1, // IPv4
    0x9c, 0x40, 0x1e, 0x14, 0x00, 0x0d, 0xed, 0x98, b'h', b'e', b'l', b'l', b'o', // UDP
    0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, // padding
];

fn written(payload: &[u8], offloaded: Offloaded) -> Vec<u8> {
    let mut packet = vec![0xee; HEADERS_BYTES + payload.len() + PACKET_BYTES_MIN];
    let datagram = Datagram { from: CLIENT, to: SERVER, payload };
    let bytes = datagram.write(&mut packet, offloaded).expect("room for the packet");
    packet.truncate(bytes);
    packet
}

fn read_checked(packet: &[u8]) -> Result<Packet<'_>, PacketRefusal> {
    read(packet, OWN, Offloaded::default())
}

#[test]
fn a_packet_of_another_stack_is_read() {
    let expected = Datagram { from: CLIENT, to: SERVER, payload: b"hello" };
    assert_eq!(read_checked(&FROM_LINUX), Ok(Packet::Datagram(expected)));
}

#[test]
fn what_is_written_is_read_whatever_its_length() {
    let mut random = fastrand::Rng::with_seed(3);
    for length in (0..200).chain([1_471, 1_472, 8_971, 8_972]) {
        let payload: Vec<u8> = (0..length).map(|_| random.u8(..)).collect();
        let packet = written(&payload, Offloaded::default());
        assert!(packet.len() >= PACKET_BYTES_MIN);
        let expected = Datagram { from: CLIENT, to: SERVER, payload: &payload };
        assert_eq!(read_checked(&packet), Ok(Packet::Datagram(expected)), "{length} bytes");
    }
}

#[test]
fn a_payload_has_to_fit_the_buffer_and_a_datagram() {
    let datagram = Datagram { from: CLIENT, to: SERVER, payload: &[0; 70_000] };
    assert_eq!(datagram.write(&mut vec![0; 80_000], Offloaded::default()), None);
    let datagram = Datagram { payload: &[0; 100], ..datagram };
    assert_eq!(datagram.write(&mut [0; HEADERS_BYTES + 99], Offloaded::default()), None);
    assert_eq!(
        datagram.write(&mut [0; HEADERS_BYTES + 100], Offloaded::default()),
        Some(HEADERS_BYTES + 100)
    );
}

/// Changes each bit of headers and payload in transit: nothing is delivered except the same words to the same port.
/// The bits that may change have no meaning, or address the packet to another station, protocol or address.
#[test]
fn a_changed_bit_never_delivers_other_words() {
    let packet = written(b"some words of a frame", Offloaded::default());
    for bit in 0..packet.len() * 8 {
        let mut changed = packet.clone();
        changed[bit / 8] ^= 1 << (bit % 8);
        match read_checked(&changed) {
            Ok(Packet::Datagram(read)) => {
                assert!(bit / 8 < ETHERNET_HEADER_BYTES, "bit {bit} is covered by no checksum");
                assert_eq!((read.payload, read.from.socket), (&b"some words of a frame"[..], CLIENT.socket));
            }
            Ok(Packet::Arp(arp)) => panic!("bit {bit} made {arp:?} of it"),
            Err(_) => {}
        }
    }
}

#[test]
fn a_packet_that_is_cut_short_is_refused() {
    let packet = written(&[7; 100], Offloaded::default());
    for length in 0..packet.len() {
        assert_eq!(read_checked(&packet[..length]), Err(PacketRefusal::Malformed), "{length} bytes");
    }
}

#[test]
fn any_bytes_are_read_without_a_panic() {
    let seed = fastrand::u64(..);
    println!("seed {seed}");
    let mut random = fastrand::Rng::with_seed(seed);
    for _ in 0..20_000 {
        let mut packet = written(&[1; 30], Offloaded::default());
        for _ in 0..random.usize(1..8) {
            let at = random.usize(..packet.len());
            packet[at] = random.u8(..);
        }
        packet.truncate(random.usize(..=packet.len()));
        let offloaded = Offloaded { ipv4: random.bool(), udp: random.bool() };
        if let Ok(Packet::Datagram(datagram)) = read(&packet, OWN, offloaded) {
            assert!(datagram.payload.len() <= packet.len());
        }
    }
}

#[test]
fn fragments_and_foreign_packets_are_told_from_damaged_ones() {
    let change = |at: usize, byte: u8| {
        let mut packet = FROM_LINUX;
        packet[at] = byte;
        packet
    };
    let trusting = Offloaded { ipv4: true, udp: true };
    let refusal = |packet: &[u8]| read(packet, OWN, trusting).expect_err("no packet for us");
    assert_eq!(refusal(&change(20, 0x20)), PacketRefusal::Fragment, "more of it follows");
    assert_eq!(refusal(&change(21, 1)), PacketRefusal::Fragment, "it continues another one");
    assert_eq!(refusal(&change(23, 6)), PacketRefusal::Foreign, "TCP");
    assert_eq!(refusal(&change(33, 9)), PacketRefusal::Foreign, "another host's");
    assert_eq!(refusal(&change(12, 0x86)), PacketRefusal::Foreign, "another protocol");
    assert_eq!(refusal(&change(14, 0x44)), PacketRefusal::Malformed, "a header shorter than a header");
    assert_eq!(refusal(&change(6, 0x53)), PacketRefusal::Malformed, "sent by several stations");
    assert_eq!(refusal(&change(39, 0x07)), PacketRefusal::Malformed, "shorter than its own header");
    assert_eq!(read_checked(&change(45, b'L')), Err(PacketRefusal::Checksum));
    assert_eq!(read_checked(&change(22, 63)), Err(PacketRefusal::Checksum), "the header's");
}

#[test]
fn checksums_that_the_device_has_found_right_are_not_looked_at() {
    let mut packet = FROM_LINUX;
    packet[41] ^= 1;
    assert_eq!(read_checked(&packet), Err(PacketRefusal::Checksum));
    assert!(read(&packet, OWN, Offloaded { ipv4: false, udp: true }).is_ok());
    packet[25] ^= 1;
    assert!(read(&packet, OWN, Offloaded { ipv4: false, udp: true }).is_err());
    assert!(read(&packet, OWN, Offloaded { ipv4: true, udp: true }).is_ok());
}

#[test]
fn a_datagram_without_checksum_is_taken() {
    let mut packet = FROM_LINUX;
    packet[40..42].fill(0);
    assert!(read_checked(&packet).is_ok());
}

/// A device completes an offloaded checksum by adding the sum over header and payload to the present value.
#[test]
fn a_device_completes_the_checksums_that_are_left_to_it() {
    let payload = b"an odd number of words.";
    let whole = written(payload, Offloaded::default());
    let left = written(payload, Offloaded { ipv4: true, udp: true });
    assert_eq!(left[24..26], [0, 0]);
    let mut sum = 0u32;
    for pair in left[34..HEADERS_BYTES + payload.len()].chunks(2) {
        sum += u32::from(pair[0]) << 8 | u32::from(*pair.get(1).unwrap_or(&0));
    }
    while sum >> 16 != 0 {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    assert_eq!((!(sum as u16)).to_be_bytes(), whole[40..42]);
}

#[test]
fn options_of_a_header_are_skipped() {
    let mut packet = written(b"words", Offloaded::default());
    packet.truncate(HEADERS_BYTES + 5);
    packet.splice(34..34, [1, 1, 1, 0]);
    packet[14] = 0x46;
    packet[17] += 4;
    let offloaded = Offloaded { ipv4: true, udp: false };
    let Ok(Packet::Datagram(datagram)) = read(&packet, OWN, offloaded) else { panic!("it is one") };
    assert_eq!(datagram.payload, b"words");
}

#[test]
fn a_question_for_our_address_is_answered_and_others_are_not() {
    let question = Arp::request(CLIENT.mac, *CLIENT.socket.ip(), OWN);
    let mut packet = [0; 64];
    let bytes = question.write(&mut packet).expect("room");
    assert_eq!(packet[..6], [0xff; 6]);
    let Ok(Packet::Arp(asked)) = read_checked(&packet[..bytes]) else { panic!("it is one") };
    assert_eq!(
        (asked.operation, asked.from, asked.from_mac),
        (ArpOperation::Request, question.from, CLIENT.mac)
    );
    assert_eq!(
        read(&packet[..bytes], Ipv4Addr::new(10, 9, 0, 3), Offloaded::default()),
        Err(PacketRefusal::Foreign)
    );

    let bytes = asked.reply(SERVER.mac).write(&mut packet).expect("room");
    let Ok(Packet::Arp(answer)) = read(&packet[..bytes], question.from, Offloaded::default()) else {
        panic!("it is one")
    };
    assert_eq!((answer.operation, answer.from, answer.from_mac), (ArpOperation::Reply, OWN, SERVER.mac));
    assert_eq!(answer.to_mac, CLIENT.mac);
}

#[test]
fn who_claims_our_address_or_no_hardware_is_not_believed() {
    for lie in [
        Arp::request(CLIENT.mac, OWN, OWN),
        Arp::request(Mac([0; 6]), *CLIENT.socket.ip(), OWN),
        Arp::request(Mac::BROADCAST, *CLIENT.socket.ip(), OWN),
    ] {
        let mut packet = [0; 64];
        let bytes = lie.write(&mut packet).expect("room");
        assert_eq!(read_checked(&packet[..bytes]), Err(PacketRefusal::Malformed), "{lie:?}");
    }
}
