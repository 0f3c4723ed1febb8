//! The lines between the client and its helper: one JSON value each.
//!
//! | from | line | when |
//! | --- | --- | --- |
//! | client | [`Wish`]: all that is to be served | whenever that changes |
//! | helper | [`Report`]: how it is, and what is lent | whenever that changes |

use std::io;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tokio::io::{
    AsyncBufRead, AsyncBufReadExt as _, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _,
};

use super::lan::Lan;
use super::leases::Lease;

/// Bytes of the longest line: all leases of sixteen interfaces, with a name each.
const MAX_LINE: u64 = 4 << 20;

/// All that is to be served from now on.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Wish {
    /// The interfaces, each once.
    pub lans: Vec<Lan>,
}

/// How it is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Report {
    /// The interfaces that are to be served.
    pub lans: Vec<LanReport>,
    /// What is lent there.
    pub leases: Vec<Lease>,
}

/// How it is at one interface.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LanReport {
    /// The interface.
    pub interface: String,
    /// Whether it is served now.
    pub runs: bool,
    /// Why not, or why it was not a moment ago, for people.
    pub trouble: Option<String>,
}

/// Writes one line.
///
/// # Errors
/// The other end is gone.
pub async fn write(to: &mut (impl AsyncWrite + Unpin), value: &impl Serialize) -> io::Result<()> {
    let mut line = serde_json::to_vec(value)?;
    line.push(b'\n');
    to.write_all(&line).await
}

/// Reads one line; `None`: the other end is gone.
///
/// # Errors
/// It is too long, or is not understood.
pub async fn read<T: DeserializeOwned>(
    from: &mut (impl AsyncBufRead + Unpin),
) -> io::Result<Option<T>> {
    let mut line = Vec::new();
    from.take(MAX_LINE).read_until(b'\n', &mut line).await?;
    match line.last() {
        None => Ok(None),
        Some(b'\n') => Ok(Some(serde_json::from_slice(&line)?)),
        Some(_) => Err(io::ErrorKind::InvalidData.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::household::lan::testing;
    use tokio::io::{BufReader, duplex};

    #[tokio::test]
    async fn a_line_reads_back_as_written_and_the_end_is_told_from_a_part_of_one() {
        let lan = Lan {
            servers: vec!["fd77::1".parse().unwrap()],
            prefix: Some("2001:db8::/64".parse().unwrap()),
            ..testing::lan()
        };
        let wish = Wish { lans: vec![lan] };
        let (mut near, far) = duplex(1 << 16);
        let mut far = BufReader::new(far);
        for _ in 0..2 {
            write(&mut near, &wish).await.unwrap();
            assert_eq!(read(&mut far).await.unwrap(), Some(wish.clone()));
        }
        near.write_all(b"{\"lans\":[]").await.unwrap();
        drop(near);
        assert!(read::<Wish>(&mut far).await.is_err());
        let mut nobody = &b""[..];
        assert_eq!(read::<Wish>(&mut nobody).await.unwrap(), None);
    }

    #[tokio::test]
    async fn what_is_not_understood_is_an_error() {
        let lacking = "{\"lans\":[{\"interface\":\"lan0\"}]}\n";
        for line in ["\n", "[]\n", "{\"lans\":[],\"more\":1}\n", lacking] {
            let mut from = line.as_bytes();
            assert!(read::<Wish>(&mut from).await.is_err(), "{line}");
        }
    }
}
