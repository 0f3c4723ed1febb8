//! A real HTTP/1.1 server for real clients: it gives pseudo-random bodies of any length and takes
//! uploads, over TCP with a congestion control of choice.
//!
//! `GET /<bytes>/<seed>` answers with that many bytes from a generator with that seed, so that the
//! receiver can know the right checksum without a file; `GET /<bytes>/<seed>/<name>` does so with another
//! congestion control, which the kernel must allow. Of a body, one range may be asked for (RFC 9110 §14), as
//! download managers do that fetch it over several connections. `PUT` or `POST` of anything, of a length that is told or in
//! chunks, answers with an [`Upload`] as JSON. The header `X-Tcp-Congestion` says what the kernel uses on the
//! connection, read back from the socket.
//!
//! One thread a connection, one request a connection, as a test needs; never to be exposed.

mod chunked;

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rand::rngs::SmallRng;
use rand::{RngCore, SeedableRng};
use ring::digest::{Context, SHA256};
use serde::{Deserialize, Serialize};
use socket2::SockRef;

use self::chunked::Chunked;
use crate::error::LabError;
use crate::stats::mbit;

/// Bytes made and written at a time: enough to keep a fast connection busy.
const CHUNK: usize = 64 * 1024;
/// Shorter times without a byte are not kept one by one.
const STALL: Duration = Duration::from_millis(20);
/// The longest request head taken.
const MAX_HEAD: u64 = 16 * 1024;

/// What the server saw of an upload.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Upload {
    /// Bytes of the body.
    pub bytes: u64,
    /// From the first to the last byte of the body.
    pub seconds: f64,
    /// Goodput over that time.
    pub mbit: f64,
    /// Times of at least 20 ms without a byte: seconds since the first byte to the end of each, and its length in ms.
    #[serde(default)]
    pub stalls: Vec<(f64, f64)>,
    /// SHA-256 of the body, in hexadecimal.
    pub sha256: String,
}

/// A running server; dropped, it ends with all its connections.
#[derive(Debug)]
pub struct HttpServer {
    listener: TcpListener,
    address: SocketAddr,
    connections: Arc<Mutex<Vec<TcpStream>>>,
    thread: Option<JoinHandle<()>>,
}

impl HttpServer {
    /// Serves on `listener` (made in the namespace it is for) with `congestion` (such as `cubic`)
    /// on every connection.
    ///
    /// # Errors
    /// When the kernel does not know the congestion control, or forbids it.
    pub fn serve(listener: TcpListener, congestion: &str) -> Result<Self, LabError> {
        // Connections inherit it from the listener.
        SockRef::from(&listener)
            .set_tcp_congestion(congestion.as_bytes())
            .map_err(LabError::io(format!("TCP congestion control {congestion}")))?;
        let failed = || LabError::io("the HTTP server's socket");
        let address = listener.local_addr().map_err(failed())?;
        let accepting = listener.try_clone().map_err(failed())?;
        let connections = Arc::<Mutex<Vec<TcpStream>>>::default();
        let open = Arc::clone(&connections);
        let thread = thread::Builder::new()
            .name(format!("http {address}"))
            .spawn(move || accept_all(&accepting, &open))
            .map_err(LabError::io("starting a thread"))?;
        Ok(Self { listener, address, connections, thread: Some(thread) })
    }

    /// Where it listens.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// The URL of a body of `bytes` bytes made from `seed`.
    #[must_use]
    pub fn url(&self, bytes: u64, seed: u64) -> String {
        format!("http://{}/{bytes}/{seed}", self.address)
    }
}

