//! The C interface: from pointers to values and back. What the calls do stands in `include/ropewalk.h`, which
//! `tests/header.rs` holds against this file.
//!
//! All `unsafe` of this crate is here, because nobody but the caller knows what a pointer leads to. What can be checked is
//! checked: null, alignment, lengths, UTF-8, numbers. What cannot is the caller's promise, under *Safety* below; each
//! `unsafe` block rests on it and on nothing else.
//!
//! No panic crosses the boundary: each call catches it and returns [`Code::Internal`]. The library hands out no memory but
//! the tunnel itself; texts go into buffers of the caller.
//!
//! # Safety
//! Of every function here: a pointer that is not null leads to memory that may be read, or written where it is not const,
//! for as many bytes as the length beside it says, or as its type has, until the call returns. A tunnel is one that
//! [`ropewalk_tunnel_new`] gave, and is not used during or after [`ropewalk_tunnel_free`]. The callbacks are functions of
//! these types, may be called by any thread until the tunnel has ended, and throw nothing.

#![expect(
    unsafe_code,
    reason = "C gives pointers; what is checked of them, and what is not, stands above"
)]

use std::ffi::{CString, c_char, c_int, c_void};
use std::io;
use std::net::IpAddr;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, IntoRawFd, OwnedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use ropewalk_settings::{KEY_LEN, PresharedKey, PrivateKey};

use crate::tunnel::words;
use crate::{App, Code, Error, Network, Options, Tunnel, config_of_invitation};

/// The version of the interface. It grows when a call or an event changes its meaning or goes.
pub const INTERFACE_VERSION: u32 = 1;

/// Bytes of an error's text, its final zero included.
pub const ERROR_BYTES: usize = 512;

/// Bytes of the longest text that is taken; each kind has a smaller bound of its own.
const MAX_TEXT: usize = 1 << 20;

/// Binds a socket to a network: 0, or an error number of the system.
pub type BindSocket = unsafe extern "C" fn(*mut c_void, c_int, u64) -> c_int;

/// Is told of an event: JSON, its length, and behind it a zero.
pub type OnEvent = unsafe extern "C" fn(*mut c_void, *const c_char, usize);

/// `ropewalk_error`
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct RopewalkError {
    /// The kind.
    pub code: Code,
    /// What failed and what to do, with a final zero.
    pub message: [c_char; ERROR_BYTES],
}

/// `ropewalk_options`
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct RopewalkOptions {
    /// Bytes of this structure.
    pub size: usize,
    /// This client's key.
    pub secret_key: *const u8,
    /// Its bytes.
    pub secret_key_length: usize,
    /// Null: there is none.
    pub preshared_key: *const u8,
    /// Its bytes.
    pub preshared_key_length: usize,
    /// Null: the invitation says it.
    pub config: *const c_char,
    /// Its bytes.
    pub config_length: usize,
    /// Null: the proxy knows the key.
    pub invitation: *const c_char,
    /// Its bytes.
    pub invitation_length: usize,
    /// Binds a socket to a network.
    pub bind_socket: Option<BindSocket>,
    /// Is told of events.
    pub on_event: Option<OnEvent>,
    /// Handed to both.
    pub context: *mut c_void,
}

/// `ropewalk_tunnel`
pub struct RopewalkTunnel(Tunnel);

/// The app's two functions.
struct Callbacks {
    bind_socket: BindSocket,
    on_event: OnEvent,
    context: *mut c_void,
}

// SAFETY: the pointer is never followed here, and the functions may be called by any thread, as the caller promised.
unsafe impl Send for Callbacks {}
// SAFETY: the same.
unsafe impl Sync for Callbacks {}

impl App for Callbacks {
    fn bind_socket(&self, socket: BorrowedFd<'_>, network: u64) -> io::Result<()> {
        // SAFETY: the caller promised that this function may be called with this context.
        let answer = unsafe { (self.bind_socket)(self.context, socket.as_raw_fd(), network) };
        match answer {
            0 => Ok(()),
            1.. => Err(io::Error::from_raw_os_error(answer)),
            _ => Err(io::Error::other(format!("bind_socket returned {answer}"))),
        }
    }

