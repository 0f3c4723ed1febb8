//! The log of one tunnel, as events: of its thread alone, so that nothing is set for the whole process.

use std::fmt::{self, Write as _};
use std::sync::Arc;

use tracing::field::{Field, Visit};
use tracing::level_filters::LevelFilter;
use tracing::span;
use tracing::{Level, Metadata, Subscriber};

use crate::App;
use crate::event::Event;

/// Tells the app what is logged.
pub(crate) struct LogEvents {
    pub(crate) app: Arc<dyn App>,
    /// The least important lines that are told.
    pub(crate) most: LevelFilter,
}

impl Subscriber for LogEvents {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() <= self.most
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        Some(self.most)
    }

    /// Spans say nothing here.
    fn new_span(&self, _span: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }

    fn record(&self, _span: &span::Id, _values: &span::Record<'_>) {}

    fn record_follows_from(&self, _span: &span::Id, _follows: &span::Id) {}

    fn event(&self, event: &tracing::Event<'_>) {
        let mut line = Line::default();
        event.record(&mut line);
        let Line { message, fields } = line;
        let text = format!("{message}{fields}");
        Event::Log { level: word(*event.metadata().level()), text: text.trim_start() }
            .tell(&*self.app);
    }

    fn enter(&self, _span: &span::Id) {}

    fn exit(&self, _span: &span::Id) {}
}

fn word(level: Level) -> &'static str {
    match level {
        Level::ERROR => "error",
        Level::WARN => "warn",
        Level::INFO => "info",
        Level::DEBUG => "debug",
        Level::TRACE => "trace",
    }
}

/// One line: the message, and behind it the fields as `name=value`.
#[derive(Default)]
struct Line {
    message: String,
    fields: String,
}

impl Visit for Line {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.record_debug(field, &format_args!("{value}"));
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        // Writing into a string does not fail.
        let _ = match field.name() {
            "message" => write!(self.message, "{value:?}"),
            name => write!(self.fields, " {name}={value:?}"),
        };
    }
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::os::fd::BorrowedFd;
    use std::sync::Mutex;

    use super::*;

    #[derive(Default)]
    struct Told(Mutex<Vec<String>>);

    impl App for Told {
        fn bind_socket(&self, _socket: BorrowedFd<'_>, _network: u64) -> io::Result<()> {
            Ok(())
        }

        fn on_event(&self, event: &str) {
            self.0.lock().unwrap().push(event.to_owned());
        }
    }

    #[test]
    fn a_line_is_told_with_its_fields_if_it_is_important_enough() {
        let told = Arc::new(Told::default());
        let app: Arc<dyn App> = told.clone();
        tracing::subscriber::with_default(LogEvents { app, most: LevelFilter::INFO }, || {
            tracing::info!(link = "wifi", mtu = 1420, "link is {}", "up");
            tracing::warn!("no session");
            tracing::debug!("nobody wants to know");
        });
        tracing::info!("outside");
        let expected = [
            r#"{"event":"log","level":"info","text":"link is up link=wifi mtu=1420"}"#,
            r#"{"event":"log","level":"warn","text":"no session"}"#,
        ];
        assert_eq!(*told.0.lock().unwrap(), expected);
    }
}
