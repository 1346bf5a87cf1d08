//! Record of an attempt's lifetime and progress.
//!
//! Every rank of a chaos run writes it while it lives, independent of the scheduler's state. It reveals two
//! attempts that lived at once, and every step that was done twice.

use std::env;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use crate::arguments::TrainArguments;
use crate::clock::{pause, wall_ms};

/// Variable with the folder of the records; without it none are written.
const FOLDER_VARIABLE: &str = "ATTEMPT_LEDGER_DIR";
/// Time between two lines.
const INTERVAL: Duration = Duration::from_millis(20);
/// No step is known yet: the ranks have not met.
const UNKNOWN: u64 = u64::MAX;

/// The record of this process; it ends when the process ends in any way.
#[derive(Debug)]
pub(crate) struct LifetimeRecord {
    step: Arc<AtomicU64>,
    writer: Option<JoinHandle<io::Error>>,
}

impl LifetimeRecord {
    /// Writes the first line, and another every 20 ms from now on.
    pub(crate) fn begin(arguments: &TrainArguments) -> Result<Self> {
        let folder = env::var_os(FOLDER_VARIABLE).map(PathBuf::from);
        let name = format!("{}-{}-{}", arguments.job, arguments.epoch, arguments.rank);
        Self::begin_in(folder.as_deref(), &name)
    }

    fn begin_in(folder: Option<&Path>, name: &str) -> Result<Self> {
        let step = Arc::new(AtomicU64::new(UNKNOWN));
        let Some(folder) = folder else {
            return Ok(Self { step, writer: None });
        };
        let path = folder.join(name);
        let failed = || format!("write {}", path.display());
        fs::create_dir_all(folder).with_context(failed)?;
        let mut file = File::options()
            .create(true)
            .append(true)
            .open(&path)
            .with_context(failed)?;
        write_mark(&mut file, UNKNOWN).with_context(failed)?;
        let known = Arc::clone(&step);
        let writer = std::thread::Builder::new()
            .name("presence".to_owned())
            .spawn(move || write_until_it_fails(&mut file, &known))
            .context("start a thread")?;
        Ok(Self {
            step,
            writer: Some(writer),
        })
    }

    /// Sets the number of completed steps. Fails if writing the record failed, so that it has a gap.
    pub(crate) fn reached(&self, step: u64) -> Result<()> {
        self.step.store(step, Ordering::Relaxed);
        let has_ended = self.writer.as_ref().is_some_and(JoinHandle::is_finished);
        ensure!(!has_ended, "the record of this attempt cannot be written");
        Ok(())
    }
}

/// Writes a line, waits, and repeats; only a failure ends the loop.
fn write_until_it_fails(file: &mut File, step: &AtomicU64) -> io::Error {
    loop {
        pause(INTERVAL);
        if let Err(error) = write_mark(file, step.load(Ordering::Relaxed)) {
            return error;
        }
    }
}

/// One line in one write: the time, and the completed steps if known.
fn write_mark(file: &mut File, step: u64) -> io::Result<()> {
    let line = match step {
        UNKNOWN => format!("{} -\n", wall_ms()),
        step => format!("{} {step}\n", wall_ms()),
    };
    file.write_all(line.as_bytes())
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;

    #[test]
    fn lines_contain_the_time_and_the_step() {
        let folder = tempfile::tempdir().unwrap();
        let presence = LifetimeRecord::begin_in(Some(folder.path()), "3-7-0").unwrap();
        presence.reached(41).unwrap();
        let path = folder.path().join("3-7-0");
        let text = loop {
            let text = fs::read_to_string(&path).unwrap();
            if text.ends_with(" 41\n") {
                break text;
            }
            pause(INTERVAL);
        };
        assert!(text.lines().next().unwrap().ends_with(" -"), "{text}");
    }

    #[test]
    fn without_a_folder_nothing_is_written() {
        let presence = LifetimeRecord::begin_in(None, "3-7-0").unwrap();
        assert!(presence.writer.is_none() && presence.reached(1).is_ok());
    }
}
