//! From a wish to an invitation: the same on a running proxy and beside one that does not run.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use ropewalk_control::api::{
    ApiError, EnabledPeer, ErrorCode, InviteWish, Invited, OpenInvitation, RemovedPeer,
};
use ropewalk_control::invitation::{Invitation, InvitingProxy, LIFETIMES, MAX_ADDRESSES};
use ropewalk_settings::{HostPort, InvitationToken, PublicKey, Text as _};

use crate::config::{Config, check_peer_name};
use crate::registry::peers_file::{Draft, PeersFile, RegistryError};

/// Addresses on the Internet, to ask the kernel which of this host's it would talk to them from. Nothing is sent.
const FAR: [SocketAddr; 2] = [
    SocketAddr::new(IpAddr::V4(Ipv4Addr::new(198, 41, 0, 4)), 53),
    SocketAddr::new(IpAddr::V6(Ipv6Addr::new(0x2001, 0x503, 0xba3e, 0, 0, 0, 2, 0x30)), 53),
];

/// The present, in seconds since 1970.
#[must_use]
pub fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

/// An invitation that nobody has yet.
#[derive(Debug)]
pub struct Prepared {
    /// What the client will be given.
    pub invitation: Invitation,
    notes: Vec<String>,
}

/// Makes an invitation. It is to be given to nobody before the registry knows it.
///
/// # Errors
/// The wish makes no sense.
pub fn prepare(config: &Config, wish: &InviteWish) -> Result<Prepared, ApiError> {
    check_peer_name(&wish.name).map_err(bad)?;
    let lifetime = Duration::from_secs(wish.lifetime_s);
    let (least, most) = LIFETIMES;
    if lifetime < least || lifetime > most {
        return Err(bad(format!(
            "an invitation holds for 1 minute to 365 days, not {} s",
            wish.lifetime_s
        )));
    }
    let mut notes = Vec::new();
    let addresses = addresses(config, &wish.addresses, &mut notes)?;
    let token = InvitationToken::generate().map_err(|error| {
        ApiError::new(ErrorCode::Failed, format!("the system gives no randomness: {error}"))
    })?;
    let expires = now().saturating_add(wish.lifetime_s);
    let public_key = config.private_key.public_key();
    let others = Vec::new();
    let invitation = Invitation { addresses, public_key, token, expires, others };
    Ok(Prepared { invitation, notes })
}

impl Prepared {
    /// The same, with other proxies that let the client in as well.
    #[must_use]
    pub fn with_others(mut self, others: Vec<InvitingProxy>) -> Self {
        self.invitation.others = others;
        self
    }

    /// The answer to who wanted it for `name`: what it replaces, and how many older ones are void by it.
    #[must_use]
    pub fn into_invited(
        mut self,
        name: &str,
        replaces: Option<PublicKey>,
        voided: usize,
    ) -> Invited {
        if voided > 0 {
            self.notes.push(format!("an older invitation for `{name}` is void"));
        }
        let invitation = &self.invitation;
        Invited {
            name: name.to_owned(),
            addresses: invitation.addresses.iter().map(HostPort::to_string).collect(),
            invitation: invitation.to_line().to_string(),
            expires: invitation.expires,
            proxy_public_key: invitation.public_key,
            replaces,
            notes: self.notes,
        }
    }
}

/// Drafts an invitation. It is to be given to nobody before the draft is written.
///
/// # Errors
/// The wish makes no sense, or it cannot be met.
pub fn invite(
    config: &Config,
    registry: &PeersFile,
    wish: &InviteWish,
) -> Result<(Invited, Draft), ApiError> {
    let prepared = prepare(config, wish)?;
    let bound = (&prepared.invitation.token, prepared.invitation.expires);
    let (noted, draft) = registry
        .invite(&wish.name, wish.again, bound, (&config.peers, config.max_peers, now()))
        .map_err(|error| refused(&error))?;
    Ok((prepared.into_invited(&wish.name, noted.replaces, noted.voided), draft))
}

/// Where clients find this proxy, as far as this host knows.
///
/// # Errors
/// It does not know.
pub fn public_addresses(config: &Config) -> Result<Vec<HostPort>, ApiError> {
    addresses(config, &[], &mut Vec::new())
}

