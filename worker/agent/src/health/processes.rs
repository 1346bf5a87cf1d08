//! Processes that stand still in the kernel, or are dead and not cleared away.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use crate::health::host::entries;
use crate::health::rates::permille;
use crate::health::{Sample, THIS_HOST};

/// How processes of the GPU driver are called.
const DRIVER: &str = "nvidia";

/// Which processes waited in the kernel at the last look. One that waits at two looks in a row counts: whoever reads a disk
/// waits for a moment.
#[derive(Debug, Default)]
pub(super) struct Processes {
    waited: BTreeSet<Waiting>,
}

/// A process, by its number and when it began: numbers come again.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Waiting {
    pid: String,
    began: String,
    is_drivers: bool,
}

impl Processes {
    /// Looks at all processes.
    pub(super) fn read(&mut self, proc: &Path, pids_max: Option<u64>) -> Vec<Sample> {
        let mut waiting = BTreeSet::new();
        let (mut zombies, mut all) = (0u64, 0);
        for process in entries(proc, "") {
            let pid = process.file_name().unwrap_or_default().to_string_lossy();
            if !pid.bytes().all(|byte| byte.is_ascii_digit()) {
                continue;
            }
            // One that is gone meanwhile is none.
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

/// Name, state and start of a process: `7 (name) S ...`, of which the name may hold anything.
fn parse(stat: &str) -> Option<(&str, &str, &str)> {
    let (before, after) = stat.rsplit_once(')')?;
    let (_, name) = before.split_once('(')?;
    let mut fields = after.split_whitespace();
    let state = fields.next()?;
    // The 22nd field of all; the state is the third.
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
    fn who_waits_twice_in_a_row_stands_still() {
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
        let mut told = || {
            let samples = processes.read(home.path(), Some(10));
            let metrics = samples.into_iter().flat_map(|sample| sample.metrics);
            metrics.map(|(_, value)| value).collect::<Vec<i64>>()
        };
        assert_eq!(told(), [0, 0, 1, 100]);
        assert_eq!(told(), [2, 1, 1, 100]);
        // Another process has its number.
        process(8, "a (D) b", "D", 9);
        assert_eq!(told(), [1, 1, 1, 100]);
    }
}
