//! The program as it is installed: the rights of its units, its page in a browser, its log over a day, a full disk.

#![cfg(target_os = "linux")]

mod browser;
mod full_disk;
mod log;
mod page;
mod units;
