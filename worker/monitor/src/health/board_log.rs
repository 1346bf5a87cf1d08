//! System event log of the board (IPMI SEL), as listed by a program: records added since the last check.
//!
//! Records are as old as the board. Those present at the first check of a host's first agent are ignored;
//! from then on the last seen record is stored for the next agent.

use std::path::{Path, PathBuf};

use muster_backoff::jitter;
use muster_health::checks::CheckEnd;
use muster_supervisor::files;
use tokio::sync::mpsc::Sender;
use tokio::time::sleep;

use crate::health::program::{ProgramResult, run};
use crate::health::{HealthConfig, Observation, Sample, THIS_HOST};
use crate::limits::{BOARD_LOG_ANSWER_MAX, BOARD_LOG_PERIOD};

/// The rule of this log.
const RULE: &str = "ipmi_sel";
/// Setting that disables the log.
const OFF: &str = "off";
/// Programs that list the log, oldest record first; the installed one is used. Listing a long log takes
/// them minutes, so only the newest records are listed.
const PROGRAMS: [&[&str]; 2] = [
    &["ipmitool", "sel", "list", "last", "100"],
    &[
        "ipmi-sel",
        "--output-event-state",
        "--no-header-output",
        "--tail=100",
    ],
];
/// Columns before a record's text: its number, date and time.
const COLUMNS_BEFORE: usize = 3;
/// Kinds of sensors whose failure is a warning.
const WARNED_OF: [&str; 3] = ["power supply", "fan", "temperature"];
/// Words that indicate a failure.
const FAILURES: [&str; 5] = [
    "failure",
    "lost",
    "critical",
    "non-recoverable",
    "over-temperature",
];

/// Severity of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Record {
    Nothing,
    Warning,
    Critical,
}

/// Polls until the receiver is gone or no program can be run.
pub(super) async fn repeat(config: HealthConfig, data: PathBuf, seen: Sender<Observation>) {
    let is_own = config.host_root == Path::new("/");
    let mut programs = programs(&config.board_log);
    if !is_own {
        return;
    }
    let known = data.join("board-log");
    let mut is_logged = false;
    loop {
        let ran = ask(&mut programs).await;
        let Some(ran) = ran else {
            return;
        };
        if ran.succeeded() {
            if seen.send(new_records(&known, &ran.output)).await.is_err() {
                return;
            }
        } else if !is_logged {
            is_logged = true;
            let evidence = ran.evidence(RULE);
            tracing::info!(evidence, "the board's event log cannot be read");
        }
        sleep(BOARD_LOG_PERIOD - jitter(BOARD_LOG_PERIOD / 10)).await;
    }
}

fn programs(named: &[String]) -> Vec<Vec<String>> {
    match named {
        [program] if program == OFF => Vec::new(),
        [] => PROGRAMS
            .iter()
            .map(|command| {
                command
                    .iter()
                    .map(|argument| (*argument).to_owned())
                    .collect()
            })
            .collect(),
        named => vec![named.to_vec()],
    }
}

/// Output of the first installed program; missing ones are dropped from the list.
async fn ask(programs: &mut Vec<Vec<String>>) -> Option<ProgramResult> {
    while let Some(program) = programs.first() {
        let ran = run(program, BOARD_LOG_ANSWER_MAX).await;
        if ran.end != CheckEnd::NotStarted {
            return Some(ran);
        }
        programs.remove(0);
    }
    None
}

/// New records in a listing; the last one is stored in a file.
fn new_records(known: &Path, listing: &str) -> Observation {
    let lines = listing.lines().map(str::trim);
    let records: Vec<&str> = lines.filter(|line| line.contains('|')).collect();
    let before = std::fs::read_to_string(known).ok();
    if let Some(last) = records
        .last()
        .filter(|last| before.as_deref() != Some(**last))
        && let Err(error) = files::replace_durably(known, last.as_bytes())
    {
        tracing::warn!(path = %known.display(), %error, "records of the board's event log may be reported again");
    }
    let Some(before) = before else {
        // An empty log has no last record: all later ones are new.
        if records.is_empty() {
            drop(files::replace_durably(known, b""));
        }
        return observation_of(&[]);
    };
    // If the last record is missing, the log was cleared or has grown beyond the listing.
    let last = records.iter().rposition(|record| *record == before);
    let new = &records[last.map_or(0, |at| at + 1)..];
    observation_of(new)
}

