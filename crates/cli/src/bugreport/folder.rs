//! What is in a daemon's folders: names, permissions, owners and sizes, and nothing of what the files say.

use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use ropewalk_control::folder::Folder;

/// Files of a folder that are told of.
const MOST: usize = 64;

/// A line for each file.
///
/// # Errors
/// In words: the folder cannot be read.
pub(crate) fn list(path: &Path) -> Result<String, String> {
    let shown = path.display();
    let failed = |error: std::io::Error| match error.kind() {
        std::io::ErrorKind::NotFound => format!("there is no {shown}"),
        _ => format!("cannot read {shown}: {error}"),
    };
    let folder = Folder::open(path).map_err(failed)?;
    let users = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
    let own = std::fs::metadata(folder.path()).map_err(failed)?;
    let entries = std::fs::read_dir(folder.path()).map_err(failed)?;
    let mut lines = vec![line(&users, &own, ".")];
    let mut names: Vec<_> = entries.filter_map(|entry| Some(entry.ok()?.file_name())).collect();
    names.sort();
    let more = names.len().saturating_sub(MOST);
    for name in names.into_iter().take(MOST) {
        // Not what a link leads to.
        let found = std::fs::symlink_metadata(folder.at(&name));
        let name = name.to_string_lossy();
        lines.push(match found {
            Ok(found) => line(&users, &found, &name),
            Err(error) => format!("{name}: {error}"),
        });
    }
    if more > 0 {
        lines.push(format!("and {more} more"));
    }
    Ok(lines.join("\n") + "\n")
}

fn line(users: &str, found: &std::fs::Metadata, name: &str) -> String {
    let kind = match found.file_type() {
        kind if kind.is_dir() => "folder",
        kind if kind.is_symlink() => "link",
        kind if kind.is_file() => "file",
        _ => "other",
    };
    let (mode, owner) = (found.mode() & 0o7777, owner(users, found.uid()));
    let names = match found.nlink() {
        1 => String::new(),
        _ if found.is_dir() => String::new(),
        several => format!(", {several} names"),
    };
    format!("{mode:04o} {owner:<16} {:>9} {kind} {name}{names}", found.len())
}

/// Root's and the daemons' users by their names, all others by their numbers.
fn owner(users: &str, uid: u32) -> String {
    let of_line = |line: &str| {
        let mut fields = line.split(':');
        let name = fields.next()?.to_owned();
        (fields.nth(1)?.parse::<u32>() == Ok(uid)).then_some(name)
    };
    let name = users.lines().find_map(of_line);
    let may_be_told = |name: &String| name == "root" || name.starts_with("ropewalk");
    name.filter(may_be_told).unwrap_or_else(|| format!("user {uid}"))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn files_are_told_of_and_not_what_they_say() {
        let folder = tempfile::tempdir().unwrap();
        let key = folder.path().join("client.key");
        std::fs::write(&key, "hunter2").unwrap();
        std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o600)).unwrap();
        std::os::unix::fs::symlink("/etc/shadow", folder.path().join("odd")).unwrap();
        let told = list(folder.path()).unwrap();
        let lines: Vec<&str> = told.lines().collect();
        assert!(lines[0].ends_with("folder ."), "{told}");
        assert!(lines[1].starts_with("0600 ") && lines[1].ends_with("7 file client.key"), "{told}");
        assert!(lines[2].ends_with("link odd"), "{told}");
        assert!(!told.contains("hunter2"), "{told}");
        let none = list(&folder.path().join("none")).unwrap_err();
        assert!(none.starts_with("there is no "), "{none}");
    }

    #[test]
    fn only_users_of_the_system_and_the_daemons_are_named() {
        let users = "root:x:0:0:root:/root:/bin/bash\nanna:x:1000:1000::/home/anna:/bin/sh\n\
                     ropewalk-client:x:998:997::/nonexistent:/usr/sbin/nologin\n";
        let told = [0, 998, 1000, 7].map(|uid| owner(users, uid));
        assert_eq!(told, ["root", "ropewalk-client", "user 1000", "user 7"]);
    }
}
