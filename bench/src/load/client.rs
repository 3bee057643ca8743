//! All connections of a load in one thread, driven by the kernel's events.

use std::sync::mpsc::{Receiver, TryRecvError};

use anyhow::Context as _;
use mio::event::Event;
use mio::{Events, Interest, Poll, Token};

use super::LoadOptions;
use super::command::{Command, Counted};
use super::connection::{Connection, Fate, Shared};
use super::frame::Windows;
use super::limits::{EVENTS_MAX, READ_BYTES, TICK};
use super::plan::slow_before;
use super::stats::Line;
use crate::clock::Stopwatch;

/// The token of the thread that reads commands; connections have theirs from 0.
pub(super) const COMMANDS: Token = Token(usize::MAX);

/// The clients.
pub(super) struct Client {
    poll: Poll,
    options: LoadOptions,
    shared: Shared,
    connections: Vec<Connection>,
    buffer: Vec<u8>,
    commands_rx: Receiver<Command>,
    pending: Option<Pending>,
    opening: Opening,
    /// Whether slow readers read.
    is_paused: bool,
    /// By connection, whether something has arrived that a slow reader has not read.
    unread: Vec<bool>,
}

/// A command that is not answered yet.
struct Pending {
    what: Counted,
    count: u64,
    within: std::time::Duration,
    since: Stopwatch,
}

/// Streams that are to be opened: `from..to`, so many on each connection.
#[derive(Clone, Copy, Debug, Default)]
struct Opening {
    from: usize,
    next: usize,
    to: usize,
    per_connection: usize,
}

impl Client {
    pub(super) fn new(
        options: LoadOptions,
        poll: Poll,
        shared: Shared,
        commands_rx: Receiver<Command>,
    ) -> Self {
        Self {
            poll,
            shared,
            connections: Vec::with_capacity(options.connections),
            buffer: vec![0; READ_BYTES],
            commands_rx,
            pending: None,
            opening: Opening::default(),
            is_paused: false,
            unread: Vec::new(),
            options,
        }
    }

    /// Runs until nobody commands any more; `answer` gets a line for each command.
    ///
    /// # Errors
    /// A connection is lost and there is no other server to go to; or `answer` fails.
    pub(super) fn run(
        &mut self,
        mut answer: impl FnMut(&Line) -> anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        let mut events = Events::with_capacity(EVENTS_MAX);
        loop {
            match self.poll.poll(&mut events, Some(TICK)) {
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
                done => done?,
            }
            for event in events.iter().filter(|event| event.token() != COMMANDS) {
                self.on_event(event)?;
            }
            self.open_more()?;
            if let Some(line) = self.answer_when_due() {
                answer(&line)?;
            }
            match self.commands_rx.try_recv() {
                Ok(command) => {
                    if let Some(line) = self.on_command(command)? {
                        answer(&line)?;
                    }
                }
                Err(TryRecvError::Empty) => {}
                Err(TryRecvError::Disconnected) => return Ok(()),
            }
        }
    }

    fn on_event(&mut self, event: &Event) -> anyhow::Result<()> {
        let Token(index) = event.token();
        let is_paused = self.is_paused && self.is_slow(index);
        let connection = &mut self.connections[index];
        let mut fate = Fate::Open;
        if event.is_readable() && is_paused {
            self.unread[index] = true;
        } else if event.is_readable() {
            fate = connection.read(&mut self.buffer, &mut self.shared);
        }
        if fate == Fate::Open {
            fate = connection.write();
        }
        match fate {
            Fate::Open => Ok(()),
            Fate::Lost => self.on_lost(index),
        }
    }

