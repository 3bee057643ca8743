//! What the kernel says of a process and of the machine.

use std::time::Duration;

use anyhow::Context as _;

/// Clock ticks a second in `/proc`: 100 on every Linux that runs on common hardware (`USER_HZ`).
const TICKS_PER_SECOND: u64 = 100;

/// CPU time that a process has used: user and system, all of its threads, in nanoseconds where the
/// kernel keeps scheduler statistics, else in ticks.
///
/// A thread that has ended is counted in ticks only, so a server whose threads come and go should be
/// measured by [`cpu_time_in_ticks`].
///
/// # Errors
/// It does not run, or the kernel writes something else.
pub(crate) fn cpu_time(pid: u32) -> anyhow::Result<Duration> {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task"))
        .with_context(|| format!("process {pid} does not run"))?;
    let mut nanos = 0;
    for task in tasks {
        // A thread may end between the listing and the reading.
        let Ok(text) = std::fs::read_to_string(task?.path().join("schedstat")) else {
            continue;
        };
        let on_cpu = text.split_whitespace().next().unwrap_or_default();
        nanos += on_cpu.parse::<u64>().unwrap_or(0);
    }
    if nanos == 0 {
        return cpu_time_in_ticks(pid);
    }
    Ok(Duration::from_nanos(nanos))
}

/// As [`cpu_time`], in steps of 10 ms, ended threads included.
///
/// # Errors
/// As [`cpu_time`].
pub(crate) fn cpu_time_in_ticks(pid: u32) -> anyhow::Result<Duration> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"))?;
    // The second field, the name in parentheses, may hold spaces; utime and stime are the 14th and
    // the 15th.
    let after_name = stat.rsplit_once(')').context("stat without a name")?.1;
    let fields: Vec<&str> = after_name.split_whitespace().collect();
    let ticks = |index: usize| -> anyhow::Result<u64> {
        Ok(fields.get(index).context("stat is too short")?.parse()?)
    };
    Ok(from_ticks(ticks(11)? + ticks(12)?))
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

/// What all cores together have done since the machine started.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct MachineTime {
    /// Running anything at all.
    pub(crate) busy: Duration,
    /// Wanted by this machine, given to another by the hypervisor.
    pub(crate) stolen: Duration,
}

/// What all cores together have done since the machine started.
///
/// # Errors
/// The kernel writes something else.
pub(crate) fn machine_time() -> anyhow::Result<MachineTime> {
    let stat = std::fs::read_to_string("/proc/stat")?;
    let line = stat.lines().next().context("/proc/stat is empty")?;
    let ticks: Vec<u64> = line
        .split_whitespace()
        .skip(1)
        .map_while(|field| field.parse().ok())
        .collect();
    // user, nice, system, idle, iowait, irq, softirq, steal
    let [user, nice, system, _, _, irq, softirq, steal] =
        *ticks.first_chunk().context("/proc/stat is too short")?;
    Ok(MachineTime {
        busy: from_ticks(user + nice + system + irq + softirq),
        stolen: from_ticks(steal),
    })
}

fn from_ticks(ticks: u64) -> Duration {
    Duration::from_millis(ticks * 1000 / TICKS_PER_SECOND)
}
