//! Shipping of finished output segments to other storage by a program of the site.
//!
//! A segment is finished when a further one of the same output was begun, or when its attempt has ended.
//! Each output is shipped in order; a failed segment is retried with growing backoff and does not block
//! other outputs. Tasks are never delayed: supervisors write, this only reads.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;
use std::{fs, io};

use futures::StreamExt as _;
use muster_monitor::process_group;
use muster_supervisor::output::segments::{OutputStream, Segment, list};
use muster_supervisor::{RunId, TaskDirectory};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokio::process::Command;
use tokio::time::{Instant, interval, timeout};

use crate::limits::{
    LOG_SHIP_INTERVAL, LOG_SHIP_MS_MAX, LOG_SHIP_RETRY, LOG_SHIP_RETRY_MAX, LOG_SHIPPERS_MAX,
    LOG_UNSHIPPED_SEGMENTS_MAX,
};
use crate::metrics;
use crate::tasks::logs::records;

/// The program that ships output, and its limits.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LogShipping {
    /// Program and arguments. Its environment describes the segment: see `docs/output.md`.
    pub command: Vec<String>,
    /// Timeout for one segment in milliseconds: then the program is killed and the segment retried. 60000
    /// where a command is given.
    #[serde(default = "default_timeout_ms")]
    pub timeout_ms: u64,
    /// Segments of one output of a running task that may wait: beyond, the oldest are removed unshipped. 64
    /// where a command is given.
    #[serde(default = "default_segments_max")]
    pub unshipped_segments_max: usize,
}

const fn default_timeout_ms() -> u64 {
    LOG_SHIP_MS_MAX
}

const fn default_segments_max() -> usize {
    LOG_UNSHIPPED_SEGMENTS_MAX
}

/// Ships the output of one host.
#[derive(Debug)]
pub(crate) struct Shipper {
    shipping: LogShipping,
    host: String,
    logs: PathBuf,
    tasks: PathBuf,
    /// Outputs whose last attempt failed.
    failing: BTreeMap<Output, RetryState>,
}

type Output = (RunId, OutputStream);

#[derive(Clone, Copy, Debug)]
struct RetryState {
    wait: Duration,
    again_at: Instant,
}

/// The oldest waiting segment of an output.
#[derive(Clone, Debug)]
struct Waiting {
    id: RunId,
    attempt: Option<u32>,
    directory: PathBuf,
    stream: OutputStream,
    segment: Segment,
    /// Position behind it.
    end: u64,
    /// Bytes before it that were removed unshipped.
    lost_bytes: u64,
}

/// Result of a scan of all logs.
#[derive(Debug, Default)]
struct ScanResult {
    /// The oldest waiting segment of each output.
    next: Vec<Waiting>,
    /// Total number of waiting segments.
    segments: usize,
}

impl Shipper {
    pub(crate) const fn new(
        shipping: LogShipping,
        host: String,
        logs: PathBuf,
        tasks: PathBuf,
    ) -> Self {
        Self {
            shipping,
            host,
            logs,
            tasks,
            failing: BTreeMap::new(),
        }
    }

    /// Ships until the task is aborted.
    pub(crate) async fn run(mut self) {
        let mut rounds = interval(LOG_SHIP_INTERVAL);
        loop {
            rounds.tick().await;
            // After a success, further segments may be waiting.
            while self.round().await > 0 {}
        }
    }

    /// Tries the next segment of every output; returns the number shipped.
    async fn round(&mut self) -> usize {
        let found = match self.scan().await {
            Ok(found) => found,
            Err(error) => {
                tracing::warn!(%error, "looking for output to ship failed");
                return 0;
            }
        };
        metrics::segments_unshipped(found.segments);
        let known = |output: &Output| found.next.iter().any(|one| one.output() == *output);
        self.failing.retain(|output, _| known(output));
        let now = Instant::now();
        let due: Vec<Waiting> = found
            .next
            .into_iter()
            .filter(|waiting| {
                let failing = self.failing.get(&waiting.output());
                failing.is_none_or(|failing| failing.again_at <= now)
            })
            .collect();
        let outcomes: Vec<(Output, bool)> = futures::stream::iter(due)
            .map(|waiting| self.ship(waiting))
            .buffer_unordered(LOG_SHIPPERS_MAX)
            .collect()
            .await;
        for (output, is_shipped) in &outcomes {
            self.note(*output, *is_shipped);
        }
        outcomes
            .iter()
            .filter(|(_, is_shipped)| *is_shipped)
            .count()
    }

