//! The kill switch: a firewall table of its own.

use ipnet::IpNet;
use ropewalk_link_io::netlink::Netlink;
use ropewalk_link_io::nft::{Table, is_plain_name};
use ropewalk_settings::Side;
use rustix::process::geteuid;

use super::LinuxNetwork;
use crate::host::Desired;
use crate::lock::{self, Lock};
use crate::routes::{MARK_MASK, Numbers};

impl LinuxNetwork {
    /// From now on nothing leaves outside the tunnel; what a crashed client locked is taken over.
    ///
    /// # Errors
    /// When `nft` or the right is missing, or `nft` refuses: then it is as it was.
    pub async fn lock(&mut self, tun: &str) -> anyhow::Result<()> {
        anyhow::ensure!(
            is_plain_name(tun),
            "the interface name {tun:?} cannot be used in firewall rules"
        );
        let table = Table::new(&self.numbers.lock);
        let lock = self.lock.insert(Locked { table, tun: tun.to_owned() });
        lock.apply(&self.netlink, &self.numbers, &Desired::default()).await?;
        Ok(())
    }

    /// The same before anything else is taken hold of.
    ///
    /// # Errors
    /// As [`LinuxNetwork::lock`].
    pub async fn lock_alone(numbers: Numbers, tun: &str) -> anyhow::Result<()> {
        let table = Table::new(&numbers.firewall);
        Self::untouched(numbers, table)?.lock(tun).await
    }

    /// Packets leave as they do without a client; also after a crashed one.
    ///
    /// # Errors
    /// When the right is missing or `nft` refuses.
    pub async fn unlock(&mut self) -> anyhow::Result<()> {
        self.lock = None;
        Table::new(&self.numbers.lock).remove().await?;
        Ok(())
    }
}

/// The kill switch.
#[derive(Debug)]
pub(super) struct Locked {
    table: Table,
    tun: String,
}

impl Locked {
    /// Lets out what may leave now; returns whether that changed something.
    pub(super) async fn apply(
        &mut self,
        netlink: &Netlink,
        numbers: &Numbers,
        desired: &Desired,
    ) -> anyhow::Result<bool> {
        let interfaces = netlink.interfaces().await?;
        let others = interfaces.iter().filter(|one| one.name != self.tun && !one.loopback);
        let connected: Vec<IpNet> =
            others.flat_map(|one| &one.addresses).map(|address| address.net).collect();
        let askers = match desired.asked.as_slice() {
            [] => Vec::new(),
            _ => {
                let passwd = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
                lock::askers(geteuid().as_raw(), &passwd)
            }
        };
        let outside = desired.rules.iter().filter(|rule| rule.side == Side::Outside);
        let let_out: Vec<u32> = outside.map(|rule| rule.mark(numbers)).collect();
        // Hosts behind this machine get their answers, whatever kind of addresses they have.
        let behind = desired.prefix.map(IpNet::V6);
        let excluded: Vec<IpNet> = desired.excluded.iter().copied().chain(behind).collect();
        let leads_in = desired.rules.iter().any(|rule| rule.side == Side::Inside);
        let chains = lock::chains(&Lock {
            tun: &self.tun,
            mark: (numbers.mark, MARK_MASK),
            connected: &connected,
            excluded: &excluded,
            asked: &desired.asked,
            askers: &askers,
            proxy: &desired.proxy,
            let_out: &let_out,
            inside: leads_in.then(|| numbers.mark_of_side(Side::Inside)),
            tls_port: desired.tls_port,
        });
        Ok(self.table.apply(&chains).await?)
    }
}
