//! The meta test: the same seed gives the same world, wherever it is run.

use std::fmt;
use std::io;
use std::panic::resume_unwind;
use std::path::Path;
use std::process::Command;
use std::thread;

use super::{SweepOptions, world_of};
use crate::sim::report::Report;
use crate::sim::world::{WorldOptions, simulate};

/// Whether the first seed's world is the same: one of many at once, alone, once more, and in a process of its own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Meta {
    /// Run alone as it was among the others.
    pub alone: bool,
    /// Run once more in the same thread.
    pub again: bool,
    /// Run by a fresh process; none if there was no program to start.
    pub fresh: Option<bool>,
}

impl Meta {
    /// Whether it was the same every time.
    #[must_use]
    pub fn holds(self) -> bool {
        self.alone && self.again && self.fresh != Some(false)
    }
}

impl fmt::Display for Meta {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let same = |is_same| if is_same { "the same" } else { "ANOTHER" };
        let fresh = match self.fresh {
            Some(is_same) => same(is_same),
            None => "not tried",
        };
        write!(
            formatter,
            "{} world alone as among the others, {} once more, {fresh} in a process of its own",
            same(self.alone),
            same(self.again)
        )
    }
}

/// Whether the first seed's world is the same again.
pub(super) fn meta_test(options: &SweepOptions, swept: Option<&Report>) -> io::Result<Meta> {
    let world = world_of(options, options.first, options.mutant);
    thread::scope(|scope| {
        let beside = options.program.as_deref();
        let beside = beside.map(|program| scope.spawn(|| digest_by(program, &world)));
        let alone = simulate(&world)?;
        // The only world of a sweep was alone the first time, and a long one is not run more often than it must be.
        let again = match options.seeds {
            1 => swept == Some(&alone),
            _ => simulate(&world)? == alone,
        };
        let fresh = beside.map(|thread| thread.join().unwrap_or_else(|panic| resume_unwind(panic)));
        let fresh = fresh.transpose()?;
        Ok(Meta {
            alone: swept == Some(&alone),
            again,
            fresh: fresh.map(|digest| digest == alone.digest()),
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
