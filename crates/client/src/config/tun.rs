//! `[tun]` in `client.toml`: the TUN, and what goes into it.

use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use ropewalk_control::config::{ConfigError, Source};
use ropewalk_settings::{InterfaceName, Mtu, OneOrMany, Parsed, Selector, Side};
use serde::Deserialize;
use toml::Spanned;

use super::{Dns, TUN_NAME};

/// Most prefixes in `routes` and `exclude` together: the kernel asks its rules one after the other for each packet that
/// it routes, so there is room for 260, of which name servers take up to 12.
pub const MAX_PREFIXES: usize = 248;

/// Most entries in both that are no prefixes: they are asked one after the other for the first packet of each connection.
pub const MAX_RULES: usize = 64;

/// The TUN of the client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TunConfig {
    /// Its name.
    pub name: InterfaceName,
    /// Its MTU.
    pub mtu: Mtu,
    /// What goes into the tunnel. Empty: only what is bound to the TUN or the inner address.
    pub routes: Vec<Selector>,
    /// What of that does not.
    pub exclude: Vec<Selector>,
}

impl TunConfig {
    /// Whether all packets of a family that nothing else is said of go into the tunnel.
    #[must_use]
    pub fn routes_all(&self, is_ipv4: bool) -> bool {
        let mut prefixes = prefixes(&self.routes);
        prefixes.any(|net| net.prefix_len() == 0 && net.addr().is_ipv4() == is_ipv4)
    }
}

/// The prefixes of a list.
pub(crate) fn prefixes(list: &[Selector]) -> impl Iterator<Item = IpNet> {
    list.iter().filter_map(Selector::prefix)
}

/// What is wrong with the two lists together: in which one, and what.
pub(crate) fn check_lists(
    routes: &[Selector],
    exclude: &[Selector],
    dns: &Dns,
) -> Result<(), (Side, String)> {
    let (of_routes, of_exclude) = (prefixes(routes).count(), prefixes(exclude).count());
    let count = of_routes + of_exclude;
    // The longer one is the one to shorten.
    let longer = |inside, outside| if inside >= outside { Side::Inside } else { Side::Outside };
    if count > MAX_PREFIXES {
        let message = format!(
            "routes and exclude have {count} prefixes; at most {MAX_PREFIXES} are possible together"
        );
        return Err((longer(of_routes, of_exclude), message));
    }
    let (of_routes, of_exclude) = (routes.len() - of_routes, exclude.len() - of_exclude);
    let count = of_routes + of_exclude;
    if count > MAX_RULES {
        let message = format!(
            "routes and exclude have {count} entries that are no prefixes; at most {MAX_RULES} are possible together"
        );
        return Err((longer(of_routes, of_exclude), message));
    }
    let both = exclude.iter().find(|one| one.prefix().is_none() && routes.contains(one));
    if let Some(both) = both {
        return Err((Side::Outside, format!("`{both}` stands in routes and in exclude")));
    }
    let mut all = routes.iter().map(|one| (Side::Inside, one));
    let mut others = exclude.iter().map(|one| (Side::Outside, one));
    let is_domain = |(_, one): &(Side, &Selector)| one.is_by_domain();
    let domain = all.find(is_domain).or_else(|| others.find(is_domain));
    match domain {
        Some((side, domain)) if *dns == Dns::Untouched => Err((
            side,
            format!(
                "`{domain}` needs the answers of the name servers, which dns = \"none\" keeps from the client: write \
                 dns = \"proxy\", or addresses of name servers"
            ),
        )),
        Some(_) | None => Ok(()),
    }
}

/// As it stands in the file.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct TunFile {
    name: Option<Parsed<InterfaceName>>,
    mtu: Option<Mtu>,
    routes: Option<Spanned<OneOrMany<Selector>>>,
    exclude: Option<Spanned<OneOrMany<Selector>>>,
}

impl TunFile {
    /// What it means, with names looked up as `dns` says.
    pub(super) fn resolve(self, source: &Source, dns: &Dns) -> Result<TunConfig, ConfigError> {
        let everything = || {
            let all = [IpNet::V4(Ipv4Net::default()), IpNet::V6(Ipv6Net::default())];
            Vec::from(all.map(Selector::Prefix))
        };
        let name = match self.name {
            Some(Parsed(name)) => name,
            None => InterfaceName::new(TUN_NAME).expect("a valid name"),
        };
        let [of_routes, of_exclude] =
            [&self.routes, &self.exclude].map(|list| list.as_ref().map(Spanned::span));
        let routes = self.routes.map_or_else(everything, |list| list.into_inner().0);
        let exclude = self.exclude.map(|list| list.into_inner().0).unwrap_or_default();
        check_lists(&routes, &exclude, dns).map_err(|(side, message)| {
            let place = match side {
                Side::Inside => of_routes,
                Side::Outside => of_exclude,
            };
            source.error(place.unwrap_or_default(), &message)
        })?;
        Ok(TunConfig { name, mtu: self.mtu.unwrap_or(Mtu::Auto), routes, exclude })
    }
}
