//! The directory by which an agent and a supervisor share one attempt of a task.

use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use muster_model::command::Exit;
use muster_model::desired::TaskAssignment;
use muster_model::heartbeat::{CheckpointReport, DamageReport};
use muster_model::time::TimeMs;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::files;
use crate::isolation::account::Account;
use crate::process::ProcessIdentity;
use crate::task::run_id::RunId;
use crate::task::spec::TaskSpec;

/// Paths below one task's directory, which may be in memory: after a reboot of the kernel it is worthless.
/// Data that must survive a reboot is on disk, in `kept/<same name>` next to the directory of all tasks, and
/// only if there is any.
///
/// | name | written by | what |
/// |---|---|---|
/// | `spec.json` | agent | what to run |
/// | `claim.json` | supervisor | its identity; creating this file makes a second start impossible |
/// | `process.json` | supervisor | the task's process |
/// | `agent.sock` | supervisor | where an agent connects |
/// | `exec.sock` | supervisor | where an agent requests exec sessions, once it has announced that |
/// | `exit.json` | supervisor | how the task ended, written last; kept on disk if no agent was notified |
/// | `supervisor.err` | supervisor | why it failed, if it did |
/// | `ctl/` | both sides | the task's control directory (`MUSTER_CTL_DIR`) |
/// | `scratch/` | task | its working directory if it named none; a link to a folder on disk |
/// | kept: `checkpoint.json` | supervisor | newest committed checkpoint |
/// | kept: `checkpoints.json` | supervisor | those committed before it; absent before the second |
/// | kept: `damaged.json` | supervisor | checkpoints that the task could not read |
///
/// Supervisors of earlier builds kept all of it in the task's directory, where it is looked for as well.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaskDirectory(PathBuf);

/// How a task ended, as stored on disk.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExitRecord {
    /// Exit status and details.
    pub exit: Exit,
    /// Time of the end, by the host's wall clock.
    pub ended_at: TimeMs,
}

/// Owner of the output in a directory of logs: recorded there because the task's own directory is removed
/// earlier.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogOwner {
    /// Counts the attempts of the task's unit from 1.
    pub attempt: u32,
}

/// Mode of folders that contain folders of others: passable, but not listable.
const PASSAGE: u32 = 0o711;
/// File with the supervisor's identity.
const CLAIM: &str = "claim.json";
/// File with the task's exit.
const EXIT: &str = "exit.json";
/// Name of the on-disk directory, next to that of all tasks, for data that must outlive the tasks'
/// directories.
pub const KEPT: &str = "kept";

impl LogOwner {
    /// The file in the directory.
    const NAME: &str = "owner.json";

    pub(crate) const fn of(assignment: &TaskAssignment) -> Self {
        Self {
            attempt: assignment.attempt,
        }
    }

    /// The owner record of an attempt's logs.
    #[must_use]
    pub fn file(logs: &Path) -> PathBuf {
        logs.join(Self::NAME)
    }

    /// Writes the record into the directory, creating it.
    pub(crate) fn record(&self, logs: &Path) -> io::Result<()> {
        fs::create_dir_all(logs)?;
        files::replace(&Self::file(logs), &files::json_bytes(self)?)
    }

    /// Reads the record; `None` if the supervisor wrote none.
    ///
    /// # Errors
    /// Errors of the file system, or a damaged record.
    pub fn read(logs: &Path) -> io::Result<Option<Self>> {
        files::read_json(&Self::file(logs))
    }
}

