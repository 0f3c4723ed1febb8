//! IPv4 and IPv6 inside, IPv4 and IPv6 outside: each combination carries a download.

use std::time::Duration;

use super::{Finding, Proof, Trial, arrived, lateness, network};
use crate::address::{PROXY_V4, PROXY_V6, client_interface};
use crate::demo::LINKS;
use crate::deployment::PROXY_PORT;
use crate::error::LabError;
use crate::stage::Stage;

pub(super) const PROOF: Proof = Proof {
    name: "both",
    shows: "IPv4 and IPv6 inside, over IPv4 and IPv6 outside",
    seconds: 25,
    run,
};

const SEED: u64 = 7;
const LIMIT: Duration = Duration::from_secs(30);

fn run(trial: &Trial<'_>) -> Result<Vec<Finding>, LabError> {
    let bytes = trial.either(3_000_000, 300_000);
    let mut stage = Stage::build(trial.program, &network(&LINKS))?;
    stage.start_proxy()?;
    let mut findings = Vec::new();
    for (outside, address) in [
        ("IPv4", format!("{PROXY_V4}:{PROXY_PORT}")),
        ("IPv6", format!("[{PROXY_V6}]:{PROXY_PORT}")),
    ] {
        if let Some(proxy) = stage.deployment().client_config(0)["proxy"].as_table_mut() {
            proxy.insert("address".into(), address.clone().into());
        }
        let status = stage.connect([0, 1])?;
        let remote = status.link(&client_interface(0)).map(|link| link["remote"].clone());
        let remote = remote.as_ref().and_then(|remote| remote.as_str()).unwrap_or_default();
        findings.push(Finding::holds(
            format!("outside {outside}: the proxy"),
            remote == address,
            remote,
            address,
        ));
        let inside = [("IPv4", Some(stage.url(bytes, SEED))), ("IPv6", stage.url_v6(bytes, SEED))];
        for (inside, url) in inside {
            let what = format!("{inside} inside {outside}");
            let Some(url) = url else {
                return Err(LabError::Unsupported("a network without IPv6".into()));
            };
            let download = stage.fetch(&url, LIMIT, &what, trial)?;
            findings.push(arrived(what.clone(), &download, bytes, SEED));
            findings.push(Finding::told(what, download.mbit, "Mbit/s"));
        }
    }
    findings.push(lateness(&stage)?);
    Ok(findings)
}
