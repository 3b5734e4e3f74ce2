use std::os::unix::net::UnixDatagram;

use socket2::SockRef;

use super::*;

const PORTS: [u16; 2] = [5432, 3306];

/// How much of each packet passes. The kernel runs filters of a local socket, too, which anyone may open.
fn passed(packets: &[Vec<u8>]) -> Vec<usize> {
    let (near, far) = UnixDatagram::pair().unwrap();
    SockRef::from(&far).attach_filter(&port_filter(&PORTS)).unwrap();
    far.set_nonblocking(true).unwrap();
    let mut buffer = vec![0; 1 << 17];
    let pass = |packet: &Vec<u8>| {
        near.send(packet).unwrap();
        let bytes = far.recv(&mut buffer).unwrap_or(0);
        assert_eq!(buffer[..bytes], packet[..bytes]);
        bytes
    };
    packets.iter().map(pass).collect()
}

fn tcp(source: u16, destination: u16, options: usize, payload: &[u8]) -> Vec<u8> {
    let mut header = [source.to_be_bytes(), destination.to_be_bytes()].concat();
    header.resize(20 + options, 0);
    header[12] = u8::try_from((20 + options) / 4).unwrap() << 4;
    [&header, payload].concat()
}

fn v4(options: usize, fragment: u8, tcp: &[u8]) -> Vec<u8> {
    let mut header = vec![0; 20 + options];
    header[0] = 0x40 | u8::try_from((20 + options) / 4).unwrap();
    (header[7], header[9]) = (fragment, 6);
    [&header, tcp].concat()
}

fn v6(next: u8, tcp: &[u8]) -> Vec<u8> {
    let mut header = vec![0; 40];
    (header[0], header[6]) = (0x60, next);
    [&header, tcp].concat()
}

fn record(kind: u8, version: [u8; 2], length: u16, captured: usize) -> Vec<u8> {
    let mut record = vec![kind, version[0], version[1]];
    record.extend(length.to_be_bytes());
    record.resize(5 + captured, 0xaa);
    record
}

#[test]
fn only_packets_of_the_ports_pass() {
    let plain = |source, destination| v4(0, 0, &tcp(source, destination, 12, b"Q\0\0\0\x0dSELECT 1\0"));
    let packets = [
        plain(40_000, 5432),
        plain(3306, 40_000),
        plain(40_000, 5433),
        v4(0, 1, &tcp(40_000, 5432, 0, b"fragment")),
        v6(6, &tcp(5432, 40_000, 0, b"")),
        v6(17, &tcp(5432, 40_000, 0, b"")),
        v6(6, &tcp(80, 40_000, 0, b"")),
        vec![0x45; 12],
        Vec::from([0x50; 60]),
    ];
    assert_eq!(passed(&packets), [66, 66, 0, 0, 60, 0, 0, 0, 0]);
}

#[test]
fn what_tls_has_encrypted_stays_in_the_kernel() {
    let data = |length, captured| record(23, [3, 3], length, captured);
    for (ip, options) in [(20, 0), (28, 12)] {
        let header = ip + 20 + options;
        let packet = |payload: &[u8]| v4(ip - 20, 0, &tcp(5432, 40_000, options, payload));
        let cases = [
            (data(300, 300), 5),
            // The rest of the record follows in other packets.
            (data(8_192, 1_400), 5),
            (data(16_401, 16_401), 5),
            (data(300, 0), 5),
            // All that may contain something else.
            (data(299, 300), 305),
            ([data(300, 300), data(20, 20)].concat(), 330),
            (record(22, [3, 3], 300, 300), 305),
            (record(21, [3, 3], 2, 2), 7),
            (record(23, [2, 3], 300, 300), 305),
            (record(23, [3, 5], 300, 300), 305),
            (data(u16::MAX, 300), 305),
            (data(300, 300)[..4].to_vec(), 4),
            (Vec::new(), 0),
        ];
        let (payloads, expected): (Vec<_>, Vec<_>) = cases.into_iter().unzip();
        let packets: Vec<_> = payloads.iter().map(|payload| packet(payload)).collect();
        let passed: Vec<_> = passed(&packets).iter().map(|bytes| bytes - header).collect();
        assert_eq!(passed, expected);
    }
    assert_eq!(passed(&[v6(6, &tcp(5432, 40_000, 12, &data(700, 700)))]), [40 + 32 + 5]);
}

#[test]
fn the_most_ports_fit() {
    let ports: Vec<u16> = (1..=u16::try_from(crate::MOST_PORTS).unwrap()).collect();
    let program = port_filter(&ports);
    let (_near, far) = UnixDatagram::pair().unwrap();
    SockRef::from(&far).attach_filter(&program).unwrap();
}
