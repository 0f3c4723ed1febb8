//! Drivers of Ropewalk: TUN, UDP, netlink, and the one event loop.