    fn on_event(&self, event: &str) {
        // JSON writes a zero in a text as an escape.
        let Ok(event) = CString::new(event) else { return };
        // SAFETY: the same; the text lives until the call returns.
        unsafe { (self.on_event)(self.context, event.as_ptr(), event.as_bytes().len()) };
    }
}

/// [`INTERFACE_VERSION`]
#[unsafe(no_mangle)]
pub extern "C" fn ropewalk_interface_version() -> u32 {
    INTERFACE_VERSION
}

/// Makes a key pair.
///
/// # Safety
/// See [the module](self).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ropewalk_make_key(
    secret_key: *mut u8,
    secret_key_length: usize,
    public_key: *mut u8,
    public_key_length: usize,
    error: *mut RopewalkError,
) -> Code {
    let make = || -> Result<(), Error> {
        // Nothing is written unless both can be.
        check_key("public_key", public_key_length)?;
        check_pointer("public_key", public_key)?;
        // SAFETY: as the caller promised.
        let place = unsafe { key_place("secret_key", secret_key, secret_key_length) }?;
        let made = PrivateKey::generate()
            .map_err(|error| Error::System(format!("the system has no randomness: {error}")))?;
        made.copy_to(place);
        // SAFETY: the same.
        let place = unsafe { key_place("public_key", public_key, public_key_length) }?;
        *place = *made.public_key().as_bytes();
        Ok(())
    };
    // SAFETY: as the caller promised.
    unsafe { call(error, make) }
}

/// The public half of a key.
///
/// # Safety
/// See [the module](self).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ropewalk_public_key(
    secret_key: *const u8,
    secret_key_length: usize,
    public_key: *mut u8,
    public_key_length: usize,
    error: *mut RopewalkError,
) -> Code {
    let derive = || -> Result<(), Error> {
        // SAFETY: as the caller promised.
        let secret_key = unsafe { key("secret_key", secret_key, secret_key_length) }?;
        let public = PrivateKey::from_bytes(secret_key).public_key();
        // SAFETY: the same.
        let place = unsafe { key_place("public_key", public_key, public_key_length) }?;
        *place = *public.as_bytes();
        Ok(())
    };
    // SAFETY: as the caller promised.
    unsafe { call(error, derive) }
}

/// The config that an invitation means.
///
/// # Safety
/// See [the module](self).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ropewalk_read_invitation(
    line: *const c_char,
    line_length: usize,
    config: *mut c_char,
    capacity: usize,
    length: *mut usize,
    error: *mut RopewalkError,
) -> Code {
    let read = || {
        // SAFETY: as the caller promised.
        let line = unsafe { text("line", line, line_length) }?;
        let text = config_of_invitation(line)?;
        // SAFETY: the same.
        unsafe { give_text("config", (config, capacity), length, &text) }
    };
    // SAFETY: as the caller promised.
    unsafe { call(error, read) }
}

/// Makes a tunnel.
///
/// # Safety
/// See [the module](self).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ropewalk_tunnel_new(
    options: *const RopewalkOptions,
    tunnel: *mut *mut RopewalkTunnel,
    error: *mut RopewalkError,
) -> Code {
    let make = || -> Result<(), Error> {
        check_pointer("options", options)?;
        check_pointer("tunnel", tunnel)?;
        // SAFETY: as the caller promised: a size is there whatever the version of the header.
        let size = unsafe { (*options).size };
        if size != size_of::<RopewalkOptions>() {
            let expected = size_of::<RopewalkOptions>();
            return Err(Error::Argument(format!(
                "options.size is {size} and not {expected}: the app was built with the header of another version"
            )));
        }
        // SAFETY: the size is that of the structure.
        let options = unsafe { *options };
        // SAFETY: as the caller promised.
        let made = unsafe { new_tunnel(&options) }?;
        // SAFETY: the same.
        unsafe { tunnel.write(Box::into_raw(Box::new(RopewalkTunnel(made)))) };
        Ok(())
    };
    // SAFETY: as the caller promised.
    unsafe { call(error, make) }
}

/// Starts a tunnel.
///
/// # Safety
/// See [the module](self).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ropewalk_tunnel_start(
    tunnel: *const RopewalkTunnel,
    error: *mut RopewalkError,
) -> Code {
    // SAFETY: as the caller promised.
    unsafe { with(tunnel, error, Tunnel::start) }
}

