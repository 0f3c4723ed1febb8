//! One own nftables table, replaced as a whole.
//!
//! All rules of this program stand in one table of the `inet` family, so they are put in place, replaced and removed in one
//! atomic transaction, and no rule of anybody else is ever touched. The table is written in nft's own language and applied
//! by the `nft` program: what the documentation shows, what an operator reads with `nft list table inet ropewalk_client`, and
//! what is applied here are the same text. Only the own table is read back; those of others may use expressions that this
//! version of `nft` cannot print as JSON.
//!
//! What must be remembered beyond a crash (settings that were switched and must be switched back) is kept in a named set
//! inside the table: like the settings themselves it lives in the network namespace and ends with the machine.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use tokio::io::AsyncWriteExt;
use tokio::process::Command;

/// Why the table could not be read or changed.
#[derive(Debug, thiserror::Error)]
pub enum NftError {
    /// The `nft` program is not there.
    #[error(
        "the program `nft` was not found ({program}): install the package nftables \
         (Debian, Ubuntu: apt install nftables)"
    )]
    Missing {
        /// What was looked for.
        program: String,
    },
    /// The `nft` program may not be started.
    #[error(
        "cannot start `nft` ({program}): {source}; where an upgrade replaced it while this daemon ran, its sandbox knows \
         the old one only: restart the daemon"
    )]
    Closed {
        /// What was to be started.
        program: String,
        /// What the system said.
        source: std::io::Error,
    },
    /// The right is missing.
    #[error(
        "cannot {what}: the capability CAP_NET_ADMIN is missing (run as root, or give the service \
         AmbientCapabilities=CAP_NET_ADMIN)"
    )]
    Permission {
        /// What was tried.
        what: String,
    },
    /// `nft` refused; its own words follow.
    #[error("cannot {what}: nft says: {said}")]
    Refused {
        /// What was tried.
        what: String,
        /// What `nft` wrote, shortened.
        said: String,
    },
    /// `nft` did not end in time.
    #[error("cannot {what}: nft did not answer within {} s", PATIENCE.as_secs())]
    Slow {
        /// What was tried.
        what: String,
    },
    /// `nft` could not be started or spoken to.
    #[error("cannot {what}: {source}")]
    Io {
        /// What was tried.
        what: String,
        /// What the system said.
        source: std::io::Error,
    },
    /// `nft` answered something else than was asked.
    #[error("cannot {what}: the answer of nft cannot be understood: {why}")]
    Answer {
        /// What was tried.
        what: String,
        /// What was wrong.
        why: String,
    },
}

/// A transaction takes milliseconds; one that waits for a lock this long is stuck, and the daemon must go on.
const PATIENCE: Duration = Duration::from_secs(10);

/// More than any message of `nft` that helps; the rest repeats the rules.
const MAX_SAID: usize = 500;

/// Where packages put `nft`; a user's PATH often lacks these.
const USUAL_PLACES: [&str; 2] = ["/usr/sbin/nft", "/sbin/nft"];

/// Whether a name may stand in quotes in the table. The kernel allows nearly every byte in an interface's name, but in
/// nft's language a quote ends the string and a trailing `*` matches every interface that begins so.
#[must_use]
pub fn is_plain_name(name: &str) -> bool {
    !name.is_empty()
        && name.len() <= 15
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-@+=~".contains(&byte))
}

/// The one table of the `inet` family that this program owns.
#[derive(Debug)]
pub struct Table {
    name: String,
    program: OsString,
    applied: Option<Applied>,
}

/// What a named counter of the table has seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Count {
    /// Packets.
    pub packets: u64,
    /// Their bytes, with the headers of IP.
    pub bytes: u64,
}

/// An element of a set of the table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Element {
    /// Its value; of a concatenation each part of it. Numbers are decimal.
    pub parts: Vec<String>,
    /// What it counted, where elements of the set count.
    pub count: Option<Count>,
}

/// What was applied last, and how the kernel showed it right afterwards.
#[derive(Debug)]
struct Applied {
    body: String,
    listing: String,
}

