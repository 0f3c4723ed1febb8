//! What the supervisor (systemd, `sd_notify(3)`) hears of a running daemon: that it is ready, that it lives, and in a line
//! how things are.
//!
//! All three come from the daemon's loop itself: it is asked for its status as `ropewalk status` does, and only when it
//! answers is the supervisor told. A loop that hangs, spins or waits for ever answers nothing, and the watchdog ends it
//! although this task goes on.

use std::time::Duration;

use ropewalk_control::api::{
    LinkState, Request, Response, Role, StatusReport, TunnelState, TunnelStatus,
};
use ropewalk_control::server::Command;
use ropewalk_settings::figures;
use sd_notify::NotifyState;
use tokio::sync::mpsc;

use crate::service::notify;

/// Time between two lines where no watchdog asks for more; a person reads them.
const STATUS_PAUSE: Duration = Duration::from_secs(30);

/// Beats in the time after which the watchdog ends the daemon: one that comes late does no harm.
const BEATS: u32 = 3;

/// Beats until the loop has ended. Without a supervisor it does nothing.
pub async fn beat<C>(commands: mpsc::Sender<C>, wrap: impl Fn(Command) -> C) {
    if std::env::var_os("NOTIFY_SOCKET").is_none() {
        return;
    }
    let pause = sd_notify::watchdog_enabled().map_or(STATUS_PAUSE, |patience| patience / BEATS);
    beat_to(commands, wrap, pause, |state| async move {
        // A supervisor that does not read must not hold up the packets.
        let told = tokio::task::spawn_blocking(move || match &state {
            State::Ready(line) => notify(&[NotifyState::Ready, NotifyState::Status(line)]),
            State::Alive(line) => notify(&[NotifyState::Watchdog, NotifyState::Status(line)]),
        });
        drop(told.await);
    })
    .await;
}

/// What the supervisor is told.
#[derive(Clone, Debug, PartialEq, Eq)]
enum State {
    /// The loop answered for the first time.
    Ready(String),
    /// It answered again.
    Alive(String),
}

async fn beat_to<C, F: Future<Output = ()>>(
    commands: mpsc::Sender<C>,
    wrap: impl Fn(Command) -> C,
    pause: Duration,
    tell: impl Fn(State) -> F,
) {
    let mut state: fn(String) -> State = State::Ready;
    loop {
        let (command, answer) = Command::new(Request::Status);
        if commands.send(wrap(command)).await.is_err() {
            return;
        }
        // A loop that ends drops what it was asked.
        let Ok(answer) = answer.await else { return };
        let line = match answer {
            Ok(Response::Status(report)) => line(&report),
            Ok(_) => String::new(),
            Err(error) => error.to_string(),
        };
        tell(state(line)).await;
        state = State::Alive;
        tokio::time::sleep(pause).await;
    }
}

/// How things are, in a line of `systemctl status`.
fn line(report: &StatusReport) -> String {
    let line = match report.daemon.role {
        Role::Client => report.tunnels.first().map_or_else(String::new, of_client),
        Role::Proxy => of_proxy(report),
    };
    match report.daemon.warnings.len() {
        0 => line,
        1 => format!("{line}; 1 warning (`ropewalk status`)"),
        count => format!("{line}; {count} warnings (`ropewalk status`)"),
    }
}

fn of_client(tunnel: &TunnelStatus) -> String {
    if tunnel.state != TunnelState::Up {
        return match &tunnel.reason {
            Some(reason) => format!("{}: {reason}", tunnel.state),
            None => tunnel.state.to_string(),
        };
    }
    let links = tunnel.links.iter().filter(|link| link.state != LinkState::Disabled);
    let up = links.clone().filter(|link| link.state == LinkState::Up).count();
    let rates = rates(tunnel.down.rate_bps, tunnel.up.rate_bps);
    format!("up over {up} of {} links, {rates}", links.count())
}

