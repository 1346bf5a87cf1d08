//! Detection of processes that hang in the kernel, and of zombies.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use crate::health::sampling::host::entries;
use crate::health::{Sample, THIS_HOST};
use crate::rates::permille;

/// Name prefix of the GPU driver's processes.
const DRIVER: &str = "nvidia";

/// Processes in uninterruptible sleep at the last check. A process counts if it waits at two checks in a row:
/// disk reads wait for a moment.
#[derive(Debug, Default)]
pub(super) struct Processes {
    waited: BTreeSet<Waiting>,
}

/// A process by id and start time: ids are reused.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Waiting {
    pid: String,
    began: String,
    is_drivers: bool,
}

impl Processes {
    /// Scans all processes.
    pub(super) fn read(&mut self, proc: &Path, pids_max: Option<u64>) -> Vec<Sample> {
        let mut waiting = BTreeSet::new();
        let (mut zombies, mut all) = (0u64, 0);
        for process in entries(proc, "") {
            let pid = process.file_name().unwrap_or_default().to_string_lossy();
            if !pid.bytes().all(|byte| byte.is_ascii_digit()) {
                continue;
            }
            // A process that ended meanwhile is skipped.
            let Ok(stat) = fs::read_to_string(process.join("stat")) else {
                continue;
            };
            let Some((name, state, began)) = parse(&stat) else {
                continue;
            };
            all += 1;
            match state {
                "Z" => zombies += 1,
                "D" => {
                    waiting.insert(Waiting {
                        pid: pid.into_owned(),
                        began: began.to_owned(),
                        is_drivers: name.starts_with(DRIVER),
                    });
                }
                _ => {}
            }
        }
        let still: Vec<&Waiting> = waiting.intersection(&self.waited).collect();
        let of_driver = still.iter().filter(|process| process.is_drivers).count();
        let metrics = [
            ("waiting", count(still.len())),
            ("driver_waiting", count(of_driver)),
        ];
        let dead = [
            ("zombies", i64::try_from(zombies).unwrap_or(i64::MAX)),
            (
                "limit_permille",
                pids_max.map_or(0, |max| permille(zombies, max)),
            ),
        ];
        self.waited = waiting;
        if all == 0 {
            return Vec::new();
        }
        vec![
            Sample::new("nvidia_dstate", THIS_HOST, &metrics),
            Sample::new("zombies", THIS_HOST, &dead),
        ]
    }
}

/// Name, state and start time of a process: `7 (name) S ...`, where the name may contain any character.
fn parse(stat: &str) -> Option<(&str, &str, &str)> {
    let (before, after) = stat.rsplit_once(')')?;
    let (_, name) = before.split_once('(')?;
    let mut fields = after.split_whitespace();
    let state = fields.next()?;
    // Field 22 of all fields; the state is field 3.
    Some((name, state, fields.nth(18)?))
}

fn count(number: usize) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a failed test should panic")]
mod tests {
    use super::*;

    #[test]
    fn a_process_in_uninterruptible_sleep_twice_in_a_row_counts_as_stuck() {
        let home = tempfile::tempdir().unwrap();
        let process = |pid: u32, name: &str, state: &str, began: u32| {
            let folder = home.path().join(pid.to_string());
            fs::create_dir_all(&folder).unwrap();
            let between = " 0".repeat(18);
            let stat = format!("{pid} ({name}) {state}{between} {began} 0 0");
            fs::write(folder.join("stat"), stat).unwrap();
        };
        fs::create_dir(home.path().join("self")).unwrap();
        process(7, "nvidia-modeset/", "D", 1);
        process(8, "a (D) b", "D", 2);
        process(9, "dead", "Z", 3);
        let mut processes = Processes::default();
        let mut values = || {
            let samples = processes.read(home.path(), Some(10));
            let metrics = samples.into_iter().flat_map(|sample| sample.metrics);
            metrics.map(|(_, value)| value).collect::<Vec<i64>>()
        };
        assert_eq!(values(), [0, 0, 1, 100]);
        assert_eq!(values(), [2, 1, 1, 100]);
        // Another process with the same id.
        process(8, "a (D) b", "D", 9);
        assert_eq!(values(), [1, 1, 1, 100]);
    }
}
