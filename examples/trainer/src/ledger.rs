//! Self-check of the trainer that no other process holds its GPUs, and that it runs only once.
//!
//! Every task of a demo or a chaos run locks one file per GPU, and one for itself, while it lives, and
//! records when it took and released them. A scheduler that gives a GPU to two tasks, or runs a task twice,
//! is detected by the tasks themselves, independent of its own state.

use std::env;
use std::fs::{self, File, TryLockError};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::clock::raw_us;

/// Variable with the folder of the locks; without it nothing is locked.
const FOLDER_VARIABLE: &str = "GPU_LEDGER_DIR";
/// The GPUs that the scheduler gave to this task.
const GPUS_VARIABLE: &str = "CUDA_VISIBLE_DEVICES";
/// File that collects violations, one per line.
const CONFLICTS_FILE: &str = "conflicts";
/// File of acquisitions and releases, one per line: time in microseconds of the raw monotonic clock, `take`
/// or `give`, the resource, job, task, epoch of the attempt.
const LEDGER_FILE: &str = "book";
/// Locked by a process that is about to take a resource.
const GUARD_FILE: &str = "guard";
/// Folder of the locks of tasks.
const TASKS_FOLDER: &str = "tasks";

/// The locks of this process; they are released when it ends in any way.
#[derive(Debug)]
pub(crate) struct GpuLedger {
    _held: Option<Held>,
}

/// Resources held by a task.
#[derive(Debug)]
struct Held {
    folder: PathBuf,
    task: Task,
    gpus: Vec<String>,
    _locks: Vec<File>,
}

/// Identity of the task and its attempt.
#[derive(Clone, Debug, Default)]
struct Task {
    job: String,
    index: String,
    epoch: String,
    /// Whether its attempt has other tasks.
    in_gang: bool,
}

impl GpuLedger {
    /// Locks this task and each of its GPUs; a lock held by another process is recorded as a conflict.
    pub(crate) fn hold_own_gpus() -> Result<Self> {
        let Some(folder) = env::var_os(FOLDER_VARIABLE).map(PathBuf::from) else {
            return Ok(Self { _held: None });
        };
        let task = Task::own();
        let gpus = env::var(GPUS_VARIABLE).unwrap_or_default();
        let gpus = gpus.split(',').filter(|gpu| !gpu.is_empty());
        let held = Held::take(folder, task, gpus.map(str::to_owned).collect())?;
        Ok(Self { _held: Some(held) })
    }
}

impl Task {
    fn own() -> Self {
        let variable = |name| env::var(name).unwrap_or_default();
        Self {
            job: variable("MUSTER_JOB_ID"),
            index: variable("MUSTER_TASK_INDEX"),
            epoch: variable("MUSTER_EPOCH"),
            in_gang: variable("WORLD_SIZE")
                .parse()
                .is_ok_and(|size: u32| size > 1),
        }
    }

    /// Its epoch as a number; 0 if it has none.
    fn number(&self) -> u64 {
        self.epoch.parse().unwrap_or(0)
    }
}

impl Held {
    fn take(folder: PathBuf, task: Task, gpus: Vec<String>) -> Result<Self> {
        let tasks = folder.join(TASKS_FOLDER);
        fs::create_dir_all(&tasks).with_context(|| format!("make {}", tasks.display()))?;
        let itself = format!("{TASKS_FOLDER}/{}-{}", task.job, task.index);
        // One process at a time: a process that examines the locks of others must see them with their
        // content.
        let guard = open(&folder.join(GUARD_FILE))?;
        guard
            .lock()
            .context("wait for other tasks to take theirs")?;
        let (own, is_ours) = hold(&folder, &itself, &task)?;
        if is_ours {
            own.set_len(0)
                .and_then(|()| (&own).write_all(task.epoch.as_bytes()))
                .with_context(|| format!("write {itself}"))?;
        }
        if task.in_gang {
            note_older_members(&folder, &task)?;
        }
        let mut locks = vec![own];
        for gpu in &gpus {
            locks.push(hold(&folder, gpu, &task)?.0);
        }
        let held = Self {
            folder,
            task,
            gpus,
            _locks: locks,
        };
        held.note("take")?;
        Ok(held)
    }

    /// Writes one line for the task and one for each GPU in a single write.
    fn note(&self, what: &str) -> Result<()> {
        let Task {
            job, index, epoch, ..
        } = &self.task;
        let at_us = raw_us();
        let line = |thing: &str| format!("{at_us} {what} {thing} {job} {index} {epoch}\n");
        let mut lines = line("task");
        for gpu in &self.gpus {
            lines.push_str(&line(gpu));
        }
        append(&self.folder.join(LEDGER_FILE), &lines)
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        // Before the locks are released. A killed task releases without a record, and so may this one.
        let _unwritten = self.note("give");
    }
}

/// Locks a file; false if another process holds it, which is recorded.
fn hold(folder: &Path, name: &str, task: &Task) -> Result<(File, bool)> {
    let path = folder.join(name);
    let file = open(&path)?;
    match file.try_lock() {
        Ok(()) => Ok((file, true)),
        Err(TryLockError::WouldBlock) => {
            note_conflict(folder, name, task)?;
            Ok((file, false))
        }
        Err(TryLockError::Error(error)) => {
            Err(error).with_context(|| format!("lock {}", path.display()))
        }
    }
}

