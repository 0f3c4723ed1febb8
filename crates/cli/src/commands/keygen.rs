//! `ropewalk keygen`: keys in files that only their owner can read.

use std::fs::{File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use anyhow::Context as _;
use ropewalk_control::folder::Folder;
use ropewalk_settings::{KeyError, PresharedKey, PrivateKey};
use zeroize::Zeroizing;

use crate::args::Keygen;
use crate::exit::{Failure, print};

/// Only the owner reads and writes a secret.
const SECRET_MODE: u32 = 0o600;

/// Bytes read from standard input: a key and room for white space.
const MAX_INPUT_BYTES: u64 = 1024;

/// Makes a key, or prints the public key of one.
pub(crate) fn run(keygen: &Keygen) -> Result<(), Failure> {
    let Some(file) = &keygen.file else { return print_public() };
    if keygen.preshared {
        let key = PresharedKey::generate().context("the system gives no randomness")?;
        write_secret(file, &key.to_base64(), keygen.force)?;
        tell(&format!("wrote a preshared key to {}: copy it to the other end", file.display()));
        return Ok(());
    }
    let key = PrivateKey::generate().context("the system gives no randomness")?;
    write_secret(file, &key.to_base64(), keygen.force)?;
    tell(&format!("wrote the private key to {}; the public key is:", file.display()));
    print(&format!("{}\n", key.public_key()))
}

fn print_public() -> Result<(), Failure> {
    let mut text = Zeroizing::new(String::new());
    io::stdin()
        .take(MAX_INPUT_BYTES)
        .read_to_string(&mut text)
        .context("cannot read standard input")?;
    let key: PrivateKey = text.parse().map_err(|error: KeyError| {
        Failure::Usage(format!("standard input is no private key: {error}"))
    })?;
    print(&format!("{}\n", key.public_key()))
}

/// Writes a secret into a new file; an existing one is replaced as a whole, and only by force.
fn write_secret(file: &Path, secret: &str, force: bool) -> Result<(), Failure> {
    let shown = file.display();
    if force {
        return replace_secret(file, secret)
            .with_context(|| format!("cannot write {shown}"))
            .map_err(Failure::from);
    }
    let created = Folder::of(file).and_then(|(folder, name)| {
        let mut options = OpenOptions::new();
        let created = options.write(true).create_new(true).mode(SECRET_MODE).open(folder.at(name));
        Ok((created?, folder))
    });
    match created {
        Ok((created, folder)) => {
            fill(created, secret, &folder).with_context(|| format!("cannot write {shown}"))?;
            Ok(())
        }
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            Err(Failure::Failed(anyhow::anyhow!(
                "{shown} exists and stays as it is (--force replaces it: the old key is lost)"
            )))
        }
        Err(error) => {
            Err(anyhow::Error::new(error).context(format!("cannot write {shown}")).into())
        }
    }
}

/// A temporary file is made with mode 600.
fn replace_secret(file: &Path, secret: &str) -> io::Result<()> {
    let (folder, name) = Folder::of(file)?;
    let new = tempfile::NamedTempFile::new_in(folder.path())?;
    fill(new.as_file().try_clone()?, secret, &folder)?;
    new.persist(folder.at(name)).map_err(|error| error.error)?;
    Ok(())
}

fn fill(mut file: File, secret: &str, folder: &Folder) -> io::Result<()> {
    folder.give(&file)?;
    file.write_all(secret.as_bytes())?;
    file.write_all(b"\n")?;
    file.sync_all()
}

/// For people only: standard output holds nothing but the public key.
fn tell(message: &str) {
    drop(writeln!(io::stderr(), "{message}"));
}
