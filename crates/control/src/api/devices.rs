//! The devices behind a client that shares its tunnel.

use std::fmt;
use std::net::IpAddr;
use std::path::PathBuf;

use ipnet::{Ipv4Net, Ipv6Net};
use ropewalk_settings::{DeviceSelector, MacAddress};
use serde::{Deserialize, Serialize};

/// All of them, as far as they are known.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct DevicesReport {
    /// The interfaces behind which they are.
    pub lans: Vec<LanStatus>,
    /// The devices, those with the most traffic first.
    pub devices: Vec<DeviceStatus>,
    /// Devices beyond those that are shown.
    #[serde(default)]
    pub left_out: usize,
    /// The time over which the rates are; absent where they are not known yet: ask again after a second.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rates_over_s: Option<f64>,
}

/// A shared interface.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LanStatus {
    /// Its name.
    pub interface: String,
    /// Whether addresses are handed out there.
    pub dhcp: DhcpState,
    /// Why not, where they should be.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trouble: Option<String>,
    /// Its own address, where addresses are handed out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<Ipv4Net>,
    /// The IPv6 network of its devices that the proxy routes here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prefix: Option<Ipv6Net>,
    /// Addresses that are lent now.
    #[serde(default)]
    pub leases: usize,
}

/// Whether a client hands out addresses behind an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DhcpState {
    /// The config says no.
    Off,
    /// It is being started, or is to be.
    Starting,
    /// It does.
    On,
    /// It should, and does not.
    Failed,
}

impl fmt::Display for DhcpState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Off => "off",
            Self::Starting => "starting",
            Self::On => "on",
            Self::Failed => "failed",
        })
    }
}

/// One device.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct DeviceStatus {
    /// How it calls itself when it asks for an address, in small letters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Its hardware address; absent where it is not known, and on the page of `web`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mac: Option<MacAddress>,
    /// Its addresses.
    pub addresses: Vec<IpAddr>,
    /// The interface behind which it is, where it was lent an address there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interface: Option<String>,
    /// What was forwarded to it.
    pub down: DeviceTraffic,
    /// What was forwarded from it.
    pub up: DeviceTraffic,
    /// The limit that holds for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<DeviceLimitStatus>,
}

/// What was forwarded one way, since the client's start, and no longer ago than a day after the device's last packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct DeviceTraffic {
    /// Bits per second now; absent where that is not known yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate_bps: Option<f64>,
    /// Packets in all.
    pub packets: u64,
    /// Their bytes, from the IP header on.
    pub bytes: u64,
}

/// How much a device may have.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceLimitStatus {
    /// How the limit names it; absent on the page of `web`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device: Option<DeviceSelector>,
    /// The most that comes to it, bit/s.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub down_bps: Option<u64>,
    /// The most that it sends through the tunnel, bit/s.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub up_bps: Option<u64>,
}

/// Another limit of a device from now on, until the client ends or reads its config again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DeviceLimitChange {
    /// Which device.
    pub device: DeviceSelector,
    /// The most that comes to it, such as `5 Mbit/s`; `off` for as much as there is; absent: as it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub down: Option<String>,
    /// The same for what it sends.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub up: Option<String>,
}

/// What holds for a device then.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceLimitSettings {
    /// The config file of the client, in which it can be made to last.
    #[serde(default)]
    pub file: PathBuf,
    /// The limit; absent where there is none any more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<DeviceLimitStatus>,
    /// Whether a device is known now that it means.
    pub is_known: bool,
}
