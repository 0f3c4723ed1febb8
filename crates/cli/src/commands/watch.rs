//! `ropewalk watch`: the live view in a terminal, or a stream of documents.
//!
//! The daemon is asked by a thread of its own, so that a key never waits for it. The terminal is given back as it was
//! however this ends: by a key, a signal, an error or a panic.

use std::io::{self, IsTerminal as _, Write as _};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender, TryRecvError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use ratatui::crossterm::terminal;
use ropewalk_control::api::{HistoryQuery, HistoryReport, StatusReport};
use rustix::event::{PollFd, PollFlags};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use super::{ask, status};
use crate::args::Watch;
use crate::exit::Failure;
use crate::render;
use crate::watch::{History, Look, Range, Remembered, View, draw, draw_past};

/// How long a key may wait to be noticed.
const KEY_TIME: Duration = Duration::from_millis(50);

/// What limits a link is judged over about this long.
const JUDGED_OVER: Duration = Duration::from_secs(3);

/// How often the past is asked for while somebody looks at it: its finest step is so long.
const PAST_TIME: Duration = Duration::from_secs(10);

/// Events of the past: more than a terminal has lines.
const PAST_EVENTS: u16 = 100;

/// A time, and what the daemon remembers of it or why that is not known.
type Answer = (Range, Result<HistoryReport, String>);

/// Shows it until somebody has seen enough.
pub(crate) fn run(watch: &Watch) -> Result<(), Failure> {
    if watch.json {
        return stream(watch);
    }
    if !io::stdout().is_terminal() || !io::stdin().is_terminal() {
        return Err(Failure::Usage(
            "`ropewalk watch` draws on a terminal; for programs there is --json".to_owned(),
        ));
    }
    // What is wrong from the start is told in the ordinary way.
    let first = look(watch)?;
    let told_to_end = Arc::new(AtomicBool::new(false));
    for signal in [SIGTERM, SIGHUP, SIGINT] {
        signal_hook::flag::register(signal, Arc::clone(&told_to_end))
            .context("cannot listen to signals")?;
    }
    let seen = ask_again_and_again(watch)?;
    let (want, answers) = ask_for_the_past(watch)?;
    end_with_the_terminal()?;
    let mut terminal = Terminal::take()?;
    let mut shown = Shown::new(first, judged_over(watch), want);
    while !told_to_end.load(Ordering::Relaxed) {
        match seen.try_recv() {
            Ok(report) => shown.note(report),
            Err(TryRecvError::Empty) => {}
            Err(TryRecvError::Disconnected) => break,
        }
        answers.try_iter().for_each(|answer| shown.note_past(answer));
        terminal.show(&shown)?;
        if pressed(&mut shown)? {
            break;
        }
    }
    Ok(())
}

/// How many looks lie between the two that are compared.
fn judged_over(watch: &Watch) -> usize {
    let looks = JUDGED_OVER.as_millis() / watch.every.as_millis().max(1);
    usize::try_from(looks).unwrap_or(1).max(1)
}

/// One look at the daemon.
fn look(watch: &Watch) -> Result<StatusReport, Failure> {
    let socket = ask::socket_for(watch.daemon.socket.as_deref(), watch.peer.as_deref());
    let mut report = ask::status(socket)?;
    if let Some(peer) = &watch.peer {
        status::select(&mut report, peer)?;
    }
    Ok(report)
}

/// One document a line, until nobody reads them or the daemon is gone.
fn stream(watch: &Watch) -> Result<(), Failure> {
    loop {
        let begun = Instant::now();
        let mut line = serde_json::to_string(&look(watch)?).context("cannot write it as JSON")?;
        line.push('\n');
        let mut output = io::stdout().lock();
        match output.write_all(line.as_bytes()).and_then(|()| output.flush()) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => return Ok(()),
            Err(error) => {
                let error = anyhow::Error::new(error).context("cannot write to standard output");
                return Err(Failure::Failed(error));
            }
        }
        thread::sleep(watch.every.saturating_sub(begun.elapsed()));
    }
}

/// Asks from a thread of its own; it ends with the program.
fn ask_again_and_again(watch: &Watch) -> Result<Receiver<Result<StatusReport, String>>, Failure> {
    let (tell, told) = mpsc::sync_channel(1);
    let watch = watch.clone();
    let ask = move || {
        loop {
            thread::sleep(watch.every);
            if tell.send(look(&watch).map_err(|failure| failure.to_string())).is_err() {
                return;
            }
        }
    };
    thread::Builder::new().name("ask".to_owned()).spawn(ask).context("cannot start a thread")?;
    Ok(told)
}

