//! Bounds of the test kit, each with its reason.

use std::time::Duration;

/// Lines kept of one program's output. A program that talks more loses its oldest lines, not the
/// test's memory.
pub const OUTPUT_LINES_MAX: usize = 50_000;

/// Lines of a program's output that an error shows.
pub const OUTPUT_LINES_SHOWN: usize = 40;

/// How long a program may take to say that it is up, or a condition to hold, where a test names no
/// other bound. Generous: the machine may be busy with other builds; a test that passes waits less.
pub const START_MAX: Duration = Duration::from_secs(60);

/// How long a program may take to end after it was asked to.
pub const STOP_MAX: Duration = Duration::from_secs(30);

/// How long a Java compiler may take for one file.
pub const COMPILE_MAX: Duration = Duration::from_secs(120);

/// How long the output of a program that has ended is still read: a machine that does many other things
/// comes to it late.
pub const OUTPUT_READ_MAX: Duration = Duration::from_secs(5);

/// How often a condition is looked at.
pub const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// The ports handed out to servers: below Linux's ephemeral range (32768 and up), so that no outgoing
/// connection takes one between the moment it was found free and the moment a server binds it.
pub const PORTS: std::ops::Range<u16> = 20_000..32_000;
