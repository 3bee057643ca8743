//! The life of the agent: wait for the server, announce, watch, withdraw, drain, pass the signal on.

use std::process::ExitStatus;
use std::time::Duration;

use rustix::process::Signal;
use tokio::sync::mpsc;
use tokio::time::{MissedTickBehavior, interval, sleep, timeout};
use waypost_announcer::{Announcer, Progress, Status, Wanted};
use waypost_core::Health;

use super::command::{Command, Got, Signals, exit_code};
use super::health::HealthCheck;
use super::report::{Reporter, Seldom, show};
use super::resolve;
use crate::args::AnnounceArgs;
use crate::exit::{Exit, Failure};
use crate::limits::{WAITING_REPORT_INTERVAL, WITHDRAW_MAX};

/// Everything that the agent holds.
pub(super) struct Agent {
    announcer: Announcer,
    command: Option<Command>,
    signals: Signals,
    check: Option<HealthCheck>,
    health_interval: Duration,
    failures_max: u32,
    drain: Duration,
    reporter: Reporter,
}

/// Why a phase of the agent's life ended.
enum Event {
    /// COMMAND ended.
    Ended(ExitStatus),
    /// The agent is told to stop.
    Stop(Signal),
}

impl Agent {
    pub(super) fn new(
        announcer: Announcer,
        command: Option<Command>,
        signals: Signals,
        args: &AnnounceArgs,
    ) -> Self {
        Self {
            announcer,
            command,
            signals,
            check: args.health_check.clone(),
            health_interval: args.health_interval,
            failures_max: args.health_failures,
            drain: args.drain,
            reporter: Reporter::new(args.cluster.as_str(), args.uri.as_str()),
        }
    }

    pub(super) async fn run(mut self) -> Result<Exit, Failure> {
        let event = match self.wait_until_healthy().await? {
            Some(event) => event,
            None => {
                self.announce().await;
                self.watch().await?
            }
        };
        match event {
            Event::Ended(status) => Ok(self.ended(status).await),
            Event::Stop(signal) => self.stop(signal).await,
        }
    }

    /// Waits for the first success of the health check; an event may come first.
    async fn wait_until_healthy(&mut self) -> Result<Option<Event>, Failure> {
        let Some(check) = self.check.clone() else {
            return Ok(None);
        };
        let mut seldom = Seldom::default();
        loop {
            let asked = tokio::select! {
                asked = check.ask() => asked,
                event = next_event(&mut self.command, &mut self.signals) => return event.map(Some),
            };
            match asked {
                Ok(()) => return Ok(None),
                Err(why) if seldom.is_time() => {
                    let text = format!("waiting for {}: {why}", check.as_str());
                    self.reporter.say(&text);
                }
                Err(_) => {}
            }
            tokio::select! {
                () = sleep(self.health_interval) => {}
                event = next_event(&mut self.command, &mut self.signals) => return event.map(Some),
            }
        }
    }

    async fn announce(&mut self) {
        let announcement = self.announcer.announcement();
        if announcement.ipv4.is_none() && announcement.ipv6.is_none() {
            match resolve::lookup(&announcement.uri).await {
                Ok(found) => {
                    // Addresses alone cannot make an announcement invalid.
                    let _ = self
                        .announcer
                        .change(|a| (a.ipv4, a.ipv6) = (found.v4, found.v6));
                }
                Err(why) => self.reporter.say(&format!(
                    "{why}; announced without address, Observers will try"
                )),
            }
        }
        self.announcer.mark_up();
    }

    /// Reports progress and health until something ends it.
    async fn watch(&mut self) -> Result<Event, Failure> {
        let mut statuses = self.announcer.statuses();
        let checks = self.check.clone();
        let mut health_rx = checks.map(|check| start_checks(check, self.health_interval));
        let mut reminder = interval(WAITING_REPORT_INTERVAL);
        let mut failures = 0;
        loop {
            let status: Status = statuses.borrow_and_update().clone();
            self.reporter.take(&status);
            let asked = async {
                match &mut health_rx {
                    None => std::future::pending().await,
                    Some(health_rx) => health_rx.recv().await,
                }
            };
            tokio::select! {
                event = next_event(&mut self.command, &mut self.signals) => return event,
                Some(asked) = asked => self.take_health(asked, &mut failures),
                changed = statuses.changed() => {
                    if changed.is_err() {
                        return Err(Failure::failed("the announcer's task has ended"));
                    }
                }
                _ = reminder.tick() => {}
            }
        }
    }

