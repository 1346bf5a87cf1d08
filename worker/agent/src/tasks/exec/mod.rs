//! Exec sessions: commands that users run next to tasks. The agent relays their input and output between
//! the leader and the supervisor, whose children they are.
//!
//! Each session has its own connection to the leader, so that a user who does not read delays no heartbeat
//! and blocks only that command: unread output stays in its pipes.

mod files;
mod session;

use std::path::PathBuf;
use std::sync::Arc;

use muster_model::ids::{AttemptEpoch, JobId, TaskIndex, TaskKey};
use muster_proto::v1;
use muster_supervisor::{RunId, TaskDirectory};
use muster_tls::Dialer;
use tokio::sync::Semaphore;

use crate::limits::{EXEC_PROGRAM_BYTES_SHOWN, EXEC_SESSIONS_ON_HOST_MAX};
use crate::metrics;
use crate::tasks::runner::Runner;

/// The exec sessions of this host.
#[derive(Clone, Debug)]
pub(crate) struct Execs {
    runner: Runner,
    tasks: PathBuf,
    dialer: Dialer,
    places: Arc<Semaphore>,
}

impl Execs {
    pub(crate) fn new(runner: Runner, tasks: PathBuf, dialer: Dialer) -> Self {
        Self {
            runner,
            tasks,
            dialer,
            places: Arc::new(Semaphore::new(EXEC_SESSIONS_ON_HOST_MAX)),
        }
    }

    /// Executes an order of the leader at `leader`; `is_running` returns whether the attempt of a task
    /// runs.
    pub(crate) fn begin(
        &self,
        leader: &str,
        order: v1::ExecOrder,
        is_running: impl FnOnce(RunId) -> bool,
    ) {
        let leader = leader.to_owned();
        let open = order.open.unwrap_or_default();
        let id = RunId {
            key: TaskKey {
                job: JobId(open.job_id),
                task: TaskIndex(open.task),
            },
            epoch: AttemptEpoch(order.epoch),
        };
        let place = Arc::clone(&self.places).try_acquire_owned();
        let refusal = if !is_running(id) {
            Some("the task does not run on this host".to_owned())
        } else if place.is_err() {
            Some(format!(
                "{EXEC_SESSIONS_ON_HOST_MAX} exec sessions run on this host already (EXEC_SESSIONS_ON_HOST_MAX)"
            ))
        } else {
            // The supervisor opens its socket meanwhile.
            self.runner.announce_exec(id);
            None
        };
        tracing::info!(%id, author = open.author, program = program(&open), refusal, "exec session");
        let dialer = self.dialer.clone();
        let directory = TaskDirectory::below(&self.tasks, id);
        tokio::spawn(async move {
            let call = match session::call(&dialer, &leader, order.token).await {
                Ok(call) => call,
                Err(error) => {
                    tracing::warn!(%id, error, "an exec session could not connect to the leader");
                    return;
                }
            };
            match refusal {
                Some(detail) => call.refuse(detail).await,
                None => {
                    metrics::exec_began();
                    call.run(&directory, open).await;
                    metrics::exec_ended();
                }
            }
            drop(place);
        });
    }
}

/// Name of the program for the log, truncated.
fn program(open: &v1::ExecOpen) -> Option<&str> {
    let program = open.command.first()?;
    Some(&program[..program.floor_char_boundary(EXEC_PROGRAM_BYTES_SHOWN)])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_log_shows_the_begin_of_a_long_name() {
        let open = |program: String| v1::ExecOpen {
            command: vec![program, "file".to_owned()],
            ..v1::ExecOpen::default()
        };
        assert_eq!(program(&open("cat".to_owned())), Some("cat"));
        let long = open(format!("x{}", "é".repeat(EXEC_PROGRAM_BYTES_SHOWN)));
        let shown = program(&long).map(str::len);
        assert_eq!(shown, Some(EXEC_PROGRAM_BYTES_SHOWN - 1));
    }
}
