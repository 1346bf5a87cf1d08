//! Description of the machine that the figures were measured on.

use std::fmt;
use std::fs;

use anyhow::Context as _;
use serde::Serialize;

/// The machine, for the heading of the table.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Machine {
    processor: String,
    cores: usize,
    memory_gib: u64,
    kernel: String,
    load_before: String,
    load_after: String,
}

impl Machine {
    /// Reads `/proc`.
    pub(crate) fn read() -> anyhow::Result<Self> {
        Ok(Self {
            processor: field("/proc/cpuinfo", "model name")?,
            cores: std::thread::available_parallelism()
                .context("counting cores")?
                .get(),
            memory_gib: memory_gib()?,
            kernel: read("/proc/sys/kernel/osrelease")?.trim().to_owned(),
            load_before: load()?,
            load_after: String::new(),
        })
    }

    /// Records the load of the machine after everything was measured.
    pub(crate) fn record_final_load(&mut self) -> anyhow::Result<()> {
        self.load_after = load()?;
        Ok(())
    }
}

impl fmt::Display for Machine {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            formatter,
            "{} x {}, {} GiB, Linux {}; load average (1, 5, 15 min) before {}, after {}",
            self.cores,
            self.processor,
            self.memory_gib,
            self.kernel,
            self.load_before,
            self.load_after
        )
    }
}

fn read(path: &str) -> anyhow::Result<String> {
    fs::read_to_string(path).with_context(|| format!("reading {path}"))
}

/// Value of the first line `name : value`; a dash if there is none (some processors have no name).
fn field(path: &str, name: &str) -> anyhow::Result<String> {
    let text = read(path)?;
    let value = text.lines().find_map(|line| {
        let (key, value) = line.split_once(':')?;
        (key.trim() == name).then(|| value.trim().to_owned())
    });
    Ok(value.unwrap_or_else(|| "-".to_owned()))
}

fn memory_gib() -> anyhow::Result<u64> {
    const KIB_PER_GIB: u64 = 1 << 20;
    let value = field("/proc/meminfo", "MemTotal")?;
    let number = value.split_whitespace().next().unwrap_or_default();
    let kib: u64 = number.parse().context("MemTotal in /proc/meminfo")?;
    Ok(kib.div_ceil(KIB_PER_GIB))
}

fn load() -> anyhow::Result<String> {
    let text = read("/proc/loadavg")?;
    let averages: Vec<&str> = text.split_whitespace().take(3).collect();
    Ok(averages.join(" "))
}
