//! What tools and daemons say to each other: one request, one answer; of answers the largest is the one status document
//! for both roles ([`StatusReport`]).

mod devices;
mod flows;
mod forwards;
mod history;
mod limits;
mod links;
mod peers;
mod proxies;
mod reload;
mod routes;
mod speed;
mod status;

use std::time::Duration;

use serde::{Deserialize, Serialize};

use ropewalk_settings::Scheduling;

pub use devices::{
    DeviceLimitChange, DeviceLimitSettings, DeviceLimitStatus, DeviceStatus, DeviceTraffic,
    DevicesReport, DhcpState, LanStatus,
};
pub use flows::{FlowPart, FlowStatus, FlowWait, FlowsReport, PathStatus, RecentFlowStatus};
pub use forwards::{ForwardProtocol, ForwardState, ForwardStatus, ForwardTraffic, ForwardsReport};
pub use history::{
    DayUse, EventKind, HistoryEvent, HistoryQuery, HistoryReport, HistoryState, HistoryStatus,
    LinkPast, LinkUse, Past, Used,
};
pub use limits::LimitTimes;
pub use links::{LinkChange, LinkSettings};
pub use peers::{
    EnabledPeer, InviteWish, Invited, OpenInvitation, PeerOrigin, PeerStatus, PeersReport,
    RemovedPeer,
};
pub use proxies::{KnownProxy, ProxiesReport};
pub use reload::{KeyChange, ReloadReport};
pub use routes::{RoutesChange, RoutesReport, RuleStatus};
pub use speed::{
    LinkSpeed, Speed, SpeedPhaseProgress, SpeedTestReport, SpeedTestState, SpeedTestWish, SpeedWay,
    SumSpeed, TogetherSpeed,
};
pub use status::{
    AllowanceStatus, BackupDuty, ConntrackStatus, DaemonStatus, DatagramTraffic, FlowTableStatus,
    HandshakeCounters, KillSwitch, LinkSpending, LinkState, LinkStatus, LocalAckStatus, ModelLimit,
    ModelStatus, OffloadState, OffloadStatus, OutageCause, OutageStatus, OutagesStatus,
    PacketTraffic, PolicyStatus, PoolStatus, ProxyStatus, QueueStatus, RedundancyStatus,
    RegistryStatus, RepairStatus, ResequencerStatus, Role, STATUS_VERSION, SandboxState,
    SandboxStatus, SensedStatus, SessionStatus, ShareStatus, SpendingStatus, StallCounts,
    StallsStatus, StatusReport, TlsStatus, TunnelState, TunnelStatus, TunnelTrouble,
    TurnedAwayStatus,
};

/// What may be asked of a daemon.
#[derive(Clone, Debug, PartialEq)]
pub enum Request {
    /// `GET /v1/status`: how things are.
    Status,
    /// `GET /v1/scheduling`: how this end sends; with `?peer=NAME` (on a proxy) to this client.
    Scheduling {
        /// Its name; `None`: all that have no settings of their own.
        peer: Option<String>,
    },
    /// `PUT /v1/scheduling`: how this end sends from now on, until the daemon ends; with `?peer=NAME` (on a
    /// proxy) to this client only. It is checked before it comes here.
    SetScheduling {
        /// Its name; `None`: all, also those that had settings of their own.
        peer: Option<String>,
        /// The scheduler, its settings, and what is said of links.
        scheduling: Box<Scheduling>,
    },
    /// `GET /v1/flows`: which links carry each flow, and what it waits for; with `?peer=NAME` (on a
    /// proxy) towards this client, with `?limit=N` at most so many flows.
    Flows {
        /// Its name; `None`: the only one that there is.
        peer: Option<String>,
        /// Most flows of the answer, at most [`MAX_FLOWS`].
        limit: usize,
    },
    /// `GET /v1/forwards`: on a proxy, its ports that lead to clients.
    Forwards,
    /// `GET /v1/devices`: on a client, the devices behind it that use its tunnel.
    Devices,
    /// `PUT /v1/devices`: on a client, another limit of one of them from now on.
    LimitDevice(DeviceLimitChange),
    /// `GET /v1/history`: what was carried over the last hours and days, and what happened.
    History(HistoryQuery),
    /// `PUT /v1/links`: on a client, another setting of one link from now on.
    ChangeLink(LinkChange),
    /// `GET /v1/routes`: on a client, what goes through its tunnel, and what around it.
    Routes,
    /// `PUT /v1/routes`: on a client, other entries of one of the two lists from now on.
    ChangeRoutes(RoutesChange),
    /// `GET /v1/proxies`: on a client, the proxies that it knows.
    Proxies,
    /// `PUT /v1/proxies?use=NAME`: on a client, which of them may be used from now on.
    UseProxy {
        /// The ID, region or address of some, or `auto`.
        name: String,
    },
    /// `POST /v1/speedtest`: on a client, test how fast its links are. It goes on for as long as it is asked for again.
    StartSpeedTest(SpeedTestWish),
    /// `GET /v1/speedtest?id=ID`: how far that test came.
    SpeedTest {
        /// Which.
        id: u64,
    },
    /// `DELETE /v1/speedtest?id=ID`: it ends.
    EndSpeedTest {
        /// Which.
        id: u64,
    },
    /// `POST /v1/reload`: the config is read again, and what can be is made so.
    Reload,
    /// `GET /v1/peers`: who may connect to this proxy, and who is invited.
    Peers,
    /// `POST /v1/peers`: invite a client.
    Invite(InviteWish),
    /// `DELETE /v1/peers?name=NAME`: a client, or its invitation, is out from now on.
    RemovePeer {
        /// Its name.
        name: String,
    },
    /// `PUT /v1/peers?name=NAME&enabled=true` or `=false`: a client is let in again, or gets no session from now on.
    EnablePeer {
        /// Its name.
        name: String,
        /// Whether it is let in.
        enabled: bool,
    },
}

