//! Reading many keys, at one moment, in pages of a bounded length.
//!
//! For each page etcd looks at every key from the page's first to the end of the range, whatever its limit, as it tells how many there are
//! (`Revisions` of its `mvcc/index.go`). The pages of one range with a million keys would cost 500 million looks. So a folder with a
//! key for each client is divided into ranges of half a page: its keys are public keys in base64, which fall evenly.

use etcd_client::{GetOptions, KeyValue};

use crate::layout::Layout;
use crate::store::{Head, MAX_ANSWER_BYTES, Store, StoreError};

/// Keys of one page at most.
const PAGE: i64 = 1000;

/// Keys of one range of a folder, on average: half a page, so that hardly any range needs a second one.
const PART: u64 = 500;

/// The digits of base64 (RFC 4648 section 4) in the order of their bytes, which is that of etcd's keys.
const DIGITS: &[u8; 64] = b"+/0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

/// Ranges of a folder at most: three digits tell so many apart.
const MAX_PARTS: u64 = 1 << 18;

/// From the first key on, and before the second.
type Range = (Vec<u8>, Vec<u8>);

impl Store {
    /// All keys that begin so, at one moment.
    ///
    /// # Errors
    /// As all questions; or a value is too long.
    pub async fn list(&self, prefix: &str) -> Result<Vec<KeyValue>, StoreError> {
        let mut listed = Vec::new();
        let range = (prefix.as_bytes().to_vec(), after(prefix));
        self.pages(range, None, &mut |page| listed.extend(page)).await?;
        Ok(listed)
    }

    /// Shows all keys below the prefix, at one moment, to `take`, but those of names and addresses: what they say stands with their
    /// clients, too, and they would be two thirds of all. A large registry is never in memory as a whole.
    ///
    /// # Errors
    /// As all questions; or a value is too long.
    pub async fn read_all(&self, mut take: impl FnMut(&KeyValue)) -> Result<Head, StoreError> {
        let head = self.head().await?;
        let prefix = self.layout().prefix();
        let mut take = |page: Vec<KeyValue>| page.iter().for_each(&mut take);
        let mut begin = prefix.as_bytes().to_vec();
        for (folder, is_read) in Layout::OF_CLIENTS {
            let folder = format!("{prefix}{folder}");
            let between = (begin, folder.clone().into_bytes());
            self.pages(between, Some(head), &mut take).await?;
            if is_read {
                self.folder(&folder, head, &mut take).await?;
            }
            begin = after(&folder);
        }
        self.pages((begin, after(prefix)), Some(head), &mut take).await
    }

    /// Shows the keys of all clients, at one moment, to `take`.
    ///
    /// # Errors
    /// As all questions; or a value is too long.
    pub async fn read_clients(&self, mut take: impl FnMut(&KeyValue)) -> Result<(), StoreError> {
        let head = self.head().await?;
        let mut take = |page: Vec<KeyValue>| page.iter().for_each(&mut take);
        self.folder(&self.layout().clients(), head, &mut take).await
    }

    /// How many clients there are.
    ///
    /// # Errors
    /// As all questions.
    pub async fn count_clients(&self) -> Result<usize, StoreError> {
        let head = self.head().await?;
        let clients = self.count(&self.layout().clients(), head).await?;
        Ok(usize::try_from(clients).unwrap_or(usize::MAX))
    }

    /// Shows the keys of a folder that are public keys.
    async fn folder(
        &self,
        folder: &str,
        head: Head,
        take: &mut impl FnMut(Vec<KeyValue>),
    ) -> Result<(), StoreError> {
        let keys = self.count(folder, head).await?;
        for range in divided(folder, keys) {
            self.pages(range, Some(head), take).await?;
        }
        Ok(())
    }

    /// How many keys begin so.
    async fn count(&self, prefix: &str, head: Head) -> Result<u64, StoreError> {
        let answer = self.ask(|client| {
            let mut kv = client.kv_client();
            let options =
                GetOptions::new().with_prefix().with_count_only().with_revision(head.revision);
            async move { kv.get(prefix, Some(options)).await }
        });
        Ok(u64::try_from(answer.await?.count()).unwrap_or(0))
    }

