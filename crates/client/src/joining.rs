//! The config that `ropewalk join` writes: what a person may want to change, and no more.

use std::fmt::Write as _;

use ropewalk_control::invitation::{Invitation, InvitingProxy};
use ropewalk_settings::{HostPort, NamePattern};

/// What is said where every interface with a default route is a link.
const AUTO: &str = r##"# Which interfaces are links: "auto" takes each one with a default route, now and later.
links = "auto"
"##;

/// What is said where only some are.
const LISTED: &str = r##"# Which interfaces are links: those with a [[link]] below; "auto" would take each one with a default route.
links = "listed"
"##;

/// The config of a client that joins by this invitation, with the names of its key file and of the file that holds the
/// invitation, over these interfaces (none: all with a default route).
#[must_use]
pub fn config_text(
    invitation: &Invitation,
    (key_file, invitation_file): (&str, &str),
    interfaces: &[NamePattern],
) -> String {
    let select = if interfaces.is_empty() { AUTO } else { LISTED };
    let listed: String =
        interfaces.iter().map(|name| format!("\n[[link]]\ninterface = \"{name}\"\n")).collect();
    let addresses = address_list(&invitation.addresses);
    let others: String = invitation.others.iter().map(other_section).collect();
    let mut text = String::new();
    // Writing into a string does not fail.
    let _ = write!(
        text,
        r##"# Ropewalk client, written by `ropewalk join`.
#
# Here stands what you may want to change; every other key, with its default, is explained in the sample
# client.toml that comes with the program. Check a change with: ropewalk check-config FILE

# This machine's private key. It was made here and never leaves this machine.
private_key_file = {key_file:?}

{select}
[proxy]
# Where the proxy is; all of them are tried.
address = [{addresses}]
# The proxy's public key, by which this machine knows it again.
public_key = "{public_key}"
# What lets this machine in. The file is removed with the first connection; this line then says nothing.
invitation_file = {invitation_file:?}
{others}
[tun]
# What goes through the tunnel: everything. Your LAN stays reachable beside it.
routes = ["0.0.0.0/0", "::/0"]
# What does not, such as ["192.0.2.0/24"].
exclude = []

# Something to say of an interface? Take the "# " away, and repeat the section for others.
# [[link]]
# interface = "wwan0"
# name = "lte"           # how `ropewalk status` calls it
# metered = true         # bytes cost money here: when it is dead it is probed rarely
# use = "when-needed"    # only when the others have failed or are full; "backup": only when they have failed
# enabled = false        # do not use it
{listed}"##,
        public_key = invitation.public_key,
    );
    text
}

/// The inside of a TOML array.
fn address_list(addresses: &[HostPort]) -> String {
    addresses.iter().map(|address| format!("\"{address}\"")).collect::<Vec<_>>().join(", ")
}

/// The section of another proxy.
fn other_section(other: &InvitingProxy) -> String {
    format!(
        "\n# Another proxy of the same operator, for when the first one does not answer.\n[[proxy.other]]\n\
         address = [{}]\npublic_key = \"{}\"\n",
        address_list(&other.addresses),
        other.public_key
    )
}

#[cfg(test)]
mod tests {
    use ropewalk_settings::{InvitationToken, PrivateKey, Text as _};
    use std::collections::BTreeMap;
    use std::path::{Path, PathBuf};

    use ropewalk_control::config::{ConfigFile as _, KeyFiles, Source};

    use super::*;
    use crate::config::{Config, Select};

    fn invitation() -> Invitation {
        let addresses = ["203.0.113.7:51900", "[2001:db8::7]:443", "vps.example.org:51900"];
        Invitation {
            addresses: addresses.map(|text| HostPort::from_text(text).unwrap()).to_vec(),
            public_key: PrivateKey::generate().unwrap().public_key(),
            token: InvitationToken::from_bytes([7; 16]),
            expires: 1,
            others: Vec::new(),
        }
    }

    fn parse(
        invitation: &Invitation,
        pending: Option<&Invitation>,
        interfaces: &[NamePattern],
    ) -> Result<Config, String> {
        let text = config_text(invitation, ("my \"key\"", "an invitation"), interfaces);
        let key = PrivateKey::generate().unwrap().to_base64().to_string();
        let mut files = BTreeMap::from([(PathBuf::from("my \"key\""), key)]);
        if let Some(pending) = pending {
            files.insert("an invitation".into(), pending.to_line().to_string());
        }
        let source = Source::from_text(Path::new("client.toml"), &text, KeyFiles::Given(files));
        Config::parse(&source).map_err(|error| error.to_string())
    }

    #[test]
    fn what_is_written_means_what_the_invitation_says() {
        let invitation = invitation();
        let config = parse(&invitation, Some(&invitation), &[]).unwrap();
        assert_eq!(config.proxy.addresses, invitation.addresses);
        assert_eq!(config.proxy.public_key, invitation.public_key);
        assert_eq!(config.proxy.invitation.unwrap().token, invitation.token);
        assert_eq!(config.links.select, Select::Auto);
        assert_eq!(config.tun.routes.len(), 2);
        // Later, when it is used up.
        assert_eq!(parse(&invitation, None, &[]).unwrap().proxy.invitation, None);
    }

    #[test]
    fn other_proxies_of_the_invitation_are_others_of_the_config() {
        let mut invitation = invitation();
        let other = |addresses: &[&str]| InvitingProxy {
            addresses: addresses.iter().map(|text| HostPort::from_text(text).unwrap()).collect(),
            public_key: PrivateKey::generate().unwrap().public_key(),
        };
        invitation.others =
            vec![other(&["198.51.100.1:51900", "[2001:db8::1]:51900"]), other(&["a.example:443"])];
        let config = parse(&invitation, Some(&invitation), &[]).unwrap();
        let others = config.proxy.others.into_iter().map(|other| InvitingProxy {
            addresses: other.addresses,
            public_key: other.public_key,
        });
        assert_eq!(others.collect::<Vec<_>>(), invitation.others);
        assert_eq!(config.proxy.public_key, invitation.public_key);
        assert_eq!(config.tun.routes.len(), 2);
    }

    #[test]
    fn interfaces_that_are_named_are_the_links_and_no_others() {
        let names = ["wlan0", "wwan*"].map(|name| NamePattern::from_text(name).unwrap());
        let config = parse(&invitation(), None, &names).unwrap();
        assert_eq!(config.links.select, Select::Listed);
        let listed = config.links.listed.iter().map(|link| link.interface.clone());
        assert_eq!(listed.collect::<Vec<_>>(), names);
    }

    #[test]
    fn an_invitation_of_another_proxy_is_refused() {
        let error = parse(&invitation(), Some(&invitation()), &[]).unwrap_err();
        assert!(error.contains("another proxy's"), "{error}");
    }
}
