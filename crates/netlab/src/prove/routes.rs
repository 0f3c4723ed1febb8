//! Routes that a network hands out (DHCP's option 121, route information of router advertisements) lead nothing past the
//! tunnel, unless the user excludes them.

use std::net::{IpAddr, SocketAddr, TcpStream, UdpSocket};
use std::thread;
use std::time::Duration;

use super::look::{access, until};
use super::{Finding, Proof, Trial};
use crate::address::{SERVER_V4, SERVER_V6, gateway_v4, gateway_v6, router_lan};
use crate::capture::Capture;
use crate::error::LabError;
use crate::http::body_sha256;
use crate::namespace::Namespace;
use crate::stage::{Progress as _, Stage};
use crate::topology::TopologyConfig;

/// Routes of a hostile network.
pub(super) const ROUTES: Proof = Proof {
    name: "routes",
    shows: "routes that a network hands out lead nothing past the tunnel unless they are excluded",
    seconds: 20,
    run,
};

const PORT: u16 = 6400;
/// Longer than the client takes to hear of a route.
const HEARD: Duration = Duration::from_millis(500);

fn run(trial: &Trial<'_>) -> Result<Vec<Finding>, LabError> {
    let mut stage =
        Stage::build(trial.program, &TopologyConfig::new(vec![access(20, 20), access(20, 20)]))?;
    // The router of the first link is the attacker's.
    let router = stage.topology.routers()[0].namespace();
    let captured = Capture::start(router, &router_lan(0), 0_u64, |count, frame| {
        let packet = frame.ip().filter(|_| !frame.outgoing);
        let servers = [IpAddr::from(SERVER_V4), IpAddr::from(SERVER_V6)];
        *count += u64::from(packet.is_some_and(|(_, to, ..)| servers.contains(&to)));
    })?;
    let drawn = || captured.look(std::mem::take);
    trial.say("the network hands out routes, without a client");
    hand_out(stage.topology.client(), "add")?;
    reach(stage.topology.client())?;
    let before = drawn();
    hand_out(stage.topology.client(), "del")?;

    trial.say("the same under a full tunnel");
    stage.start([0, 1])?;
    let _ = drawn();
    hand_out(stage.topology.client(), "add")?;
    // At once, and when the client has heard of them.
    reach(stage.topology.client())?;
    thread::sleep(HEARD);
    reach(stage.topology.client())?;
    let download = stage.get(200_000, 61)?;
    let during = drawn();
    let warned = |stage: &Stage| -> usize {
        let status = stage.client_status().unwrap_or_default().0;
        let warnings = status["daemon"]["warnings"].as_array().cloned().unwrap_or_default();
        let told = |text: &str| text.contains("would lead past the tunnel");
        warnings.iter().filter(|one| one.as_str().is_some_and(told)).count()
    };
    until(Duration::from_secs(5), || warned(&stage) >= ROUTES_HANDED_OUT.len());
    let warned = warned(&stage);

    trial.say("one of them is excluded");
    let mut tun = toml::Table::new();
    tun.insert("exclude".into(), format!("{SERVER_V4}/32").into());
    stage.deployment.client_config(0).insert("tun".into(), tun.into());
    stage.connect([0, 1])?;
    let _ = drawn();
    reach(stage.topology.client())?;
    let excluded = drawn();
    Ok(vec![
        Finding::at_least(
            "packets to the server at the attacker's router, without a client",
            before as f64,
            4.0,
            "",
        ),
        Finding::at_most("under a full tunnel", during as f64, 0.0, ""),
        Finding::holds(
            "a download through the tunnel meanwhile",
            download.sha256 == body_sha256(200_000, 61),
            download.message,
            "as sent",
        ),
        Finding::at_least(
            "routes that `status` warns of",
            warned as f64,
            ROUTES_HANDED_OUT.len() as f64,
            "",
        ),
        Finding::at_least("with the server in `exclude`", excluded as f64, 2.0, ""),
    ])
}

/// Half the Internet, a part of it, the one host; and who installs them.
const ROUTES_HANDED_OUT: [&str; 6] = [
    "0.0.0.0/1 proto dhcp",
    "128.0.0.0/1 proto dhcp",
    "192.0.0.0/8 proto boot",
    "192.0.2.2/32 proto dhcp",
    "2000::/4 proto ra",
    "2001:db8:192::2/128 proto ra",
];

fn hand_out(client: &Namespace, what: &str) -> Result<(), LabError> {
    for route in ROUTES_HANDED_OUT {
        let router: IpAddr = match route.contains(':') {
            true => gateway_v6(0, 0).into(),
            false => gateway_v4(0, 0).into(),
        };
        let (net, proto) = route.split_once(' ').unwrap_or((route, ""));
        client.ip(&format!("route {what} {net} via {router} dev wan0 {proto}"))?;
    }
    Ok(())
}

/// A datagram and a connection to the server in each family; whether they arrive is not asked.
fn reach(client: &Namespace) -> Result<(), LabError> {
    client.run(|| {
        for (own, to) in [("0.0.0.0:0", IpAddr::from(SERVER_V4)), ("[::]:0", SERVER_V6.into())] {
            if let Ok(socket) = UdpSocket::bind(own) {
                let _ = socket.send_to(b"hello", (to, PORT));
            }
            let server = SocketAddr::from((to, 80));
            let _ = TcpStream::connect_timeout(&server, Duration::from_millis(500));
        }
    })
}
