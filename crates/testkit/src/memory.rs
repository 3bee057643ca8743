//! What the kernel says that a process holds.

use anyhow::Context as _;

/// Bytes of a process that are in memory (`VmRSS`).
///
/// # Errors
/// It does not run, or the kernel writes something else.
pub fn resident_bytes(pid: u32) -> anyhow::Result<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))
        .with_context(|| format!("process {pid} does not run"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let line = line.context("status without VmRSS")?;
    let kib = line.split_whitespace().next().context("VmRSS is empty")?;
    Ok(kib.parse::<u64>()? * 1024)
}

/// File descriptors that a process has open: files, sockets, timers.
///
/// # Errors
/// It does not run.
pub fn open_files(pid: u32) -> anyhow::Result<usize> {
    let listing = std::fs::read_dir(format!("/proc/{pid}/fd"))
        .with_context(|| format!("process {pid} does not run"))?;
    Ok(listing.count())
}

#[cfg(test)]
mod tests {
    use super::{open_files, resident_bytes};

    #[test]
    fn this_process_holds_memory_and_files() {
        let pid = std::process::id();
        assert!(resident_bytes(pid).unwrap() > 100 * 1024);
        let before = open_files(pid).unwrap();
        let file = std::fs::File::open("/proc/self/status").unwrap();
        assert!(before >= 3);
        drop(file);
        assert!(open_files(u32::MAX).is_err());
    }
}
