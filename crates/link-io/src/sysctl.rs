//! Kernel settings under `/proc/sys`, in the network namespace of the calling thread.

use std::io;
use std::path::PathBuf;

/// Why a kernel setting could not be read or written.
#[derive(Debug, thiserror::Error)]
pub enum SysctlError {
    /// The right is missing.
    #[error("cannot set {key} to {value}: the capability CAP_NET_ADMIN is missing")]
    Permission {
        /// The setting, as in `net/ipv4/ip_forward`.
        key: String,
        /// What it should have become.
        value: String,
    },
    /// `/proc/sys` is read-only, as in most containers.
    #[error(
        "cannot set {key} to {value}: /proc/sys is read-only here; set it on the host (in a container: \
         --sysctl {dotted}={value})"
    )]
    ReadOnly {
        /// The setting.
        key: String,
        /// The setting as `sysctl` writes it.
        dotted: String,
        /// What it should have become.
        value: String,
    },
    /// Anything else.
    #[error("cannot access the kernel setting {key}: {source}")]
    Io {
        /// The setting.
        key: String,
        /// What the system said.
        source: io::Error,
    },
}

/// The value of a setting such as `net/ipv4/ip_forward`, or `None` if this kernel does not have it.
///
/// # Errors
/// When it exists but cannot be read.
pub fn read(key: &str) -> Result<Option<String>, SysctlError> {
    match std::fs::read_to_string(path(key)) {
        Ok(text) => Ok(Some(text.trim().to_owned())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(source) => Err(SysctlError::Io { key: key.to_owned(), source }),
    }
}

/// The value of a setting as a number; `None` if this kernel does not have it or it is no number.
///
/// # Errors
/// When it exists but cannot be read.
pub fn read_number(key: &str) -> Result<Option<u64>, SysctlError> {
    Ok(read(key)?.and_then(|text| text.parse().ok()))
}

/// Sets a value.
///
/// # Errors
/// When the right is missing, `/proc/sys` is read-only, or there is no such setting.
pub fn write(key: &str, value: &str) -> Result<(), SysctlError> {
    std::fs::write(path(key), value).map_err(|source| {
        let (key, value) = (key.to_owned(), value.to_owned());
        match source.kind() {
            io::ErrorKind::PermissionDenied => SysctlError::Permission { key, value },
            io::ErrorKind::ReadOnlyFilesystem => {
                SysctlError::ReadOnly { dotted: key.replace('/', "."), key, value }
            }
            _ => SysctlError::Io { key, source },
        }
    })
}

fn path(key: &str) -> PathBuf {
    PathBuf::from("/proc/sys").join(key)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_setting_is_read_and_one_the_kernel_lacks_is_none() {
        assert_eq!(read_number("net/ipv4/conf/lo/no_such_setting").unwrap(), None);
        assert!(read_number("net/ipv4/ip_forward").unwrap().is_some());
    }

    #[test]
    fn a_setting_that_is_missing_cannot_be_written_and_is_named() {
        let error = write("net/ipv4/conf/lo/no_such_setting", "1").unwrap_err().to_string();
        assert!(error.contains("net/ipv4/conf/lo/no_such_setting"), "{error}");
    }
}
