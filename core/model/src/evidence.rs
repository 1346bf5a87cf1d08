//! Classification of the last output of tasks: one table of patterns, in which the first matching rule
//! applies.
//!
//! The texts are those that users see from CUDA, NCCL, PyTorch, Python and the system. The evidence of an end
//! is the matching line itself; its meaning is looked up here again when needed.

use crate::limits;

/// Cause that a line indicates.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize,
)]
pub enum Cause {
    /// GPU hardware.
    Gpu,
    /// The program's own use of a GPU.
    Kernel,
    /// A driver, or the host's GPU software.
    Driver,
    /// GPU memory exhausted.
    GpuMemory,
    /// Another task's failure: never attributed to the task that reports it.
    Consequence,
    /// A collective operation that did not finish.
    Hang,
    /// The network, or an adapter at either end.
    Network,
    /// A CUDA error, not specified further.
    Cuda,
    /// The program's code or arguments.
    Program,
    /// A full disk or an exhausted quota.
    DiskFull,
    /// A file system.
    Storage,
    /// Shared memory too small.
    SharedMemory,
    /// A loss that is not a number.
    Numbers,
    /// A checkpoint that cannot be read.
    Checkpoint,
    /// A failed rendezvous of a gang.
    Rendezvous,
    /// An error without a known cause.
    Other,
}

/// A matching line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Finding<'a> {
    /// Its cause.
    pub cause: Cause,
    /// The line.
    pub line: &'a str,
}

/// Words that must occur in one line, in this order.
type Pattern = &'static [&'static str];

/// All rules in order of precedence.
const RULES: &[(Cause, &[Pattern])] = &[
    (
        Cause::Gpu,
        &[
            &["uncorrectable ECC error encountered"],
            &["CUDA error: uncorrectable"],
            &["GPU is lost"],
            &["has fallen off the bus"],
        ],
    ),
    (
        Cause::Kernel,
        &[
            &["an illegal memory access"],
            &["device-side assert"],
            &["misaligned address"],
            &["invalid device function"],
            &["unspecified launch failure"],
        ],
    ),
    (
        Cause::Driver,
        &[
            &["CUDA error: unknown error"],
            &["CUDA-capable device(s) is/are busy or unavailable"],
            &["no CUDA-capable device is detected"],
            &["CUDA", "initialization error"],
            &["system not yet initialized"],
            &["driver version is insufficient"],
        ],
    ),
    (
        Cause::GpuMemory,
        &[
            &["CUDA out of memory"],
            &["OutOfMemoryError"],
            &["CUBLAS_STATUS_ALLOC_FAILED"],
        ],
    ),
    (
        Cause::Consequence,
        &[
            &["NCCL WARN", "remote process exited"],
            &["ncclRemoteError"],
            &["Connection reset by peer"],
            &["Connection closed"],
            &["Broken pipe"],
            // The message of an elastic launcher that was asked to stop.
            &["SignalException"],
        ],
    ),
    (
        Cause::Hang,
        &[
            &["Watchdog caught collective operation timeout"],
            &["NCCL communicator was aborted"],
        ],
    ),
    (
        Cause::Network,
        &[
            &["ncclSystemError"],
            &["ibv_"],
            &["IBV_WC_RETRY_EXC_ERR"],
            &["Got completion with error 12"],
            &["No such device mlx5"],
        ],
    ),
    (
        Cause::Cuda,
        &[&["ncclUnhandledCudaError"], &["ncclInternalError"]],
    ),
    (
        Cause::Program,
        &[
            &["ModuleNotFoundError"],
            &["ImportError"],
            &["SyntaxError"],
            &["NameError"],
            &["TypeError"],
            &["KeyError"],
            &["AttributeError"],
            &["FileNotFoundError"],
            &["PermissionError"],
            &["ArgumentError"],
            &["AssertionError"],
        ],
    ),
    (
        Cause::DiskFull,
        &[&["No space left on device"], &["Disk quota exceeded"]],
    ),
    (
        Cause::Storage,
        &[
            &["Stale file handle"],
            &["Input/output error"],
            &["Transport endpoint is not connected"],
            &["Read-only file system"],
        ],
    ),
    (
        Cause::SharedMemory,
        &[
            &["DataLoader worker", "killed by signal"],
            &["Bus error"],
            &["shared memory (shm)"],
            &["/dev/shm"],
        ],
    ),
    (
        Cause::Numbers,
        &[
            &["loss is nan"],
            &["loss is NaN"],
            &["loss: nan"],
            &["loss=nan"],
        ],
    ),
    (
        Cause::Checkpoint,
        &[
            &["odel checkpoint", "corrupt"],
            &["PytorchStreamReader failed"],
            &["unexpected EOF"],
            &[".metadata", "missing"],
        ],
    ),
    (
        Cause::Rendezvous,
        &[
            &["RendezvousTimeoutError"],
            &["Timed out waiting for clients"],
            &["ddress already in use"],
        ],
    ),
    // No specific cause, but what users search for.
    (
        Cause::Other,
        &[
            &["panicked at"],
            &["terminate called"],
            &["Segmentation fault"],
            &["Error: "],
            &["Exception: "],
            &["fatal error"],
            &["FATAL"],
        ],
    ),
];

