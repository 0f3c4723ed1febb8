//! What TCP has to be like below a tunnel, whose packets have congestion control and repair of their own.
//!
//! | option | value | why |
//! | --- | --- | --- |
//! | `TCP_NODELAY` | on | a small datagram does not wait for the acknowledgement of the one before it |
//! | `TCP_NOTSENT_LOWAT` | 16 KiB | what cannot be sent yet waits in our queue, which drops, and not in the kernel's, which grows to megabytes |
//! | `TCP_CONGESTION` | `bbr`, if the kernel has it | cubic takes each lost segment for congestion, and each such pause holds up all datagrams behind it |
//! | `TCP_USER_TIMEOUT` | 6 s | a connection that a network has forgotten is made again soon |
//! | `SO_KEEPALIVE` | after 60 s | a NAT on the way keeps it, and one that is dead is noticed |

use std::io;
use std::time::Duration;

use rustix::net::sockopt::set_tcp_congestion;
use socket2::{SockRef, TcpKeepalive};

/// Bytes that wait in the kernel to be sent for the first time: two records, so that TCP never waits for us.
const NOT_SENT: u32 = 16 * 1024;

/// The congestion control that does not back off at each loss.
const CONGESTION: &str = "bbr";

/// How long what was sent may stay unacknowledged: two retransmissions of a long path. The tunnel has found the link
/// dead by then, and needs another connection.
const UNACKNOWLEDGED: Duration = Duration::from_secs(6);

/// Silence after which the kernel asks, shorter than the minutes for which a NAT remembers an idle connection
/// (RFC 5382 §5: at least 124 minutes; many forget sooner).
const KEEPALIVE: Duration = Duration::from_secs(60);

/// Between two such questions where no answer comes.
const KEEPALIVE_AGAIN: Duration = Duration::from_secs(5);

/// Makes it so. A kernel that lacks something of it carries datagrams all the same, so nothing of this is an error.
pub(crate) fn tune(socket: &SockRef<'_>) {
    let keepalive = TcpKeepalive::new().with_time(KEEPALIVE).with_interval(KEEPALIVE_AGAIN);
    // socket2 has it for Linux alone, and not for Android.
    let congestion = set_tcp_congestion(&**socket, CONGESTION).map_err(io::Error::from);
    let done = [
        ("TCP_NODELAY", socket.set_tcp_nodelay(true)),
        ("TCP_NOTSENT_LOWAT", socket.set_tcp_notsent_lowat(NOT_SENT)),
        ("TCP_CONGESTION", congestion),
        ("TCP_USER_TIMEOUT", socket.set_tcp_user_timeout(Some(UNACKNOWLEDGED))),
        ("SO_KEEPALIVE", socket.set_tcp_keepalive(&keepalive)),
    ];
    for (option, done) in done {
        if let Err(error) = done {
            tracing::debug!("a connection goes without {option}: {error}");
        }
    }
}
