//! Each daemon has a user of its own: on a machine with both, neither reads the other's keys or state, puts anything into its
//! folders, or controls it. And an installation of the time when both had one user becomes such a one, with all that it had.
//!
//! The package's script is run as `dpkg` runs it, in a mount namespace with an /etc, a /run and a /var/lib of its own.

use std::path::Path;
use std::process::Command;

use ropewalk_netlab::namespace::{Namespace, next_number};
use ropewalk_netlab::privilege::{lab_test, skipped};
use ropewalk_netlab::unprivileged::Nobody;

/// What makes the users and their folders, beside what every system has.
const TOOLS: [&str; 2] = ["systemd-sysusers", "systemd-tmpfiles"];

/// A machine before the package comes: `$1` is an empty folder, `$2` the repository's `configs`, `$3` the program. What follows
/// is run there.
const MACHINE: &str = r#"
set -e
configs=$2 program=$3
mount --make-rprivate /
mount -t tmpfs tmpfs "$1"
mkdir "$1/etc" "$1/run" "$1/lib"
for file in passwd group shadow gshadow nsswitch.conf login.defs; do cp -p "/etc/$file" "$1/etc" 2>/dev/null || :; done
sed -i '/^ropewalk/d' "$1/etc/passwd" "$1/etc/group" "$1/etc/shadow" "$1/etc/gshadow"
mknod "$1/tun" c 10 200 && chmod 666 "$1/tun" && mount --bind "$1/tun" /dev/net/tun
mount --bind "$1/etc" /etc && mount --bind "$1/run" /run && mount --bind "$1/lib" /var/lib
mkdir /etc/sysusers.d /etc/tmpfiles.d
cp "$configs/systemd/sysusers.conf" /etc/sysusers.d/ropewalk.conf
cp "$configs/systemd/tmpfiles.conf" /etc/tmpfiles.d/ropewalk.conf
install_package() { sh "$configs/debian/postinst" configure "$@"; }
# As the units have it.
unit="setpriv --groups ropewalk --no-new-privs --inh-caps -all,+net_admin --ambient-caps -all,+net_admin
    --bounding-set -all,+net_admin"
as_client="$unit --reuid ropewalk-client --regid ropewalk-client"
as_proxy="$unit --reuid ropewalk-proxy --regid ropewalk-proxy"
"#;

#[test]
fn neither_daemon_reads_the_keys_of_the_other_or_controls_it() {
    const NAME: &str = "users::neither_daemon_reads_the_keys_of_the_other_or_controls_it";
    lab_test(NAME, || {
        let said = on_a_machine(
            NAME,
            r#"
            install_package
            mkdir /run/ropewalk
            for role in client proxy; do
                install -d -o ropewalk-$role -g ropewalk-$role -m 755 /run/ropewalk/$role
            done
            install -d -o ropewalk-proxy -g ropewalk-proxy -m 700 /var/lib/ropewalk
            ip link set lo up
            ip link add uplink type dummy && ip link set uplink up
            ip address add 192.0.2.7/24 dev uplink && ip route add default via 192.0.2.1
            # A first start, stopped when the files are there; then a group may control the proxy.
            serve() {
                $as_proxy "$program" proxy >/run/log 2>&1 &
                daemon=$!
                for _ in $(seq 200); do
                    "$program" status --socket /run/ropewalk/proxy/proxy.sock >/dev/null 2>&1 && return
                    sleep 0.1
                done
                cat /run/log
            }
            serve && kill $daemon && wait $daemon
            sed -i 's/^# group = "ropewalk"$/group = "ropewalk"/' /etc/ropewalk/proxy/proxy.toml
            serve
            useradd --no-create-home --groups ropewalk member
            tries() { # WHO WHAT COMMAND..
                who=$1 what=$2
                shift 2
                if "$@" >/dev/null 2>&1; then echo "$who $what: yes"; else echo "$who $what: no"; fi
            }
            status="$program status --socket /run/ropewalk/proxy/proxy.sock"
            member="setpriv --reuid member --regid nogroup --init-groups"
            stat -c 'socket %U:%G %a' /run/ropewalk/proxy/proxy.sock
            stat -c 'key %U:%G %a' /etc/ropewalk/proxy/proxy.key
            tries proxy 'reads its key' $as_proxy cat /etc/ropewalk/proxy/proxy.key
            tries client 'reads the key' $as_client cat /etc/ropewalk/proxy/proxy.key
            tries client 'lists the configs' $as_client ls /etc/ropewalk/proxy
            tries client 'makes a config' $as_client touch /etc/ropewalk/proxy/x
            tries client 'makes a file beside' $as_client touch /etc/ropewalk/x
            tries client 'reads the state' $as_client ls /var/lib/ropewalk
            tries client 'removes the socket' $as_client rm -f /run/ropewalk/proxy/proxy.sock
            tries client 'puts another there' $as_client mv /run/ropewalk/proxy /run/ropewalk/client/
            tries client 'signals the daemon' $as_client kill -0 $daemon
            tries client 'asks the daemon' $as_client $status
            tries proxy 'asks the daemon' $as_proxy $status
            tries member 'asks the daemon' $member $status
            tries member 'reads the key' $member cat /etc/ropewalk/proxy/proxy.key
            tries proxy 'makes a file of the client' $as_proxy touch /etc/ropewalk/client/x
            tries proxy 'lists those of the client' $as_proxy ls /etc/ropewalk/client
            kill $daemon && wait $daemon
            "#,
        );
        let Some(said) = said else { return };
        let expected = "\
            socket ropewalk-proxy:ropewalk 660\n\
            key ropewalk-proxy:ropewalk-proxy 600\n\
            proxy reads its key: yes\n\
            client reads the key: no\n\
            client lists the configs: no\n\
            client makes a config: no\n\
            client makes a file beside: no\n\
            client reads the state: no\n\
            client removes the socket: no\n\
            client puts another there: no\n\
            client signals the daemon: no\n\
            client asks the daemon: no\n\
            proxy asks the daemon: yes\n\
            member asks the daemon: yes\n\
            member reads the key: no\n\
            proxy makes a file of the client: no\n\
            proxy lists those of the client: no\n";
        assert_eq!(said, expected);
    });
}