/// Hands a TUN over.
///
/// # Safety
/// See [the module](self). The descriptor is the caller's to give.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ropewalk_tunnel_set_tun(
    tunnel: *const RopewalkTunnel,
    fd: c_int,
    error: *mut RopewalkError,
) -> Code {
    let set = |tunnel: &Tunnel| {
        // SAFETY: a number below zero, which none is made of, is none; any other is the caller's to give.
        let given = (fd >= 0).then(|| unsafe { OwnedFd::from_raw_fd(fd) });
        tunnel.set_tun(given).map_err(|(error, back)| {
            // It stays the caller's.
            let _ = back.map(IntoRawFd::into_raw_fd);
            error
        })
    };
    // SAFETY: as the caller promised.
    unsafe { with(tunnel, error, set) }
}

/// Adds a network, or changes its description.
///
/// # Safety
/// See [the module](self).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ropewalk_tunnel_set_network(
    tunnel: *const RopewalkTunnel,
    network: *const c_char,
    network_length: usize,
    error: *mut RopewalkError,
) -> Code {
    let set = |tunnel: &Tunnel| {
        // SAFETY: as the caller promised.
        let network = unsafe { text("network", network, network_length) }?;
        tunnel.set_network(Network::from_json(network)?)
    };
    // SAFETY: as the caller promised.
    unsafe { with(tunnel, error, set) }
}

/// Takes a network out.
///
/// # Safety
/// See [the module](self).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ropewalk_tunnel_remove_network(
    tunnel: *const RopewalkTunnel,
    network: u64,
    error: *mut RopewalkError,
) -> Code {
    // SAFETY: as the caller promised.
    unsafe { with(tunnel, error, |tunnel| tunnel.remove_network(network)) }
}

/// Says where a name leads.
///
/// # Safety
/// See [the module](self).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ropewalk_tunnel_set_addresses(
    tunnel: *const RopewalkTunnel,
    name: *const c_char,
    name_length: usize,
    addresses: *const c_char,
    addresses_length: usize,
    error: *mut RopewalkError,
) -> Code {
    let set = |tunnel: &Tunnel| {
        // SAFETY: as the caller promised.
        let name = unsafe { text("name", name, name_length) }?;
        // SAFETY: the same.
        let addresses = unsafe { text("addresses", addresses, addresses_length) }?;
        tunnel.set_addresses(name, read_addresses(addresses)?)
    };
    // SAFETY: as the caller promised.
    unsafe { with(tunnel, error, set) }
}

/// Has a tunnel stand still.
///
/// # Safety
/// See [the module](self).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ropewalk_tunnel_pause(
    tunnel: *const RopewalkTunnel,
    error: *mut RopewalkError,
) -> Code {
    // SAFETY: as the caller promised.
    unsafe { with(tunnel, error, Tunnel::pause) }
}

/// Has a tunnel go on.
///
/// # Safety
/// See [the module](self).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ropewalk_tunnel_resume(
    tunnel: *const RopewalkTunnel,
    error: *mut RopewalkError,
) -> Code {
    // SAFETY: as the caller promised.
    unsafe { with(tunnel, error, Tunnel::resume) }
}

/// The status document.
///
/// # Safety
/// See [the module](self).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ropewalk_tunnel_status(
    tunnel: *const RopewalkTunnel,
    status: *mut c_char,
    capacity: usize,
    length: *mut usize,
    error: *mut RopewalkError,
) -> Code {
    let tell = |tunnel: &Tunnel| {
        let document = tunnel.status()?;
        // SAFETY: as the caller promised.
        unsafe { give_text("status", (status, capacity), length, &document) }
    };
    // SAFETY: as the caller promised.
    unsafe { with(tunnel, error, tell) }
}

/// Ends a tunnel.
///
/// # Safety
/// See [the module](self).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ropewalk_tunnel_stop(
    tunnel: *const RopewalkTunnel,
    error: *mut RopewalkError,
) -> Code {
    // SAFETY: as the caller promised.
    unsafe { with(tunnel, error, Tunnel::stop) }
}

