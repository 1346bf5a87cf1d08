//! Meta test: the same seed gives the same world, wherever it is run.

use std::panic::resume_unwind;
use std::path::Path;
use std::process::Command;
use std::{fmt, io, thread};

use crate::sim::results::report::Report;
use crate::sim::sweep::{SweepOptions, world_of};
use crate::sim::world::{WorldOptions, simulate};

/// Maximum seconds of faults for which a world is run again: an hour-long one is no different from shorter
/// ones.
const AGAIN_FAULTS_S_MAX: u64 = 3_600;

/// Results of running the first seed's world again; `None` if not run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Meta {
    /// Run alone, compared with its run among the others; skipped if the sweep has only one world.
    pub alone: Option<bool>,
    /// Run again in the same thread.
    pub again: Option<bool>,
    /// Run by a new process; skipped without a program to start.
    pub fresh: Option<bool>,
}

impl Meta {
    fn all(self) -> [(Option<bool>, &'static str); 3] {
        [
            (self.alone, "alone as among the others"),
            (self.again, "again"),
            (self.fresh, "in a separate process"),
        ]
    }

    /// Whether every run gave the same world.
    #[must_use]
    pub fn holds(self) -> bool {
        self.all()
            .iter()
            .all(|(is_same, _)| *is_same != Some(false))
    }
}

impl fmt::Display for Meta {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let tried = self.all().into_iter();
        let tried = tried.filter_map(|(is_same, how)| {
            let world = if is_same? { "the same" } else { "A DIFFERENT" };
            Some(format!("{world} world {how}"))
        });
        let tried: Vec<String> = tried.collect();
        if tried.is_empty() {
            return write!(
                formatter,
                "not run again, because it has more than {AGAIN_FAULTS_S_MAX} s of faults"
            );
        }
        formatter.write_str(&tried.join(", "))
    }
}

/// Runs the first seed's world again and compares the reports.
pub(super) fn meta_test(options: &SweepOptions, swept: Option<&Report>) -> io::Result<Meta> {
    if options.faults_s > AGAIN_FAULTS_S_MAX {
        return Ok(Meta::default());
    }
    let world = world_of(options, options.first, options.mutant);
    thread::scope(|scope| {
        let beside = options.program.as_deref();
        let beside = beside.map(|program| scope.spawn(|| digest_by(program, &world)));
        let here = simulate(&world)?;
        let is_as_swept = Some(swept == Some(&here));
        let (alone, again) = match options.seeds {
            1 => (None, is_as_swept),
            _ => (is_as_swept, Some(simulate(&world)? == here)),
        };
        let fresh = beside.map(|thread| thread.join().unwrap_or_else(|panic| resume_unwind(panic)));
        let fresh = fresh.transpose()?;
        Ok(Meta {
            alone,
            again,
            fresh: fresh.map(|digest| digest == here.digest()),
        })
    })
}

/// Computes the digest of a world's report in a separate process.
fn digest_by(program: &Path, world: &WorldOptions) -> io::Result<u64> {
    let command = world.command();
    // Without the program's name; only a list of numbers is quoted.
    let words = command.split_whitespace().skip(1);
    let words = words.map(|word| word.trim_matches('\''));
    let ended = Command::new(program).args(words).arg("--digest").output()?;
    let text = String::from_utf8_lossy(&ended.stdout);
    let digest = u64::from_str_radix(text.trim(), 16);
    digest.map_err(|_| {
        let complaint = String::from_utf8_lossy(&ended.stderr);
        io::Error::other(format!(
            "a separate process returned no digest: {complaint}"
        ))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_differing_repetition_fails_and_an_omitted_one_does_not() {
        let tried = Meta {
            again: Some(true),
            fresh: Some(false),
            ..Meta::default()
        };
        assert!(!tried.holds() && Meta::default().holds());
        let expected = "the same world again, A DIFFERENT world in a separate process";
        assert_eq!(tried.to_string(), expected);
        assert!(Meta::default().to_string().contains("not run again"));
    }
}