/// Live members of an older attempt of this task's gang, found by their locks and the epochs in them.
fn note_older_members(folder: &Path, task: &Task) -> Result<()> {
    let tasks = folder.join(TASKS_FOLDER);
    let prefix = format!("{}-", task.job);
    let listed = fs::read_dir(&tasks).with_context(|| format!("list {}", tasks.display()))?;
    for entry in listed {
        let name = entry?.file_name();
        let Some(name) = name.to_str().filter(|name| name.starts_with(&prefix)) else {
            continue;
        };
        let path = tasks.join(name);
        let file = open(&path)?;
        if !matches!(file.try_lock_shared(), Err(TryLockError::WouldBlock)) {
            continue;
        }
        let theirs = io::read_to_string(&file).with_context(|| format!("read {name}"))?;
        if theirs
            .parse::<u64>()
            .is_ok_and(|theirs| theirs < task.number())
        {
            note_conflict(
                folder,
                &format!("{TASKS_FOLDER}/{name} in attempt {theirs}"),
                task,
            )?;
        }
    }
    Ok(())
}

fn open(path: &Path) -> Result<File> {
    let mut options = File::options();
    let options = options.create(true).truncate(false).read(true).write(true);
    options
        .open(path)
        .with_context(|| format!("open {}", path.display()))
}

fn note_conflict(folder: &Path, name: &str, task: &Task) -> Result<()> {
    let Task {
        job, index, epoch, ..
    } = task;
    let line = format!(
        "{name} is held by another process as attempt {epoch} of job {job} task {index} starts\n"
    );
    append(&folder.join(CONFLICTS_FILE), &line)
}

/// Appends in one write, so that the lines of other processes are not interleaved.
fn append(path: &Path, text: &str) -> Result<()> {
    let written = || -> io::Result<()> {
        let mut file = File::options().create(true).append(true).open(path)?;
        file.write_all(text.as_bytes())
    };
    written().with_context(|| format!("write {}", path.display()))
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    fn task(job: &str, epoch: &str) -> Task {
        Task {
            job: job.to_owned(),
            index: "0".to_owned(),
            epoch: epoch.to_owned(),
            in_gang: false,
        }
    }

    fn take(folder: &Path, task: Task, gpu: &str) -> Held {
        Held::take(folder.to_owned(), task, vec![gpu.to_owned()]).unwrap()
    }

    #[test]
    fn a_second_owner_of_a_gpu_and_a_second_attempt_are_recorded() {
        let folder = tempfile::tempdir().unwrap();
        let conflicts = || fs::read_to_string(folder.path().join(CONFLICTS_FILE));
        let first = take(folder.path(), task("1", "7"), "GPU-1");
        drop(take(folder.path(), task("2", "8"), "GPU-2"));
        assert!(conflicts().is_err());
        let _second = take(folder.path(), task("3", "9"), "GPU-1");
        let _again = take(folder.path(), task("1", "10"), "GPU-3");
        let found = conflicts().unwrap();
        let lines: Vec<&str> = found.lines().collect();
        assert!(lines[0].starts_with("GPU-1 is held"), "{found}");
        assert!(lines[1].starts_with("tasks/1-0 is held"), "{found}");
        assert_eq!(lines.len(), 2);
        drop(first);
    }

    #[test]
    fn a_member_of_an_older_attempt_is_recorded() {
        let folder = tempfile::tempdir().unwrap();
        let member = |index: &str, epoch: &str| Task {
            index: index.to_owned(),
            in_gang: true,
            ..task("1", epoch)
        };
        let conflicts = || fs::read_to_string(folder.path().join(CONFLICTS_FILE));
        let _older = take(folder.path(), member("1", "7"), "GPU-1");
        let _fellow = take(folder.path(), member("0", "7"), "GPU-2");
        assert!(conflicts().is_err());
        let _newer = take(folder.path(), member("2", "9"), "GPU-3");
        let found = conflicts().unwrap();
        assert_eq!(found.lines().count(), 2, "{found}");
        assert!(found.contains("tasks/1-1 in attempt 7 is held"), "{found}");
    }

    #[test]
    fn the_ledger_records_what_was_taken_and_released() {
        let folder = tempfile::tempdir().unwrap();
        drop(take(folder.path(), task("1", "7"), "GPU-1"));
        let ledger = fs::read_to_string(folder.path().join(LEDGER_FILE)).unwrap();
        let lines: Vec<Vec<&str>> = ledger.lines().map(|it| it.split(' ').collect()).collect();
        let kinds: Vec<(&str, &str)> = lines.iter().map(|fields| (fields[1], fields[2])).collect();
        let expected = [
            ("take", "task"),
            ("take", "GPU-1"),
            ("give", "task"),
            ("give", "GPU-1"),
        ];
        assert_eq!(kinds, expected);
        assert!(
            lines.iter().all(|fields| fields[3..] == ["1", "0", "7"]),
            "{ledger}"
        );
        let times: Vec<u64> = lines
            .iter()
            .map(|fields| fields[0].parse().unwrap())
            .collect();
        assert!(times.is_sorted() && times[0] > 0, "{ledger}");
    }
}