/// Ends a tunnel and frees it.
///
/// # Safety
/// See [the module](self).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ropewalk_tunnel_free(
    tunnel: *mut RopewalkTunnel,
    error: *mut RopewalkError,
) -> Code {
    if tunnel.is_null() {
        // As `free` of C does.
        // SAFETY: as the caller promised.
        return unsafe { call(error, || Ok(())) };
    }
    // SAFETY: as the caller promised.
    let code = unsafe { with(tunnel, error, Tunnel::stop) };
    if code == Code::Ok {
        // SAFETY: it was made by `Box::into_raw`, and nobody uses it any more, as the caller promised.
        drop(unsafe { Box::from_raw(tunnel) });
    }
    code
}

/// Does something to a tunnel.
unsafe fn with(
    tunnel: *const RopewalkTunnel,
    error: *mut RopewalkError,
    act: impl FnOnce(&Tunnel) -> Result<(), Error>,
) -> Code {
    let checked = || {
        check_pointer("tunnel", tunnel)?;
        // SAFETY: as the caller promised, it is one of ours.
        act(unsafe { &(*tunnel).0 })
    };
    // SAFETY: as the caller promised.
    unsafe { call(error, checked) }
}

/// Runs a call, and tells how it went.
unsafe fn call(error: *mut RopewalkError, body: impl FnOnce() -> Result<(), Error>) -> Code {
    if !error.is_null() && !error.is_aligned() {
        return Code::Argument;
    }
    let done = catch_unwind(AssertUnwindSafe(body))
        .unwrap_or_else(|panic| Err(Error::Internal(words(&*panic).to_owned())));
    let (code, text) = match done {
        Ok(()) => (Code::Ok, String::new()),
        Err(error) => (error.code(), error.to_string()),
    };
    if !error.is_null() {
        // SAFETY: as the caller promised.
        unsafe { error.write(RopewalkError { code, message: message(&text) }) };
    }
    code
}

/// A text that fits, cut at a character, with its final zero.
fn message(text: &str) -> [c_char; ERROR_BYTES] {
    let mut end = text.len().min(ERROR_BYTES - 1);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    let mut message = [0; ERROR_BYTES];
    for (place, byte) in message.iter_mut().zip(text[..end].bytes()) {
        *place = c_char::from_ne_bytes([byte]);
    }
    message
}

unsafe fn new_tunnel(options: &RopewalkOptions) -> Result<Tunnel, Error> {
    let (Some(bind_socket), Some(on_event)) = (options.bind_socket, options.on_event) else {
        return Err(Error::Argument("options.bind_socket or options.on_event is null".to_owned()));
    };
    // SAFETY: as the caller promised, of all that is read here.
    let (secret_key, preshared_key, config, invitation) = unsafe {
        (
            key("options.secret_key", options.secret_key, options.secret_key_length)?,
            optional(options.preshared_key, || {
                key("options.preshared_key", options.preshared_key, options.preshared_key_length)
            })?,
            optional(options.config, || {
                text("options.config", options.config, options.config_length)
            })?,
            optional(options.invitation, || {
                text("options.invitation", options.invitation, options.invitation_length)
            })?,
        )
    };
    let options_of_tunnel = Options {
        secret_key: PrivateKey::from_bytes(secret_key),
        preshared_key: preshared_key.map(|bytes| PresharedKey::from_bytes(*bytes)),
        config,
        invitation,
    };
    let app = Callbacks { bind_socket, on_event, context: options.context };
    Tunnel::new(&options_of_tunnel, Arc::new(app))
}

/// Reads what may be absent.
fn optional<P, T>(
    pointer: *const P,
    read: impl FnOnce() -> Result<T, Error>,
) -> Result<Option<T>, Error> {
    if pointer.is_null() { Ok(None) } else { read().map(Some) }
}

/// Addresses with commas between them.
fn read_addresses(text: &str) -> Result<Vec<IpAddr>, Error> {
    let words = text.split(',').map(str::trim).filter(|word| !word.is_empty());
    let read = words.map(|word| {
        word.parse().map_err(|_| {
            Error::Argument(format!("addresses: `{}` is no address", word.escape_debug()))
        })
    });
    read.collect()
}

