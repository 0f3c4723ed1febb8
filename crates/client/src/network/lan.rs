//! What the task that keeps the host's network does for the devices behind shared interfaces.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::Instant;

use ipnet::{IpNet, Ipv6Net};
use ropewalk_control::api::{DevicesReport, DhcpState, LanStatus};
use tokio::sync::oneshot;

use crate::config::ShareConfig;
use crate::devices::book::{Book, Shown};
use crate::devices::{Limited, limited};
use crate::host::linux::LinuxNetwork;
use crate::household::handle::Household;
use crate::household::lan::{self, Plan};
use crate::household::leases::Lease;
use crate::resolve::{RESOLV_CONF, name_servers};

/// Somebody who wants to know of the devices.
pub(crate) type DevicesAsked = oneshot::Sender<DevicesReport>;

/// What is done for them.
#[derive(Debug)]
pub(super) struct Lans {
    share: ShareConfig,
    /// Hands out addresses; `None` where the client was started with nothing shared.
    household: Option<Household>,
    /// What is to be served, and what cannot be.
    plan: Plan,
    book: Book,
}

/// What is wrong where there is nobody to hand out addresses.
const NO_HELPER: &str = "no addresses are handed out: the client was started with nothing shared, and has to be started \
                         again";

impl Lans {
    pub(super) fn new(share: ShareConfig, household: Option<Household>) -> Self {
        Self { share, household, plan: Plan::default(), book: Book::default() }
    }

    /// What the config says from now on.
    pub(super) fn set(&mut self, share: ShareConfig) {
        self.share = share;
    }

    /// The shared interfaces.
    pub(super) fn shared(&self) -> Vec<String> {
        self.share.interfaces.iter().map(ToString::to_string).collect()
    }

    /// Of the network that the proxy routes here, what is used: without somebody who tells the devices of it, it is of no use.
    pub(super) fn used(&self, prefix: Option<Ipv6Net>) -> Option<Ipv6Net> {
        prefix.filter(|_| self.share.dhcp && !self.share.interfaces.is_empty())
    }

    /// Which addresses they are to have, where the proxy routes `prefix` here.
    pub(super) fn addresses(&self, prefix: Option<Ipv6Net>) -> Vec<(String, IpNet)> {
        let names = || self.share.interfaces.iter().map(ToString::to_string);
        let v4 = self.share.address.map(IpNet::V4);
        let v4 = names().zip(v4);
        let prefix = self.used(prefix);
        let v6 = names().enumerate().filter_map(|(at, name)| {
            let part = prefix.and_then(|all| lan::part(all, at))?;
            Some((name, IpNet::V6(lan::router_of(part))))
        });
        v4.chain(v6).collect()
    }

    /// What the limits mean now.
    pub(super) fn limited(&self) -> Vec<Limited> {
        limited(&self.share.limits, &self.leases())
    }

    fn leases(&self) -> Vec<Lease> {
        self.household.as_ref().map(|house| house.report().leases).unwrap_or_default()
    }

    /// Who is asked for the devices: `servers`, or where there are none those of this machine. Before there is a tunnel it is
    /// nobody: the questions would go beside it, and what they are for could not follow.
    fn asked(
        &self,
        servers: &[IpAddr],
        has_tunnel: bool,
        of_machine: impl FnOnce() -> Vec<IpAddr>,
    ) -> Vec<IpAddr> {
        match servers {
            [] if self.share.dhcp && has_tunnel => of_machine(),
            servers => servers.to_vec(),
        }
    }

    /// Has addresses handed out, and names answered by asking `servers`, or where there are none those of this machine. What
    /// cannot be done, for people.
    pub(super) async fn apply(
        &mut self,
        host: &LinuxNetwork,
        servers: &[IpAddr],
        prefix: Option<Ipv6Net>,
        has_tunnel: bool,
    ) -> BTreeSet<String> {
        // Who hands out nothing has nothing looked up.
        let found = match self.share.dhcp {
            true => host.addresses_of(&self.shared()).await,
            false => Ok(BTreeMap::new()),
        };
        let found = match found {
            Ok(found) => found,
            Err(error) => return BTreeSet::from([error.to_string()]),
        };
        let asked = self.asked(servers, has_tunnel, || name_servers(&RESOLV_CONF));
        self.plan = lan::plan(&self.share, |name| found.get(name).cloned(), &asked, prefix);
        let mut problems: BTreeSet<String> = self.plan.problems.iter().cloned().collect();
        match &mut self.household {
            Some(household) => {
                household.set(self.plan.lans.clone()).await;
                problems.extend(household.problems());
            }
            None if self.plan.lans.is_empty() => {}
            None => {
                problems.insert(NO_HELPER.to_owned());
            }
        }
        problems
    }

    /// Waits until something else is handed out, or is no more.
    pub(super) async fn news(&mut self) {
        match &mut self.household {
            Some(household) => household.news().await,
            None => std::future::pending().await,
        }
    }

