//! Super packets: what the kernel and we exchange over a TUN with `IFF_VNET_HDR`.
//!
//! Up to 64 KiB of one flow pass in one system call, with a header that says how they are parted ([`header`]). What is
//! read is parted where it lies ([`split`]); what is written is joined before ([`coalesce`]). All three are pure.

pub mod coalesce;
pub mod header;
pub mod split;

#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;