    fn note(&mut self, output: Output, is_shipped: bool) {
        if is_shipped {
            self.failing.remove(&output);
            return;
        }
        let known = self.failing.get(&output);
        let wait = known.map_or(LOG_SHIP_RETRY, |failing| {
            failing.wait.saturating_mul(2).min(LOG_SHIP_RETRY_MAX)
        });
        let again_at = Instant::now() + wait;
        self.failing.insert(output, RetryState { wait, again_at });
    }

    async fn scan(&self) -> io::Result<ScanResult> {
        let (logs, tasks) = (self.logs.clone(), self.tasks.clone());
        tokio::task::spawn_blocking(move || scan(&logs, &tasks))
            .await
            .unwrap_or_else(|error| Err(error.into()))
    }

    /// Ships one segment and records that.
    async fn ship(&self, waiting: Waiting) -> (Output, bool) {
        let output = waiting.output();
        let (id, stream, start) = (waiting.id, waiting.stream.name(), waiting.segment.start);
        let outcome = match self.call(&waiting).await {
            Ok(()) => record(&waiting).map_err(|error| format!("recording it failed: {error}")),
            Err(error) => Err(error),
        };
        match outcome {
            Ok(()) => {
                metrics::segment_shipped(waiting.lost_bytes);
                tracing::debug!(%id, stream, start, "shipped a segment of output");
                (output, true)
            }
            Err(error) => {
                metrics::segment_ship_failed();
                tracing::warn!(%id, stream, start, error, "shipping a segment of output failed");
                (output, false)
            }
        }
    }

    async fn call(&self, waiting: &Waiting) -> Result<(), String> {
        let (program, arguments) = self.shipping.command.split_first().ok_or("no command")?;
        let mut command = Command::new(program);
        command
            .args(arguments)
            .envs(waiting.environment(&self.host))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .process_group(0)
            .kill_on_drop(true);
        let limit = Duration::from_millis(self.shipping.timeout_ms);
        let mut child = command
            .spawn()
            .map_err(|error| format!("starting `{program}` failed: {error}"))?;
        match timeout(limit, child.wait()).await {
            Ok(Ok(status)) if status.success() => Ok(()),
            Ok(Ok(status)) => Err(format!("`{program}` exited with {status}")),
            Ok(Err(error)) => Err(format!(
                "the exit status of `{program}` is unknown: {error}"
            )),
            Err(_) => {
                process_group::kill(&mut child).await;
                Err(format!("`{program}` took longer than {limit:?}"))
            }
        }
    }
}

impl Waiting {
    const fn output(&self) -> Output {
        (self.id, self.stream)
    }

    fn environment(&self, host: &str) -> Vec<(&'static str, String)> {
        let mut all = vec![
            ("MUSTER_HOST", host.to_owned()),
            ("MUSTER_JOB_ID", self.id.key.job.to_string()),
            ("MUSTER_TASK_INDEX", self.id.key.task.to_string()),
            ("MUSTER_EPOCH", self.id.epoch.to_string()),
            ("MUSTER_LOG_STREAM", self.stream.name().to_owned()),
            (
                "MUSTER_LOG_SEGMENT",
                self.segment.path.display().to_string(),
            ),
            (
                "MUSTER_LOG_TIMES",
                self.segment.arrivals().display().to_string(),
            ),
            ("MUSTER_LOG_OFFSET", self.segment.start.to_string()),
            (
                "MUSTER_LOG_BYTES",
                (self.end - self.segment.start).to_string(),
            ),
        ];
        if let Some(attempt) = self.attempt {
            all.push(("MUSTER_ATTEMPT", attempt.to_string()));
        }
        all
    }
}

/// One task ships both outputs of an attempt, so the record has no other writer.
fn record(waiting: &Waiting) -> io::Result<()> {
    let shipped = records::shipped(&waiting.directory)?;
    shipped
        .with(waiting.stream, waiting.end)
        .write(&waiting.directory)
}

/// Whether all output of an ended attempt was shipped.
pub(super) fn is_shipped(directory: &Path) -> io::Result<bool> {
    Ok(unshipped_bytes(directory)? == 0)
}