fn observation_of(records: &[&str]) -> Observation {
    let of = |wanted| records.iter().filter(move |record| read(record) == wanted);
    let count = |wanted| i64::try_from(of(wanted).count()).unwrap_or(i64::MAX);
    let metrics = [
        ("warnings", count(Record::Warning)),
        ("critical", count(Record::Critical)),
    ];
    let sample = Sample::new(RULE, THIS_HOST, &metrics);
    let worst = of(Record::Critical).next_back();
    match worst.or_else(|| of(Record::Warning).next_back()) {
        Some(line) => Observation::SampleWithText(sample, (*line).to_owned()),
        None => Observation::Samples(vec![sample]),
    }
}

/// Classifies a record: `ID | date | time | sensor | event | Asserted` of `ipmitool`,
/// `ID | date | time | name | type | state | event` of `ipmi-sel`.
fn read(record: &str) -> Record {
    let text = record
        .splitn(COLUMNS_BEFORE + 1, '|')
        .nth(COLUMNS_BEFORE)
        .unwrap_or_default()
        .to_ascii_lowercase();
    if text.contains("deassert") {
        return Record::Nothing;
    }
    if text.contains("critical interrupt") {
        let is_corrected = text.contains("correctable") && !text.contains("uncorrectable");
        return if is_corrected {
            Record::Warning
        } else {
            Record::Critical
        };
    }
    // A threshold below the critical one.
    let text = text.replace("non-critical", "");
    let has = |all: &[&str]| all.iter().any(|word| text.contains(word));
    if has(&WARNED_OF) && has(&FAILURES) {
        Record::Warning
    } else {
        Record::Nothing
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a failed test should panic")]
mod tests {
    use std::os::unix::fs::PermissionsExt;
    use std::time::Duration;

    use tokio::sync::mpsc;
    use tokio::time::timeout;

    use super::*;

    const POWER: &str =
        "   1 | 10/12/2023 | 10:14:05 | Power Supply #0x51 | Failure detected | Asserted";
    const SERR: &str =
        "   2 | 10/12/2023 | 10:20:41 | Critical Interrupt #0x83 | PCI SERR | Asserted";
    const SEATED: &str =
        "   3 | 10/12/2023 | 10:21:00 | Power Supply #0x51 | Presence detected | Asserted";

    #[test]
    fn records_of_both_programs_are_read() {
        for (record, expected) in [
            (POWER, Record::Warning),
            (SERR, Record::Critical),
            (SEATED, Record::Nothing),
            (
                "4 | 10/12/2023 | 10:22:00 | Critical Interrupt #0x83 | PCI SERR | Deasserted",
                Record::Nothing,
            ),
            (
                "5 | 10/12/2023 | 10:23:00 | Critical Interrupt #0x18 | Bus Correctable error | Asserted",
                Record::Warning,
            ),
            (
                "6 | 10/12/2023 | 10:23:00 | Critical Interrupt #0x18 | Bus Uncorrectable error | Asserted",
                Record::Critical,
            ),
            (
                "7 | Pre-Init |0000000001| Fan #0x30 | Lower Critical going low | Asserted",
                Record::Warning,
            ),
            (
                "8 | 10/12/2023 | 10:24:00 | Temperature #0x30 | Upper Non-critical going high | Asserted",
                Record::Nothing,
            ),
            (
                "9 | 10/12/2023 | 10:24:00 | Temperature #0x30 | Upper Critical going high | Asserted",
                Record::Warning,
            ),
            (
                "a | 10/12/2023 | 10:24:00 | Event Logging Disabled #0x10 | Log area reset/cleared | Asserted",
                Record::Nothing,
            ),
            (
                "11 | Oct-12-2023 | 10:20:41 | PCIe Err | Critical Interrupt | Critical | Bus Fatal Error",
                Record::Critical,
            ),
            (
                "12 | Oct-12-2023 | 10:20:41 | PS Redundancy | Power Supply | Critical | Redundancy Lost",
                Record::Warning,
            ),
            (
                "13 | Oct-12-2023 | 10:20:41 | PS1 Status | Power Supply | Nominal | Presence detected",
                Record::Nothing,
            ),
        ] {
            assert_eq!(read(record), expected, "{record}");
        }
    }

    /// Numbers of warnings and of critical records, and the quoted line.
    fn counts_of(seen: Observation) -> (i64, i64, String) {
        let (sample, line) = match seen {
            Observation::SampleWithText(sample, line) => (sample, line),
            Observation::Samples(samples) => (samples[0].clone(), String::new()),
            other => unreachable!("{other:?}"),
        };
        (sample.metrics[0].1, sample.metrics[1].1, line)
    }

    #[test]
    fn earlier_records_are_ignored_and_new_ones_are_reported_once() {
        let home = tempfile::tempdir().unwrap();
        let known = home.path().join("board-log");
        let listing = |records: &[&str]| records.join("\n");
        let nothing = (0, 0, String::new());
        assert_eq!(counts_of(new_records(&known, &listing(&[SERR]))), nothing);
        let serr = SERR.trim().to_owned();
        let more = listing(&[SERR, POWER, SEATED]);
        assert_eq!(
            counts_of(new_records(&known, &more)),
            (1, 0, POWER.trim().to_owned())
        );
        // The same holds for the next agent.
        assert_eq!(counts_of(new_records(&known, &more)), nothing);
        // The log was cleared: all records are new.
        assert_eq!(
            counts_of(new_records(&known, &listing(&[POWER, SERR]))),
            (1, 1, serr.clone())
        );
        let empty = home.path().join("another");
        assert_eq!(counts_of(new_records(&empty, "")), nothing);
        assert_eq!(
            counts_of(new_records(&empty, &listing(&[SERR]))),
            (0, 1, serr)
        );
    }

    #[tokio::test]
    async fn the_first_installed_program_is_run_and_missing_ones_are_dropped() {
        let home = tempfile::tempdir().unwrap();
        let program = home.path().join("sel");
        std::fs::write(&program, format!("#!/bin/sh\necho '{SERR}'\n")).unwrap();
        std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
        let named = program.display().to_string();
        let mut programs = vec![
            vec!["/nonexistent/ipmitool".to_owned()],
            vec![named.clone()],
        ];
        let ran = ask(&mut programs).await.unwrap();
        assert!(
            ran.succeeded() && ran.output.contains("PCI SERR"),
            "{ran:?}"
        );
        assert_eq!(programs, [[named.clone()]]);
        // Records added since an earlier agent looked are reported.
        std::fs::write(home.path().join("board-log"), "an earlier record |").unwrap();
        let (sender, mut observations) = mpsc::channel(4);
        let config = HealthConfig {
            board_log: vec![named],
            ..HealthConfig::default()
        };
        let asking = tokio::spawn(repeat(config, home.path().to_owned(), sender));
        let first = timeout(Duration::from_secs(20), observations.recv())
            .await
            .unwrap();
        assert_eq!(counts_of(first.unwrap()), (0, 1, SERR.trim().to_owned()));
        asking.abort();
    }

    #[tokio::test]
    async fn without_a_program_nothing_is_polled() {
        let home = tempfile::tempdir().unwrap();
        for board_log in ["off", "/nonexistent/ipmitool"] {
            let (sender, mut observations) = mpsc::channel(4);
            let config = HealthConfig {
                board_log: vec![board_log.to_owned()],
                ..HealthConfig::default()
            };
            repeat(config, home.path().to_owned(), sender).await;
            assert!(observations.recv().await.is_none());
        }
        assert_eq!(programs(&[]).len(), PROGRAMS.len());
    }
}
