//! The header says what the library has. A C compiler judges: every type, size, place and number is written out for it as
//! the Rust side has them, and a declaration that differs from the header's is an error to it.

// Elsewhere `char` of C may be the same Rust type as `uint8_t`, and the two could not be told apart here.
#![cfg(all(target_os = "linux", target_arch = "x86_64"))]

use std::collections::BTreeSet;
use std::ffi::{c_char, c_int, c_void};
use std::fmt::Write as _;
use std::mem::offset_of;
use std::path::Path;
use std::process::Command;

use ropewalk_mobile::Code;
use ropewalk_mobile::c::{
    self, BindSocket, ERROR_BYTES, INTERFACE_VERSION, OnEvent, RopewalkError, RopewalkOptions,
    RopewalkTunnel,
};

const HEADER: &str = include_str!("../include/ropewalk.h");
const SOURCE: &str = include_str!("../src/c.rs");

#[test]
fn the_header_declares_what_the_library_has() {
    let (good, said) = compile(&expectations());
    assert!(good, "{said}");
}

#[test]
fn a_header_that_said_something_else_would_be_found() {
    let expected = expectations();
    for (right, wrong) in [
        ("ropewalk_tunnel_stop(const ropewalk_tunnel *", "ropewalk_tunnel_stop(ropewalk_tunnel *"),
        ("ropewalk_code ropewalk_tunnel_pause", "uint64_t ropewalk_tunnel_pause"),
        ("ROPEWALK_BUSY == 6", "ROPEWALK_BUSY == 7"),
        ("offsetof(ropewalk_options, context) == 88", "offsetof(ropewalk_options, context) == 80"),
        ("int (*)(void *, int, uint64_t)", "int (*)(void *, int, uint32_t)"),
    ] {
        assert!(expected.contains(right), "{right}\n{expected}");
        let (good, _) = compile(&expected.replace(right, wrong));
        assert!(!good, "{wrong}");
    }
}

#[test]
fn the_header_the_source_and_this_test_have_the_same_functions() {
    let tested: BTreeSet<_> = functions().into_iter().map(|(name, _)| name.to_owned()).collect();
    let of_source = SOURCE.split("extern \"C\" fn ").skip(1).filter_map(|rest| {
        let name = rest.split('(').next()?;
        name.starts_with("ropewalk_").then(|| name.to_owned())
    });
    assert_eq!(of_source.collect::<BTreeSet<_>>(), tested);
    let header = without_comments(HEADER);
    let word = |text: &str| {
        let start = text.rfind(|c: char| !c.is_ascii_alphanumeric() && c != '_');
        text[start.map_or(0, |at| at + 1)..].to_owned()
    };
    let called = header.match_indices('(').map(|(at, _)| word(&header[..at]));
    let declared: BTreeSet<_> = called.filter(|name| name.starts_with("ropewalk_")).collect();
    assert_eq!(declared, tested);
    let codes = header.lines().filter(|line| line.trim_start().starts_with("ROPEWALK_"));
    assert_eq!(codes.count(), CODES.len());
}

/// What C calls a type.
trait Shape {
    fn name() -> String;

    /// A pointer to it.
    fn pointer() -> String {
        format!("{} *", Self::name())
    }
}

macro_rules! shapes {
    ($($type:ty = $name:literal),+ $(,)?) => {$(
        impl Shape for $type {
            fn name() -> String {
                $name.to_owned()
            }
        }
    )+};
}

shapes! {
    () = "void",
    c_void = "void",
    c_char = "char",
    c_int = "int",
    u8 = "uint8_t",
    u32 = "uint32_t",
    u64 = "uint64_t",
    usize = "size_t",
    Code = "ropewalk_code",
    RopewalkError = "ropewalk_error",
    RopewalkOptions = "ropewalk_options",
    RopewalkTunnel = "ropewalk_tunnel",
    Option<BindSocket> = "ropewalk_bind_socket",
    Option<OnEvent> = "ropewalk_on_event",
}

impl<T: Shape> Shape for *const T {
    fn name() -> String {
        format!("const {} *", T::name())
    }
}

impl<T: Shape> Shape for *mut T {
    fn name() -> String {
        format!("{} *", T::name())
    }
}

impl<T: Shape, const LENGTH: usize> Shape for [T; LENGTH] {
    fn name() -> String {
        format!("{}[{LENGTH}]", T::name())
    }

    fn pointer() -> String {
        format!("{} (*)[{LENGTH}]", T::name())
    }
}

/// A function as C declares it, with any name.
trait Prototype {
    fn declaration(name: &str) -> String;
}

macro_rules! prototypes {
    ($(($($argument:ident),*))+) => {$(
        impl<R: Shape, $($argument: Shape),*> Prototype for unsafe extern "C" fn($($argument),*) -> R {
            fn declaration(name: &str) -> String {
                let arguments: Vec<String> = vec![$($argument::name()),*];
                let arguments = match arguments.is_empty() {
                    true => "void".to_owned(),
                    false => arguments.join(", "),
                };
                format!("{} {name}({arguments})", R::name())
            }
        }
    )+};
}

prototypes! { () (A) (A, B) (A, B, C) (A, B, C, D) (A, B, C, D, E) (A, B, C, D, E, F) }

fn declare<F: Prototype>(_function: F, name: &str) -> String {
    F::declaration(name)
}