#[test]
fn what_both_daemons_had_in_one_folder_becomes_that_of_each_and_nothing_is_lost() {
    const NAME: &str =
        "users::what_both_daemons_had_in_one_folder_becomes_that_of_each_and_nothing_is_lost";
    lab_test(NAME, || {
        let said = on_a_machine(
            NAME,
            r#"
            # As version 0.1.0 left it.
            useradd --system --user-group --home /nonexistent --shell /usr/sbin/nologin ropewalk
            useradd --no-create-home --groups ropewalk member
            install -d -o ropewalk -g ropewalk -m 750 /etc/ropewalk
            install -d -o ropewalk -g ropewalk -m 700 /var/lib/ropewalk /var/lib/ropewalk-client
            install -d -o ropewalk -g ropewalk -m 755 /run/ropewalk
            cd /etc/ropewalk
            for name in client work; do
                "$program" keygen $name.key 2>/dev/null >/dev/null
                printf 'private_key_file = "%s.key"\n[[link]]\nname = "lo"\n[proxy]\n' $name >$name.toml
            done
            sed -i 's|"work.key"|"/etc/ropewalk/work.key"|' work.toml
            cp -p client.toml client.toml.old
            cp -p client.key client.key.old
            "$program" keygen proxy.key 2>/dev/null >/dev/null
            "$program" keygen --preshared laptop.psk 2>/dev/null >/dev/null
            sed -e 's|/etc/ropewalk/proxy/|/etc/ropewalk/|; s|/run/ropewalk/proxy/|/run/ropewalk/|' \
                -e 's|^# preshared_key_file|preshared_key_file|' "$configs/proxy.toml" >proxy.toml
            echo unknown >notes.txt
            echo secret >/run/root && ln -s /run/root client.invitation
            echo secret >/etc/root && ln /etc/root work.psk
            chown -h ropewalk:ropewalk *.toml *.key *.psk *.old client.invitation notes.txt
            chown root:root /etc/root && chmod 600 /etc/root
            for file in /var/lib/ropewalk/peers.json /var/lib/ropewalk-client/counters.json; do
                echo "{}" >$file && chown ropewalk:ropewalk $file
            done
            sums() { (cd /etc/ropewalk && find . -name '*.key*' -o -name '*.psk') | sed 's|.*/||' | sort >/run/names
                find /etc/ropewalk -type f \( -name '*.key*' -o -name '*.psk' \) -exec sha256sum {} + | cut -c1-64 | sort; }
            sums >/run/before && cp /run/names /run/names-before
            cd /
            for run in first second; do
                install_package 0.1.0-1 2>/run/said
                grep -v '^Creating' /run/said
            done
            sums >/run/after
            cmp /run/before /run/after && cmp /run/names-before /run/names && echo "every key is there"
            find /etc/ropewalk /var/lib/ropewalk* /etc/root -printf '%p %u:%g %m\n' | sort
            grep -Eh '^(private_key|preshared_key|socket)' /etc/ropewalk/*/*.toml
            id -nG member | grep -qw ropewalk && echo "who could control it still can"
            "#,
        );
        let Some(said) = said else { return };
        let stays = |file| {
            format!(
                "ropewalk: /etc/ropewalk/{file} stays where it is: a link, or no config there names it\n"
            )
        };
        let stays = ["client.invitation", "notes.txt", "work.psk"].map(stays).concat();
        let expected = format!(
            "{stays}{stays}\
            every key is there\n\
            /etc/root root:root 600\n\
            /etc/ropewalk root:root 755\n\
            /etc/ropewalk/client ropewalk-client:ropewalk-client 750\n\
            /etc/ropewalk/client.invitation ropewalk:ropewalk 777\n\
            /etc/ropewalk/client/client.key ropewalk-client:ropewalk-client 600\n\
            /etc/ropewalk/client/client.key.old ropewalk-client:ropewalk-client 600\n\
            /etc/ropewalk/client/client.toml ropewalk-client:ropewalk-client 644\n\
            /etc/ropewalk/client/client.toml.old ropewalk-client:ropewalk-client 644\n\
            /etc/ropewalk/client/work.key ropewalk-client:ropewalk-client 600\n\
            /etc/ropewalk/client/work.toml ropewalk-client:ropewalk-client 644\n\
            /etc/ropewalk/notes.txt ropewalk:ropewalk 644\n\
            /etc/ropewalk/proxy ropewalk-proxy:ropewalk-proxy 750\n\
            /etc/ropewalk/proxy/laptop.psk ropewalk-proxy:ropewalk-proxy 600\n\
            /etc/ropewalk/proxy/proxy.key ropewalk-proxy:ropewalk-proxy 600\n\
            /etc/ropewalk/proxy/proxy.toml ropewalk-proxy:ropewalk-proxy 644\n\
            /etc/ropewalk/work.psk root:root 600\n\
            /var/lib/ropewalk ropewalk-proxy:ropewalk-proxy 700\n\
            /var/lib/ropewalk-client ropewalk-client:ropewalk-client 700\n\
            /var/lib/ropewalk-client/counters.json ropewalk-client:ropewalk-client 644\n\
            /var/lib/ropewalk/peers.json ropewalk-proxy:ropewalk-proxy 644\n\
            private_key_file = \"client.key\"\n\
            private_key_file = \"/etc/ropewalk/client/work.key\"\n\
            private_key_file = \"/etc/ropewalk/proxy/proxy.key\"\n\
            preshared_key_file = \"/etc/ropewalk/proxy/laptop.psk\"\n\
            socket = \"/run/ropewalk/proxy/proxy.sock\"\n\
            who could control it still can\n"
        );
        assert_eq!(said, expected);
    });
}

#[test]
fn a_config_in_the_folder_of_older_versions_is_pointed_out_and_no_new_key_is_made() {
    const NAME: &str =
        "users::a_config_in_the_folder_of_older_versions_is_pointed_out_and_no_new_key_is_made";
    lab_test(NAME, || {
        let said = on_a_machine(
            NAME,
            r#"
            # As where no package was.
            mkdir /etc/ropewalk
            touch /etc/ropewalk/proxy.toml /etc/ropewalk/client.toml
            for command in proxy client "join ropewalk:"; do
                "$program" $command 2>&1 | grep -o 'the config is where .*' || :
            done
            find /etc/ropewalk -mindepth 1 | sort
            "#,
        );
        let Some(said) = said else { return };
        for role in ["proxy", "client"] {
            let told = format!(
                "move /etc/ropewalk/{role}.toml and the files that it names to /etc/ropewalk/{role}, or say --config \
                 /etc/ropewalk/{role}.toml\n"
            );
            assert!(said.contains(&told), "{said}");
        }
        assert!(
            said.ends_with("toml\n/etc/ropewalk/client.toml\n/etc/ropewalk/proxy.toml\n"),
            "{said}"
        );
    });
}

/// What a script says on a machine of its own; `None`, and the test counts as skipped, where no other user can be had, or no
/// users can be made.
fn on_a_machine(test: &str, script: &str) -> Option<String> {
    let nobody = match Nobody::prepare() {
        Ok(nobody) => nobody,
        Err(error) => {
            skipped(test, &error.to_string());
            return None;
        }
    };
    if let Some(tool) =
        TOOLS.iter().find(|tool| Command::new(tool).arg("--version").output().is_err())
    {
        skipped(test, &format!("no {tool}"));
        return None;
    }
    // Only where every number of a user exists can one be made (not where a user namespace has a few).
    let numbers = std::fs::read_to_string("/proc/self/uid_map").expect("a map of users");
    if numbers.split_whitespace().last().is_none_or(|count| count.len() < "65536".len()) {
        skipped(test, "no users can be made in this user namespace");
        return None;
    }
    let program = nobody.copy(Path::new(env!("CARGO_BIN_EXE_ropewalk"))).expect("a copy");
    let configs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../configs");
    let folder = tempfile::tempdir().expect("a folder");
    let namespace = Namespace::create(next_number(), "users").expect("a network of its own");
    let mut shell = Command::new("unshare");
    shell.args(["--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "sh", "-c"]);
    shell.arg(format!("{MACHINE}{script}")).arg("sh");
    shell.arg(folder.path()).arg(configs).arg(program);
    let said = namespace.run(move || shell.output()).expect("a thread").expect("unshare runs");
    let errors = String::from_utf8_lossy(&said.stderr).into_owned();
    assert!(said.status.success(), "{}\n{errors}", String::from_utf8_lossy(&said.stdout));
    Some(String::from_utf8(said.stdout).expect("text"))
}
