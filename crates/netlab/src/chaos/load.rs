//! What runs through the tunnel all the time: downloads whose every byte is checked, and a call.

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, SocketAddrV4, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use serde::Serialize;

use crate::address::SERVER_V4;
use crate::error::LabError;
use crate::http::body;
use crate::namespace::Namespace;

/// Bytes of one download: about ten seconds.
const FILE: u64 = 16 << 20;
/// The server's HTTP port.
const HTTP: u16 = 80;
/// Where the server sends each packet of the call back.
const ECHO: u16 = 7;
/// Packets of the call: those of a voice codec.
const CALL_EVERY: Duration = Duration::from_millis(20);
const CALL_LEN: usize = 160;
/// The shortest time that a socket waits for.
const LEAST: Duration = Duration::from_millis(1);
/// How long a thread waits for a socket before it looks whether it is over.
const POLL: Duration = Duration::from_millis(100);
/// A connection that is not there by then is tried again from another port, as a browser's user does: one SYN may be lost.
const CONNECT: Duration = Duration::from_millis(1500);
/// Between two tries.
const PAUSE: Duration = Duration::from_millis(100);

/// What came of it until now.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Carried {
    /// Bytes of downloads that came, and are those that were sent.
    pub bytes: u64,
    /// Downloads that came whole.
    pub downloads: u64,
    /// Connections that ended before their download did.
    pub broken: u64,
    /// Connections that stood still and were given up by the run.
    pub given_up: u64,
    /// Bytes that are not those that were sent.
    pub altered: u64,
    /// Packets of the call sent, and those that came back.
    pub call_sent: u64,
    /// Of these, how many came back.
    pub call_returned: u64,
    /// What the last connection that ended too soon ended with.
    pub last_end: String,
}

#[derive(Debug, Default)]
struct Shared {
    over: AtomicBool,
    bytes: AtomicU64,
    carried: Mutex<Carried>,
    /// The connection, to be given up.
    stream: Mutex<Option<TcpStream>>,
    given_up: AtomicBool,
}

/// The load. Dropped, it ends.
#[derive(Debug)]
pub(super) struct Load {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

impl Load {
    /// Begins, between a client and the server's namespace.
    pub(super) fn begin(
        client: &Namespace,
        server: &Namespace,
        seed: u64,
    ) -> Result<Self, LabError> {
        let failed = || LabError::io("a socket of the load");
        let echo = server.run(|| UdpSocket::bind((SERVER_V4, ECHO)))?.map_err(failed())?;
        let call = client.run(|| UdpSocket::bind("0.0.0.0:0"))?.map_err(failed())?;
        for socket in [&echo, &call] {
            socket.set_read_timeout(Some(POLL)).map_err(failed())?;
        }
        call.set_read_timeout(Some(CALL_EVERY)).map_err(failed())?;
        let shared = Arc::<Shared>::default();
        let mut load = Self { shared: Arc::clone(&shared), threads: Vec::new() };
        load.start("echo", {
            let shared = Arc::clone(&shared);
            move || send_back(&echo, &shared)
        })?;
        load.start("call", {
            let shared = Arc::clone(&shared);
            move || keep_calling(&call, &shared)
        })?;
        // Its sockets are born in the namespace of its thread.
        let inside = client.entry()?;
        load.start("download", move || match inside.enter() {
            Ok(()) => keep_downloading(seed, &shared),
            Err(error) => lock(&shared.carried).last_end = error.to_string(),
        })?;
        Ok(load)
    }

    fn start(&mut self, name: &str, work: impl FnOnce() + Send + 'static) -> Result<(), LabError> {
        let thread = thread::Builder::new().name(name.to_owned()).spawn(work);
        self.threads.push(thread.map_err(LabError::io("starting a thread"))?);
        Ok(())
    }

    pub(super) fn carried(&self) -> Carried {
        let bytes = self.shared.bytes.load(Ordering::Relaxed);
        Carried { bytes, ..lock(&self.shared.carried).clone() }
    }

