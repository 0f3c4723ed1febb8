//! The laboratory by hand: the emulated Internet to look around in, and the traffic tools of the
//! tests as commands that can be started inside a namespace.
//!
//! Results are printed as one JSON object on standard output. Never shipped.

#![expect(clippy::print_stdout, clippy::print_stderr, reason = "this program talks to people")]

mod args;
mod chaos;
mod demo;
mod generate;
mod lab;
mod prove;
mod scenario;
mod tcp;

use std::net::{SocketAddr, TcpListener, UdpSocket};
use std::process::ExitCode;
use std::thread;

use anyhow::{Context, Result};
use clap::Parser;
use ropewalk_netlab::http::HttpServer;
use ropewalk_netlab::ping::Ping;
use ropewalk_netlab::privilege::enter_lab;
use ropewalk_netlab::traffic::{UdpReceiver, UdpSender};
use serde::Serialize;

use crate::args::{Args, Command};

fn main() -> ExitCode {
    match run(Args::parse().command) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("rw-netlab: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(command: Command) -> Result<ExitCode> {
    match command {
        Command::HttpServer { listen, congestion } => {
            let listener = TcpListener::bind(listen).with_context(|| listen.to_string())?;
            let server = HttpServer::serve(listener, &congestion)?;
            println!("serving on {}", server.address());
            // Until a signal ends it.
            loop {
                thread::park();
            }
        }
        Command::UdpSend { to, listen, rate, size, duration } => {
            let sender = UdpSender { to, bits_per_second: rate, size, duration: duration.into() };
            print(&sender.run(&bind(listen, to)?)?)?;
        }
        Command::UdpReceive { listen, hello_to, quiet, limit } => {
            let receiver = UdpReceiver { hello_to, quiet: quiet.into(), limit: limit.into() };
            print(&receiver.run(&bind(listen, hello_to)?)?)?;
        }
        Command::Ping { target, interface, count, interval } => {
            let ping = Ping { interface, interval: interval.into(), ..Ping::new(target, count) };
            print(&ping.run_here()?)?;
        }
        Command::Topology(options) => {
            enter_lab()?;
            lab::topology(&options)?;
        }
        Command::Demo(options) => {
            enter_lab()?;
            return demo::run(&options);
        }
        Command::Scenario(options) => {
            enter_lab()?;
            return scenario::run(&options);
        }
        Command::Tcp(options) => return tcp::run(&options),
        Command::Prove(options) if options.list => prove::list(),
        Command::Prove(options) => {
            enter_lab()?;
            return prove::run(&options);
        }
        Command::Chaos(options) if options.list => chaos::list(),
        Command::Chaos(options) => {
            enter_lab()?;
            return chaos::run(&options);
        }
        Command::Generate(options) => generate::run(&options)?,
        Command::Selftest => {
            enter_lab()?;
            lab::selftest()?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Binds to `local`, or to any port of the family of `peer`.
fn bind(local: Option<SocketAddr>, peer: Option<SocketAddr>) -> Result<UdpSocket> {
    let any: SocketAddr = match peer {
        Some(SocketAddr::V6(_)) => ([0u16; 8], 0).into(),
        Some(SocketAddr::V4(_)) | None => ([0u8; 4], 0).into(),
    };
    let local = local.unwrap_or(any);
    UdpSocket::bind(local).with_context(|| format!("binding to {local}"))
}

fn print(result: &impl Serialize) -> Result<()> {
    println!("{}", serde_json::to_string(result)?);
    Ok(())
}
