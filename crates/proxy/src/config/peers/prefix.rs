//! `prefix_v6` of a `[[peer]]`: the IPv6 network behind a client.

use std::collections::BTreeMap;
use std::net::Ipv6Addr;

use ipnet::{IpNet, Ipv6Net};
use ropewalk_control::config::{ConfigError, Source};
use ropewalk_proto::wire::hello::parameters::NETWORK_BITS;
use ropewalk_settings::Parsed;
use toml::Spanned;

use crate::pool::{Pools, overlap, reserved};

/// The networks of the peers so far, by their first addresses, and whose each is. No two have an address in common.
#[derive(Default)]
pub(super) struct Networks(BTreeMap<Ipv6Addr, (Ipv6Net, String)>);

impl Networks {
    /// What stands in the section of the peer of this name.
    pub(super) fn resolve(
        &mut self,
        source: &Source,
        said: Option<&Spanned<Parsed<Ipv6Net>>>,
        name: &str,
        pools: &Pools,
    ) -> Result<Option<Ipv6Net>, ConfigError> {
        let Some(said) = said else { return Ok(None) };
        let network = said.get_ref().0;
        self.check(network, pools).map_err(|message| source.error(said.span(), &message))?;
        self.0.insert(network.network(), (network, name.to_owned()));
        Ok(Some(network))
    }

    fn check(&self, network: Ipv6Net, pools: &Pools) -> Result<(), String> {
        let (least, most) = (*NETWORK_BITS.start(), *NETWORK_BITS.end());
        if !NETWORK_BITS.contains(&network.prefix_len()) {
            return Err(format!("the network behind a client is a /{least} to a /{most}"));
        }
        if let Some((prefix, meaning)) = reserved(network.into()) {
            return Err(format!("{network} overlaps {prefix}, which is {meaning}"));
        }
        // RFC 4193 section 4.1.
        if network.addr().is_unique_local() {
            return Err(format!(
                "{network} is a unique local prefix, which nobody routes on the Internet: write one that the \
                 provider routes here"
            ));
        }
        let Some(pool) = pools.v6() else {
            return Err("pool_v6 is off: clients get no IPv6".to_owned());
        };
        if overlap(IpNet::V6(pool), IpNet::V6(network)) {
            return Err(format!("{network} overlaps pool_v6, which is \"{pool}\""));
        }
        match self.overlapping(network) {
            Some((known, owner)) => Err(format!("{network} overlaps {known}, that of `{owner}`")),
            None => Ok(()),
        }
    }

    fn overlapping(&self, network: Ipv6Net) -> Option<&(Ipv6Net, String)> {
        let within = self.0.range(network.network()..=network.broadcast()).next();
        let around = self.0.range(..network.network()).next_back();
        let around = around.filter(|(_, (known, _))| known.contains(&network.network()));
        within.or(around).map(|(_, known)| known)
    }
}
