//! The machine that figures were taken on; figures of different machines are not compared.

use serde::Serialize;

/// What a reader of figures wants to know of the machine.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Machine {
    pub(crate) cores: usize,
    pub(crate) model: String,
    pub(crate) memory_mib: u64,
    pub(crate) kernel: String,
    /// Over the last minute, when the measurement began.
    pub(crate) load_average: String,
}

impl Machine {
    /// Looks; what cannot be found is empty.
    pub(crate) fn look() -> Self {
        let read = |file: &str| std::fs::read_to_string(file).unwrap_or_default();
        let load_average = read("/proc/loadavg");
        let memory_kib = find_field(&read("/proc/meminfo"), "MemTotal");
        let memory_kib = memory_kib.split_whitespace().next().map(str::parse);
        Self {
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            model: find_field(&read("/proc/cpuinfo"), "model name"),
            memory_mib: memory_kib.and_then(Result::ok).unwrap_or(0_u64) / 1024,
            kernel: read("/proc/sys/kernel/osrelease").trim().to_owned(),
            load_average: load_average
                .split_whitespace()
                .next()
                .unwrap_or_default()
                .to_owned(),
        }
    }

    /// For people.
    pub(crate) fn one_line(&self) -> String {
        format!(
            "{} cores of {}, {} MiB, Linux {}, load average {} before",
            self.cores, self.model, self.memory_mib, self.kernel, self.load_average
        )
    }
}

fn find_field(text: &str, name: &str) -> String {
    let mut lines = text.lines();
    let value = lines.find_map(|line| {
        let (field, value) = line.split_once(':')?;
        (field.trim() == name).then(|| value.trim().to_owned())
    });
    value.unwrap_or_default()
}