    /// Shows the keys of a range, at one moment: at `head`, or now if none is said.
    async fn pages(
        &self,
        (begin, end): Range,
        mut head: Option<Head>,
        take: &mut impl FnMut(Vec<KeyValue>),
    ) -> Result<Head, StoreError> {
        let (mut from, mut page) = (begin, PAGE);
        loop {
            let (begin, end) = (from.clone(), end.clone());
            let revision = head.map_or(0, |head| head.revision);
            let answer = self.ask(move |client| {
                let mut kv = client.kv_client().max_decoding_message_size(MAX_ANSWER_BYTES);
                let options = GetOptions::new()
                    .with_range(end.clone())
                    .with_limit(page)
                    .with_revision(revision);
                let begin = begin.clone();
                async move { kv.get(begin, Some(options)).await }
            });
            let mut answer = match answer.await {
                Err(StoreError::TooLong(_)) if page > 1 => {
                    page = (page / 4).max(1);
                    continue;
                }
                answer => answer?,
            };
            let known = match head {
                Some(head) => head,
                None => *head.insert(self.head_of(&answer)?),
            };
            let (more, keys) = (answer.more(), answer.take_kvs());
            let next = keys.last().filter(|_| more).map(|last| [last.key(), &[0]].concat());
            take(keys);
            match next {
                Some(next) => from = next,
                None => return Ok(known),
            }
        }
    }
}

/// The ranges of a folder with so many keys that are public keys. Together they are the whole folder, whatever its keys are.
fn divided(folder: &str, keys: u64) -> impl Iterator<Item = Range> {
    let parts = keys.div_ceil(PART).clamp(1, MAX_PARTS);
    let bound = move |part: u64| match part {
        0 => folder.as_bytes().to_vec(),
        part if part < parts => [folder.as_bytes(), &digits(part * MAX_PARTS / parts)].concat(),
        _ => after(folder),
    };
    (0..parts).map(move |part| (bound(part), bound(part + 1)))
}

/// A number below [`MAX_PARTS`] in digits that are in the order of numbers.
fn digits(number: u64) -> [u8; 3] {
    [12, 6, 0].map(|shift| DIGITS[usize::try_from(number >> shift & 63).unwrap_or(0)])
}

/// The first key that no longer begins so.
fn after(prefix: &str) -> Vec<u8> {
    let mut end = prefix.as_bytes().to_vec();
    // A prefix ends in a slash.
    if let Some(last) = end.last_mut() {
        *last = last.saturating_add(1);
    }
    end
}

#[cfg(test)]
mod tests {
    use ropewalk_settings::PublicKey;

    use super::*;

    /// Keys as good as drawn (splitmix64).
    fn key(number: u64) -> PublicKey {
        let mut bytes = [0; 32];
        for (at, word) in (0..).zip(bytes.chunks_exact_mut(8)) {
            let mut drawn = (number * 4 + at + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            drawn = (drawn ^ drawn >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            drawn = (drawn ^ drawn >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
            word.copy_from_slice(&(drawn ^ drawn >> 31).to_le_bytes());
        }
        PublicKey::from_bytes(bytes)
    }

    #[test]
    fn the_ranges_of_a_folder_are_the_whole_folder_in_order() {
        let folder = "/ropewalk/clients/";
        for keys in [0, 1, 500, 501, 100_000, 1_000_000, u64::MAX / MAX_PARTS] {
            let ranges: Vec<_> = divided(folder, keys).collect();
            let parts = usize::try_from(keys.div_ceil(PART).clamp(1, MAX_PARTS)).unwrap();
            assert_eq!(ranges.len(), parts, "{keys}");
            assert_eq!(ranges[0].0, folder.as_bytes());
            assert_eq!(ranges[parts - 1].1, b"/ropewalk/clients0");
            assert!(ranges.windows(2).all(|two| two[0].1 == two[1].0), "{keys}");
            assert!(ranges.iter().all(|(begin, end)| begin < end), "{keys}");
        }
    }

    #[test]
    fn the_keys_of_clients_fall_evenly_so_that_each_range_is_a_page() {
        let layout = Layout::new("/ropewalk");
        let keys = 100_000;
        let ranges: Vec<_> = divided(&layout.clients(), keys).collect();
        let mut found = vec![0; ranges.len()];
        for number in 0..keys {
            let key = layout.client(&key(number)).into_bytes();
            let behind = ranges.partition_point(|(begin, _)| *begin <= key);
            assert!(ranges[behind - 1].1 > key);
            found[behind - 1] += 1;
        }
        let (least, most) = (found.iter().min(), found.iter().max());
        assert!(most < Some(&PAGE) && least > Some(&250), "{least:?} to {most:?} of 200 ranges");
    }
}