/// Finds the line that explains why a task failed: for the first rule that matches anywhere, the last
/// matching line of the first text that has one. `None` without a match.
#[must_use]
pub fn find<'a>(texts: &[&'a str]) -> Option<Finding<'a>> {
    RULES.iter().find_map(|(cause, patterns)| {
        let is_match = |line: &&str| patterns.iter().any(|words| has_in_order(line, words));
        let line = texts
            .iter()
            .find_map(|text| text.lines().rev().find(is_match))?;
        Some(Finding {
            cause: *cause,
            line: line.trim(),
        })
    })
}

/// Cause that the evidence of an end indicates; `None` if there is none.
#[must_use]
pub fn cause(evidence: &str) -> Option<Cause> {
    let line = evidence.lines().next()?;
    find(&[line]).map(|finding| finding.cause)
}

fn has_in_order(line: &str, words: Pattern) -> bool {
    let mut rest = line;
    words.iter().all(|word| match rest.find(word) {
        Some(at) => {
            rest = &rest[at + word.len()..];
            true
        }
        None => false,
    })
}

/// Prefix of the second line of an evidence, which gives the time of the error.
const RAISED_AT_PREFIX: &str = "raised at ";

/// Formats the evidence of an end: the matching line and, if known, the time of the error in seconds since
/// the Unix epoch by the host's clock.
#[must_use]
pub fn evidence(line: &str, raised_at_s: Option<u64>) -> String {
    let second = raised_at_s.map_or_else(String::new, |at| format!("\n{RAISED_AT_PREFIX}{at}"));
    let room = limits::TEXT_BYTES_MAX - second.len();
    let mut text: String = line
        .chars()
        .filter(|letter| !letter.is_control() || *letter == '\t')
        .collect();
    text.truncate(text.floor_char_boundary(room));
    text + &second
}

/// Time of the error in seconds since the Unix epoch; `None` if unknown.
#[must_use]
pub fn raised_at_s(evidence: &str) -> Option<u64> {
    evidence
        .lines()
        .nth(1)?
        .strip_prefix(RAISED_AT_PREFIX)?
        .parse()
        .ok()
}

/// For two failed tasks of a gang, whether the first evidence rather than the second names the origin: it
/// failed earlier, or the other only reports a consequence. An evidence without a cause does not change the
/// attribution.
#[must_use]
pub fn is_earlier_cause(new: &str, known: &str) -> bool {
    match (cause(new), cause(known)) {
        (None | Some(Cause::Consequence), _) => false,
        (Some(_), Some(Cause::Consequence)) => true,
        (Some(_), _) => match (raised_at_s(new), raised_at_s(known)) {
            (Some(new), Some(known)) => new < known,
            _ => false,
        },
    }
}

/// Whether a gang's task with this evidence may only have suffered from the loss of another one: it names no
/// failure of its own program, at most a broken connection, network or collective operation.
#[must_use]
pub fn may_follow_a_loss(evidence: &str) -> bool {
    matches!(
        cause(evidence),
        None | Some(Cause::Consequence | Cause::Hang | Cause::Network | Cause::Rendezvous)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_rule_counts_and_of_it_the_last_line() {
        let text = "KeyError: 'a'\n  torch.cuda.OutOfMemoryError: CUDA out of memory. 1\n\
                    CUDA out of memory. 2\nBroken pipe\n";
        let found = find(&["", text]);
        let expected = Finding {
            cause: Cause::GpuMemory,
            line: "CUDA out of memory. 2",
        };
        assert_eq!(found, Some(expected));
        assert_eq!(find(&["all is well\n", "step 3 loss 0.1"]), None);
    }

    #[test]
    fn a_pattern_matches_its_words_in_order_within_one_line() {
        let consequence = "x NCCL WARN NET: call failed: remote process exited";
        assert_eq!(cause(consequence), Some(Cause::Consequence));
        assert_eq!(cause("remote process exited NCCL WARN"), None);
        assert_eq!(find(&["NCCL WARN\nremote process exited"]), None);
    }

    #[test]
    fn every_rule_finds_its_own_words() {
        for (cause, patterns) in RULES {
            for words in *patterns {
                let line = words.join(" ... ");
                let found = find(&[&line]).map(|finding| finding.cause);
                // An earlier rule may match as well, but some rule must.
                assert!(
                    found.is_some_and(|found| found <= *cause),
                    "{line}: {found:?}"
                );
            }
        }
    }

    #[test]
    fn evidence_is_one_line_and_a_time() {
        let text = evidence("RuntimeError: \u{1b}[31mboom\r", Some(1_700_000_000));
        assert_eq!(text, "RuntimeError: [31mboom\nraised at 1700000000");
        assert_eq!(raised_at_s(&text), Some(1_700_000_000));
        assert_eq!(raised_at_s("raised at 5"), None);
        let long = evidence(&"x".repeat(limits::TEXT_BYTES_MAX), Some(7));
        assert_eq!(long.len(), limits::TEXT_BYTES_MAX);
        assert_eq!(raised_at_s(&long), Some(7));
    }

    #[test]
    fn the_earliest_error_is_to_blame_and_a_consequence_never() {
        let at = |seconds| evidence("ValueError: Error: x", Some(seconds));
        assert!(is_earlier_cause(&at(5), &at(9)));
        assert!(!is_earlier_cause(&at(9), &at(5)));
        assert!(is_earlier_cause(
            "KeyError: 'a'",
            "Connection reset by peer"
        ));
        assert!(!is_earlier_cause("Connection reset by peer", "Broken pipe"));
        assert!(!is_earlier_cause("", "Broken pipe"));
        assert!(!is_earlier_cause("KeyError: 'a'", "KeyError: 'b'"));
    }
}