impl Table {
    /// A handle on the table of this name (letters, digits, underscores). Does nothing yet.
    #[must_use]
    pub fn new(name: &str) -> Self {
        debug_assert!(name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_'));
        Self { name: name.to_owned(), program: find_nft(), applied: None }
    }

    /// The same with another program in the place of `nft`.
    #[must_use]
    pub fn with_program(mut self, program: impl Into<OsString>) -> Self {
        self.program = program.into();
        self
    }

    /// The table's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether this body is what was applied last. It says nothing of what others did since.
    #[must_use]
    pub fn has_applied(&self, body: &str) -> bool {
        self.applied.as_ref().is_some_and(|applied| applied.body == body)
    }

    /// Puts the table in place with this body (what stands between its braces), or replaces it, in one transaction.
    /// Returns whether anything was done: a table that still stands as it was applied is left alone.
    ///
    /// # Errors
    /// When `nft` is missing, the right is missing, or `nft` refuses the rules. The old table stands unchanged then.
    pub async fn apply(&mut self, body: &str) -> Result<bool, NftError> {
        if self.stands(body).await? {
            return Ok(false);
        }
        self.replace(body, "").await?;
        Ok(true)
    }

    /// Whether the table was applied with this body, and still stands so.
    ///
    /// # Errors
    /// When `nft` or the right is missing.
    pub async fn stands(&self, body: &str) -> Result<bool, NftError> {
        match &self.applied {
            Some(applied) if applied.body == body => {
                Ok(self.listing().await?.as_ref() == Some(&applied.listing))
            }
            Some(_) | None => Ok(false),
        }
    }

    /// Puts the table in place with this body, whatever stands there, and carries out `further` commands of `nft` in the same
    /// transaction: elements of the table's dynamic sets, which are no part of what [`Table::stands`] compares.
    ///
    /// # Errors
    /// As [`Table::apply`].
    pub async fn replace(&mut self, body: &str, further: &str) -> Result<(), NftError> {
        let name = &self.name;
        // The first line makes sure that there is something to delete; all of it is one transaction.
        let script = format!(
            "table inet {name}\ndelete table inet {name}\ntable inet {name} {{\n{body}\n}}\n{further}"
        );
        self.run(&["-f", "-"], Some(&script), "set the firewall rules").await?;
        self.applied =
            self.listing().await?.map(|listing| Applied { body: body.to_owned(), listing });
        Ok(())
    }

    /// Carries out commands of `nft` in one transaction: elements of the table's dynamic sets that come and go.
    ///
    /// # Errors
    /// When `nft` or the right is missing, or it refuses one of them: then none is carried out.
    pub async fn change(&self, commands: &str) -> Result<(), NftError> {
        self.run(&["-f", "-"], Some(commands), "change a set of the firewall rules").await?;
        Ok(())
    }

    /// Whether `nft` and the kernel would take a table with this body. Nothing is changed.
    ///
    /// # Errors
    /// Why not.
    pub async fn check(&self, body: &str) -> Result<(), NftError> {
        let script = format!("table inet {} {{\n{body}\n}}\n", self.name);
        self.run(&["--check", "-f", "-"], Some(&script), "check the firewall rules").await?;
        Ok(())
    }

    /// Removes the table. Returns whether there was one: where `nft` is missing there is none.
    ///
    /// # Errors
    /// When the right is missing, or `nft` refuses.
    pub async fn remove(&mut self) -> Result<bool, NftError> {
        self.applied = None;
        let script = format!("delete table inet {}\n", self.name);
        match self.run(&["-f", "-"], Some(&script), "remove the firewall rules").await {
            Ok(_) => Ok(true),
            Err(NftError::Refused { said, .. }) if is_absent(&said) => Ok(false),
            Err(NftError::Missing { .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// The table as `nft` shows it, without counters and what rules put into its sets; `None` if there is none.
    ///
    /// # Errors
    /// When `nft` or the right is missing.
    pub async fn listing(&self) -> Result<Option<String>, NftError> {
        let what = "read the firewall rules";
        let arguments = ["-s", "list", "table", "inet", &self.name];
        let listing = absent_is_none(self.run(&arguments, None, what).await)?;
        Ok(listing.map(|listing| without_dynamic_elements(&listing)))
    }

    /// The elements of a named set of the table; empty if there is no such set or table.
    ///
    /// # Errors
    /// When `nft` or the right is missing, or the answer is no JSON.
    pub async fn set_elements(&self, set: &str) -> Result<Vec<String>, NftError> {
        let elements = self.elements(set).await?;
        Ok(elements.iter().filter_map(|element| element.as_str()).map(str::to_owned).collect())
    }

    /// The numbers of a named set of the table as ranges, each with its first and last; empty if there is no such set or table.
    /// An element that is no number of 16 bits is left out.
    ///
    /// # Errors
    /// As [`Table::set_elements`].
    pub async fn set_ranges(&self, set: &str) -> Result<Vec<(u16, u16)>, NftError> {
        let elements = self.elements(set).await?;
        Ok(elements.iter().filter_map(range).collect())
    }

    async fn elements(&self, set: &str) -> Result<Vec<serde_json::Value>, NftError> {
        let what = "read a set of the firewall rules";
        let answer = self.run(&["-j", "list", "set", "inet", &self.name, set], None, what).await;
        let Some(answer) = absent_is_none(answer)? else { return Ok(Vec::new()) };
        let json: serde_json::Value = serde_json::from_str(&answer)
            .map_err(|error| NftError::Answer { what: what.to_owned(), why: error.to_string() })?;
        let objects = json["nftables"].as_array().into_iter().flatten();
        let elements = objects.filter_map(|object| object["set"]["elem"].as_array()).flatten();
        Ok(elements.cloned().collect())
    }

    /// The elements of all sets of the table, by the name of the set; empty if there is no such table.
    ///
    /// # Errors
    /// As [`Table::set_elements`].
    pub async fn sets(&self) -> Result<BTreeMap<String, Vec<Element>>, NftError> {
        let what = "read the sets of the firewall rules";
        let arguments = ["-j", "list", "sets", "table", "inet", &self.name];
        let Some(answer) = absent_is_none(self.run(&arguments, None, what).await)? else {
            return Ok(BTreeMap::new());
        };
        let json: serde_json::Value = serde_json::from_str(&answer)
            .map_err(|error| NftError::Answer { what: what.to_owned(), why: error.to_string() })?;
        let objects = json["nftables"].as_array().into_iter().flatten();
        // Some versions list the sets of all tables.
        let sets = objects.map(|object| &object["set"]).filter(|set| set["table"] == self.name[..]);
        let sets = sets.filter_map(|set| {
            let elements = set["elem"].as_array().into_iter().flatten();
            Some((set["name"].as_str()?.to_owned(), elements.filter_map(element).collect()))
        });
        Ok(sets.collect())
    }

    /// What the table's named counters have seen since the table was put in place, by name; empty if there is no such table.
    ///
    /// # Errors
    /// When `nft` or the right is missing, or the answer is no JSON.
    pub async fn counters(&self) -> Result<BTreeMap<String, Count>, NftError> {
        let what = "read the counters of the firewall rules";
        let arguments = ["-j", "list", "counters", "table", "inet", &self.name];
        let Some(answer) = absent_is_none(self.run(&arguments, None, what).await)? else {
            return Ok(BTreeMap::new());
        };
        let json: serde_json::Value = serde_json::from_str(&answer)
            .map_err(|error| NftError::Answer { what: what.to_owned(), why: error.to_string() })?;
        let objects = json["nftables"].as_array().into_iter().flatten();
        let counters = objects.map(|object| &object["counter"]).filter_map(|counter| {
            let (packets, bytes) = (counter["packets"].as_u64()?, counter["bytes"].as_u64()?);
            Some((counter["name"].as_str()?.to_owned(), Count { packets, bytes }))
        });
        Ok(counters.collect())
    }

    /// Chains of *other* tables that hook into forwarding and drop by default, as `family table chain`: where one
    /// stands (Docker makes one), packets need its permission too, whatever our table says.
    ///
    /// # Errors
    /// When `nft` or the right is missing, or the answer is no JSON.
    pub async fn foreign_forward_drops(&self) -> Result<Vec<String>, NftError> {
        let what = "list the chains of the firewall";
        let answer = self.run(&["-j", "list", "chains"], None, what).await?;
        let json: serde_json::Value = serde_json::from_str(&answer)
            .map_err(|error| NftError::Answer { what: what.to_owned(), why: error.to_string() })?;
        let chains = json["nftables"].as_array().into_iter().flatten();
        let chains = chains.map(|object| &object["chain"]).filter(|chain| {
            chain["hook"] == "forward"
                && chain["policy"] == "drop"
                && chain["table"] != self.name[..]
        });
        let word = |value: &serde_json::Value| value.as_str().unwrap_or("?").to_owned();
        Ok(chains
            .map(|chain| [&chain["family"], &chain["table"], &chain["name"]].map(word).join(" "))
            .collect())
    }

    /// All rules of all tables as JSON, with the handles by which they can be named.
    ///
    /// # Errors
    /// When `nft` or the right is missing, or it cannot print them: some may be of a newer one.
    pub async fn ruleset(&self) -> Result<String, NftError> {
        self.run(&["-j", "-a", "list", "ruleset"], None, "list the rules of the firewall").await
    }

    async fn run(
        &self,
        arguments: &[&str],
        input: Option<&str>,
        what: &str,
    ) -> Result<String, NftError> {
        let io = |source| NftError::Io { what: what.to_owned(), source };
        let mut command = Command::new(&self.program);
        command.args(arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
        command.stdin(if input.is_some() { Stdio::piped() } else { Stdio::null() });
        let mut child = command.spawn().map_err(|source| {
            let program = self.program.to_string_lossy().into_owned();
            match source.kind() {
                std::io::ErrorKind::NotFound => NftError::Missing { program },
                std::io::ErrorKind::PermissionDenied => NftError::Closed { program, source },
                _ => io(source),
            }
        })?;
        if let (Some(text), Some(mut pipe)) = (input, child.stdin.take()) {
            // `nft` reads all of its input before it writes, so this cannot block against its output. A broken pipe
            // means that it ended early; its exit code and words tell why.
            match pipe.write_all(text.as_bytes()).await {
                Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
                    return Err(io(error));
                }
                _ => {}
            }
        }
        let output = tokio::time::timeout(PATIENCE, child.wait_with_output())
            .await
            .map_err(|_| NftError::Slow { what: what.to_owned() })?
            .map_err(io)?;
        if output.status.success() {
            return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
        }
        Err(refusal(what, &String::from_utf8_lossy(&output.stderr)))
    }
}

/// An element of a set of numbers: one, or a range.
fn range(element: &serde_json::Value) -> Option<(u16, u16)> {
    let number = |value: &serde_json::Value| u16::try_from(value.as_u64()?).ok();
    match element["range"].as_array().map(Vec::as_slice) {
        Some([first, last]) => number(first).zip(number(last)),
        _ => number(element).map(|one| (one, one)),
    }
}

/// An element of a set as JSON has it: a value, or a value with what it counted.
fn element(json: &serde_json::Value) -> Option<Element> {
    let inner = &json["elem"];
    let value = if inner.is_object() { &inner["val"] } else { json };
    let part = |value: &serde_json::Value| match value {
        serde_json::Value::String(text) => Some(text.clone()),
        serde_json::Value::Number(number) => Some(number.to_string()),
        _ => None,
    };
    let parts = match value["concat"].as_array() {
        Some(parts) => parts.iter().map(part).collect::<Option<Vec<_>>>()?,
        None => vec![part(value)?],
    };
    let counter = &inner["counter"];
    let count = counter["packets"].as_u64().zip(counter["bytes"].as_u64());
    Some(Element { parts, count: count.map(|(packets, bytes)| Count { packets, bytes }) })
}

/// A listing without the elements of sets that rules fill themselves: packets change them at any time.
fn without_dynamic_elements(listing: &str) -> String {
    let mut kept = String::with_capacity(listing.len());
    let (mut dynamic, mut in_elements) = (false, false);
    for line in listing.lines() {
        let word = line.trim();
        if word.starts_with("set ") {
            dynamic = false;
        } else if word.starts_with("flags ") && word.contains("dynamic") {
            dynamic = true;
        } else if dynamic && word.starts_with("elements = ") {
            in_elements = true;
        }
        if !in_elements {
            kept.push_str(line);
            kept.push('\n');
        }
        in_elements &= !word.ends_with('}');
    }
    kept
}

fn find_nft() -> OsString {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let in_path = std::env::split_paths(&path).any(|folder| folder.join("nft").is_file());
    let usual = USUAL_PLACES.iter().find(|place| Path::new(place).is_file());
    match usual {
        Some(place) if !in_path => place.into(),
        _ => "nft".into(),
    }
}

fn refusal(what: &str, said: &str) -> NftError {
    let what = what.to_owned();
    if said.contains("Operation not permitted") {
        return NftError::Permission { what };
    }
    let said: String = said.trim().chars().take(MAX_SAID).collect();
    NftError::Refused { what, said }
}

fn is_absent(said: &str) -> bool {
    said.contains("No such file or directory")
}

fn absent_is_none(answer: Result<String, NftError>) -> Result<Option<String>, NftError> {
    match answer {
        Ok(text) => Ok(Some(text)),
        Err(NftError::Refused { said, .. }) if is_absent(&said) => Ok(None),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_that_mean_themselves_in_a_rule_are_plain() {
        for name in ["wan1", "wlp0s20f3", "eth0.100", "ppp0", "br-lan", "usb0@x", "veth_1"] {
            assert!(is_plain_name(name), "{name}");
        }
        for name in ["", "wan*", "a\"b", "a b", "a{b", "a\\b", "überwan", "0123456789abcdef"] {
            assert!(!is_plain_name(name), "{name}");
        }
    }

    #[test]
    fn a_missing_right_is_named_and_other_refusals_are_quoted() {
        let error = refusal(
            "set the rules",
            "netlink: Error: cache initialization failed: Operation not permitted",
        );
        assert!(error.to_string().contains("CAP_NET_ADMIN"), "{error}");
        let error = refusal("set the rules", "  Error: syntax error, unexpected junk\n");
        assert_eq!(
            error.to_string(),
            "cannot set the rules: nft says: Error: syntax error, unexpected junk"
        );
    }

    #[test]
    fn what_packets_put_into_sets_is_not_compared_and_what_we_put_there_is() {
        let dynamic = "\tset counted {\n\t\ttype ipv4_addr\n\t\tflags dynamic,timeout\n";
        let elements =
            "\t\telements = { 10.0.0.1 ct count over 5 ,\n\t\t\t     10.0.0.2 ct count over 5  }\n";
        let ours = "\tset ours {\n\t\ttype ifname\n\t\telements = { \"wan1\",\n\t\t\t     \"wan2\" }\n\t}\n";
        let with = format!("table inet t {{\n{dynamic}{elements}\t}}\n\n{ours}}}\n");
        let without = format!("table inet t {{\n{dynamic}\t}}\n\n{ours}}}\n");
        assert_eq!(without_dynamic_elements(&with), without);
        assert_eq!(without_dynamic_elements(&without), without);
    }

    #[test]
    fn the_elements_of_a_set_of_numbers_are_read_as_nft_writes_them() {
        for (element, expected) in [
            (serde_json::json!(8443), Some((8443, 8443))),
            (serde_json::json!({ "range": [5000, 5010] }), Some((5000, 5010))),
            (serde_json::json!(70000), None),
            (serde_json::json!({ "range": [5000] }), None),
            (serde_json::json!("http"), None),
        ] {
            assert_eq!(range(&element), expected, "{element}");
        }
    }

    #[test]
    fn elements_are_read_with_their_parts_and_what_they_counted() {
        let count = Some(Count { packets: 5, bytes: 600 });
        for (json, parts, count) in [
            (serde_json::json!("10.0.0.5"), Some(vec!["10.0.0.5"]), None),
            (
                serde_json::json!({ "concat": ["lan0", "10.0.0.1", 24] }),
                Some(vec!["lan0", "10.0.0.1", "24"]),
                None,
            ),
            (
                serde_json::json!({ "elem": {
                    "val": { "concat": ["52:54:00:00:00:01", "10.0.0.5"] },
                    "expires": 86399,
                    "counter": { "packets": 5, "bytes": 600 }
                } }),
                Some(vec!["52:54:00:00:00:01", "10.0.0.5"]),
                count,
            ),
            (serde_json::json!({ "elem": { "val": "10.0.0.5" } }), Some(vec!["10.0.0.5"]), None),
            (serde_json::json!({ "prefix": { "addr": "10.0.0.0", "len": 8 } }), None, None),
            (serde_json::json!(null), None, None),
        ] {
            let read = element(&json);
            let expected = parts.map(|parts| Element {
                parts: parts.into_iter().map(str::to_owned).collect(),
                count,
            });
            assert_eq!(read, expected, "{json}");
        }
    }

    #[tokio::test]
    async fn an_nft_that_may_not_be_started_is_told_with_its_remedy() {
        let mut table = Table::new("ropewalk_test").with_program("/");
        let error = table.apply("").await.unwrap_err().to_string();
        assert!(error.contains("restart the daemon"), "{error}");
    }

    #[tokio::test]
    async fn a_missing_nft_is_told_with_its_remedy_and_made_no_table() {
        let mut table = Table::new("ropewalk_test").with_program("/nowhere/nft");
        assert!(!table.remove().await.unwrap(), "there is none to remove");
        for error in [table.apply("").await.unwrap_err(), table.listing().await.unwrap_err()] {
            let text = error.to_string();
            assert!(
                text.contains("apt install nftables") && text.contains("/nowhere/nft"),
                "{text}"
            );
        }
    }
}
