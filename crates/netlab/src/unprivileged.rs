//! A root who tries things as an ordinary user: programs run as `nobody`, who may open /dev/net/tun, as
//! most distributions have it.
//!
//! Their PATH is that of a user of Debian, without the folders for administrators. The build folder may be
//! closed to others, so programs are copied to a folder that is not.

use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

use crate::error::LabError;
use crate::tool;

/// Becomes the user `nobody` in a mount namespace whose /dev/net/tun everybody may open, then runs what
/// follows. The first argument is an empty folder.
const AS_NOBODY: &str = r#"
set -e
mount -t tmpfs tmpfs "$1"
mknod "$1/tun" c 10 200 && chmod 666 "$1/tun"
mount --bind "$1/tun" /dev/net/tun
shift
exec setpriv --reuid 65534 --regid 65534 --clear-groups "$@"
"#;

/// What `login` of Debian gives to users (`ENV_PATH` in /etc/login.defs).
const USER_PATH: &str = "/usr/local/bin:/usr/bin:/bin:/usr/local/games:/usr/games";

/// A place where `nobody` can run programs; removed when dropped.
#[derive(Debug)]
pub struct Nobody {
    folder: TempDir,
    devices: PathBuf,
}

impl Nobody {
    /// Prepares the place.
    ///
    /// # Errors
    /// When no folder can be made, or this root cannot become another user (in some containers).
    pub fn prepare() -> Result<Self, LabError> {
        let made = || -> io::Result<Self> {
            let folder = tempfile::tempdir()?;
            std::fs::set_permissions(folder.path(), PermissionsExt::from_mode(0o755))?;
            let devices = folder.path().join("devices");
            std::fs::create_dir(&devices)?;
            Ok(Self { folder, devices })
        };
        let nobody = made().map_err(LabError::io("making a folder for nobody"))?;
        let whoami = nobody.command(Path::new("id")).arg("-u").output();
        let whoami = whoami.map_err(LabError::io("starting `unshare`"))?;
        if whoami.stdout == b"65534\n" {
            return Ok(nobody);
        }
        let why = String::from_utf8_lossy(&whoami.stderr);
        Err(LabError::Unsupported(format!("this root cannot become another user: {}", why.trim())))
    }

    /// Copies a program to where `nobody` may run it.
    ///
    /// # Errors
    /// When it cannot be copied.
    pub fn copy(&self, program: &Path) -> Result<PathBuf, LabError> {
        let copy = self.folder.path().join(program.file_name().unwrap_or(program.as_os_str()));
        // Not by this process: another thread's child may inherit a file open for writing, which nobody
        // can run.
        tool::run("cp", &[&program.display().to_string(), &copy.display().to_string()])?;
        Ok(copy)
    }

    /// A command that runs `program` as `nobody`; arguments added go to the program.
    #[must_use]
    pub fn command(&self, program: &Path) -> Command {
        let mut command = Command::new("unshare");
        command.env("PATH", USER_PATH);
        command.args(["--mount", "--propagation", "private", "sh", "-c", AS_NOBODY, "sh"]);
        command.arg(&self.devices).arg(program);
        command
    }
}
