//! The local control API of Ropewalk's daemons: types, HTTP+JSON over a Unix socket.
