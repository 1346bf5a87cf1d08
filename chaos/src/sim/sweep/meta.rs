//! The meta test: the same seed gives the same world, wherever it is run.

use std::panic::resume_unwind;
use std::path::Path;
use std::process::Command;
use std::{fmt, io, thread};

use crate::sim::report::Report;
use crate::sim::sweep::{SweepOptions, world_of};
use crate::sim::world::{WorldOptions, simulate};

/// Simulated seconds with faults up to which a world is run again: one that takes an hour is the same as its shorter kin are.
const AGAIN_FAULTS_S_MAX: u64 = 3_600;

/// Whether the first seed's world is the same again; what was not tried is none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Meta {
    /// Run alone as it was among the others; the only one of a sweep was alone.
    pub alone: Option<bool>,
    /// Run once more in the same thread.
    pub again: Option<bool>,
    /// Run by a fresh process; there may be no program to start.
    pub fresh: Option<bool>,
}

impl Meta {
    fn all(self) -> [(Option<bool>, &'static str); 3] {
        [
            (self.alone, "alone as among the others"),
            (self.again, "once more"),
            (self.fresh, "in a process of its own"),
        ]
    }

    /// Whether it was the same every time.
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
            let world = if is_same? { "the same" } else { "ANOTHER" };
            Some(format!("{world} world {how}"))
        });
        let tried: Vec<String> = tried.collect();
        if tried.is_empty() {
            return write!(
                formatter,
                "not run again, for it has more than {AGAIN_FAULTS_S_MAX} s with faults"
            );
        }
        formatter.write_str(&tried.join(", "))
    }
}

/// Whether the first seed's world is the same again.
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

/// The digest of a world's report, by a process of its own.
fn digest_by(program: &Path, world: &WorldOptions) -> io::Result<u64> {
    let command = world.command();
    // Behind the program's name: nothing in it has quotes but a list of numbers.
    let words = command.split_whitespace().skip(1);
    let words = words.map(|word| word.trim_matches('\''));
    let ended = Command::new(program).args(words).arg("--digest").output()?;
    let text = String::from_utf8_lossy(&ended.stdout);
    let digest = u64::from_str_radix(text.trim(), 16);
    digest.map_err(|_| {
        let complaint = String::from_utf8_lossy(&ended.stderr);
        io::Error::other(format!("a process of its own gave no digest: {complaint}"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_another_world_is_told_and_what_was_not_tried_is_not() {
        let tried = Meta {
            again: Some(true),
            fresh: Some(false),
            ..Meta::default()
        };
        assert!(!tried.holds() && Meta::default().holds());
        let told = "the same world once more, ANOTHER world in a process of its own";
        assert_eq!(tried.to_string(), told);
        assert!(Meta::default().to_string().contains("not run again"));
    }
}
