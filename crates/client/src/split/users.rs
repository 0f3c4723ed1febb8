//! Which number a user has.

use ropewalk_settings::User;

/// Where users stand with their numbers (`passwd(5)`). What other sources know (LDAP, systemd-homed) is written as a number.
pub const PASSWD: &str = "/etc/passwd";

/// The number of this user; `None`: there is nobody of this name.
#[must_use]
pub fn id_of(user: &User, passwd: &str) -> Option<u32> {
    let name = match user {
        User::Id(id) => return Some(*id),
        User::Name(name) => name.as_str(),
    };
    passwd.lines().find_map(|line| {
        let mut fields = line.split(':');
        if fields.next() != Some(name) {
            return None;
        }
        fields.nth(1)?.parse().ok()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_is_known_by_name_or_number() {
        let passwd = "root:x:0:0::/root:/bin/sh\n# backup:x:7:7\nbackup:x:34:34::/:/bin/sh\nbad:x\nodd:x:?:1\n";
        let named = |name: &str| User::Name(name.to_owned());
        for (user, expected) in [
            (User::Id(1000), Some(1000)),
            (named("root"), Some(0)),
            (named("backup"), Some(34)),
            (named("back"), None),
            (named("bad"), None),
            (named("odd"), None),
            (named(""), None),
        ] {
            assert_eq!(id_of(&user, passwd), expected, "{user:?}");
        }
    }
}
