//! Texts into the parsers of both config files.

use std::path::Path;

use ropewalk_control::config::{ConfigFile as _, KeyFiles, Source};

/// A private key, for every file that could be named.
const KEY: &str = "AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQE=";

/// Runs the target on one input.
pub fn run(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    if let Err(error) = ropewalk_client::config::Config::parse(&source("client.toml", text)) {
        told("client.toml", &error.to_string());
    }
    if let Err(error) = ropewalk_proxy::config::Config::parse(&source("proxy.toml", text)) {
        told("proxy.toml", &error.to_string());
    }
}

fn source(name: &str, text: &str) -> Source {
    let keys = [
        "client.key",
        "proxy.key",
        "/etc/ropewalk/client/client.key",
        "/etc/ropewalk/proxy/proxy.key",
    ];
    let keys = keys.map(|name| (name.into(), KEY.to_owned())).into();
    Source::from_text(Path::new(name), text, KeyFiles::Given(keys))
}

/// A mistake names the file, and does not print a key.
fn told(file: &str, error: &str) {
    assert!(error.contains(file), "no place: {error}");
    assert!(!error.contains(KEY), "a key in an error: {error}");
}