macro_rules! functions {
    ($($name:ident($($argument:tt),*));+ $(;)?) => {
        vec![$((
            stringify!($name),
            declare(c::$name as unsafe extern "C" fn($($argument),*) -> _, stringify!($name)),
        )),+]
    };
}

/// Every function: its name, and how C declares it.
fn functions() -> Vec<(&'static str, String)> {
    functions![
        ropewalk_interface_version();
        ropewalk_make_key(_, _, _, _, _);
        ropewalk_public_key(_, _, _, _, _);
        ropewalk_read_invitation(_, _, _, _, _, _);
        ropewalk_tunnel_new(_, _, _);
        ropewalk_tunnel_start(_, _);
        ropewalk_tunnel_set_tun(_, _, _);
        ropewalk_tunnel_set_network(_, _, _, _);
        ropewalk_tunnel_remove_network(_, _, _);
        ropewalk_tunnel_set_addresses(_, _, _, _, _, _);
        ropewalk_tunnel_pause(_, _);
        ropewalk_tunnel_resume(_, _);
        ropewalk_tunnel_status(_, _, _, _, _);
        ropewalk_tunnel_stop(_, _);
        ropewalk_tunnel_free(_, _);
    ]
}

macro_rules! fields {
    ($name:ident { $($field:ident: $type:ty),+ $(,)? }) => {{
        // All of them, and with these types.
        let _ = |value: $name| {
            let $name { $($field),+ } = value;
            $(let _: $type = $field;)+
        };
        vec![$((stringify!($field), offset_of!($name, $field), <$type as Shape>::pointer())),+]
    }};
}

const CODES: [(Code, &str); 12] = [
    (Code::Ok, "ROPEWALK_OK"),
    (Code::Argument, "ROPEWALK_ARGUMENT"),
    (Code::Invitation, "ROPEWALK_INVITATION"),
    (Code::Config, "ROPEWALK_CONFIG"),
    (Code::Order, "ROPEWALK_ORDER"),
    (Code::Stopped, "ROPEWALK_STOPPED"),
    (Code::Busy, "ROPEWALK_BUSY"),
    (Code::TooSmall, "ROPEWALK_TOO_SMALL"),
    (Code::WrongThread, "ROPEWALK_WRONG_THREAD"),
    (Code::Descriptor, "ROPEWALK_DESCRIPTOR"),
    (Code::System, "ROPEWALK_SYSTEM"),
    (Code::Internal, "ROPEWALK_INTERNAL"),
];

/// All that the header is to say, for a C compiler.
fn expectations() -> String {
    let mut text = String::from("#include \"ropewalk.h\"\n");
    let mut expect = |condition: String| {
        writeln!(text, "_Static_assert({condition}, \"\");").expect("a text");
    };
    for (code, name) in CODES {
        expect(format!("{name} == {}", code as u32));
    }
    expect(format!("ROPEWALK_INTERFACE_VERSION == {INTERFACE_VERSION}"));
    expect(format!("ROPEWALK_KEY_BYTES == {}", ropewalk_settings::KEY_LEN));
    expect(format!("ROPEWALK_ERROR_BYTES == {ERROR_BYTES}"));
    let structures = [
        (
            RopewalkError::name(),
            size_of::<RopewalkError>(),
            fields!(RopewalkError { code: Code, message: [c_char; ERROR_BYTES] }),
        ),
        (
            RopewalkOptions::name(),
            size_of::<RopewalkOptions>(),
            fields!(RopewalkOptions {
                size: usize,
                secret_key: *const u8,
                secret_key_length: usize,
                preshared_key: *const u8,
                preshared_key_length: usize,
                config: *const c_char,
                config_length: usize,
                invitation: *const c_char,
                invitation_length: usize,
                bind_socket: Option<BindSocket>,
                on_event: Option<OnEvent>,
                context: *mut c_void,
            }),
        ),
    ];
    let is = |expression: &str, type_name: &str| {
        format!("_Generic({expression}, {type_name}: 1, default: 0)")
    };
    for (structure, size, fields) in structures {
        expect(format!("sizeof({structure}) == {size}"));
        for (field, offset, pointer) in fields {
            expect(format!("offsetof({structure}, {field}) == {offset}"));
            expect(is(&format!("&(({structure} *)0)->{field}"), &pointer));
        }
    }
    expect(is("(ropewalk_bind_socket)0", &BindSocket::declaration("(*)")));
    expect(is("(ropewalk_on_event)0", &OnEvent::declaration("(*)")));
    for (_, declaration) in functions() {
        writeln!(text, "{declaration};").expect("a text");
    }
    text
}

/// Whether a C compiler takes this, and what it says.
fn compile(text: &str) -> (bool, String) {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("expected.c");
    std::fs::write(&file, text).expect("a file");
    let include = Path::new(env!("CARGO_MANIFEST_DIR")).join("include");
    let mut command = Command::new("cc");
    command.args(["-std=c11", "-Wall", "-Wextra", "-Werror", "-pedantic", "-fsyntax-only", "-I"]);
    let output = command.arg(include).arg(file).output();
    let output = output.expect("a C compiler: sudo apt-get install gcc");
    (output.status.success(), String::from_utf8_lossy(&output.stderr).into_owned())
}

fn without_comments(text: &str) -> String {
    let mut rest = text;
    let mut bare = String::new();
    while let Some((before, after)) = rest.split_once("/*") {
        bare.push_str(before);
        rest = after.split_once("*/").map_or("", |(_, rest)| rest);
    }
    bare + rest
}
