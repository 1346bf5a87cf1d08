//! What is on record of an attempt's output. It is not written durably, so a power cut may leave an empty file: such a record
//! says nothing. It is removed, so that it is told of once.

use std::fs;
use std::io;
use std::path::Path;

use muster_supervisor::{LogOwner, Shipped};

/// How far the output was shipped; not at all, if the record is damaged.
///
/// # Errors
/// What the file system says.
pub(super) fn shipped(logs: &Path) -> io::Result<Shipped> {
    unless_damaged(Shipped::read(logs), &Shipped::file(logs))
}

/// Whose output it is; nobody knows, if the record is damaged.
///
/// # Errors
/// What the file system says.
pub(super) fn owner(logs: &Path) -> io::Result<Option<LogOwner>> {
    unless_damaged(LogOwner::read(logs), &LogOwner::file(logs))
}

fn unless_damaged<T: Default>(read: io::Result<T>, file: &Path) -> io::Result<T> {
    match read {
        Err(error) if error.kind() == io::ErrorKind::InvalidData => {
            let path = file.display();
            tracing::warn!(%path, %error, "a record of output is damaged, as a power cut leaves it: it is removed, and says nothing");
            // One that stays says nothing either.
            drop(fs::remove_file(file));
            Ok(T::default())
        }
        read => read,
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a failed test should panic")]
mod tests {
    use super::*;

    #[test]
    fn a_record_that_a_power_cut_left_says_nothing_and_is_told_of_once() {
        let logs = tempfile::tempdir().unwrap();
        for left in ["", "\0\0\0\0", "{\"stdout\":"] {
            let files = [Shipped::file(logs.path()), LogOwner::file(logs.path())];
            for file in &files {
                fs::write(file, left).unwrap();
            }
            assert_eq!(
                shipped(logs.path()).unwrap(),
                Shipped::default(),
                "{left:?}"
            );
            assert_eq!(owner(logs.path()).unwrap(), None, "{left:?}");
            assert!(!files.iter().any(|file| file.exists()), "{left:?}");
        }
        // What is whole stays.
        let some = Shipped {
            stdout: 7,
            stderr: 0,
        };
        some.write(logs.path()).unwrap();
        assert_eq!(shipped(logs.path()).unwrap(), some);
        assert_eq!(shipped(logs.path()).unwrap(), some);
    }
}
