//! One port, several workers: the kernel leads each datagram by its steering field.

use crate::namespace::isolated;
use ropewalk_link_io::clock::Clock;
use ropewalk_link_io::udp::{ClientSocket, OpenError, ProxySocket, Sockets, open_group};
use ropewalk_proto::ecn::Ecn;
use ropewalk_proto::path::{Path, SocketId};
use ropewalk_proto::sink::TransmitSink;
use std::net::{SocketAddr, UdpSocket};
use std::time::Duration;

const WORKERS: u16 = 3;

/// Where a group listens, and by which address it is reached.
const PLACES: [(Option<&str>, &str); 4] =
    [(None, "127.0.0.1"), (None, "::1"), (Some("127.0.0.1"), "127.0.0.1"), (Some("::1"), "::1")];

/// The sockets of each worker, and where they are reached.
fn group(bound: Option<&str>, address: &str) -> (Vec<Sockets>, SocketAddr) {
    let address = address.parse().expect("an address");
    let bound = bound.map(|bound| bound.parse().expect("an address"));
    let group = open_group(&ProxySocket { address: bound, port: 0 }, WORKERS).expect("a group");
    let port = group[0].address().port();
    let adopt = |bound| {
        let mut sockets = Sockets::new(Clock::start());
        assert_eq!(sockets.adopt(bound).expect("a socket"), SocketId(0));
        sockets
    };
    (group.into_iter().map(adopt).collect(), SocketAddr::new(address, port))
}

/// A datagram of this length whose steering field is `index`.
fn datagram(first: u8, index: u32, len: usize) -> Vec<u8> {
    let [_, high, middle, low] = index.to_be_bytes();
    let mut datagram = vec![first, 7, high, middle, low];
    datagram.resize(len.max(5), 0);
    datagram
}

