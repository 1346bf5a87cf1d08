//! Removal of a container whose runner is gone: it is killed by all available means before its end is
//! reported.
//! Its first process is known by process id once it was started, all processes by the control directory in
//! their environment; about a container being started at this moment, only the engine knows.

use std::io;

use crate::container::engine::{Engine, EngineError};
use crate::container::record::ContainerRecord;
use crate::process::{ProcessEntry, ProcessIdentity, carries, kill_pid, mark_of};
use crate::task::directory::TaskDirectory;

/// What is left of a task's container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ContainerRemains {
    /// No live process, now or later.
    Nothing,
    /// Possibly a live process; with the reason.
    PossiblyAlive(String),
}

/// Kills what is left of a task's container and removes it. Call it repeatedly until nothing is left.
///
/// # Errors
/// Errors of the file system; the state is unknown then.
pub fn end(directory: &TaskDirectory) -> io::Result<ContainerRemains> {
    let record = match ContainerRecord::read(directory) {
        // Truncated by the death of its writer, before anything was created.
        Err(error) if error.kind() == io::ErrorKind::InvalidData => None,
        other => other?,
    };
    let Some(record) = record else {
        return Ok(ContainerRemains::Nothing);
    };
    if let Some(init) = &record.init {
        init.kill();
    }
    for pid in marked(directory)? {
        kill_pid(pid);
    }
    match remove(&record) {
        Ok(()) => {
            ContainerRecord::forget(directory)?;
            Ok(ContainerRemains::Nothing)
        }
        // An absent engine starts nothing, and what it had started was found above. Its records of the
        // container are removed when it is back.
        Err(error) if error.is_absent() => lives(directory, &record).map(|lives| {
            lives.map_or(ContainerRemains::Nothing, |_| {
                ContainerRemains::PossiblyAlive(error.to_string())
            })
        }),
        Err(error) => Ok(ContainerRemains::PossiblyAlive(error.to_string())),
    }
}

/// Removes a container if it belongs to this worker: another cluster on the same host may have one of the
/// same name.
fn remove(record: &ContainerRecord) -> Result<(), EngineError> {
    let engine = Engine::at(&record.socket);
    match engine.inspect(&record.name)? {
        Some(state) if state.worker.as_ref() == Some(&record.worker) => engine.remove(&record.name),
        _ => Ok(()),
    }
}

/// Describes a live process of the container, if any.
fn lives(directory: &TaskDirectory, record: &ContainerRecord) -> io::Result<Option<i32>> {
    let init = record.init.filter(ProcessIdentity::is_alive);
    let marked = marked(directory)?;
    Ok(marked.first().copied().or(init.map(|init| init.pid)))
}

/// Processes that carry the task's control directory in their environment, except this one.
fn marked(directory: &TaskDirectory) -> io::Result<Vec<i32>> {
    let mark = mark_of(directory);
    let me = std::process::id().cast_signed();
    let entries = ProcessEntry::all()?.into_iter();
    let living = entries.filter(|entry| !entry.is_dead() && entry.pid != me);
    Ok(living
        .filter(|entry| carries(entry.pid, &mark))
        .map(|entry| entry.pid)
        .collect())
}
