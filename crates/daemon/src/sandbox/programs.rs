//! The programs that a daemon starts: each is allowed by its file, with the loader that the kernel starts for it and the folders
//! of the libraries that this loads.

use std::path::{Path, PathBuf};

use elf::ElfBytes;
use elf::abi::PT_INTERP;
use elf::endian::NativeEndian;

/// Where packages put administrators' programs; a user's PATH often lacks these.
const USUAL_FOLDERS: [&str; 2] = ["/usr/sbin", "/sbin"];

/// Where libraries are; the last two are those of NixOS and Guix.
const LIBRARIES: [&str; 7] =
    ["/lib", "/lib64", "/usr/lib", "/usr/lib64", "/usr/local/lib", "/nix/store", "/gnu/store"];

/// What must be allowed for some programs.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Programs {
    /// The programs, and the folders of their loaders: an upgrade replaces a loader under a daemon that runs.
    pub(super) executed: Vec<PathBuf>,
    /// Their libraries.
    pub(super) read: Vec<PathBuf>,
}

/// All files that could be meant by these names.
pub(super) fn of(names: &[&str]) -> Programs {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders: Vec<PathBuf> =
        std::env::split_paths(&path).chain(USUAL_FOLDERS.map(PathBuf::from)).collect();
    let mut programs = Programs::default();
    let named = names.iter().flat_map(|name| folders.iter().map(move |folder| folder.join(name)));
    for program in named.filter_map(|program| program.canonicalize().ok()) {
        if programs.executed.contains(&program) {
            continue;
        }
        let loader = loader(&program).and_then(|loader| loader.canonicalize().ok());
        let folder = loader.as_deref().and_then(Path::parent).map(Path::to_owned);
        programs.executed.extend([program].into_iter().chain(folder));
    }
    programs.read = LIBRARIES.map(PathBuf::from).into();
    programs
}

/// Which program the kernel starts to load this one; `None` for one that needs none, or is none.
fn loader(program: &Path) -> Option<PathBuf> {
    let bytes = std::fs::read(program).ok()?;
    let file = ElfBytes::<NativeEndian>::minimal_parse(&bytes).ok()?;
    let named = file.segments()?.iter().find(|segment| segment.p_type == PT_INTERP)?;
    let name = file.segment_data(&named).ok()?;
    let name = std::str::from_utf8(name).ok()?.trim_end_matches('\0');
    Some(name.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_found_with_the_folder_of_its_loader() {
        let found = of(&["sh", "no-such-program"]);
        assert!(found.executed.iter().any(|path| path.is_file()), "{found:?}");
        let shell = Path::new("/bin/sh").canonicalize().unwrap();
        assert!(found.executed.contains(&shell), "{found:?}");
        let loader = loader(&shell).unwrap();
        assert!(loader.is_absolute() && loader.exists(), "{}", loader.display());
        assert!(
            found.executed.contains(&loader.canonicalize().unwrap().parent().unwrap().to_owned())
        );
    }

    #[test]
    fn what_is_no_program_has_no_loader() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        for content in [&b""[..], b"#!/bin/sh\n", b"\x7fELF", b"\x7fELF\x02\x01\x01"] {
            std::fs::write(&file, content).unwrap();
            assert_eq!(loader(&file), None, "{content:?}");
        }
        assert_eq!(loader(folder.path()), None);
    }
}
