//! Datagrams of Ropewalk over TLS, where a network lets no UDP through (docs/TLS.md).
//!
//! ```text
//!  client                                                      proxy
//!  core ── Sockets ── Carrier ══ TLS over TCP 443 ══ Listener ── UDP on loopback ── core
//! ```
//!
//! TLS is there for the firewalls on the way, which let HTTPS pass. Who the other end is, the tunnel's own handshake
//! shows, and its datagrams are sealed by it: so any certificate will do, and whoever is in between can hold datagrams
//! back and no more.
//!
//! | part | its one concern |
//! | --- | --- |
//! | `frame` | datagrams in a stream of bytes |
//! | `queue` | what waits for the stream, for 100 ms at most |
//! | `carry` | a stream read and written |
//! | `tcp` | what TCP has to be like below a tunnel |
//! | `trust` | TLS without trust, at both ends |
//! | `fallback` | when a link of the client goes over TLS |
//! | `dial`, `carrier` | the client's connections, as a socket of its event loop |
//! | `admission`, `listener` | the proxy's, within bounds |

mod admission;
mod carrier;
mod carry;
mod dial;
mod fallback;
mod frame;
mod listener;
mod queue;
mod tcp;
mod trust;

pub use admission::{Counts, MOST, MOST_OF_SOURCE, MOST_STRANGERS};
pub use carrier::TlsCarrier;
pub use dial::{Binding, Dial, DialError, Prepare, exchange};
pub use fallback::{Fallback, Outlook, Seen};
pub use frame::LONGEST;
pub use listener::{Listener, Sources, bind};
pub use queue::MOST_WAIT;
pub use trust::{Identity, IdentityError, make_identity};

/// How a link over TLS looks to the path MTU search, bytes: as Ethernet. A stream carries every size, so nothing larger
/// than that is lost, and the tunnel makes nothing larger.
pub const LINK_MTU: u16 = 1500;
