//! One deadline for the loop, exact to about 0.1 ms.
//!
//! The runtime's own timers count whole milliseconds, rounded up, because `epoll_wait` does: at
//! 100 Mbit/s a pacer that sleeps one of those too long has skipped eight datagrams. A timerfd is a
//! high-resolution timer that wakes the same `epoll_wait` as any socket; the processor sleeps until
//! it fires, nothing spins.

use crate::clock::Clock;
use ropewalk_proto::time::Instant;
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};
use std::io;
use std::os::fd::OwnedFd;
use std::task::{Context, Poll};
use tokio::io::unix::AsyncFd;

/// A timer that fires once, at the deadline last set.
#[derive(Debug)]
pub struct Timer {
    fd: AsyncFd<OwnedFd>,
    clock: Clock,
    armed: Option<Instant>,
}

impl Timer {
    /// A timer that never fires. Must be called inside the runtime.
    ///
    /// # Errors
    /// When the process has no file descriptor left.
    pub fn new(clock: Clock) -> io::Result<Self> {
        let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
        let fd = timerfd_create(TimerfdClockId::Boottime, flags)?;
        #[expect(unsafe_code, reason = "tokio's safe constructor is deprecated")]
        // SAFETY: the AsyncFd owns the descriptor, which nothing else knows, so it stays open and the
        // same for as long as it is registered; `fd` is never replaced or closed behind its back.
        let fd = unsafe { AsyncFd::register(fd) }.map_err(|error| error.into_parts().1)?;
        Ok(Self { fd, clock, armed: None })
    }

    /// Sets or, with `None`, clears the deadline. Costs nothing when it is the one already set.
    ///
    /// # Errors
    /// None that the kernel is known to give for a valid descriptor.
    pub fn set(&mut self, deadline: Option<Instant>) -> io::Result<()> {
        if self.armed == deadline {
            return Ok(());
        }
        let zero = Timespec { tv_sec: 0, tv_nsec: 0 };
        // A value of zero would disarm; the boot clock is not zero at any instant of this process.
        let value = deadline.map_or(zero, |deadline| self.clock.boot_time(deadline));
        let spec = Itimerspec { it_interval: zero, it_value: value };
        timerfd_settime(self.fd.get_ref(), TimerfdTimerFlags::ABSTIME, &spec)?;
        self.armed = deadline;
        Ok(())
    }

    /// Ready, once, after the deadline. May be ready early (an earlier deadline had just passed when
    /// it was replaced): the caller looks at the clock.
    pub fn poll_expired(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        match self.fd.poll_read_ready(cx) {
            Poll::Ready(Ok(mut guard)) => {
                // Not read: setting the next deadline resets the descriptor, and epoll reports the
                // edge of each expiry.
                guard.clear_ready();
                self.armed = None;
                Poll::Ready(())
            }
            // Only at the end of the runtime.
            Poll::Ready(Err(_)) => Poll::Ready(()),
            Poll::Pending => Poll::Pending,
        }
    }
}