impl Drop for HttpServer {
    fn drop(&mut self) {
        // Wakes the thread in `accept`, and those that wait for a slow client. A connection that
        // has ended refuses, which is as good.
        let _ = SockRef::from(&self.listener).shutdown(Shutdown::Both);
        for connection in lock(&self.connections).drain(..) {
            let _ = connection.shutdown(Shutdown::Both);
        }
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn accept_all(listener: &TcpListener, connections: &Arc<Mutex<Vec<TcpStream>>>) {
    let mut threads: Vec<JoinHandle<()>> = Vec::new();
    while let Ok((stream, peer)) = listener.accept() {
        threads.retain(|thread| !thread.is_finished());
        let Ok(copy) = stream.try_clone() else { continue };
        lock(connections).push(copy);
        let connections = Arc::clone(connections);
        threads.push(thread::spawn(move || {
            // A client that goes away in the middle is part of the tests.
            let _ = answer(&stream);
            lock(&connections).retain(|other| other.peer_addr().is_ok_and(|other| other != peer));
        }));
    }
    for connection in lock(connections).drain(..) {
        let _ = connection.shutdown(Shutdown::Both);
    }
    threads.into_iter().for_each(|thread| {
        let _ = thread.join();
    });
}

fn lock(connections: &Mutex<Vec<TcpStream>>) -> std::sync::MutexGuard<'_, Vec<TcpStream>> {
    // The list is valid after a panic elsewhere: every change is one operation.
    connections.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A request's first line and the headers that matter here.
#[derive(Debug, PartialEq, Eq, Default)]
struct Head {
    method: String,
    path: String,
    length: Option<u64>,
    is_chunked: bool,
    range: Option<String>,
    wants_continue: bool,
}

fn answer(stream: &TcpStream) -> io::Result<()> {
    let mut reader = BufReader::with_capacity(CHUNK, stream);
    let head = read_head(&mut reader)?;
    let wanted = parse_body_path(&head.path);
    if let Some(Body { congestion: Some(name), .. }) = wanted {
        // One that the kernel does not allow shows in the header.
        let _ = SockRef::from(stream).set_tcp_congestion(name.as_bytes());
    }
    let congestion = congestion_of(stream)?;
    match head.method.as_str() {
        "GET" => match wanted {
            Some(Body { bytes, seed, .. }) => {
                let Some(wanted) = head.range.as_deref().and_then(ranges) else {
                    let kind = "application/octet-stream\r\nAccept-Ranges: bytes";
                    respond(stream, "200 OK", &congestion, bytes, kind)?;
                    return write_body(stream, 0..bytes, seed);
                };
                let Some(range) = wanted.within(bytes) else {
                    let kind = format!("text/plain\r\nContent-Range: bytes */{bytes}");
                    return respond(stream, "416 Range Not Satisfiable", &congestion, 0, &kind);
                };
                let (first, last) = (range.start, range.end - 1);
                let kind = format!(
                    "application/octet-stream\r\nContent-Range: bytes {first}-{last}/{bytes}"
                );
                let length = range.end - range.start;
                respond(stream, "206 Partial Content", &congestion, length, &kind)?;
                write_body(stream, range, seed)
            }
            None => respond(stream, "404 Not Found", &congestion, 0, "text/plain"),
        },
        "PUT" | "POST" => {
            if head.length.is_none() && !head.is_chunked {
                return respond(stream, "411 Length Required", &congestion, 0, "text/plain");
            }
            if head.wants_continue {
                (&*stream).write_all(b"HTTP/1.1 100 Continue\r\n\r\n")?;
            }
            let upload = match head.length {
                Some(length) => read_upload(reader.take(length))?,
                None => read_upload(Chunked::new(reader))?,
            };
            let upload = serde_json::to_string(&upload)?;
            let size = upload.len() as u64;
            respond(stream, "200 OK", &congestion, size, "application/json")?;
            (&*stream).write_all(upload.as_bytes())
        }
        _ => respond(stream, "405 Method Not Allowed", &congestion, 0, "text/plain"),
    }
}

fn read_head(reader: &mut impl BufRead) -> io::Result<Head> {
    let mut head = Head::default();
    let mut limited = reader.take(MAX_HEAD);
    let mut line = String::new();
    limited.read_line(&mut line)?;
    let mut words = line.split_whitespace();
    head.method = words.next().unwrap_or_default().to_owned();
    head.path = words.next().unwrap_or_default().to_owned();
    loop {
        line.clear();
        if limited.read_line(&mut line)? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let Some((name, value)) = line.split_once(':') else { return Ok(head) };
        match name.to_ascii_lowercase().as_str() {
            "range" => head.range = Some(value.trim().to_owned()),
            "content-length" => head.length = value.trim().parse().ok(),
            "transfer-encoding" => head.is_chunked = value.trim().eq_ignore_ascii_case("chunked"),
            "expect" => head.wants_continue = value.trim().eq_ignore_ascii_case("100-continue"),
            _ => {}
        }
    }
}

/// One range of a body, as it is asked for: from a byte on, up to one or to the end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Wanted {
    first: u64,
    last: Option<u64>,
}

/// The one range that a header asks for; `None` where it asks for something else, which a server may ignore.
fn ranges(header: &str) -> Option<Wanted> {
    let (first, last) = header.strip_prefix("bytes=")?.split_once('-')?;
    let last = if last.is_empty() { None } else { Some(last.parse().ok()?) };
    let wanted = Wanted { first: first.parse().ok()?, last };
    wanted.last.is_none_or(|last| last >= wanted.first).then_some(wanted)
}

impl Wanted {
    /// The bytes meant of a body of this length; `None` where it has none of them.
    fn within(self, bytes: u64) -> Option<Range<u64>> {
        let end = self.last.map_or(bytes, |last| last.saturating_add(1).min(bytes));
        (self.first < end).then_some(self.first..end)
    }
}

/// What a path asks for.
struct Body<'a> {
    bytes: u64,
    seed: u64,
    congestion: Option<&'a str>,
}

