//! What the kernel says of a process.

use std::time::Duration;

use anyhow::Context as _;

/// Clock ticks a second in `/proc`: 100 on every Linux that runs on common hardware (`USER_HZ`).
const TICKS_PER_SECOND: u64 = 100;

/// CPU time that a process has used: user and system, all of its threads.
///
/// # Errors
/// It does not run, or the kernel writes something else.
pub(crate) fn cpu_time(pid: u32) -> anyhow::Result<Duration> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"))?;
    // The second field, the name in parentheses, may hold spaces; utime and stime are the 14th and
    // the 15th.
    let after_name = stat.rsplit_once(')').context("stat without a name")?.1;
    let fields: Vec<&str> = after_name.split_whitespace().collect();
    let ticks = |index: usize| -> anyhow::Result<u64> {
        Ok(fields.get(index).context("stat is too short")?.parse()?)
    };
    let ticks = ticks(11)? + ticks(12)?;
    Ok(Duration::from_millis(ticks * 1000 / TICKS_PER_SECOND))
}

/// Bytes of a process that are in memory.
///
/// # Errors
/// As [`cpu_time`].
pub(crate) fn resident_bytes(pid: u32) -> anyhow::Result<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib: u64 = line
        .context("status without VmRSS")?
        .trim()
        .trim_end_matches(" kB")
        .parse()?;
    Ok(kib * 1024)
}
