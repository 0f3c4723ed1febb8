//! Routing rules (`ip rule`): which table a packet is looked up in.

use std::fmt;
use std::net::IpAddr;

use futures_util::TryStreamExt;
use ipnet::IpNet;
use rtnetlink::IpVersion;
use rtnetlink::packet_route::AddressFamily;
use rtnetlink::packet_route::route::RouteProtocol;
use rtnetlink::packet_route::rule::{RuleAction as KernelAction, RuleAttribute, RuleMessage};

use super::error::{or_gone, or_present};
use super::{Family, Netlink, NetlinkError};

/// One rule. Rules are asked in the order of their priority; the first whose table has an answer decides.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Rule {
    /// The packets it is for.
    pub family: Family,
    /// Its place: smaller is asked first.
    pub priority: u32,
    /// Only packets whose mark, under the mask, has this value: `(value, mask)`.
    pub mark: Option<(u32, u32)>,
    /// Only packets with a source in this prefix; none for all.
    pub from: Option<IpNet>,
    /// Only packets with a destination in this prefix; none for all.
    pub to: Option<IpNet>,
    /// Only packets of sockets bound to this interface.
    pub oif: Option<String>,
    /// What happens to them.
    pub action: RuleAction,
    /// Who made it.
    pub protocol: u8,
}

/// What a rule does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RuleAction {
    /// Looks the packet up in a table.
    Lookup {
        /// The table.
        table: u32,
        /// Ignores an answer whose prefix is of this length or shorter: with 0, everything but the default route.
        suppress: Option<u8>,
    },
    /// Answers with "unreachable".
    Unreachable,
}

/// What the kernel writes for "no suppression": -1.
const NOT_SUPPRESSED: u32 = u32::MAX;

impl Netlink {
    /// All rules of this protocol number, sorted.
    ///
    /// # Errors
    /// When the kernel's answer fails or cannot be understood.
    pub async fn rules_of(&self, protocol: u8) -> Result<Vec<Rule>, NetlinkError> {
        let mut found = Vec::new();
        for (family, version) in [(Family::V4, IpVersion::V4), (Family::V6, IpVersion::V6)] {
            let list: Result<Vec<_>, _> =
                self.handle.rule().get(version).execute().try_collect().await;
            let list =
                list.map_err(|error| NetlinkError::during("list the routing rules", &error))?;
            let rules = list.iter().filter_map(|message| rule_of(family, message));
            found.extend(rules.filter(|rule| rule.protocol == protocol));
        }
        found.sort();
        Ok(found)
    }

    /// Adds a rule; one that is there already is fine.
    ///
    /// # Errors
    /// When the kernel does not know a part of it, or the right is missing.
    pub async fn add_rule(&self, rule: &Rule) -> Result<(), NetlinkError> {
        let mut request = self.handle.rule().add();
        *request.message_mut() = message_of(rule);
        let done = request.execute().await;
        or_present(
            done.map_err(|error| NetlinkError::during(format!("add the rule {rule}"), &error)),
        )
    }

    /// Removes a rule; one that is gone is fine.
    ///
    /// # Errors
    /// When the right is missing.
    pub async fn remove_rule(&self, rule: &Rule) -> Result<(), NetlinkError> {
        let done = self.handle.rule().del(message_of(rule)).execute().await;
        or_gone(
            done.map_err(|error| NetlinkError::during(format!("remove the rule {rule}"), &error)),
        )
    }
}

fn message_of(rule: &Rule) -> RuleMessage {
    let mut message = RuleMessage::default();
    message.header.family = match rule.family {
        Family::V4 => AddressFamily::Inet,
        Family::V6 => AddressFamily::Inet6,
    };
    let attributes = &mut message.attributes;
    attributes.push(RuleAttribute::Priority(rule.priority));
    attributes.push(RuleAttribute::Protocol(RouteProtocol::from(rule.protocol)));
    if let Some((value, mask)) = rule.mark {
        attributes.push(RuleAttribute::FwMark(value));
        attributes.push(RuleAttribute::FwMask(mask));
    }
    if let Some(from) = selective(rule.from) {
        message.header.src_len = from.prefix_len();
        attributes.push(RuleAttribute::Source(from.network()));
    }
    if let Some(to) = selective(rule.to) {
        message.header.dst_len = to.prefix_len();
        attributes.push(RuleAttribute::Destination(to.network()));
    }
    if let Some(oif) = &rule.oif {
        attributes.push(RuleAttribute::Oifname(oif.clone()));
    }
    match rule.action {
        RuleAction::Lookup { table, suppress } => {
            message.header.action = KernelAction::ToTable;
            attributes.push(RuleAttribute::Table(table));
            if let Some(length) = suppress {
                attributes.push(RuleAttribute::SuppressPrefixLen(length.into()));
            }
        }
        RuleAction::Unreachable => message.header.action = KernelAction::Unreachable,
    }
    message
}

/// A prefix of length 0 selects everything, which the kernel writes as no prefix at all.
fn selective(net: Option<IpNet>) -> Option<IpNet> {
    net.filter(|net| net.prefix_len() > 0)
}

fn rule_of(family: Family, message: &RuleMessage) -> Option<Rule> {
    let header = &message.header;
    let (mut mark, mut mask, mut suppress) = (0, 0, NOT_SUPPRESSED);
    let mut table = u32::from(header.table);
    let mut rule = Rule {
        family,
        priority: 0,
        mark: None,
        from: None,
        to: None,
        oif: None,
        action: RuleAction::Unreachable,
        protocol: 0,
    };
    let net = |address: IpAddr, length| IpNet::new(address, length).ok();
    for attribute in &message.attributes {
        match attribute {
            RuleAttribute::Priority(value) => rule.priority = *value,
            RuleAttribute::Protocol(value) => rule.protocol = u8::from(*value),
            RuleAttribute::FwMark(value) => mark = *value,
            RuleAttribute::FwMask(value) => mask = *value,
            RuleAttribute::Source(address) => rule.from = net(*address, header.src_len),
            RuleAttribute::Destination(address) => rule.to = net(*address, header.dst_len),
            RuleAttribute::Oifname(name) => rule.oif = Some(name.clone()),
            RuleAttribute::Table(value) => table = *value,
            RuleAttribute::SuppressPrefixLen(value) => suppress = *value,
            _ => {}
        }
    }
    if mask != 0 {
        rule.mark = Some((mark, mask));
    }
    rule.action = match header.action {
        KernelAction::ToTable => {
            RuleAction::Lookup { table, suppress: u8::try_from(suppress).ok() }
        }
        KernelAction::Unreachable => RuleAction::Unreachable,
        _ => return None,
    };
    Some(rule)
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:", self.priority)?;
        if let Some((value, mask)) = self.mark {
            write!(f, " mark {value:#x}/{mask:#x}")?;
        }
        if let Some(from) = self.from {
            write!(f, " from {from}")?;
        }
        if let Some(to) = self.to {
            write!(f, " to {to}")?;
        }
        if let Some(oif) = &self.oif {
            write!(f, " bound to {oif}")?;
        }
        match self.action {
            RuleAction::Lookup { table, suppress: None } => write!(f, " lookup {table}"),
            RuleAction::Lookup { table, suppress: Some(length) } => {
                write!(f, " lookup {table} longer than /{length}")
            }
            RuleAction::Unreachable => write!(f, " unreachable"),
        }
    }
}