/// Asks for the past from a thread of its own, as soon as somebody wants to see it and as long as he does.
fn ask_for_the_past(watch: &Watch) -> Result<(Sender<Option<Range>>, Receiver<Answer>), Failure> {
    let (want, wanted) = mpsc::channel();
    let (tell, told) = mpsc::channel();
    let watch = watch.clone();
    let ask = move || {
        let mut looked_at = None;
        loop {
            match wanted.recv_timeout(PAST_TIME) {
                Ok(range) => looked_at = range,
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
            let Some(range) = looked_at else { continue };
            let answer = past(&watch, range).map_err(|failure| failure.to_string());
            if tell.send((range, answer)).is_err() {
                return;
            }
        }
    };
    thread::Builder::new().name("past".to_owned()).spawn(ask).context("cannot start a thread")?;
    Ok((want, told))
}

fn past(watch: &Watch, range: Range) -> Result<HistoryReport, Failure> {
    let socket = ask::socket_for(watch.daemon.socket.as_deref(), watch.peer.as_deref());
    let columns = terminal::size().map_or(80, |(columns, _)| columns);
    let (since_s, points) = (range.seconds(), render::chart_width(columns));
    ask::history(socket, HistoryQuery { since_s, points, events: PAST_EVENTS, link: None })
}

/// The terminal, taken over; given back when dropped, and by a panic before its message.
struct Terminal(DefaultTerminal);

impl Terminal {
    fn take() -> Result<Self, Failure> {
        let taken = ratatui::try_init();
        if taken.is_err() {
            // Half of it may have been done.
            let _ = ratatui::try_restore();
        }
        Ok(Self(taken.context("cannot use this terminal")?))
    }

    fn show(&mut self, shown: &Shown) -> Result<(), Failure> {
        let drawn = self.0.draw(|frame| match &shown.past {
            Some(past) => draw_past(frame, past, shown.look),
            None => draw(frame, &shown.view, &shown.history, shown.look),
        });
        drawn.context("cannot draw on this terminal")?;
        Ok(())
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        // A terminal that is gone needs nothing.
        let _ = ratatui::try_restore();
        let _ = self.0.show_cursor();
    }
}

/// What is on the screen.
struct Shown {
    /// The latest documents, oldest first, at most so many.
    latest: Vec<StatusReport>,
    most: usize,
    view: View,
    history: History,
    /// In place of the present.
    past: Option<Remembered>,
    /// Who asks for it is told which.
    want: Sender<Option<Range>>,
    look: Look,
}

impl Shown {
    fn new(first: StatusReport, looks: usize, want: Sender<Option<Range>>) -> Self {
        let no_color = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        let view = View::of(&first, &first);
        let mut history = History::default();
        history.note(&view);
        let look = Look { chosen: 0, colours: !no_color };
        let (latest, most) = (vec![first], looks + 1);
        Self { latest, most, view, history, past: None, want, look }
    }

    /// From the present to the last hour, day and month, and back.
    fn turn(&mut self) {
        let range = Range::after(self.past.as_ref().map(|past| past.range));
        self.past = range.map(|range| Remembered { range, answer: None });
        // Who asks ends with the program.
        let _ = self.want.send(range);
    }

    fn note_past(&mut self, (range, answer): Answer) {
        // Somebody may look at another time by now.
        if let Some(past) = self.past.as_mut().filter(|past| past.range == range) {
            past.answer = Some(answer);
        }
    }

    fn note(&mut self, seen: Result<StatusReport, String>) {
        match seen {
            Ok(report) => {
                let before = self.latest.first().unwrap_or(&report);
                self.view = View::of(before, &report);
                self.history.note(&self.view);
                if self.latest.len() >= self.most {
                    self.latest.remove(0);
                }
                self.latest.push(report);
            }
            // What was last seen stays, with the reason why it is old.
            Err(trouble) => self.view.trouble = Some(trouble),
        }
    }

    fn choose(&mut self, chosen: usize) {
        self.look.chosen = chosen.min(self.view.rows.len().saturating_sub(1));
    }
}

/// Ends the program when its terminal is closed: a key would be waited for in vain there, and without a pause.
fn end_with_the_terminal() -> Result<(), Failure> {
    let wait = || {
        let stdin = io::stdin();
        // Nothing is asked for but what is always told.
        let mut terminal = [PollFd::new(&stdin, PollFlags::empty())];
        while !rustix::event::poll(&mut terminal, None).is_ok_and(|told| told > 0) {}
        // There is nothing left to give back, and nobody to tell.
        std::process::exit(0);
    };
    let thread = thread::Builder::new().name("terminal".to_owned());
    thread.spawn(wait).context("cannot start a thread")?;
    Ok(())
}

/// Waits a moment for a key and does what it says. Returns whether it was enough.
fn pressed(shown: &mut Shown) -> Result<bool, Failure> {
    if !event::poll(KEY_TIME).context("cannot read from this terminal")? {
        return Ok(false);
    }
    let Event::Key(key) = event::read().context("cannot read from this terminal")? else {
        return Ok(false);
    };
    Ok(obey(shown, key))
}

fn obey(shown: &mut Shown, key: KeyEvent) -> bool {
    if key.kind == KeyEventKind::Release {
        return false;
    }
    let chosen = shown.look.chosen;
    match key.code {
        KeyCode::Char('q') | KeyCode::Esc => return true,
        KeyCode::Char('c') if key.modifiers.contains(KeyModifiers::CONTROL) => return true,
        KeyCode::Char('h') => shown.turn(),
        KeyCode::Up | KeyCode::Char('k') => shown.choose(chosen.saturating_sub(1)),
        KeyCode::Down | KeyCode::Char('j') => shown.choose(chosen + 1),
        KeyCode::Home => shown.choose(0),
        KeyCode::End => shown.choose(usize::MAX),
        _ => {}
    }
    false
}
