//! What may have been meant.

/// The valid name nearest to what was written, if one is near enough to be meant.
///
/// Near is one edit (insertion, deletion, replacement or exchange of neighbours) and one more for every
/// three characters; a longer distance suggests names that have nothing to do with it.
#[must_use]
pub fn nearest<'a>(written: &str, valid: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    const LONGEST: usize = 64;
    if written.len() > LONGEST {
        return None;
    }
    let written = written.to_lowercase();
    let near = 1 + written.chars().count() / 3;
    valid
        .into_iter()
        .map(|name| (strsim::damerau_levenshtein(&written, &name.to_lowercase()), name))
        .filter(|&(distance, _)| distance <= near)
        .min_by_key(|&(distance, _)| distance)
        .map(|(_, name)| name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_near_enough_are_suggested() {
        let valid = ["keepalive", "interface", "name", "enabled"];
        let cases = [
            ("keepaliv", Some("keepalive")),
            ("keep_alive", Some("keepalive")),
            ("KEEPALIVE", Some("keepalive")),
            ("nmae", Some("name")),
            ("interfaces", Some("interface")),
            ("zebra", None),
            ("", None),
        ];
        for (written, expected) in cases {
            assert_eq!(nearest(written, valid), expected, "{written}");
        }
        assert_eq!(nearest(&"x".repeat(1 << 20), valid), None);
    }
}