fn parse_body_path(path: &str) -> Option<Body<'_>> {
    let mut parts = path.strip_prefix('/')?.splitn(3, '/');
    let (bytes, seed) = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
    Some(Body { bytes, seed, congestion: parts.next() })
}

fn respond(
    mut stream: &TcpStream,
    status: &str,
    congestion: &str,
    length: u64,
    kind: &str,
) -> io::Result<()> {
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Length: {length}\r\nContent-Type: {kind}\r\n\
         X-Tcp-Congestion: {congestion}\r\nConnection: close\r\n\r\n"
    );
    stream.write_all(head.as_bytes())
}

/// The congestion control that the kernel uses on a connection.
fn congestion_of(stream: &TcpStream) -> io::Result<String> {
    let name = SockRef::from(stream).tcp_congestion()?;
    Ok(String::from_utf8_lossy(&name).trim_end_matches('\0').to_owned())
}

fn write_body(mut stream: &TcpStream, range: Range<u64>, seed: u64) -> io::Result<()> {
    let mut at = 0;
    body(range.end, seed, |chunk| {
        // What lies before the range is made, too, and thrown away: a generator has no other way there.
        let skipped = range.start.saturating_sub(at).min(chunk.len() as u64);
        at += chunk.len() as u64;
        let skipped = usize::try_from(skipped).unwrap_or(chunk.len());
        stream.write_all(&chunk[skipped..])
    })
}

fn read_upload(mut body: impl Read) -> io::Result<Upload> {
    let mut hash = Context::new(&SHA256);
    let mut buffer = vec![0; CHUNK];
    let mut bytes = 0;
    let mut began: Option<(Instant, Instant)> = None;
    let mut stalls = Vec::new();
    loop {
        let read = body.read(&mut buffer)?;
        let now = Instant::now();
        let (started, last) = *began.get_or_insert((now, now));
        if now - last >= STALL {
            stalls.push(((now - started).as_secs_f64(), (now - last).as_secs_f64() * 1e3));
        }
        began = Some((started, now));
        if read == 0 {
            let time = started.elapsed();
            return Ok(Upload {
                bytes,
                seconds: time.as_secs_f64(),
                mbit: mbit(bytes, time),
                stalls,
                sha256: hex(hash.finish().as_ref()),
            });
        }
        hash.update(&buffer[..read]);
        bytes += read as u64;
    }
}

/// Makes the body of `bytes` bytes for `seed`, a chunk at a time.
///
/// # Errors
/// The first error of `take`.
pub fn body(
    mut bytes: u64,
    seed: u64,
    mut take: impl FnMut(&[u8]) -> io::Result<()>,
) -> io::Result<()> {
    let mut generator = SmallRng::seed_from_u64(seed);
    let mut chunk = vec![0; CHUNK];
    while bytes > 0 {
        let length = usize::try_from(bytes).unwrap_or(CHUNK).min(CHUNK);
        generator.fill_bytes(&mut chunk);
        take(&chunk[..length])?;
        bytes -= length as u64;
    }
    Ok(())
}

/// The SHA-256 of that body, in hexadecimal.
#[must_use]
pub fn body_sha256(bytes: u64, seed: u64) -> String {
    let mut hash = Context::new(&SHA256);
    let hashed = body(bytes, seed, |chunk| {
        hash.update(chunk);
        Ok(())
    });
    debug_assert!(hashed.is_ok(), "hashing never fails");
    hex(hash.finish().as_ref())
}