    fn on_command(&mut self, command: Command) -> anyhow::Result<Option<Line>> {
        Ok(match command {
            Command::Open { streams, within } => {
                self.shared.stats.mark();
                let new = streams.saturating_sub(self.opening.to);
                let from = self.opening.to;
                self.opening = Opening {
                    from,
                    next: from,
                    to: from + new,
                    per_connection: new.div_ceil(self.options.connections),
                };
                self.wait(Counted::Answered, new as u64, within);
                None
            }
            Command::Until {
                what,
                count,
                within,
            } => {
                self.wait(what, count, within);
                None
            }
            Command::Mark => {
                self.shared.stats.mark();
                Some(self.shared.stats.to_line(true))
            }
            Command::Report => Some(self.shared.stats.to_line(true)),
            Command::Pause => {
                self.is_paused = true;
                Some(self.shared.stats.to_line(true))
            }
            Command::Resume => {
                self.resume()?;
                Some(self.shared.stats.to_line(true))
            }
        })
    }

    fn wait(&mut self, what: Counted, count: u64, within: std::time::Duration) {
        self.pending = Some(Pending {
            what,
            count,
            within,
            since: Stopwatch::start(),
        });
    }

    fn answer_when_due(&mut self) -> Option<Line> {
        let pending = self.pending.as_ref()?;
        let counts = &self.shared.stats.counts;
        let count = match pending.what {
            Counted::Resources => counts.resources,
            Counted::Answered => counts.answered,
            Counted::Fresh => counts.fresh,
        };
        let reached = count >= pending.count;
        if !reached && pending.since.elapsed() < pending.within {
            return None;
        }
        self.pending = None;
        Some(self.shared.stats.to_line(reached))
    }

    /// Opens streams while few enough wait for their first answer.
    fn open_more(&mut self) -> anyhow::Result<()> {
        while self.opening.next < self.opening.to
            && self.shared.unanswered < self.options.unanswered_max
        {
            let Opening {
                from,
                next,
                per_connection,
                ..
            } = self.opening;
            let index = (next - from) / per_connection;
            while self.connections.len() <= index {
                self.connect(self.connections.len(), self.options.grpc)?;
            }
            let connection = &mut self.connections[index];
            let end = (from + (index + 1) * per_connection).min(self.opening.to);
            for stream in next..end {
                connection.add_stream(self.options.first_stream + stream, &mut self.shared);
            }
            self.opening.next = end;
            if connection.write() == Fate::Lost {
                self.on_lost(index)?;
            }
        }
        Ok(())
    }

    /// Makes connection `index`: the next one, or one that was lost anew.
    fn connect(&mut self, index: usize, server: std::net::SocketAddr) -> anyhow::Result<()> {
        let windows = if self.is_slow(index) {
            Windows::SMALL
        } else {
            Windows::LARGE
        };
        let mut connection = Connection::open(server, windows)
            .with_context(|| format!("connection {index} to {server}"))?;
        self.poll.registry().register(
            connection.socket(),
            Token(index),
            Interest::READABLE | Interest::WRITABLE,
        )?;
        if index == self.connections.len() {
            self.connections.push(connection);
            self.unread.push(false);
        } else {
            let mut lost = std::mem::replace(&mut self.connections[index], connection);
            self.poll.registry().deregister(lost.socket())?;
            self.connections[index].take_over(lost, &mut self.shared);
            self.shared.stats.counts.reconnected += 1;
        }
        Ok(())
    }

    fn on_lost(&mut self, index: usize) -> anyhow::Result<()> {
        let then = self.options.then;
        let then = then.with_context(|| format!("connection {index} is lost"))?;
        self.connect(index, then)?;
        // Sent once the kernel says that the connection is there.
        Ok(())
    }

    /// Whether a connection does not read during a pause.
    fn is_slow(&self, index: usize) -> bool {
        let percent = self.options.slow_percent;
        slow_before(index + 1, percent) > slow_before(index, percent)
    }

    fn resume(&mut self) -> anyhow::Result<()> {
        self.is_paused = false;
        for index in 0..self.connections.len() {
            if !std::mem::take(&mut self.unread[index]) {
                continue;
            }
            let connection = &mut self.connections[index];
            let mut fate = connection.read(&mut self.buffer, &mut self.shared);
            if fate == Fate::Open {
                fate = connection.write();
            }
            if fate == Fate::Lost {
                self.on_lost(index)?;
            }
        }
        Ok(())
    }
}
