//! Whether UDP is answered again on a link that goes over TLS.
//!
//! The question is the one of `ropewalk doctor`: it touches no session and no link of the core, and a proxy answers it
//! to everybody who knows its public key. A few datagrams each time, and each link waits for nobody.

use ropewalk_settings::PublicKey;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use crate::daemon::Command;
use crate::probe::{Reply, Way, ask};

/// A link that goes over TLS.
#[derive(Clone, Debug)]
pub(crate) struct Question {
    /// The link.
    pub(crate) slot: u16,
    /// Where the proxy may be over it.
    pub(crate) ways: Vec<Way>,
    /// The proxy's key.
    pub(crate) proxy: PublicKey,
}

/// Asks for the daemon, one link after the other.
pub(crate) struct Scout {
    /// What to ask.
    pub(crate) questions: mpsc::Receiver<Question>,
    /// Who wants to know.
    pub(crate) daemon: mpsc::Sender<Command>,
}

impl Scout {
    /// Runs until nobody asks any more.
    pub(crate) async fn run(mut self) {
        while let Some(Question { slot, ways, proxy }) = self.questions.recv().await {
            let mut asked = JoinSet::new();
            for way in ways {
                // It waits for its answer, on a thread that is there for that.
                asked.spawn_blocking(move || matches!(ask(&way, &proxy), Reply::Answer(_)));
            }
            let answers = asked.join_all().await;
            if answers.contains(&true) && self.daemon.send(Command::UdpAnswers(slot)).await.is_err()
            {
                return;
            }
        }
    }
}
