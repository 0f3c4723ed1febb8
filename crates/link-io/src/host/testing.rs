//! A network namespace of a test's own: nothing in it reaches the machine's network, and it ends with the value.
//!
//! The namespace belongs to one thread. It has no name in the file system, so even a killed test leaves nothing behind:
//! the kernel removes a namespace with its last thread, and every interface in it. Without root the test runs in another
//! process, inside a user namespace.

use std::process::Command;
use std::sync::mpsc;
use std::thread::JoinHandle;

use ropewalk_netlab::privilege::{again_inside, lacking};
use rustix::process::geteuid;
use rustix::thread::{UnshareFlags, gettid};

/// Where packages put `nft`, added to the search path of tests: a user's often lacks these.
const ADMINISTRATORS: &str = "/usr/local/sbin:/usr/sbin:/sbin";

/// A thread in a network namespace of its own, waiting for work.
#[derive(Debug)]
pub struct Namespace {
    jobs: Option<mpsc::Sender<Job>>,
    thread: Option<JoinHandle<()>>,
    tid: i32,
}

type Job = Box<dyn FnOnce() + Send>;

impl Namespace {
    /// Makes a namespace with the loopback interface switched on. `None` where the calling test is over: without root
    /// all of it has just run in another process, inside a user namespace; where the system allows no namespace it
    /// counts as skipped.
    ///
    /// # Panics
    /// If the test failed in that process.
    #[must_use]
    pub fn open() -> Option<Self> {
        // The test harness names a test's thread after it.
        let this = std::thread::current();
        let test = this.name().unwrap_or("main");
        if !geteuid().is_root() {
            if test == "main" {
                lacking("all tests", "without root they need `--test-threads=2` or more");
                return None;
            }
            let path = std::env::var("PATH").unwrap_or_default();
            again_inside(test, |command| command.env("PATH", format!("{path}:{ADMINISTRATORS}")));
            return None;
        }
        let (jobs, work) = mpsc::channel::<Job>();
        let (ready, started) = mpsc::channel();
        let thread = std::thread::spawn(move || {
            #[expect(
                deprecated,
                reason = "the hazard of its `unsafe` successor is CLONE_FILES, not used here"
            )]
            let made = rustix::thread::unshare(UnshareFlags::NEWNET);
            let failed = made.is_err();
            if ready.send(made.map(|()| gettid().as_raw_nonzero().get())).is_err() || failed {
                return;
            }
            for job in work {
                job();
            }
        });
        match started.recv().expect("the thread answers before it ends") {
            Ok(tid) => {
                let namespace = Self { jobs: Some(jobs), thread: Some(thread), tid };
                namespace.sh("ip link set lo up");
                Some(namespace)
            }
            Err(error) => {
                lacking(test, &format!("no network namespace ({error}); run as root"));
                None
            }
        }
    }

    /// The thread's number: `ip link set X netns NUMBER` moves an interface into this namespace.
    #[must_use]
    pub fn tid(&self) -> i32 {
        self.tid
    }

    /// Runs `work` in the namespace and waits for its answer; a panic in there goes on here.
    ///
    /// # Panics
    /// If `work` panics.
    pub fn run<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> T {
        let (answer, done) = mpsc::channel();
        let job: Job = Box::new(move || {
            let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work));
            drop(answer.send(result));
        });
        let jobs = self.jobs.as_ref().expect("open until dropped");
        jobs.send(job).expect("the thread lives until dropped");
        match done.recv().expect("every job answers") {
            Ok(value) => value,
            Err(panic) => std::panic::resume_unwind(panic),
        }
    }

    /// Runs an async block in the namespace on a tokio runtime of its own.
    ///
    /// # Panics
    /// If the block panics.
    pub fn block_on<T, F>(&self, work: impl FnOnce() -> F + Send + 'static) -> T
    where
        T: Send + 'static,
        F: Future<Output = T>,
    {
        self.run(move || {
            tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .expect("a runtime")
                .block_on(work())
        })
    }

    /// Runs a shell script in the namespace and returns what it printed.
    ///
    /// # Panics
    /// If the script fails; its words are in the message.
    #[must_use = "or call `sh` for a script without output"]
    pub fn read(&self, script: &str) -> String {
        let script = script.to_owned();
        self.run(move || {
            let output = Command::new("sh").args(["-ec", &script]).output().expect("a shell");
            assert!(
                output.status.success(),
                "{script}\nfailed: {}",
                String::from_utf8_lossy(&output.stderr)
            );
            String::from_utf8_lossy(&output.stdout).into_owned()
        })
    }

    /// Runs a shell script in the namespace.
    ///
    /// # Panics
    /// If the script fails; its words are in the message.
    pub fn sh(&self, script: &str) {
        let _ = self.read(script);
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        self.jobs = None;
        if let Some(thread) = self.thread.take() {
            // A panic has been handed on already.
            drop(thread.join());
        }
    }
}
