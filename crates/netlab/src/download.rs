//! Downloads and uploads through the real `curl`, watched byte by byte.
//!
//! curl writes the body to a pipe that this process reads, so that goodput over any window, stalls
//! and the checksum are known without a file.

use std::io::{self, Read, Write};
use std::process::{ChildStdin, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use ring::digest::{Context, SHA256};
use serde::Serialize;

use crate::error::LabError;
use crate::http::{Upload, body, hex};
use crate::namespace::Namespace;
use crate::per_second::PerSecond;
use crate::process::bound_to_parent;
use crate::stats::mbit;

/// Read from curl at a time; curl itself writes at most 16 KiB.
const CHUNK: usize = 64 * 1024;
/// The distance of the samples that are kept of the progress.
const SAMPLE: Duration = Duration::from_millis(100);

/// Shorter times without a byte are not kept one by one.
const STALL: Duration = Duration::from_millis(20);

/// What curl shall do.
#[derive(Clone, Debug, Default)]
pub struct Curl {
    /// The interface or the local address it binds to (`--interface`).
    pub interface: Option<String>,
    /// After this time it is ended; what came until then counts.
    pub limit: Option<Duration>,
}

/// A download as it was seen behind curl.
#[derive(Clone, Debug, Serialize)]
pub struct Download {
    /// Bytes of the body.
    pub bytes: u64,
    /// From curl's start to its end.
    pub seconds: f64,
    /// Goodput from the first to the last byte.
    pub mbit: f64,
    /// From curl's start to the first byte, in milliseconds.
    pub first_byte_ms: f64,
    /// The longest time without a byte between first and last, in milliseconds.
    pub longest_stall_ms: f64,
    /// Times without a byte of at least 20 ms: seconds since curl's start to the end of each, and its length in ms.
    pub stalls: Vec<(f64, f64)>,
    /// SHA-256 of the body, in hexadecimal.
    pub sha256: String,
    /// Whether curl ended well (a download cut by its limit did not).
    pub complete: bool,
    /// What curl said, if anything.
    pub message: String,
    /// Progress about every 100 ms: seconds since curl's start, bytes until then.
    pub samples: Vec<(f64, u64)>,
    /// What came since the first byte.
    pub per_second: PerSecond,
    /// What the server's socket uses, as it says (`X-Tcp-Congestion`).
    pub congestion_control: Option<String>,
}

impl Download {
    /// Goodput between two times since curl's start, from the samples.
    #[must_use]
    pub fn mbit_between(&self, from: Duration, to: Duration) -> f64 {
        let bytes_at = |time: Duration| {
            let before = self.samples.iter().take_while(|(at, _)| *at <= time.as_secs_f64());
            before.last().map_or((0.0, 0), |sample| *sample)
        };
        let ((start, first), (end, last)) = (bytes_at(from), bytes_at(to));
        mbit(last - first, Duration::from_secs_f64(end - start))
    }
}

impl Download {
    /// The longest time without a byte, in milliseconds, that ended so many seconds after curl's start or later; zero
    /// where none took 20 ms.
    #[must_use]
    pub fn longest_stall_from(&self, seconds: f64) -> f64 {
        let late = self.stalls.iter().filter(|(end, _)| *end > seconds);
        late.map(|(_, ms)| *ms).fold(0.0, f64::max)
    }
}

impl Curl {
    /// Downloads `url` in `namespace` and waits for the end; `progress` is told the bytes so far,
    /// about every 100 ms while some come.
    ///
    /// # Errors
    /// When curl cannot be started. What it could not fetch is told by [`Download::message`].
    pub fn download(
        &self,
        namespace: &Namespace,
        url: &str,
        mut progress: impl FnMut(u64),
    ) -> Result<Download, LabError> {
        let mut command = bound_to_parent("curl");
        // The head of the answer goes where curl says what failed.
        command.args(self.arguments()).args(["--dump-header", "/dev/stderr"]);
        command.args(["--output", "-", url]);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let started = Instant::now();
        let mut child = namespace.spawn(command)?;
        let mut output = child.stdout.take().into_iter();
        let (mut hash, mut buffer) = (Context::new(&SHA256), vec![0; CHUNK]);
        let (mut bytes, mut samples) = (0, vec![(0.0, 0)]);
        let mut stalls = Vec::new();
        let (mut first, mut last, mut longest) = (None, started, Duration::ZERO);
        let mut per_second = PerSecond::default();
        if let Some(mut output) = output.next() {
            let mut sampled = started;
            loop {
                let read = match output.read(&mut buffer) {
                    Ok(0) => break,
                    Ok(read) => read,
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                    Err(error) => return Err(LabError::io("reading from curl")(error)),
                };
                let now = Instant::now();
                if first.replace(first.unwrap_or(now)).is_some() {
                    longest = longest.max(now - last);
                    if now - last >= STALL {
                        let length = (now - last).as_secs_f64() * 1e3;
                        stalls.push(((now - started).as_secs_f64(), length));
                    }
                }
                last = now;
                per_second.note(now - first.unwrap_or(now), read as u64);
                hash.update(&buffer[..read]);
                bytes += read as u64;
                if now - sampled >= SAMPLE {
                    sampled = now;
                    samples.push(((now - started).as_secs_f64(), bytes));
                    progress(bytes);
                }
            }
        }
        samples.push(((last - started).as_secs_f64(), bytes));
        let end = child.wait_with_output().map_err(LabError::io("waiting for curl"))?;
        let first = first.unwrap_or(last);
        let said = String::from_utf8_lossy(&end.stderr);
        let congestion = said.lines().find_map(|line| line.strip_prefix("X-Tcp-Congestion: "));
        Ok(Download {
            bytes,
            seconds: started.elapsed().as_secs_f64(),
            mbit: mbit(bytes, last - first),
            first_byte_ms: (first - started).as_secs_f64() * 1e3,
            longest_stall_ms: longest.as_secs_f64() * 1e3,
            stalls,
            sha256: hex(hash.finish().as_ref()),
            complete: end.status.success(),
            message: said.lines().filter(|line| line.starts_with("curl: ")).collect(),
            samples,
            per_second,
            congestion_control: congestion.map(|name| name.trim().to_owned()),
        })
    }

    /// Uploads a body of `bytes` bytes made from `seed` to `url` and returns what the server saw.
    ///
    /// # Errors
    /// When curl fails, is cut by the limit, or the answer is not an [`Upload`].
    pub fn upload(
        &self,
        namespace: &Namespace,
        url: &str,
        bytes: u64,
        seed: u64,
    ) -> Result<Upload, LabError> {
        let length = format!("Content-Length: {bytes}");
        // Empty `Transfer-Encoding`: with the length known, curl must not send chunks.
        let headers = [length.as_str(), "Transfer-Encoding:"];
        self.send(namespace, url, &headers, move |mut input| {
            // A curl that ends early says why; its closed pipe adds nothing.
            let _ = body(bytes, seed, |chunk| input.write_all(chunk));
        })
    }

    /// Uploads for `time` what is made from `seed`, in chunks; what then waits in curl's socket is sent, too.
    ///
    /// # Errors
    /// As [`Curl::upload`].
    pub fn upload_for(
        &self,
        namespace: &Namespace,
        url: &str,
        time: Duration,
        seed: u64,
    ) -> Result<Upload, LabError> {
        self.send(namespace, url, &["Transfer-Encoding: chunked"], move |mut input| {
            let started = Instant::now();
            let _ = body(u64::MAX, seed, |chunk| {
                if started.elapsed() >= time {
                    return Err(io::ErrorKind::TimedOut.into());
                }
                input.write_all(chunk)
            });
        })
    }

    /// Uploads what `feed` writes, with these headers.
    fn send(
        &self,
        namespace: &Namespace,
        url: &str,
        headers: &[&str],
        feed: impl FnOnce(ChildStdin) + Send + 'static,
    ) -> Result<Upload, LabError> {
        let mut command = bound_to_parent("curl");
        command.args(self.arguments());
        for header in headers {
            command.arg("--header").arg(header);
        }
        command.args(["--upload-file", "-", url]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = namespace.spawn(command)?;
        let input = child.stdin.take();
        let (done, finished) = mpsc::channel();
        thread::spawn(move || {
            if let Some(input) = input {
                feed(input);
            }
            let _ = done.send(());
        });
        let end = child.wait_with_output().map_err(LabError::io("waiting for curl"))?;
        let _ = finished.recv();
        if !end.status.success() {
            return Err(LabError::Tool {
                command: format!("curl --upload-file - {url}"),
                reason: String::from_utf8_lossy(&end.stderr).trim().to_owned(),
            });
        }
        let text = String::from_utf8_lossy(&end.stdout).into_owned();
        serde_json::from_str(&text)
            .map_err(|_| LabError::Malformed { what: "the server's answer to an upload", text })
    }

    fn arguments(&self) -> Vec<String> {
        let mut arguments: Vec<String> =
            ["--silent", "--show-error", "--fail", "--no-buffer"].map(str::to_owned).into();
        if let Some(interface) = &self.interface {
            arguments.extend(["--interface".to_owned(), interface.clone()]);
        }
        if let Some(limit) = self.limit {
            arguments.extend(["--max-time".to_owned(), format!("{:.3}", limit.as_secs_f64())]);
        }
        arguments
    }
}