impl TaskDirectory {
    /// A directory at a path that may or may not exist.
    #[must_use]
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self(path.into())
    }

    /// The directory of one attempt below the directory of all.
    #[must_use]
    pub fn below(tasks: &Path, id: RunId) -> Self {
        Self(tasks.join(id.to_string()))
    }

    /// The attempt that the directory's name says it is for.
    #[must_use]
    pub fn run_id(&self) -> Option<RunId> {
        self.0.file_name()?.to_str()?.parse().ok()
    }

    /// Where data that must outlive the directory is stored; created on first use.
    #[must_use]
    pub fn kept(&self) -> PathBuf {
        let home = self.0.parent().and_then(Path::parent);
        match home.zip(self.0.file_name()) {
            Some((home, name)) => home.join(KEPT).join(name),
            None => self.0.join(KEPT),
        }
    }

    /// Path of the directory.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Socket to which an agent connects.
    #[must_use]
    pub fn agent_socket(&self) -> PathBuf {
        self.0.join("agent.sock")
    }

    /// Socket on which an agent requests exec sessions, once it has announced that.
    #[must_use]
    pub fn exec_socket(&self) -> PathBuf {
        self.0.join("exec.sock")
    }

    /// The task's control directory (`MUSTER_CTL_DIR`).
    #[must_use]
    pub fn control(&self) -> PathBuf {
        self.0.join("ctl")
    }

    /// The task's control socket (`MUSTER_CTL_SOCK`).
    #[must_use]
    pub fn control_socket(&self) -> PathBuf {
        self.control().join("ctl.sock")
    }

    /// The gang's hosts, for a launcher (`MUSTER_HOSTFILE`).
    #[must_use]
    pub fn hostfile(&self) -> PathBuf {
        self.control().join("hosts")
    }

    /// The task's own working directory.
    #[must_use]
    pub fn scratch(&self) -> PathBuf {
        self.0.join("scratch")
    }

    /// Working directory of a specification's program.
    pub(crate) fn working_directory(&self, spec: &TaskSpec) -> PathBuf {
        match &spec.assignment.working_directory {
            Some(path) => path.into(),
            None => self.scratch(),
        }
    }

    /// File in which a supervisor records why it failed.
    #[must_use]
    pub fn supervisor_errors(&self) -> PathBuf {
        self.0.join("supervisor.err")
    }

    /// Creates the directory with what the supervisor needs. Not synced: the journal is the durable copy.
    ///
    /// # Errors
    /// Errors of the file system.
    pub fn create(&self, spec: &TaskSpec) -> io::Result<()> {
        fs::create_dir_all(self.control())?;
        fs::create_dir_all(self.scratch())?;
        files::replace(&self.0.join("spec.json"), &files::json_bytes(spec)?)?;
        match &spec.identity.account {
            Some(account) => self.open_to(account),
            None => Ok(()),
        }
    }

    /// Gives an account the task's own folders and lets it pass through to them. The rest stays private.
    fn open_to(&self, account: &Account) -> io::Result<()> {
        account.own(&self.control())?;
        fs::set_permissions(&self.0, fs::Permissions::from_mode(PASSAGE))
    }

    /// Reads what to run; `None` if it was never written.
    ///
    /// # Errors
    /// Errors of the file system, or a damaged file.
    pub fn read_spec(&self) -> io::Result<Option<TaskSpec>> {
        files::read_json(&self.0.join("spec.json"))
    }

    /// Makes the calling process the attempt's only supervisor ever.
    ///
    /// # Errors
    /// `AlreadyExists` if there was one before; otherwise errors of the file system.
    pub fn claim(&self, supervisor: ProcessIdentity) -> io::Result<()> {
        let mut file = fs::File::create_new(self.0.join(CLAIM))?;
        // In one write: a partial record would identify no process.
        file.write_all(&files::json_bytes(&supervisor)?)
    }

    /// The supervisor; `None` if none ever claimed the attempt.
    ///
    /// # Errors
    /// Errors of the file system, or a damaged file.
    pub fn supervisor(&self) -> io::Result<Option<ProcessIdentity>> {
        files::read_json(&self.0.join(CLAIM))
    }

    /// Records the task's process.
    ///
    /// # Errors
    /// Errors of the file system.
    pub(crate) fn record_process(&self, process: ProcessIdentity) -> io::Result<()> {
        files::replace(&self.0.join("process.json"), &files::json_bytes(&process)?)
    }

    /// The task's process; `None` if none was ever started.
    ///
    /// # Errors
    /// Errors of the file system, or a damaged file.
    pub fn process(&self) -> io::Result<Option<ProcessIdentity>> {
        files::read_json(&self.0.join("process.json"))
    }

    /// Records the newest committed checkpoint, durably, next to those committed before it.
    ///
    /// # Errors
    /// Errors of the file system; then the newest recorded one is the last of those before it.
    pub(crate) fn record_checkpoint(
        &self,
        before: &[CheckpointReport],
        report: &CheckpointReport,
    ) -> io::Result<()> {
        if !before.is_empty() {
            self.keep("checkpoints.json", &files::json_bytes(&before)?)?;
        }
        self.keep("checkpoint.json", &files::json_bytes(report)?)
    }

    /// The newest committed checkpoints, oldest first.
    ///
    /// # Errors
    /// Errors of the file system, or a damaged file.
    pub fn checkpoints(&self) -> io::Result<Vec<CheckpointReport>> {
        // Read in this order: checkpoints committed meanwhile are reported by the supervisor, which is alive
        // then.
        let newest: Option<CheckpointReport> = self.read_kept("checkpoint.json")?;
        let Some(newest) = newest else {
            return Ok(Vec::new());
        };
        let before: Option<Vec<CheckpointReport>> = self.read_kept("checkpoints.json")?;
        let mut all = before.unwrap_or_default();
        // While one is being recorded, its predecessor is in both places.
        all.retain(|report| report.step < newest.step);
        all.push(newest);
        Ok(all)
    }

    /// Records the checkpoints that the task could not read, durably.
    ///
    /// # Errors
    /// Errors of the file system.
    pub(crate) fn record_damaged(&self, reports: &[DamageReport]) -> io::Result<()> {
        self.keep("damaged.json", &files::json_bytes(&reports)?)
    }

    /// The checkpoints that the task could not read.
    ///
    /// # Errors
    /// Errors of the file system, or a damaged file.
    pub fn damaged(&self) -> io::Result<Vec<DamageReport>> {
        self.read_kept("damaged.json")
            .map(Option::unwrap_or_default)
    }

    /// File in which a launcher writes why it failed (`TORCHELASTIC_ERROR_FILE`).
    #[must_use]
    pub fn error_file(&self) -> PathBuf {
        self.control().join("error.json")
    }

    /// Records how the task ended: durably if no agent was notified of it.
    ///
    /// # Errors
    /// Errors of the file system.
    pub(crate) fn record_exit(&self, record: &ExitRecord, durably: bool) -> io::Result<()> {
        let bytes = files::json_bytes(record)?;
        match durably {
            true => self.keep(EXIT, &bytes),
            false => files::replace(&self.0.join(EXIT), &bytes),
        }
    }

    /// How the task ended, if it did.
    ///
    /// # Errors
    /// Errors of the file system, or a damaged file.
    pub fn exit(&self) -> io::Result<Option<ExitRecord>> {
        self.read_kept(EXIT)
    }

    /// Removes the directory with its contents, and the kept data next to it.
    ///
    /// # Errors
    /// Errors of the file system.
    pub fn remove(&self) -> io::Result<()> {
        // The supervisor's identity goes first: if this process dies halfway, the missing exit record must
        // not suggest that the supervisor still works on this task. It may have another one by now.
        match fs::remove_file(self.0.join(CLAIM)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        files::remove_directory(&self.0)?;
        files::remove_directory(&self.kept())
    }

    /// Stores data on disk, durably.
    fn keep(&self, name: &str, bytes: &[u8]) -> io::Result<()> {
        let kept = self.kept();
        if !kept.is_dir() {
            fs::create_dir_all(&kept)?;
            kept.parent().map_or(Ok(()), files::sync_directory)?;
        }
        files::replace_durably(&kept.join(name), bytes)
    }

    /// Reads kept data, from disk or from the directory itself.
    fn read_kept<T: DeserializeOwned>(&self, name: &str) -> io::Result<Option<T>> {
        match files::read_json(&self.0.join(name))? {
            Some(found) => Ok(Some(found)),
            None => files::read_json(&self.kept().join(name)),
        }
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a failed test should panic")]
mod tests {
    use super::*;

    fn report(step: u64) -> CheckpointReport {
        CheckpointReport {
            step,
            path: format!("/step_{step}"),
            size_bytes: 0,
            digest: String::new(),
            save_ms: None,
        }
    }

    #[test]
    fn durable_files_survive_a_reboot_and_go_with_the_task() {
        let home = tempfile::tempdir().unwrap();
        let directory = TaskDirectory::new(home.path().join("tasks/7-0-11"));
        fs::create_dir_all(directory.path()).unwrap();
        let exit = ExitRecord {
            exit: Exit::default(),
            ended_at: TimeMs(7),
        };
        directory.record_checkpoint(&[], &report(1)).unwrap();
        directory
            .record_checkpoint(&[report(1)], &report(2))
            .unwrap();
        directory.record_exit(&exit, true).unwrap();
        // The in-memory directory is lost.
        fs::remove_dir_all(home.path().join("tasks")).unwrap();
        assert_eq!(directory.checkpoints().unwrap(), [report(1), report(2)]);
        assert_eq!(directory.exit().unwrap(), Some(exit));
        directory.remove().unwrap();
        assert_eq!(directory.exit().unwrap(), None);
        assert_eq!(fs::read_dir(home.path().join(KEPT)).unwrap().count(), 0);
    }

    #[test]
    fn records_of_earlier_builds_are_read() {
        let home = tempfile::tempdir().unwrap();
        let directory = TaskDirectory::new(home.path().join("tasks/7-0-11"));
        fs::create_dir_all(directory.path()).unwrap();
        let leave = |name: &str, bytes: Vec<u8>| {
            files::replace_durably(&directory.path().join(name), &bytes).unwrap();
        };
        leave("checkpoint.json", files::json_bytes(&report(2)).unwrap());
        leave("checkpoints.json", files::json_bytes(&[report(1)]).unwrap());
        let damaged = [DamageReport {
            step: 1,
            reason: "its digest differs".to_owned(),
        }];
        leave("damaged.json", files::json_bytes(&damaged).unwrap());
        assert_eq!(directory.checkpoints().unwrap(), [report(1), report(2)]);
        assert_eq!(directory.damaged().unwrap(), damaged);
    }
}
