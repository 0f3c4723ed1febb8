//! The `ropewalk` program: runs a daemon, or asks one.
//!
//! `args` holds every flag, `commands` what they do, `render` how a status looks, `watch` how it looks live, `bugreport` what is
//! told of a fault, `notify` what a desktop is told, `qr` how a QR code looks, `live` how far something is, `exit` what the program's
//! exit code says.

mod args;
mod bugreport;
mod commands;
#[cfg(test)]
mod examples;
mod exit;
mod live;
mod logging;
mod notify;
mod privilege;
mod qr;
mod render;
mod watch;

use std::io::Write as _;
use std::process::ExitCode;

use clap::Parser as _;

use args::{Arguments, Command};
use exit::Failure;

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    match run(arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            // Nobody is left to tell if standard error is closed.
            drop(writeln!(std::io::stderr(), "error: {}", exit::plain(&failure.to_string())));
            failure.code()
        }
    }
}

fn run(arguments: Arguments) -> Result<(), Failure> {
    logging::start(&arguments.log, arguments.log_format)?;
    match arguments.command {
        Command::Client(args::Client { purge: true, config }) => {
            commands::daemon::purge_client(&config)
        }
        Command::Client(args::Client { config, .. }) => commands::daemon::client(&config),
        Command::Proxy(args::Proxy { purge: true, config, .. }) => {
            commands::daemon::purge_proxy(&config)
        }
        Command::Proxy(proxy) => commands::daemon::proxy(&proxy),
        Command::Join(join) => commands::join::run(&join),
        Command::Peer(peer) => commands::peer::run(&peer),
        Command::Fleet(fleet) => commands::fleet::run(&fleet),
        Command::Forward(forward) => commands::forward::run(&forward),
        Command::Status(status) => commands::status::run(&status),
        Command::Links(links) => commands::links::run(&links),
        Command::Devices(devices) => commands::devices::run(&devices),
        Command::Watch(watch) => commands::watch::run(&watch),
        Command::Logs(logs) => commands::logs::run(&logs),
        Command::Reload(reload) => commands::reload::run(&reload),
        Command::Why(why) => commands::why::run(&why),
        Command::Run(run) => commands::run::run(&run),
        Command::History(history) => commands::history::run(&history),
        Command::Speedtest(test) => commands::speedtest::run(&test),
        Command::Set(set) => commands::set::run(&set),
        Command::Flows(flows) => commands::flows::run(&flows),
        Command::Proxies(proxies) => commands::proxies::run(&proxies),
        Command::Use(wanted) => commands::proxies::choose(&wanted),
        Command::Doctor(doctor) => commands::doctor::run(&doctor),
        Command::Bugreport(wanted) => commands::bugreport::run(&wanted),
        Command::Notify(notify) => commands::notify::run(&notify),
        Command::Keygen(keygen) => commands::keygen::run(&keygen),
        Command::CheckConfig(check) => commands::check_config::run(&check),
        Command::Completions(completions) => commands::completions::run(completions.shell),
        Command::Complete(complete) => commands::complete::run(&complete.words),
        Command::ResolvConf => commands::resolv_conf::run(),
        Command::LanServers(wanted) => commands::lan_servers::run(&wanted),
        Command::Man(man) => commands::man::run(&man.folder),
        Command::Reference(reference) => commands::reference::run(&reference.folder),
    }
}
