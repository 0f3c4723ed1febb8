//! What a person may set of Ropewalk: each setting once, with its name, unit, range, default and written form.
//!
//! The protocol core, the config files, the control API, the lab and the experiments use these types themselves, so that
//! a setting cannot mean one thing here and another there. This crate knows none of them, and no runtime or socket.
//!
//! | part | its one concern |
//! | --- | --- |
//! | `tunnel`, `resequencer` | how an end sends and receives ([`TunnelSettings`]) |
//! | `section` | the same as it is written ([`TunnelSection`]) |
//! | `scheduling`, `schedulers` | which link takes the next packet |
//! | `redundant` | which packets go over two links at once |
//! | `link`, `cost`, `terms` | what is said of a link, and what that means to an end |
//! | `words` | how an end sends, for people |
//! | [`figures`] | rates and amounts as people read them |
//! | `text` | from text to value |
//! | `bitrate`, `data`, `keepalive`, `mtu` | values with a unit |
//! | `interface`, [`pattern`], `host` | names and addresses |
//! | `sandbox` | whether a daemon gives up what it does not need |
//! | [`selector`] | what goes through a client's tunnel: by addresses, programs, users, names |
//! | `tls` | when a link goes over TLS |
//! | `history` | for how long a daemon remembers what it carried |
//! | `speed_tests` | how much of a proxy its clients may use up with speed tests |
//! | `keys` | the keys of an end, and the token of an invitation |

mod bitrate;
mod cost;
mod data;
mod error;
pub mod figures;
mod history;
mod host;
mod interface;
mod keepalive;
mod keys;
mod link;
mod mtu;
mod nearest;
pub mod pattern;
mod policy;
mod profile;
mod redundant;
mod resequencer;
mod sandbox;
mod schedulers;
mod scheduling;
mod section;
pub mod selector;
mod speed_tests;
mod terms;
mod text;
mod tls;
mod tunnel;
mod words;

pub use bitrate::Bitrate;
pub use cost::{Cost, Importance};
pub use data::DataSize;
pub use error::SettingError;
pub use history::{HistoryDays, HistorySection};
pub use host::{DEFAULT_PORT, HostPort, is_name_server, unusable};
pub use interface::{InterfaceName, shortened};
pub use keepalive::Keepalive;
pub use keys::{
    INVITATION_TOKEN_LEN, InvitationToken, KEY_LEN, KeyError, LowOrder, PresharedKey, PrivateKey,
    PublicKey,
};
pub use link::{Direction, LinkTerms, Usage};
pub use mtu::Mtu;
pub use nearest::nearest;
pub use pattern::NamePattern;
pub use policy::LinkPolicy;
pub use profile::Profile;
pub use redundant::{Network, PortRange, Redundant};
pub use resequencer::{Release, Resequencer};
pub use sandbox::Sandbox;
pub use schedulers::{
    BatcpSettings, Count, Formula, NatalieSettings, SafireSettings, SchedulerKind, Weights,
    WhenFull,
};
pub use scheduling::Scheduling;
pub use section::{ControllerName, RedundantSection, ResequencerSection, TunnelSection};
pub use selector::{Selector, Side, User};
pub use speed_tests::SpeedTests;
pub use terms::Terms;
pub use text::{OneOrMany, Parsed, Text};
pub use tls::{DEFAULT_TLS_PORT, TlsUse};
pub use tunnel::{
    Acknowledge, Cipher, ControllerKind, Offload, Order, Switch, TunnelSettings, WhenClosed,
};