/// Whether a pointer can lead to a value.
fn check_pointer<T>(what: &str, pointer: *const T) -> Result<(), Error> {
    if pointer.is_null() {
        return Err(Error::Argument(format!("{what} is null")));
    }
    if !pointer.is_aligned() {
        return Err(Error::Argument(format!("{what} is not aligned")));
    }
    Ok(())
}

unsafe fn bytes<'a>(what: &str, pointer: *const u8, length: usize) -> Result<&'a [u8], Error> {
    check_pointer(what, pointer)?;
    if length > MAX_TEXT {
        return Err(Error::Argument(format!(
            "{what} has {length} bytes; at most {MAX_TEXT} are possible"
        )));
    }
    // SAFETY: as the caller promised.
    Ok(unsafe { std::slice::from_raw_parts(pointer, length) })
}

unsafe fn text<'a>(what: &str, pointer: *const c_char, length: usize) -> Result<&'a str, Error> {
    // SAFETY: as the caller promised.
    let bytes = unsafe { bytes(what, pointer.cast(), length) }?;
    std::str::from_utf8(bytes).map_err(|_| Error::Argument(format!("{what} is not UTF-8")))
}

unsafe fn key<'a>(
    what: &str,
    pointer: *const u8,
    length: usize,
) -> Result<&'a [u8; KEY_LEN], Error> {
    check_key(what, length)?;
    check_pointer(what, pointer)?;
    // SAFETY: as the caller promised.
    Ok(unsafe { &*pointer.cast::<[u8; KEY_LEN]>() })
}

unsafe fn key_place<'a>(
    what: &str,
    pointer: *mut u8,
    length: usize,
) -> Result<&'a mut [u8; KEY_LEN], Error> {
    check_key(what, length)?;
    check_pointer(what, pointer)?;
    // SAFETY: as the caller promised. It need not have a value yet: any byte is one.
    Ok(unsafe { &mut *pointer.cast::<[u8; KEY_LEN]>() })
}

fn check_key(what: &str, length: usize) -> Result<(), Error> {
    if length == KEY_LEN {
        return Ok(());
    }
    Err(Error::Argument(format!("{what} has {length} bytes; a key has {KEY_LEN}")))
}

/// Puts a text and a final zero into the caller's buffer, and its length without that into `length`, which is told if there
/// is no room, too.
unsafe fn give_text(
    what: &str,
    (buffer, capacity): (*mut c_char, usize),
    length: *mut usize,
    text: &str,
) -> Result<(), Error> {
    check_pointer("length", length)?;
    // SAFETY: as the caller promised.
    unsafe { length.write(text.len()) };
    if capacity <= text.len() {
        return Err(Error::TooSmall { needed: text.len() + 1 });
    }
    check_pointer(what, buffer)?;
    // SAFETY: there is room for the text and the zero, as the caller promised, and the text is the library's.
    unsafe {
        buffer.cast::<u8>().copy_from_nonoverlapping(text.as_ptr(), text.len());
        buffer.add(text.len()).write(0);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_that_is_too_long_is_cut_at_a_character() {
        let read = |text: &str| {
            let message = message(text);
            let bytes: Vec<u8> = message.iter().map(|c| c.to_ne_bytes()[0]).collect();
            let end = bytes.iter().position(|byte| *byte == 0).expect("a final zero");
            String::from_utf8(bytes[..end].to_vec()).expect("UTF-8")
        };
        assert_eq!(read("short"), "short");
        assert_eq!(read(&"a".repeat(600)), "a".repeat(511));
        assert_eq!(read(&"\u{e9}".repeat(600)), "\u{e9}".repeat(255));
    }

    #[test]
    fn a_panic_becomes_an_error() {
        // SAFETY: there is nowhere to write to.
        let code = unsafe { call(std::ptr::null_mut(), || panic!("a fault")) };
        assert_eq!(code, Code::Internal);
    }

    #[test]
    fn addresses_are_read_with_commas_and_spaces_between_them() {
        let read = read_addresses(" 192.0.2.1, 2001:db8::1,,").unwrap();
        let expected: [IpAddr; 2] = ["192.0.2.1", "2001:db8::1"].map(|ip| ip.parse().unwrap());
        assert_eq!(read, expected);
        assert!(read_addresses("").unwrap().is_empty());
        assert_eq!(read_addresses("vps").unwrap_err().code(), Code::Argument);
    }
}