    /// Enough failures in a row make it unhealthy, one success makes it healthy again. Nothing ends.
    fn take_health(&self, asked: Result<(), String>, failures: &mut u32) {
        let health = match &asked {
            Ok(()) => {
                *failures = 0;
                Health::Healthy
            }
            Err(_) => {
                *failures = failures.saturating_add(1);
                if *failures < self.failures_max {
                    return;
                }
                Health::Unhealthy
            }
        };
        if self.announcer.announcement().health == health {
            return;
        }
        let why = asked
            .err()
            .map_or_else(String::new, |why| format!(": {why}"));
        self.reporter.say(&format!("{}{why}", health.as_str()));
        // Health alone cannot make an announcement invalid.
        let _ = self.announcer.set_health(health);
    }

    /// Withdraws, waits for calls to drain, passes the signal on and waits for COMMAND.
    async fn stop(mut self, signal: Signal) -> Result<Exit, Failure> {
        if self.command.is_none() {
            self.withdraw().await;
            return Ok(Exit::Done);
        }
        match self.withdraw_and_drain().await? {
            None => self.pass_on(signal),
            Some(Event::Stop(second)) => self.pass_on(second),
            Some(Event::Ended(status)) => return Ok(self.ended(status).await),
        }
        loop {
            match next_event(&mut self.command, &mut self.signals).await? {
                Event::Ended(status) => return Ok(self.ended(status).await),
                Event::Stop(more) => self.pass_on(more),
            }
        }
    }

    /// What comes before the signal is passed on; an event may cut it short.
    async fn withdraw_and_drain(&mut self) -> Result<Option<Event>, Failure> {
        self.announcer.mark_down();
        if self.announcer.status().progress == Progress::Idle {
            // Never announced, so nobody has to be waited for.
            return Ok(None);
        }
        self.reporter.say(&format!(
            "withdrawing; the command is told to stop {} later, a second signal at once",
            show(self.drain)
        ));
        let withdrawn = tokio::select! {
            status = withdraw(&self.announcer) => status,
            event = next_event(&mut self.command, &mut self.signals) => return event.map(Some),
        };
        self.report_withdrawal(withdrawn.as_ref());
        tokio::select! {
            () = sleep(self.drain) => Ok(None),
            event = next_event(&mut self.command, &mut self.signals) => event.map(Some),
        }
    }

    /// COMMAND is gone: nobody must be sent to it, whatever was cut short.
    async fn ended(&mut self, status: ExitStatus) -> Exit {
        self.reporter.say(&format!("the command ended ({status})"));
        let now = self.announcer.status();
        if now.wanted == Wanted::Up || !now.is_settled() {
            self.withdraw().await;
        }
        Exit::Command(exit_code(status))
    }

    async fn withdraw(&mut self) {
        self.announcer.mark_down();
        let withdrawn = withdraw(&self.announcer).await;
        self.report_withdrawal(withdrawn.as_ref());
    }

    fn report_withdrawal(&mut self, withdrawn: Option<&Status>) {
        if let Some(status) = withdrawn {
            self.reporter.take(status);
            return;
        }
        let why = self.announcer.status().trouble;
        self.reporter.say(&format!(
            "the log has not acknowledged the withdrawal ({}); the instance leaves after its ttl of {}",
            why.as_deref().unwrap_or("no answer yet"),
            show(self.announcer.announcement().ttl)
        ));
    }

    fn pass_on(&self, signal: Signal) {
        if let Some(command) = &self.command {
            command.signal(signal);
        }
    }
}

/// Asks again and again, until nobody listens any more.
fn start_checks(check: HealthCheck, every: Duration) -> mpsc::Receiver<Result<(), String>> {
    let (health_tx, health_rx) = mpsc::channel(1);
    tokio::spawn(async move {
        let mut tick = interval(every);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tick.tick().await;
            let asked = check.ask().await;
            if health_tx.send(asked).await.is_err() {
                return;
            }
        }
    });
    health_rx
}

/// Waits until the log has the withdrawal, but not for ever.
async fn withdraw(announcer: &Announcer) -> Option<Status> {
    let settled = timeout(WITHDRAW_MAX, announcer.settled()).await;
    settled.ok().and_then(Result::ok)
}

/// The end of COMMAND or a signal to stop; other signals are passed on.
async fn next_event(
    command: &mut Option<Command>,
    signals: &mut Signals,
) -> Result<Event, Failure> {
    loop {
        let ended = async {
            match command {
                Some(command) => command.wait().await,
                None => std::future::pending().await,
            }
        };
        let got = tokio::select! {
            status = ended => {
                return status
                    .map(Event::Ended)
                    .map_err(|e| Failure::failed(format!("cannot wait for the command: {e}")));
            }
            got = signals.next() => got,
        };
        match (got, &command) {
            (Got::Stop(signal), _) => return Ok(Event::Stop(signal)),
            (Got::Other(signal), Some(command)) => command.signal(signal),
            // Nobody to pass it to: a terminal that closes, or a quit, ends an agent on its own.
            (Got::Other(signal @ (Signal::HUP | Signal::QUIT)), None) => {
                return Ok(Event::Stop(signal));
            }
            (Got::Other(_), None) => {}
        }
    }
}
