//! The Ropewalk proxy daemon.
