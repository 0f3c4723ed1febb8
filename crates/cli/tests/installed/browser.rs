//! A headless browser in a namespace, told what to do over its DevTools protocol: messages on two pipes, each ended by a
//! zero byte.

use std::fs::File;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use ropewalk_netlab::namespace::Namespace;
use ropewalk_netlab::process::bound_to_parent;
use serde_json::{Value, json};

/// Names of Chromium, which is not in every system's package of that name.
pub(crate) const PROGRAMS: [&str; 3] = ["chromium", "chromium-browser", "google-chrome"];

/// Its descriptors 3 and 4 are the pipes. It runs as root in tests, which its sandbox does not want, and sees only pages of
/// this test.
const START: &str = r#"
program=$1 profile=$2
mkfifo "$profile/to" "$profile/from" 2>/dev/null || true
exec "$program" --headless --no-sandbox --disable-gpu --disable-dev-shm-usage --no-first-run --user-data-dir="$profile" \
    --disable-background-networking --disable-component-update --disable-sync --hide-scrollbars \
    --host-resolver-rules="MAP elsewhere.test 127.0.0.1" --remote-debugging-pipe about:blank \
    3<"$profile/to" 4>"$profile/from"
"#;

/// A browser with one page.
pub(crate) struct Browser {
    child: Child,
    to: File,
    from: BufReader<File>,
    session: Option<String>,
    asked: u64,
    events: Vec<Value>,
}

impl Browser {
    /// Starts one with an empty folder as its profile.
    pub(crate) fn start(namespace: &Namespace, program: &str, profile: &Path) -> Self {
        for pipe in ["to", "from"] {
            let made = std::process::Command::new("mkfifo").arg(profile.join(pipe)).status();
            assert!(made.expect("mkfifo runs").success());
        }
        let mut command = bound_to_parent("sh");
        command.args(["-c", START, "sh", program]).arg(profile);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let child = namespace.spawn(command).expect("the browser starts");
        // In this order: each waits for the other side.
        let to = File::options().write(true).open(profile.join("to")).expect("its ear");
        let from = File::open(profile.join("from")).expect("its mouth");
        let (from, events) = (BufReader::new(from), Vec::new());
        let mut browser = Self { child, to, from, session: None, asked: 0, events };
        let page = browser.call("Target.createTarget", &json!({ "url": "about:blank" }));
        let attach = json!({ "targetId": page["targetId"], "flatten": true });
        let session = browser.call("Target.attachToTarget", &attach);
        browser.session = session["sessionId"].as_str().map(str::to_owned);
        for domain in ["Page", "Runtime", "Log", "Network"] {
            browser.call(&format!("{domain}.enable"), &json!({}));
        }
        browser
    }

    /// Does something and returns what came of it.
    pub(crate) fn call(&mut self, method: &str, parameters: &Value) -> Value {
        self.asked += 1;
        let mut message = json!({ "id": self.asked, "method": method, "params": parameters });
        if let Some(session) = &self.session {
            message["sessionId"] = session.as_str().into();
        }
        let mut bytes = message.to_string().into_bytes();
        bytes.push(0);
        self.to.write_all(&bytes).expect("the browser listens");
        loop {
            let mut bytes = Vec::new();
            self.from.read_until(0, &mut bytes).expect("the browser talks");
            assert_eq!(bytes.pop(), Some(0), "the browser ended");
            let answer: Value = serde_json::from_slice(&bytes).expect("a message");
            if answer["id"] == self.asked {
                assert!(answer["error"].is_null(), "{method}: {answer}");
                return answer["result"].clone();
            }
            self.events.push(answer);
        }
    }

    /// A screen of this size, bright or dark.
    pub(crate) fn screen(&mut self, (width, height): (u32, u32), scheme: &str) {
        let size = json!({
            "width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600,
        });
        self.call("Emulation.setDeviceMetricsOverride", &size);
        let scheme = json!({ "features": [{ "name": "prefers-color-scheme", "value": scheme }] });
        self.call("Emulation.setEmulatedMedia", &scheme);
    }

    /// Goes to an address.
    pub(crate) fn open(&mut self, url: &str) {
        self.call("Page.navigate", &json!({ "url": url }));
    }

    /// What an expression of JavaScript gives.
    pub(crate) fn ask(&mut self, expression: &str) -> Value {
        let asked = json!({ "expression": expression, "returnByValue": true });
        let answer = self.call("Runtime.evaluate", &asked);
        assert!(answer["exceptionDetails"].is_null(), "{expression}: {answer}");
        answer["result"]["value"].clone()
    }

    /// Waits until an expression is true.
    pub(crate) fn wait_for(&mut self, expression: &str, within: Duration) {
        let begun = Instant::now();
        while self.ask(expression) != true {
            let shown = || "document.body.innerText";
            assert!(begun.elapsed() < within, "{expression}: {}", self.ask(shown()));
            std::thread::sleep(Duration::from_millis(200));
        }
    }

    /// The whole page as PNG, in base64.
    pub(crate) fn picture(&mut self) -> String {
        let size =
            self.ask("[innerWidth, Math.max(innerHeight, document.documentElement.scrollHeight)]");
        let clip = json!({ "x": 0, "y": 0, "width": size[0], "height": size[1], "scale": 1 });
        let options = json!({ "format": "png", "captureBeyondViewport": true, "clip": clip });
        let picture = self.call("Page.captureScreenshot", &options);
        picture["data"].as_str().expect("a picture").to_owned()
    }

    /// Addresses that pages asked for since the last question.
    pub(crate) fn requests(&mut self) -> Vec<String> {
        // What happened comes before the next answer.
        self.ask("0");
        let requests =
            self.events.iter().filter(|event| event["method"] == "Network.requestWillBeSent");
        let url = |event: &Value| event["params"]["request"]["url"].as_str().map(str::to_owned);
        requests.filter_map(url).collect()
    }

    /// What the console complains of: errors of scripts, and what the policy of a page forbids.
    pub(crate) fn complaints(&mut self) -> Vec<Value> {
        self.ask("0");
        let complains = |event: &&Value| {
            ["Log.entryAdded", "Runtime.exceptionThrown"]
                .iter()
                .any(|kind| event["method"] == *kind)
        };
        self.events.iter().filter(complains).cloned().collect()
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
