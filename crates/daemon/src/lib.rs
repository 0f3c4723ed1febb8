//! What the client and the proxy share, so that it means the same in both.
//!
//! The core knows no status document, and the control API knows no core: the two meet here, once.
//!
//! | part | its one concern |
//! | --- | --- |
//! | [`core`] | keys and ciphers of a config, for the protocol core |
//! | [`proxies`] | the proxies that a client knows: how they are told, and what outlives a run |
//! | [`gaps`] | times in which this machine stood still |
//! | [`held`] | packets that the core gave while no TUN was at hand |
//! | [`links`] | what a client changes when it opens or closes a link |
//! | [`patience`] | pauses that grow while something does not answer |
//! | [`status`] | what the core counts, in the words of the status document |
//! | [`client_status`] | of that, the tunnel of a client, and how it stands with its session in words |
//! | [`scheduling_status`] | of that, what schedulers make of links and flows, and what it costs |
//! | [`reload`] | reading the config again, and what of it needs a restart |
//! | [`mod@file`], [`writer`] | files that survive a crash; the same beside a packet loop |
//! | [`mod@format`] | the version of a file that survives, and of one that is newer than this program |
//! | [`sandbox`] | what a daemon gives up at its start |
//! | [`secrecy`] | what keeps a daemon's keys in its memory, and out of core dumps and the swap |
//! | [`service`] | a daemon's runtime and signals |
//! | [`heartbeat`] | what its supervisor hears of it |
//! | [`history`] | what it carried over the last hour, day and month, and what happened |
//! | [`wakeup`] | which timer of the core woke it |
//! | [`offload`] | what is left to the kernel |
//! | [`mark`] | its being the only one in a network namespace |

pub mod client_status;
pub mod core;
pub mod file;
pub mod format;
pub mod gaps;
pub mod heartbeat;
pub mod held;
pub mod history;
pub mod links;
#[cfg(target_os = "linux")]
pub mod mark;
pub mod offload;
pub mod patience;
pub mod proxies;
pub mod reload;
pub mod sandbox;
pub mod scheduling_status;
pub mod secrecy;
pub mod service;
pub mod status;
pub mod wakeup;
pub mod way;
pub mod writer;
