//! Texts, and bytes with a right checksum, into the reader of invitations: what a person pastes into `ropewalk join`.

use std::time::{Duration, UNIX_EPOCH};

use blake2::Digest as _;
use ropewalk_control::invitation::{Invitation, MAX_ADDRESSES, PREFIX};

/// Letters of a line that may stand in a message; more of them could be the token.
const MOST_REPEATED: usize = 24;

/// Runs the target on one input: as a text, and as what a line holds.
pub fn run(data: &[u8]) {
    if let Ok(text) = std::str::from_utf8(data) {
        read(text);
        read(&format!("{PREFIX}{text}"));
    }
    let mut hash = blake2::Blake2s256::new();
    hash.update(b"ropewalk invitation");
    hash.update(data);
    let sum: [u8; 32] = hash.finalize().into();
    let packed = data_encoding::BASE32_NOPAD.encode(&[data, &sum[..4]].concat());
    read(&format!("{PREFIX}{packed}"));
}

/// Nothing panics; what is taken reads back as written, and what is refused is not repeated.
fn read(text: &str) {
    match text.parse::<Invitation>() {
        Ok(invitation) => {
            assert!((1..=MAX_ADDRESSES).contains(&invitation.addresses.len()));
            assert_eq!(invitation.to_line().parse().as_ref(), Ok(&invitation));
            assert_eq!(invitation.to_capitals().parse().as_ref(), Ok(&invitation));
            for seconds in [0, invitation.expires, u64::from(u32::MAX)] {
                let now = UNIX_EPOCH + Duration::from_secs(seconds);
                assert_eq!(invitation.check_expiry(now).is_ok(), seconds < invitation.expires);
            }
        }
        Err(error) => {
            let told = error.to_string();
            assert!(told.len() < 400, "{told}");
            let letters: Vec<char> = text.chars().collect();
            let repeated = letters.windows(MOST_REPEATED).any(|part| {
                let part: String = part.iter().collect();
                part.chars().all(|letter| letter.is_ascii_alphanumeric()) && told.contains(&part)
            });
            assert!(!repeated, "a line in a message: {told}");
        }
    }
}
