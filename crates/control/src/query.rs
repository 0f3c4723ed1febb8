//! What stands behind the `?` of a path: names and values, percent-encoded (RFC 3986 §2.1).

use percent_encoding::{NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};

/// The path with these values behind it.
pub(crate) fn written(path: &str, values: &[(&str, Option<String>)]) -> String {
    let given = values.iter().filter_map(|(name, value)| Some((name, value.as_ref()?)));
    let encoded = given
        .map(|(name, value)| format!("{name}={}", utf8_percent_encode(value, NON_ALPHANUMERIC)));
    match encoded.collect::<Vec<_>>().join("&") {
        none if none.is_empty() => path.to_owned(),
        query => format!("{path}?{query}"),
    }
}

/// The values of these names.
///
/// # Errors
/// Another name, one that is there twice, or a value that is no text.
pub(crate) fn read<const N: usize>(
    query: Option<&str>,
    names: [&str; N],
) -> Result<[Option<String>; N], String> {
    let mut values = [const { None }; N];
    for part in query.unwrap_or_default().split('&').filter(|part| !part.is_empty()) {
        let (name, value) = part.split_once('=').unwrap_or((part, ""));
        let Some(place) = names.iter().position(|known| *known == name) else {
            let known = names.map(|name| format!("`{name}`")).join(", ");
            let name = name.escape_debug();
            return Err(format!("`{name}` has no meaning here: there may be {known}"));
        };
        let Ok(value) = percent_decode_str(value).decode_utf8() else {
            return Err(format!("the value of `{name}` is no text in UTF-8"));
        };
        if values[place].replace(value.into_owned()).is_some() {
            return Err(format!("`{name}` is there twice"));
        }
    }
    Ok(values)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_again() {
        for peer in ["laptop", "a b&c=d?e#f/%41", "Käthes Bus", "\u{1F68C}", ""] {
            let peer = Some(peer.to_owned());
            let uri = written("/v1/flows", &[("peer", peer.clone()), ("limit", None)]);
            assert!(uri.is_ascii() && !uri.contains(' '), "{uri}");
            let query = uri.split_once('?').map(|(_, query)| query);
            assert_eq!(read(query, ["limit", "peer"]), Ok([None, peer]));
        }
        assert_eq!(written("/v1/flows", &[("peer", None)]), "/v1/flows");
    }

    #[test]
    fn what_has_no_meaning_is_refused_with_what_has() {
        let table = [
            ("pear=a", "`pear` has no meaning here: there may be `peer`"),
            ("peer=a&peer=b", "`peer` is there twice"),
            ("peer=%ff", "no text in UTF-8"),
        ];
        for (query, expected) in table {
            let error = read(Some(query), ["peer"]).unwrap_err();
            assert!(error.contains(expected), "{query}: {error}");
        }
        assert_eq!(read(Some("&&peer=a&"), ["peer"]), Ok([Some("a".to_owned())]));
    }
}