fn of_proxy(report: &StatusReport) -> String {
    let all = report.tunnels.iter();
    let connected = all.clone().filter(|tunnel| tunnel.state == TunnelState::Up).count();
    let down = all.clone().map(|tunnel| tunnel.down.rate_bps).sum();
    let up = all.map(|tunnel| tunnel.up.rate_bps).sum();
    let listen = report.proxy.as_ref().map_or_else(String::new, |proxy| {
        let more: Vec<_> = proxy.more_ports.iter().map(|port| format!(", {port}")).collect();
        format!("on {}{}: ", proxy.listen, more.concat())
    });
    format!("{listen}{connected} of {} connected, {}", peers(report.tunnels.len()), rates(down, up))
}

fn peers(count: usize) -> String {
    if count == 1 { "1 peer".to_owned() } else { format!("{count} peers") }
}

fn rates(down_bps: f64, up_bps: f64) -> String {
    format!("{} down, {} up", figures::rate(down_bps), figures::rate(up_bps))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;
    use std::rc::Rc;

    use tokio::task::LocalSet;

    const CLIENT: &str = include_str!("../../control/tests/status/client.json");
    const PROXY: &str = include_str!("../../control/tests/status/proxy.json");

    const PAUSE: Duration = Duration::from_secs(10);

    #[test]
    fn a_line_tells_what_matters_first() {
        let mut client: StatusReport = serde_json::from_str(CLIENT).unwrap();
        assert_eq!(
            line(&client),
            "up over 2 of 3 links, 48 Mbit/s down, 3 Mbit/s up; 1 warning (`ropewalk status`)"
        );
        client.daemon.warnings.clear();
        client.tunnels[0].state = TunnelState::Stalled;
        client.tunnels[0].reason = Some("no link has an answer".to_owned());
        assert_eq!(line(&client), "stalled: no link has an answer");
        let proxy: StatusReport = serde_json::from_str(PROXY).unwrap();
        assert_eq!(
            line(&proxy),
            "on [::]:51900: 2 of 3 peers connected, 96 Mbit/s down, 6 Mbit/s up"
        );
    }

    #[test]
    fn it_beats_as_long_as_the_loop_answers_and_no_longer() {
        run(async {
            let (commands, mut queue) = mpsc::channel::<Command>(1);
            let told = Rc::new(RefCell::new(Vec::new()));
            let heard = Rc::clone(&told);
            let beating = tokio::task::spawn_local(beat_to(
                commands,
                |command| command,
                PAUSE,
                move |state| {
                    heard.borrow_mut().push(state);
                    std::future::ready(())
                },
            ));
            let answer = |command: Command| {
                let report = serde_json::from_str(CLIENT).unwrap();
                command.answer(Ok(Response::Status(Box::new(report))));
            };
            let first = queue.recv().await.unwrap();
            tokio::time::sleep(100 * PAUSE).await;
            assert!(told.borrow().is_empty(), "not ready before the loop turns");
            answer(first);
            answer(queue.recv().await.unwrap());
            tokio::time::sleep(PAUSE / 2).await;
            let line =
                "up over 2 of 3 links, 48 Mbit/s down, 3 Mbit/s up; 1 warning (`ropewalk status`)";
            let expected = [State::Ready(line.to_owned()), State::Alive(line.to_owned())];
            assert_eq!(*told.borrow(), expected);

            let hanging = queue.recv().await.unwrap();
            tokio::time::sleep(100 * PAUSE).await;
            assert_eq!(told.borrow().len(), 2, "a loop that hangs keeps nobody quiet");
            drop(hanging);
            beating.await.unwrap();
        });
    }

    /// Runs it in time that passes when nothing else is to be done.
    fn run(work: impl Future<Output = ()>) {
        let mut builder = tokio::runtime::Builder::new_current_thread();
        let runtime = builder.enable_all().start_paused(true).build().unwrap();
        LocalSet::new().block_on(&runtime, work);
    }
}
