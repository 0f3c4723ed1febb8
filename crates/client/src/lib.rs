//! The Ropewalk client daemon.