/// Bytes as lower-case hexadecimal digits.
#[must_use]
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn exchange(request: &[u8]) -> String {
        let server = HttpServer::serve(TcpListener::bind("127.0.0.1:0").unwrap(), "reno").unwrap();
        let mut client = TcpStream::connect(server.address()).unwrap();
        client.write_all(request).unwrap();
        let mut answer = Vec::new();
        client.read_to_end(&mut answer).unwrap();
        String::from_utf8_lossy(&answer).into_owned()
    }

    #[test]
    fn a_body_is_the_same_however_often_it_is_made() {
        let length = 3 * CHUNK as u64 + 17;
        let mut total = 0;
        body(length, 5, |chunk| {
            total += chunk.len() as u64;
            Ok(())
        })
        .unwrap();
        assert_eq!(total, length);
        assert_eq!(body_sha256(length, 5), body_sha256(length, 5));
        assert_ne!(body_sha256(length, 5), body_sha256(length, 6));
        // Of no bytes: the known digest of the empty string (FIPS 180-4 examples).
        assert!(body_sha256(0, 5).starts_with("e3b0c44298fc1c149afbf4c8996fb924"));
    }

    #[test]
    fn requests_get_the_answer_of_their_kind() {
        for (request, status) in [
            ("GET /10/1 HTTP/1.1\r\n\r\n", "200"),
            ("GET /ten/1 HTTP/1.1\r\n\r\n", "404"),
            ("GET / HTTP/1.1\r\n\r\n", "404"),
            ("PUT / HTTP/1.1\r\n\r\n", "411"),
            ("DELETE /10/1 HTTP/1.1\r\n\r\n", "405"),
        ] {
            let answer = exchange(request.as_bytes());
            assert!(answer.starts_with(&format!("HTTP/1.1 {status}")), "{request}: {answer}");
            assert!(answer.contains("X-Tcp-Congestion: reno"), "{answer}");
        }
    }

    #[test]
    fn a_range_is_those_bytes_of_the_body() {
        let length = 2 * CHUNK as u64 + 100;
        let mut whole = Vec::new();
        body(length, 5, |chunk| {
            whole.extend_from_slice(chunk);
            Ok(())
        })
        .unwrap();
        let (chunk, last) = (CHUNK, whole.len() - 1);
        for (asked, range) in [
            ("0-9".to_owned(), 0..10),
            (format!("{}-{}", chunk - 3, chunk + 2), chunk - 3..chunk + 3),
            (format!("{}-", 2 * chunk), 2 * chunk..last + 1),
            (format!("{last}-999999999"), last..last + 1),
        ] {
            let server =
                HttpServer::serve(TcpListener::bind("127.0.0.1:0").unwrap(), "reno").unwrap();
            let mut client = TcpStream::connect(server.address()).unwrap();
            write!(client, "GET /{length}/5 HTTP/1.1\r\nRange: bytes={asked}\r\n\r\n").unwrap();
            let mut answer = Vec::new();
            client.read_to_end(&mut answer).unwrap();
            let end = answer.windows(4).position(|four| four == b"\r\n\r\n").unwrap() + 4;
            let head = String::from_utf8_lossy(&answer[..end]);
            let told = format!("Content-Range: bytes {}-{}/{length}", range.start, range.end - 1);
            assert!(head.starts_with("HTTP/1.1 206") && head.contains(&told), "{asked}: {head}");
            assert!(answer[end..] == whole[range], "{asked}");
        }
    }

    #[test]
    fn a_range_that_is_not_there_is_refused_and_one_not_understood_ignored() {
        for (range, status) in [
            ("bytes=10-", "416"),
            ("bytes=5-4", "200"),
            ("bytes=-5", "200"),
            ("bytes=0-1,3-4", "200"),
            ("lines=1-2", "200"),
        ] {
            let answer =
                exchange(format!("GET /10/1 HTTP/1.1\r\nRange: {range}\r\n\r\n").as_bytes());
            assert!(answer.starts_with(&format!("HTTP/1.1 {status}")), "{range}: {answer}");
        }
    }

    #[test]
    fn an_upload_is_counted_and_hashed() {
        for request in [
            "PUT /x HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc",
            "PUT /x HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n1\r\nc\r\n0\r\n\r\n",
        ] {
            let answer = exchange(request.as_bytes());
            let upload: Upload =
                serde_json::from_str(answer.split_once("\r\n\r\n").unwrap().1).unwrap();
            assert_eq!(upload.bytes, 3);
            // FIPS 180-4, example of one block.
            assert!(upload.sha256.starts_with("ba7816bf8f01cfea414140de5dae2223"));
        }
    }

    #[test]
    fn an_unknown_congestion_control_is_an_error() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        assert!(HttpServer::serve(listener, "no-such").is_err());
    }
}