/// Drafts the book without a client.
///
/// # Errors
/// It is not in it.
pub fn remove(
    config: &Config,
    registry: &PeersFile,
    name: &str,
) -> Result<(RemovedPeer, Draft), ApiError> {
    let (public_key, invitations, draft) =
        registry.remove(name, &config.peers).map_err(|error| refused(&error))?;
    Ok((RemovedPeer { name: name.to_owned(), public_key, invitations }, draft))
}

/// Drafts the book with a client that gets no session, or is let in again; without a draft it is so already.
///
/// # Errors
/// It is not in it.
pub fn enable(
    config: &Config,
    registry: &PeersFile,
    name: &str,
    enabled: bool,
) -> Result<(EnabledPeer, Option<Draft>), ApiError> {
    let drafted = registry.enable(name, enabled, &config.peers);
    let (public_key, draft) = drafted.map_err(|error| refused(&error))?;
    let changed = draft.is_some();
    Ok((EnabledPeer { name: name.to_owned(), public_key, enabled, changed }, draft))
}

/// The open invitations, as they are shown.
#[must_use]
pub fn invitations(registry: &PeersFile) -> Vec<OpenInvitation> {
    let now = now();
    let replaces = |name: &str| registry.members().iter().any(|member| member.name == name);
    let shown = registry.invitations().iter().map(|open| OpenInvitation {
        name: open.name.clone(),
        expires: open.expires,
        expired: open.expires <= now,
        replaces: replaces(&open.name),
    });
    shown.collect()
}

/// Where a client finds this proxy: as wished, else as the config says, else at the addresses from which this host
/// talks to the Internet.
fn addresses(
    config: &Config,
    wished: &[String],
    notes: &mut Vec<String>,
) -> Result<Vec<HostPort>, ApiError> {
    let wished: Result<Vec<_>, _> = wished.iter().map(|text| HostPort::from_text(text)).collect();
    let wished = wished.map_err(bad)?;
    if wished.len() > MAX_ADDRESSES {
        return Err(bad(format!("{} addresses; at most {MAX_ADDRESSES} fit", wished.len())));
    }
    if !wished.is_empty() {
        return Ok(wished);
    }
    if !config.public_addresses.is_empty() {
        return Ok(config.public_addresses.clone());
    }
    let found = match config.listen.ip() {
        ip if !ip.is_unspecified() => vec![ip],
        // An IPv4 socket hears no IPv6; "[::]" hears both.
        IpAddr::V4(_) => FAR[..1].iter().filter_map(local_address).collect(),
        IpAddr::V6(_) => FAR.iter().filter_map(local_address).collect(),
    };
    // Each address with the first port, then with the others: a client tries them in this order.
    let ports = std::iter::once(config.listen.port()).chain(config.more_ports.iter().copied());
    let found: Vec<_> = ports
        .flat_map(|port| found.iter().map(move |ip| SocketAddr::new(*ip, port)))
        .filter_map(|address| HostPort::from_text(&address.to_string()).ok())
        .take(MAX_ADDRESSES)
        .collect();
    if found.is_empty() {
        return Err(bad(
            "this host has no route to the Internet, so its address is not known: say --address HOST, or write \
             public_addresses into the proxy's config"
                .to_owned(),
        ));
    }
    for address in &found {
        let private = address.address().is_some_and(|address| is_private(address.ip()));
        if private {
            notes.push(format!(
                "{address} is a private address: clients elsewhere do not reach it; if this host stands behind a NAT, \
                 say --address HOST with its public one, or write public_addresses into the proxy's config"
            ));
        }
    }
    Ok(found)
}

/// The address from which this host talks to that one.
fn local_address(to: &SocketAddr) -> Option<IpAddr> {
    let any: IpAddr = match to {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let socket = UdpSocket::bind((any, 0)).ok()?;
    socket.connect(to).ok()?;
    let ip = socket.local_addr().ok()?.ip();
    (!ip.is_unspecified() && !ip.is_loopback()).then_some(ip)
}

/// Whether an address is not routed on the Internet: RFC 1918, RFC 6598, RFC 4193.
fn is_private(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => {
            let [a, b, ..] = ip.octets();
            ip.is_private() || (a == 100 && (64..128).contains(&b))
        }
        IpAddr::V6(ip) => ip.is_unique_local(),
    }
}

