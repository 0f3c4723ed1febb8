//! One UDP port with a socket for each worker: the kernel leads a datagram to one of them by its steering field
//! (PROTOCOL §2).
//!
//! The sockets form a group (`SO_REUSEPORT`), numbered in the order in which they were bound, and a program of
//! four instructions (`SO_ATTACH_REUSEPORT_CBPF`) computes the number. It sees the UDP payload, over IPv4 and
//! IPv6 alike; of a train that the kernel coalesced it sees the first datagram, which is of the same path, so
//! nearly always of the same session. A datagram too short to hold the field goes to the first socket.
//!
//! All sockets of a group are opened at once and kept for life: when one is closed, the kernel moves the last one
//! into its place, and the numbers are wrong from then on.

use super::socket::Bound;
use super::{OpenError, ProxySocket};
use nix::libc::{sock_filter, sock_fprog};
use nix::sys::socket::{setsockopt, sockopt};
use rustix::io::Errno;
use std::os::fd::AsFd;

/// Where the four bytes begin whose last three are the steering field.
const WORD_WITH_FIELD: u32 = 1;

/// The steering field in that word.
const FIELD: u32 = 0x00ff_ffff;

// Classic BPF, as in linux/bpf_common.h.
const LOAD_WORD: u16 = 0x20;
const AND: u16 = 0x54;
const MODULO: u16 = 0x94;
const RETURN_ACCUMULATOR: u16 = 0x16;

/// Opens the sockets of so many workers at one port, in the order of their numbers. A single one is an ordinary
/// socket. Needs no runtime.
///
/// # Errors
/// [`OpenError`]; [`OpenError::NoSteering`] if only this kernel's lack of steering stands in the way.
pub fn open_group(options: &ProxySocket, workers: u16) -> Result<Vec<Bound>, OpenError> {
    // Alone at first: a port that another process shares with us would be shared for good.
    let alone = Bound::proxy(options)?;
    if workers <= 1 {
        return Ok(vec![alone]);
    }
    let address = alone.address();
    drop(alone);
    let mut group = Vec::with_capacity(workers.into());
    for worker in 0..workers {
        let bound = Bound::shared(address)?;
        if worker == 0 {
            // Before the second one, so that there is no moment in which the kernel chooses by chance among them.
            attach(&bound, workers)
                .map_err(|errno| OpenError::NoSteering { source: errno.into() })?;
        }
        group.push(bound);
    }
    Ok(group)
}

/// Has the kernel lead what comes to this socket's group.
fn attach(socket: &impl AsFd, workers: u16) -> Result<(), Errno> {
    let mut program = program(workers);
    let len = u16::try_from(program.len()).unwrap_or(0);
    let program = sock_fprog { len, filter: program.as_mut_ptr() };
    setsockopt(socket, sockopt::AttachReusePortCbpf, &program)
        .map_err(|error| Errno::from_raw_os_error(error as i32))
}

/// The steering field modulo the number of workers. What the load does not find gives 0.
fn program(workers: u16) -> [sock_filter; 4] {
    let step = |code, k| sock_filter { code, jt: 0, jf: 0, k };
    [
        step(LOAD_WORD, WORD_WITH_FIELD),
        step(AND, FIELD),
        step(MODULO, workers.into()),
        step(RETURN_ACCUMULATOR, 0),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_the_kernel_refuses_is_an_error() {
        let options = ProxySocket { address: Some([127, 0, 0, 1].into()), port: 0 };
        let address = Bound::proxy(&options).unwrap().address();
        let socket = Bound::shared(address).unwrap();
        assert_eq!(attach(&socket, 0), Err(Errno::INVAL), "division by zero");
        assert_eq!(attach(&socket, 2), Ok(()));
    }
}