    /// The devices, and how it is behind each interface.
    pub(super) async fn report(&mut self, host: &LinuxNetwork) -> DevicesReport {
        let leases = self.leases();
        let sets = host.counted_devices().await;
        let Shown { devices, left_out, over } =
            self.book.look(Instant::now(), &sets, &leases, &self.share.limits);
        let lans = self.share.interfaces.iter().map(|name| {
            let leases = leases.iter().filter(|lease| lease.interface == name.as_str()).count();
            LanStatus { leases, ..self.lan(name.as_str()) }
        });
        let rates_over_s = over.map(|over| over.as_secs_f64());
        DevicesReport { lans: lans.collect(), devices, left_out, rates_over_s }
    }

    /// How it is behind an interface, but for the leases.
    fn lan(&self, interface: &str) -> LanStatus {
        let planned = self.plan.lans.iter().find(|lan| lan.interface == interface);
        let report = self.household.as_ref().map(Household::report).unwrap_or_default();
        let told = report.lans.into_iter().find(|lan| lan.interface == interface);
        let problem = self.plan.problems.iter().find(|problem| names(problem, interface));
        let (dhcp, trouble) = match (self.share.dhcp, planned, told) {
            (false, _, _) => (DhcpState::Off, None),
            (true, None, _) if problem.is_none() => (DhcpState::Starting, None),
            (true, None, _) => (DhcpState::Failed, problem.cloned()),
            (true, Some(_), _) if self.household.is_none() => {
                (DhcpState::Failed, Some(NO_HELPER.to_owned()))
            }
            (true, Some(_), None) => (DhcpState::Starting, None),
            (true, Some(_), Some(told)) if told.runs => (DhcpState::On, None),
            (true, Some(_), Some(told)) => (DhcpState::Failed, told.trouble),
        };
        LanStatus {
            interface: interface.to_owned(),
            dhcp,
            trouble,
            address: planned.map(|lan| lan.own),
            prefix: planned.and_then(|lan| lan.prefix),
            leases: 0,
        }
    }

    /// Nothing is handed out any more.
    pub(super) async fn end(&mut self) {
        if let Some(household) = self.household.take() {
            household.end().await;
        }
    }
}

/// Whether a sentence is about this interface.
fn names(problem: &str, interface: &str) -> bool {
    problem.contains(&format!(" on {interface}: "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use ropewalk_settings::InterfaceName;

    fn lans(interfaces: &[&str], dhcp: bool) -> Lans {
        let interfaces = interfaces.iter().map(|name| InterfaceName::new(name).unwrap()).collect();
        Lans::new(ShareConfig { interfaces, dhcp, ..ShareConfig::default() }, None)
    }

    #[test]
    fn interfaces_get_the_address_of_the_config_and_the_first_of_their_part_of_the_prefix() {
        let prefix = Some("2001:db8:1::/63".parse().unwrap());
        let mut one = lans(&["lan0"], true);
        one.share.address = Some("192.168.77.1/24".parse().unwrap());
        let told = |lans: &Lans, prefix| {
            let addresses = lans.addresses(prefix).into_iter();
            addresses.map(|(name, net)| format!("{name} {net}")).collect::<Vec<_>>()
        };
        assert_eq!(told(&one, None), ["lan0 192.168.77.1/24"]);
        assert_eq!(told(&one, prefix), ["lan0 192.168.77.1/24", "lan0 2001:db8:1::1/64"]);
        let three = lans(&["lan0", "lan1", "lan2"], true);
        let expected = ["lan0 2001:db8:1::1/64", "lan1 2001:db8:1:1::1/64"];
        assert_eq!(told(&three, prefix), expected, "there are two networks in it");
        assert_eq!(told(&lans(&["lan0"], false), prefix), [""; 0]);
        assert_eq!(lans(&[], true).used(prefix), None);
    }

    #[test]
    fn nobody_is_asked_for_the_devices_before_there_is_a_tunnel() {
        let [of_proxy, of_machine] =
            ["10.77.0.1", "192.168.10.1"].map(|ip| ip.parse::<IpAddr>().unwrap());
        let asked = |dhcp, servers: &[IpAddr], has_tunnel| {
            lans(&["lan0"], dhcp).asked(servers, has_tunnel, || vec![of_machine])
        };
        assert!(asked(true, &[], false).is_empty());
        assert_eq!(asked(true, &[], true), [of_machine]);
        assert_eq!(asked(true, &[of_proxy], true), [of_proxy]);
        assert!(asked(false, &[], true).is_empty());
    }

    #[test]
    fn each_interface_says_whether_addresses_are_handed_out_and_why_not() {
        let off = lans(&["lan0"], false);
        assert_eq!(off.lan("lan0").dhcp, DhcpState::Off);
        let mut failed = lans(&["lan0", "lan1"], true);
        failed.plan.problems.push("no addresses are handed out on lan0: why".to_owned());
        let status = failed.lan("lan0");
        assert_eq!(status.dhcp, DhcpState::Failed);
        assert_eq!(status.trouble.as_deref(), Some("no addresses are handed out on lan0: why"));
        assert_eq!(failed.lan("lan1").dhcp, DhcpState::Starting);
    }
}