impl Request {
    /// How long a daemon may take to answer. Its loop turns every few milliseconds; a registry that several proxies share is asked at
    /// three members, one after the other, each of which has two seconds.
    #[must_use]
    pub const fn answer_time(&self) -> Duration {
        Duration::from_secs(match self {
            Self::Invite(_) | Self::RemovePeer { .. } | Self::EnablePeer { .. } => 8,
            _ => 2,
        })
    }
}

/// Most flows of one answer: a page of some hundred kilobytes, made in about a millisecond.
pub const MAX_FLOWS: usize = 4096;

/// Flows of an answer where nothing is said.
pub const DEFAULT_FLOWS: usize = 1000;

/// What a daemon answers.
#[derive(Clone, Debug, PartialEq)]
pub enum Response {
    /// To [`Request::Status`].
    Status(Box<StatusReport>),
    /// To [`Request::Scheduling`], and to [`Request::SetScheduling`] what is in force now.
    Scheduling(Box<Scheduling>),
    /// To [`Request::Flows`].
    Flows(Box<FlowsReport>),
    /// To [`Request::Forwards`].
    Forwards(Box<ForwardsReport>),
    /// To [`Request::Devices`].
    Devices(Box<DevicesReport>),
    /// To [`Request::LimitDevice`]: what holds for the device now.
    DeviceLimit(Box<DeviceLimitSettings>),
    /// To [`Request::History`].
    History(Box<HistoryReport>),
    /// To [`Request::ChangeLink`]: what holds for the link now.
    Link(Box<LinkSettings>),
    /// To [`Request::Routes`], and to [`Request::ChangeRoutes`] what holds now.
    Routes(Box<RoutesReport>),
    /// To [`Request::Proxies`], and to [`Request::UseProxy`] what holds now.
    Proxies(Box<ProxiesReport>),
    /// To [`Request::StartSpeedTest`], [`Request::SpeedTest`] and [`Request::EndSpeedTest`].
    SpeedTest(Box<SpeedTestReport>),
    /// To [`Request::Reload`].
    Reloaded(Box<ReloadReport>),
    /// To [`Request::Peers`].
    Peers(Box<PeersReport>),
    /// To [`Request::Invite`].
    Invited(Box<Invited>),
    /// To [`Request::RemovePeer`].
    Removed(Box<RemovedPeer>),
    /// To [`Request::EnablePeer`].
    Enabled(Box<EnabledPeer>),
}

/// Why a daemon does not answer a request as asked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{message}")]
pub struct ApiError {
    /// The kind, for programs.
    pub code: ErrorCode,
    /// What is wrong and what to do, for people.
    pub message: String,
}

impl ApiError {
    /// An error of this kind.
    pub fn new(code: ErrorCode, message: impl Into<String>) -> Self {
        Self { code, message: message.into() }
    }
}

/// The kinds of [`ApiError`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ErrorCode {
    /// The caller may not talk to this daemon.
    Forbidden,
    /// There is nothing at this path, or no peer of this name.
    NotFound,
    /// The request is too long or not understood.
    BadRequest,
    /// It was tried and did not work: a full disk, say.
    Failed,
    /// The daemon is busy, starting or stopping, and did not answer in time.
    Busy,
}
