//! Whether a network that lets nothing through to the proxy wants a sign-in first.
//!
//! Such a network answers every HTTP request itself and leads it to its page. So where a link has no answer, the proxy's own
//! address is asked for a page at TCP port 80, over that link: nobody else hears of it. An answer that leads elsewhere
//! is a hint, no more: a web server on the proxy's machine may do the same.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpSocket;
use tokio::sync::mpsc;

use crate::daemon::Command;

/// Longest time for an answer: portals stand in the next room.
pub(crate) const PATIENCE: Duration = Duration::from_secs(3);

/// Bytes of an answer that are read: its head.
const MOST: usize = 4096;

/// Bytes of the longest address that is shown.
const MOST_SHOWN: usize = 200;

/// A link without an answer from the proxy.
#[derive(Clone, Debug)]
pub(crate) struct Question {
    /// The link.
    pub(crate) slot: u16,
    /// Its interface.
    pub(crate) interface: String,
    /// The interface's address.
    pub(crate) source: IpAddr,
    /// The proxy's, of the same family.
    pub(crate) proxy: IpAddr,
}

/// Asks for the daemon, one link after the other.
pub(crate) struct Scout {
    /// What to ask.
    pub(crate) questions: mpsc::Receiver<Question>,
    /// Who wants to know.
    pub(crate) daemon: mpsc::Sender<Command>,
}

impl Scout {
    /// Runs until nobody asks any more.
    pub(crate) async fn run(mut self) {
        while let Some(question) = self.questions.recv().await {
            let answered = tokio::time::timeout(PATIENCE, ask(&question)).await;
            let page = answered.ok().and_then(Result::ok).flatten();
            if self.daemon.send(Command::Portal(question.slot, page)).await.is_err() {
                return;
            }
        }
    }
}

/// The page to which the network leads who asks for one at the proxy's address, if it does.
pub(crate) async fn ask(question: &Question) -> std::io::Result<Option<String>> {
    let socket = if question.proxy.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    // By its address it leaves by the table of its link, past the tunnel; by its device by no other.
    socket.bind_device(Some(question.interface.as_bytes()))?;
    socket.bind(SocketAddr::new(question.source, 0))?;
    let mut stream = socket.connect(SocketAddr::new(question.proxy, 80)).await?;
    let host = match question.proxy {
        IpAddr::V4(address) => address.to_string(),
        IpAddr::V6(address) => format!("[{address}]"),
    };
    let request = format!("GET / HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut head = Vec::new();
    while head.len() < MOST && !head.windows(4).any(|end| end == b"\r\n\r\n") {
        let mut chunk = [0; 1024];
        match stream.read(&mut chunk).await? {
            0 => break,
            read => head.extend_from_slice(&chunk[..read]),
        }
    }
    Ok(leads_to(&head, &host))
}

/// Where an answer leads, if that is elsewhere than to `host`.
fn leads_to(head: &[u8], host: &str) -> Option<String> {
    let head = String::from_utf8_lossy(head);
    let mut lines = head.lines();
    let status = lines.next()?.strip_prefix("HTTP/1.")?.split(' ').nth(1)?.parse::<u16>().ok()?;
    let location = lines.take_while(|line| !line.is_empty()).find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("location").then(|| value.trim())
    });
    // 511 says it in so many words (RFC 6585 §6), perhaps without an address.
    let needs_sign_in = status == 511;
    let location = location.filter(|_| needs_sign_in || (300..400).contains(&status));
    let Some(url) = location else {
        return needs_sign_in.then(|| format!("http://{host}/"));
    };
    let rest = url.strip_prefix("http://").or_else(|| url.strip_prefix("https://"))?;
    let elsewhere = rest.split(['/', '?', '#']).next().filter(|there| !there.is_empty())? != host;
    let fit = url.len() <= MOST_SHOWN && url.chars().all(|c| c.is_ascii_graphic());
    (elsewhere && fit).then(|| url.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_answer_that_leads_elsewhere_is_a_portals() {
        let portal = "https://login.cafe.example/?from=203.0.113.2";
        let table = [
            (format!("HTTP/1.1 302 Found\r\nLocation: {portal}\r\n\r\n"), Some(portal)),
            (format!("HTTP/1.0 307 X\r\nServer: x\r\nlocation:{portal}\r\n\r\n"), Some(portal)),
            (
                "HTTP/1.1 511 Network Authentication Required\r\n\r\n".into(),
                Some("http://203.0.113.2/"),
            ),
            // A web server on the proxy's machine.
            ("HTTP/1.1 200 OK\r\nLocation: http://x.example/\r\n\r\n".into(), None),
            ("HTTP/1.1 404 Not Found\r\n\r\n".into(), None),
            ("HTTP/1.1 301 M\r\nLocation: https://203.0.113.2/\r\n\r\n".into(), None),
            ("HTTP/1.1 301 M\r\nLocation: /elsewhere\r\n\r\n".into(), None),
            // What is not to be shown to anybody.
            ("HTTP/1.1 302 F\r\nLocation: http://x.example/\u{1b}[2J\r\n\r\n".into(), None),
            (format!("HTTP/1.1 302 F\r\nLocation: http://x/{}\r\n\r\n", "a".repeat(300)), None),
            ("HTTP/1.1 302 F\r\n\r\nLocation: http://x.example/\r\n".into(), None),
            ("SSH-2.0-OpenSSH_9.2\r\n".into(), None),
            ("HTTP/1.1".into(), None),
            (String::new(), None),
        ];
        for (head, expected) in table {
            let found = leads_to(head.as_bytes(), "203.0.113.2");
            assert_eq!(found.as_deref(), expected, "{head:?}");
        }
    }
}
