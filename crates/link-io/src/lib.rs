//! Drivers of Ropewalk: TUN, UDP, netlink, and the one event loop.
//!
//! Everything of the system that a daemon touches stands here, behind few nouns:
//!
//! * [`clock`]: the only reader of the clock;
//! * [`cpu`]: what the processor can do;
//! * [`offload`]: whether work is left to the kernel;
//! * [`tun`]: inner packets, from and to the kernel (or a test);
//! * [`udp`]: outer datagrams, in batches in and out;
//! * [`counters`]: what the kernel counts on each interface (Linux);
//! * [`timer`]: one deadline, exact to about 0.1 ms;
//! * [`driver`]: the loop that carries bytes between those and a [`Driven`](driver::Driven);
//! * [`conntrack`], [`forwarding`], [`netlink`], [`nft`], [`sysctl`]: the kernel's network configuration (Linux).
//!
//! Linux runs today. What a kernel lacks (segmentation offload, large buffers) is found at run time
//! and worked around. Without what asks or changes the host's network the rest is what an app on Android needs: sockets
//! that [somebody else binds](udp::Bound::prepared), and [a TUN that somebody else opens](tun::InheritedTun).

pub mod clock;
#[cfg(target_os = "linux")]
pub mod conntrack;
#[cfg(target_os = "linux")]
pub mod counters;
pub mod cpu;
pub mod driver;
#[cfg(target_os = "linux")]
pub mod forwarding;
#[cfg(target_os = "linux")]
pub mod host;
mod moderation;
#[cfg(target_os = "linux")]
pub mod netlink;
#[cfg(target_os = "linux")]
pub mod nft;
pub mod offload;
#[cfg(target_os = "linux")]
pub mod sysctl;
pub mod timer;
pub mod tun;
pub mod udp;
