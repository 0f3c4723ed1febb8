//! The program as it is installed: the users and rights of its units, its page in a browser, its log over a day, a full disk.

#![cfg(target_os = "linux")]

mod browser;
mod full_disk;
mod log;
mod page;
mod units;
mod users;
