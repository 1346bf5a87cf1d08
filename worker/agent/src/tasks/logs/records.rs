//! Records about an attempt's output. They are not written durably, so a power cut may leave an empty file:
//! such a record is ignored and removed, so that it is logged once.

use std::fs;
use std::io;
use std::path::Path;

use muster_supervisor::{LogOwner, Shipped};

/// How far the output was shipped; not at all if the record is damaged.
///
/// # Errors
/// Of the file system.
pub(super) fn shipped(logs: &Path) -> io::Result<Shipped> {
    unless_damaged(Shipped::read(logs), &Shipped::file(logs))
}

/// Owner of the output; unknown if the record is damaged.
///
/// # Errors
/// Of the file system.
pub(super) fn owner(logs: &Path) -> io::Result<Option<LogOwner>> {
    unless_damaged(LogOwner::read(logs), &LogOwner::file(logs))
}

fn unless_damaged<T: Default>(read: io::Result<T>, file: &Path) -> io::Result<T> {
    match read {
        Err(error) if error.kind() == io::ErrorKind::InvalidData => {
            let path = file.display();
            tracing::warn!(
                %path, %error,
                "removed a damaged record of output, probably torn by a power cut"
            );
            // If the removal fails, the record is still ignored.
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
    fn a_record_damaged_by_a_power_cut_is_ignored_and_logged_once() {
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
        // Intact records stay.
        let some = Shipped {
            stdout: 7,
            stderr: 0,
        };
        some.write(logs.path()).unwrap();
        assert_eq!(shipped(logs.path()).unwrap(), some);
        assert_eq!(shipped(logs.path()).unwrap(), some);
    }
}