/// Bytes of an ended attempt's output that were not shipped, including those rotated away before.
pub(super) fn unshipped_bytes(directory: &Path) -> io::Result<u64> {
    let shipped = records::shipped(directory)?;
    let mut bytes = 0;
    for stream in OutputStream::ALL {
        if let Some(last) = list(directory, stream)?.last() {
            let end = last.start + last.path.metadata()?.len();
            bytes += end.saturating_sub(shipped.of(stream));
        }
    }
    Ok(bytes)
}

fn scan(logs: &Path, tasks: &Path) -> io::Result<ScanResult> {
    let mut found = ScanResult::default();
    for entry in fs::read_dir(logs)? {
        let entry = entry?;
        let id: Option<RunId> = entry
            .file_name()
            .to_str()
            .and_then(|name| name.parse().ok());
        let Some(id) = id else { continue };
        // A directory that is removed meanwhile or cannot be read does not block other attempts.
        if let Err(error) = look_at(id, &entry.path(), tasks, &mut found) {
            tracing::debug!(%id, %error, "looking for output to ship failed");
        }
    }
    Ok(found)
}

fn look_at(id: RunId, directory: &Path, tasks: &Path, found: &mut ScanResult) -> io::Result<()> {
    // Checked first: output written before the end is read after the end is known.
    let task = TaskDirectory::below(tasks, id);
    let has_ended = !task.path().exists() || task.exit()?.is_some();
    let shipped = records::shipped(directory)?;
    for stream in OutputStream::ALL {
        let segments = list(directory, stream)?;
        let mut waiting = Vec::new();
        for (index, segment) in segments.iter().enumerate() {
            if index + 1 == segments.len() && !has_ended {
                break;
            }
            let end = segment.start + segment.path.metadata()?.len();
            if end > shipped.of(stream) {
                waiting.push((segment, end));
            }
        }
        found.segments += waiting.len();
        if let Some((segment, end)) = waiting.first() {
            found.next.push(Waiting {
                id,
                attempt: records::owner(directory)?.map(|owner| owner.attempt),
                directory: directory.to_owned(),
                stream,
                segment: (*segment).clone(),
                end: *end,
                lost_bytes: segment.start.saturating_sub(shipped.of(stream)),
            });
        }
    }
    Ok(())
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a failed test should panic")]
mod tests {
    use muster_supervisor::LogLimits;
    use muster_supervisor::output::segments::SegmentWriter;

    use super::*;

    const LIMITS: LogLimits = LogLimits {
        segment_bytes: 4,
        segments_max: 2,
        unshipped_segments_max: Some(3),
    };

    struct Rig {
        home: tempfile::TempDir,
        shipper: Shipper,
    }

    impl Rig {
        /// A host whose program appends its environment to a file, and fails until another file exists.
        fn new() -> Self {
            let home = tempfile::tempdir().unwrap();
            for name in ["logs", "tasks"] {
                fs::create_dir(home.path().join(name)).unwrap();
            }
            let (shipped, open) = (home.path().join("shipped"), home.path().join("open"));
            let script = format!(
                "[ -e {} ] || exit 3; \
                 echo $MUSTER_HOST $MUSTER_JOB_ID $MUSTER_TASK_INDEX $MUSTER_EPOCH $MUSTER_LOG_STREAM \
                 $MUSTER_LOG_OFFSET $MUSTER_LOG_BYTES $(cat $MUSTER_LOG_SEGMENT) >> {}",
                open.display(),
                shipped.display(),
            );
            let shipping = LogShipping {
                command: vec!["sh".to_owned(), "-c".to_owned(), script],
                timeout_ms: 20_000,
                unshipped_segments_max: 3,
            };
            let (logs, tasks) = (home.path().join("logs"), home.path().join("tasks"));
            let shipper = Shipper::new(shipping, "host-1".to_owned(), logs, tasks);
            Self { home, shipper }
        }

        fn writer(&self, name: &str, stream: OutputStream) -> SegmentWriter {
            SegmentWriter::new(self.home.path().join("logs").join(name), stream, LIMITS)
        }

        fn open(&self) {
            fs::write(self.home.path().join("open"), "").unwrap();
        }

        fn shipped(&self) -> Vec<String> {
            let text = fs::read_to_string(self.home.path().join("shipped")).unwrap_or_default();
            let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
            lines.sort();
            lines
        }
    }

    #[tokio::test]
    async fn finished_segments_are_shipped_in_order_and_once() {
        let mut rig = Rig::new();
        rig.open();
        // The first runs, the second has ended.
        fs::create_dir(rig.home.path().join("tasks/7-0-11")).unwrap();
        rig.writer("7-0-11", OutputStream::Stdout)
            .append(b"aaaabb", 1);
        rig.writer("8-1-12", OutputStream::Stderr)
            .append(b"ccccdd", 1);
        let mut shipped = 0;
        for _ in 0..4 {
            shipped += rig.shipper.round().await;
        }
        let expected = [
            "host-1 7 0 11 stdout 0 4 aaaa",
            "host-1 8 1 12 stderr 0 4 cccc",
            "host-1 8 1 12 stderr 4 2 dd",
        ];
        assert_eq!(
            (shipped, rig.shipped()),
            (3, expected.map(str::to_owned).to_vec())
        );
        let logs = rig.home.path().join("logs");
        assert!(is_shipped(&logs.join("8-1-12")).unwrap());
        assert!(!is_shipped(&logs.join("7-0-11")).unwrap());
    }

    #[tokio::test]
    async fn a_record_emptied_by_a_power_cut_does_not_stop_shipping() {
        let mut rig = Rig::new();
        rig.open();
        rig.writer("8-1-12", OutputStream::Stderr)
            .append(b"ccccdd", 1);
        let logs = rig.home.path().join("logs/8-1-12");
        for record in ["shipped.json", "owner.json"] {
            fs::write(logs.join(record), "").unwrap();
        }
        while rig.shipper.round().await > 0 {}
        let expected = [
            "host-1 8 1 12 stderr 0 4 cccc",
            "host-1 8 1 12 stderr 4 2 dd",
        ];
        assert_eq!(rig.shipped(), expected);
        assert!(is_shipped(&logs).unwrap());
    }

    #[tokio::test]
    async fn a_failure_is_tried_again_later_and_loses_what_is_beyond_the_limit() {
        let mut rig = Rig::new();
        let mut writer = rig.writer("7-0-11", OutputStream::Stdout);
        writer.append(b"aaaabbbbccccddddee", 1);
        assert_eq!(rig.shipper.round().await, 0);
        rig.open();
        assert_eq!(rig.shipper.round().await, 0, "not before the wait is over");
        let output = ("7-0-11".parse().unwrap(), OutputStream::Stdout);
        rig.shipper.note(output, false);
        assert_eq!(rig.shipper.failing[&output].wait, 2 * LOG_SHIP_RETRY);
        rig.shipper.failing.get_mut(&output).unwrap().again_at = Instant::now();
        let found = rig.shipper.scan().await.unwrap();
        assert_eq!((found.segments, found.next[0].lost_bytes), (3, 8));
        while rig.shipper.round().await > 0 {}
        let expected = [
            "host-1 7 0 11 stdout 12 4 dddd",
            "host-1 7 0 11 stdout 16 2 ee",
            "host-1 7 0 11 stdout 8 4 cccc",
        ];
        assert_eq!(rig.shipped(), expected);
        assert!(rig.shipper.failing.is_empty());
    }

    #[tokio::test]
    async fn a_program_that_hangs_is_killed_with_all_that_it_started() {
        let mut rig = Rig::new();
        let pid = rig.home.path().join("pid");
        let script = format!("sleep 1000 & echo $! > {}; wait", pid.display());
        rig.shipper.shipping.command = vec!["sh".to_owned(), "-c".to_owned(), script];
        rig.shipper.shipping.timeout_ms = 5_000;
        rig.writer("7-0-11", OutputStream::Stdout)
            .append(b"aaaa", 1);
        assert_eq!(rig.shipper.round().await, 0);
        assert_eq!(rig.shipper.failing.len(), 1);
        let stat = format!("/proc/{}/stat", fs::read_to_string(pid).unwrap().trim());
        let is_over = || {
            let stat = fs::read_to_string(&stat).unwrap_or_default();
            stat.is_empty() || stat.contains(") Z ")
        };
        let over = timeout(Duration::from_secs(20), async {
            while !is_over() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        });
        over.await.unwrap();
    }
}