    /// Gives the present connection up, and begins another download.
    pub(super) fn begin_again(&self) {
        self.shared.given_up.store(true, Ordering::Relaxed);
        if let Some(stream) = lock(&self.shared.stream).take() {
            // One that has ended needs no end.
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.shared.over.store(true, Ordering::Relaxed);
        self.begin_again();
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

fn send_back(socket: &UdpSocket, shared: &Shared) {
    let mut buffer = [0; 2048];
    while !shared.over.load(Ordering::Relaxed) {
        if let Ok((length, from)) = socket.recv_from(&mut buffer) {
            // What does not get through is counted by who waits for it.
            let _ = socket.send_to(&buffer[..length], from);
        }
    }
}

fn keep_calling(socket: &UdpSocket, shared: &Shared) {
    let mut due = Instant::now();
    let mut packet = [0; CALL_LEN];
    let mut buffer = [0; 2048];
    for number in 0_u64.. {
        if shared.over.load(Ordering::Relaxed) {
            return;
        }
        packet[..8].copy_from_slice(&number.to_be_bytes());
        // Refused while there is no way: the call goes on.
        let _ = socket.send_to(&packet, (SERVER_V4, ECHO));
        lock(&shared.carried).call_sent += 1;
        due += CALL_EVERY;
        // Also where the machine is late: what came is read.
        loop {
            let left = due.saturating_duration_since(Instant::now()).max(LEAST);
            // An error is that nothing came, or that the kernel tells of a refusal.
            let came = socket.set_read_timeout(Some(left)).and_then(|()| socket.recv(&mut buffer));
            if came.is_ok_and(|length| length == CALL_LEN) {
                lock(&shared.carried).call_returned += 1;
            } else if Instant::now() >= due {
                break;
            }
        }
        // A machine that stood still does not make up for it.
        due = due.max(Instant::now() - CALL_EVERY);
    }
}

/// Why a download ended.
enum End {
    Whole,
    Over,
    Altered,
    Broken(io::Error),
}

fn keep_downloading(seed: u64, shared: &Shared) {
    let server = SocketAddr::V4(SocketAddrV4::new(SERVER_V4, HTTP));
    for number in 0.. {
        if shared.over.load(Ordering::Relaxed) {
            return;
        }
        let Ok(stream) = TcpStream::connect_timeout(&server, CONNECT) else {
            thread::sleep(PAUSE);
            continue;
        };
        shared.given_up.store(false, Ordering::Relaxed);
        *lock(&shared.stream) = stream.try_clone().ok();
        let end = download(&stream, seed.wrapping_add(number), shared);
        let mut carried = lock(&shared.carried);
        match end {
            End::Whole => carried.downloads += 1,
            End::Altered => carried.altered += 1,
            End::Over => {}
            End::Broken(_) if shared.given_up.load(Ordering::Relaxed) => carried.given_up += 1,
            End::Broken(error) => {
                carried.broken += 1;
                carried.last_end = error.to_string();
            }
        }
    }
}

fn download(stream: &TcpStream, seed: u64, shared: &Shared) -> End {
    let begun = (|| {
        stream.set_read_timeout(Some(POLL))?;
        let mut stream = stream;
        write!(stream, "GET /{FILE}/{seed} HTTP/1.1\r\nConnection: close\r\n\r\n")?;
        read_head(stream, shared)
    })();
    if let Err(error) = begun {
        return ended(error, shared);
    }
    let mut buffer = Vec::new();
    let mut altered = false;
    let came = body(FILE, seed, |expected| {
        buffer.resize(expected.len(), 0);
        read(stream, &mut buffer, shared, true)?;
        altered |= buffer != expected;
        if altered { Err(io::ErrorKind::InvalidData.into()) } else { Ok(()) }
    });
    match came {
        Ok(()) => End::Whole,
        Err(_) if altered => End::Altered,
        Err(error) => ended(error, shared),
    }
}

fn ended(error: io::Error, shared: &Shared) -> End {
    if shared.over.load(Ordering::Relaxed) { End::Over } else { End::Broken(error) }
}

/// Reads an answer's head, to the empty line.
fn read_head(stream: &TcpStream, shared: &Shared) -> io::Result<()> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        read(stream, &mut byte, shared, false)?;
        head.extend(byte);
        if head.len() > 4096 {
            return Err(io::ErrorKind::InvalidData.into());
        }
    }
    Ok(())
}

/// Reads until `buffer` is full, the connection ends, or the load is over.
fn read(mut stream: &TcpStream, buffer: &mut [u8], shared: &Shared, count: bool) -> io::Result<()> {
    let mut filled = 0;
    while filled < buffer.len() {
        if shared.over.load(Ordering::Relaxed) {
            return Err(io::ErrorKind::Interrupted.into());
        }
        match stream.read(&mut buffer[filled..]) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(length) => {
                filled += length;
                if count {
                    shared.bytes.fetch_add(length as u64, Ordering::Relaxed);
                }
            }
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::WouldBlock
                        | io::ErrorKind::TimedOut
                        | io::ErrorKind::Interrupted
                ) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

fn lock<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    // Counts are whole after a panic elsewhere.
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}