fn bad(message: String) -> ApiError {
    ApiError::new(ErrorCode::BadRequest, message)
}

/// How the book's error is told at the control socket.
#[must_use]
pub fn refused(error: &RegistryError) -> ApiError {
    let code = match error {
        RegistryError::Name(_) | RegistryError::Full(_) => ErrorCode::BadRequest,
        RegistryError::NoPeer(_) => ErrorCode::NotFound,
        RegistryError::Read { .. }
        | RegistryError::Write { .. }
        | RegistryError::Damaged { .. }
        | RegistryError::Newer { .. } => ErrorCode::Failed,
    };
    ApiError::new(code, error.to_string())
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use ropewalk_control::config::{ConfigFile as _, KeyFiles, Source};

    use super::*;

    fn config(text: &str) -> Config {
        let text =
            format!("private_key = \"AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQE=\"\n{text}");
        Config::parse(&Source::from_text(Path::new("proxy.toml"), &text, KeyFiles::Disk)).unwrap()
    }

    fn wish(addresses: &[&str], lifetime_s: u64) -> InviteWish {
        let addresses = addresses.iter().map(|&text| text.to_owned()).collect();
        InviteWish { name: "laptop".into(), again: false, lifetime_s, addresses }
    }

    fn made(config: &Config, wish: &InviteWish) -> Result<Invited, ApiError> {
        let folder = tempfile::tempdir().unwrap();
        let registry = PeersFile::open(folder.path().join("peers.json")).unwrap();
        invite(config, &registry, wish).map(|(invited, _)| invited)
    }

    #[test]
    fn an_invitation_says_where_the_proxy_is_by_the_nearest_word() {
        let said = "public_addresses = [\"vps.example.org\", \"203.0.113.7:443\"]";
        let table: [(&str, &[&str], &[&str]); 5] = [
            (
                "listen = \"192.0.2.5:4000\"\nmore_ports = [443, 53]",
                &[],
                &["192.0.2.5:4000", "192.0.2.5:443", "192.0.2.5:53"],
            ),
            (said, &["198.51.100.9:1000"], &["198.51.100.9:1000"]),
            (said, &[], &["vps.example.org:51900", "203.0.113.7:443"]),
            ("listen = \"192.0.2.5:4000\"", &[], &["192.0.2.5:4000"]),
            ("listen = \"[2001:db8::5]:4000\"", &[], &["[2001:db8::5]:4000"]),
        ];
        for (text, wished, expected) in table {
            let config = config(text);
            let invited = made(&config, &wish(wished, 3600)).unwrap();
            assert_eq!(invited.addresses, expected);
            let read: Invitation = invited.invitation.parse().unwrap();
            assert_eq!(read.public_key, config.private_key.public_key());
            assert_eq!(
                read.addresses.iter().map(HostPort::to_string).collect::<Vec<_>>(),
                expected
            );
            assert!(read.expires.abs_diff(now() + 3600) <= 5);
        }
    }

    #[test]
    fn a_private_address_is_told_of() {
        for (listen, private) in [("10.0.0.4", true), ("100.64.0.1", true), ("203.0.113.1", false)]
        {
            let config = config(&format!("listen = \"{listen}:51900\""));
            let notes = made(&config, &wish(&[], 60)).unwrap().notes;
            assert_eq!(
                notes.iter().any(|note| note.contains("private address")),
                private,
                "{listen}"
            );
        }
    }

    #[test]
    fn a_wish_that_makes_no_sense_is_refused() {
        let nine = vec!["a.example"; 9];
        let table: [(&[&str], u64, &str); 5] = [
            (&[], 59, "1 minute to 365 days"),
            (&[], 366 * 86_400, "1 minute to 365 days"),
            (&["0.0.0.0"], 60, "no machine's address"),
            (&["a b"], 60, "is not a host and a port"),
            (&nine, 60, "at most 8"),
        ];
        let config = config("listen = \"192.0.2.5:4000\"");
        for (addresses, lifetime_s, expected) in table {
            let error = made(&config, &wish(addresses, lifetime_s)).unwrap_err();
            assert_eq!(error.code, ErrorCode::BadRequest);
            assert!(error.message.contains(expected), "{error}");
        }
    }
}