/// What came to each worker, once so many came in all.
async fn received(workers: &mut [Sockets], count: usize) -> Vec<Vec<Vec<u8>>> {
    let mut heard = vec![Vec::new(); workers.len()];
    for _ in 0..2_000 {
        for (worker, heard) in workers.iter_mut().zip(&mut heard) {
            worker.recv_batch(|_, _, datagram| heard.push(datagram.to_vec()));
        }
        if heard.iter().map(Vec::len).sum::<usize>() >= count {
            return heard;
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    panic!("{} of {count} came", heard.iter().map(Vec::len).sum::<usize>());
}

fn index_of(datagram: &[u8]) -> u32 {
    u32::from_be_bytes([0, datagram[2], datagram[3], datagram[4]])
}

#[test]
fn every_datagram_of_an_index_comes_to_its_worker_from_wherever_it_comes() {
    isolated(|| async {
        for (bound, address) in PLACES {
            let (mut workers, at) = group(bound, address);
            let indices = [0, 1, 2, 3, 255, 256, 65_535, 65_536, 0xff_fffd, 0xff_fffe, 0xff_ffff];
            let mut sent = 0;
            for _ in 0..5 {
                let client = UdpSocket::bind((at.ip(), 0)).expect("a socket");
                for index in indices {
                    // A first message, packets, frames; the shortest that holds the field.
                    for (first, len) in [(0x00, 256), (0x10, 1_400), (0x2f, 40), (0x10, 5)] {
                        client.send_to(&datagram(first, index, len), at).expect("sent");
                        sent += 1;
                    }
                }
            }
            let heard = received(&mut workers, sent).await;
            for (worker, heard) in (0..).zip(heard) {
                assert!(heard.len() >= 40, "{address}: worker {worker} got {}", heard.len());
                for datagram in heard {
                    assert_eq!(index_of(&datagram) % u32::from(WORKERS), worker, "{address}");
                }
            }
        }
    });
}

#[test]
fn a_train_comes_to_the_worker_of_its_index() {
    isolated(|| async {
        for (bound, address) in PLACES {
            let (mut workers, at) = group(bound, address);
            for index in [1_000_000, 1_000_001, 1_000_002] {
                let mut client = Sockets::new(Clock::start());
                let socket = ClientSocket {
                    interface: "lo".to_owned(),
                    source: address.parse().expect("an address"),
                    mark: None,
                };
                let socket = client.open_client(&socket).expect("a socket");
                let path = Path { socket, local: None, remote: at };
                for _ in 0..40 {
                    let bytes = datagram(0x10, index, 1_200);
                    let place = client.out().reserve(path, Ecn::NotEct, bytes.len());
                    place.expect("room").copy_from_slice(&bytes);
                    client.out().commit(bytes.len());
                }
                client.flush(|path, error| panic!("{path:?}: {error:?}"));
                let calls = client.counters(socket).expect("open").calls_out;
                assert!(calls < 5, "{calls} calls are no trains");
                let heard = received(&mut workers, 40).await;
                let counts: Vec<_> = heard.iter().map(Vec::len).collect();
                let mut expected = [0; WORKERS as usize];
                expected[usize::try_from(index % u32::from(WORKERS)).expect("small")] = 40;
                assert_eq!(counts, expected, "{address}");
            }
        }
    });
}

#[test]
fn a_datagram_too_short_for_the_field_comes_to_the_first_worker() {
    isolated(|| async {
        for (bound, address) in PLACES {
            let (mut workers, at) = group(bound, address);
            let client = UdpSocket::bind((at.ip(), 0)).expect("a socket");
            for len in 1..5 {
                client.send_to(&[0xff; 4][..len], at).expect("sent");
            }
            let heard = received(&mut workers, 4).await;
            assert_eq!(heard.iter().map(Vec::len).collect::<Vec<_>>(), [4, 0, 0], "{address}");
        }
    });
}

#[test]
fn every_worker_answers_from_the_port_that_was_asked() {
    isolated(|| async {
        for (bound, address) in PLACES {
            let (mut workers, at) = group(bound, address);
            let client = UdpSocket::bind((at.ip(), 0)).expect("a socket");
            client.set_read_timeout(Some(Duration::from_secs(10))).expect("a time");
            for worker in 0..WORKERS {
                client.send_to(&datagram(0x10, worker.into(), 50), at).expect("sent");
                let worker = &mut workers[usize::from(worker)];
                let mut path = None;
                for _ in 0..2_000 {
                    worker.recv_batch(|_, arrival, _| path = Some(arrival.path));
                    if path.is_some() {
                        break;
                    }
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
                let path = path.expect("it came");
                worker.out().reserve(path, Ecn::NotEct, 4).expect("room").copy_from_slice(b"pong");
                worker.out().commit(4);
                worker.flush(|path, error| panic!("{path:?}: {error:?}"));
                let mut buffer = [0; 9];
                let (len, from) = client.recv_from(&mut buffer).expect("an answer");
                assert_eq!((&buffer[..len], from), (&b"pong"[..], at));
            }
        }
    });
}

#[test]
fn nobody_shares_a_port_with_a_group_and_a_group_shares_with_nobody() {
    isolated(|| async {
        let address = Some([127, 0, 0, 1].into());
        let first = open_group(&ProxySocket { address, port: 0 }, WORKERS).expect("a group");
        let port = first[0].address().port();
        assert_eq!(first.len(), usize::from(WORKERS));
        assert!(first.iter().all(|bound| bound.address() == first[0].address()));
        for workers in [1, WORKERS] {
            let second = open_group(&ProxySocket { address, port }, workers);
            assert!(matches!(second, Err(OpenError::InUse { .. })), "{workers}: {second:?}");
        }
        drop(first);
        let alone = open_group(&ProxySocket { address, port }, 1).expect("the port is free");
        let group = open_group(&ProxySocket { address, port }, WORKERS);
        assert!(matches!(group, Err(OpenError::InUse { .. })), "{group:?}");
        assert_eq!(alone.len(), 1);
    });
}
