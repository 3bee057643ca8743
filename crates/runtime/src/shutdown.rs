//! Being told to stop, and to read files again.

use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};

/// Which signal asked the process to stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StopSignal {
    /// SIGTERM.
    Terminate,
    /// SIGINT, Ctrl-C.
    Interrupt,
}

/// SIGTERM and SIGINT, from the moment of installation; none that comes between two calls of
/// [`StopSignals::next`] is lost. The second one usually means "at once".
#[derive(Debug)]
pub struct StopSignals {
    terminate: Signal,
    interrupt: Signal,
}

impl StopSignals {
    /// From now on the two signals no longer end the process by themselves. Needs a tokio runtime.
    ///
    /// # Errors
    /// The process cannot install a signal handler.
    pub fn install() -> io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
        })
    }

    /// Waits for the next of them. Cancel-safe.
    pub async fn next(&mut self) -> StopSignal {
        tokio::select! {
            _ = self.terminate.recv() => StopSignal::Terminate,
            _ = self.interrupt.recv() => StopSignal::Interrupt,
        }
    }
}

/// SIGHUP, by which operators ask a server to read its files again. From the moment of installation it no longer
/// ends the process.
#[derive(Debug)]
pub struct HangupSignals(Signal);

impl HangupSignals {
    /// From now on the signal is taken. Needs a tokio runtime.
    ///
    /// # Errors
    /// The process cannot install a signal handler.
    pub fn install() -> io::Result<Self> {
        signal(SignalKind::hangup()).map(Self)
    }

    /// Waits for the next one. Cancel-safe; some that come together are one.
    pub async fn next(&mut self) {
        let _ = self.0.recv().await;
    }
}
