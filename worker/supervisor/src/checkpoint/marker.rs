//! The marker file that makes a directory a checkpoint, without a request on the control socket: its
//! contents, and the save time derived from it and its directory.
//! It may be empty, or hold two lines in either order: the attempt's `MUSTER_EPOCH`, and a digest as
//! `algorithm:hex`. A file with any other line was written by some other software: its contents are ignored.
//! Only a regular file is a marker.

use std::fs;
use std::path::Path;
use std::time::SystemTime;

use muster_model::limits::NAME_BYTES_MAX;

use crate::files;
use crate::lease::clock::is_stamped_since;

/// Name of the file.
pub(crate) const MARKER: &str = "_COMMITTED";
/// Maximum bytes of a marker that is read: an epoch and the longest digest.
const MARKER_BYTES_MAX: u64 = 320;

/// Modification time of a checkpoint's marker; `None` if there is none. Only a regular file counts: others
/// may lead anywhere, or never answer.
pub(crate) fn written_at(checkpoint: &Path) -> Option<SystemTime> {
    let found = fs::symlink_metadata(checkpoint.join(MARKER)).ok()?;
    found.is_file().then(|| found.modified().ok()).flatten()
}

/// Contents of a marker.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Marker {
    /// The attempt that wrote it.
    pub(crate) epoch: Option<u64>,
    /// The checkpoint's digest; empty if absent.
    pub(crate) digest: String,
    /// A malformed digest.
    pub(crate) bad_digest: Option<String>,
}

impl Marker {
    /// Reads a checkpoint's marker; the contents are empty if it is too long or unreadable.
    pub(crate) fn read(checkpoint: &Path) -> Self {
        let bytes = files::read_of_task(&checkpoint.join(MARKER), MARKER_BYTES_MAX).ok();
        let text = bytes.and_then(|bytes| String::from_utf8(bytes).ok());
        text.and_then(|text| Self::parse(&text)).unwrap_or_default()
    }

    /// `None` if the file was written by other software.
    fn parse(text: &str) -> Option<Self> {
        let mut marker = Self::default();
        let lines = text.lines().map(str::trim);
        for line in lines.filter(|line| !line.is_empty()) {
            let has_digest = !marker.digest.is_empty() || marker.bad_digest.is_some();
            if let Ok(epoch) = line.parse()
                && marker.epoch.is_none()
            {
                marker.epoch = Some(epoch);
            } else if let Some((algorithm, hex)) = line.split_once(':')
                && !has_digest
                && is_algorithm(algorithm)
            {
                match is_hex(hex) && line.len() <= NAME_BYTES_MAX {
                    true => line.clone_into(&mut marker.digest),
                    false => marker.bad_digest = Some(line.to_owned()),
                }
            } else {
                return None;
            }
        }
        Some(marker)
    }
}

/// `sha256`, `sha512-256`, `blake3`.
fn is_algorithm(text: &str) -> bool {
    let is_good = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    text.starts_with(|first: char| first.is_ascii_lowercase()) && text.bytes().all(is_good)
}

/// Whole bytes, at least one.
fn is_hex(text: &str) -> bool {
    let is_digits = text.bytes().all(|byte| byte.is_ascii_hexdigit());
    !text.is_empty() && text.len().is_multiple_of(2) && is_digits
}

/// Milliseconds from the creation of a checkpoint's directory, which a rename keeps, until its marker was
/// written. `None` where the file system does not record it, and for a directory created before `earliest`: a
/// program that reuses a directory created it for another checkpoint.
pub(crate) fn save_ms(checkpoint: &Path, marked: SystemTime, earliest: SystemTime) -> Option<u64> {
    let born = fs::metadata(checkpoint).ok()?.created().ok()?;
    let took = marked.duration_since(born).ok()?;
    let milliseconds = u64::try_from(took.as_millis()).ok()?;
    is_stamped_since(born, earliest).then_some(milliseconds)
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a failed test should panic")]
mod tests {
    use std::os::unix::fs::symlink;
    use std::time::Duration;

    use rustix::fs::{CWD, Mode, mkfifoat};

    use super::*;

    fn marker(epoch: Option<u64>, digest: &str) -> Option<Marker> {
        Some(Marker {
            epoch,
            digest: digest.to_owned(),
            bad_digest: None,
        })
    }

    #[test]
    fn a_marker_has_the_attempt_and_the_digest_in_either_order() {
        assert_eq!(Marker::parse(" \n"), marker(None, ""));
        assert_eq!(Marker::parse("11"), marker(Some(11), ""));
        assert_eq!(Marker::parse("sha256:00ff\n"), marker(None, "sha256:00ff"));
        let both = marker(Some(11), "blake3:0A");
        assert_eq!(Marker::parse("11\nblake3:0A\n"), both);
        assert_eq!(Marker::parse("blake3:0A\r\n\r\n11\r\n"), both);
    }

    #[test]
    fn an_invalid_digest_is_ignored_and_the_attempt_in_its_marker_still_counts() {
        let long = format!("sha512:{}", "0".repeat(NAME_BYTES_MAX));
        for bad in ["sha256:", "sha256:0", "sha256:0g", "md5:00 11", &long] {
            let marker = Marker::parse(&format!("{bad}\n11")).unwrap();
            assert_eq!((marker.epoch, &*marker.digest), (Some(11), ""), "{bad}");
            assert_eq!(marker.bad_digest.as_deref(), Some(bad));
        }
    }

    #[test]
    fn markers_of_other_attempts_are_ignored() {
        for text in [
            "{\"step\": 11}",
            "saved at 10:00\n11",
            "11\n12",
            "a:00\nb:00",
            "Sha256:00",
        ] {
            assert_eq!(Marker::parse(text), None, "{text}");
        }
        let home = tempfile::tempdir().unwrap();
        assert_eq!(Marker::read(home.path()), Marker::default());
        let long = format!("11{}", "\n".repeat(400));
        fs::write(home.path().join(MARKER), long).unwrap();
        assert_eq!(Marker::read(home.path()), Marker::default());
    }

    #[test]
    fn a_marker_that_is_no_regular_file_is_ignored() {
        let home = tempfile::tempdir().unwrap();
        let marker = home.path().join(MARKER);
        assert_eq!(written_at(home.path()), None);
        fs::write(&marker, "11").unwrap();
        let modified = marker.metadata().unwrap().modified().unwrap();
        assert_eq!(written_at(home.path()), Some(modified));
        fs::rename(&marker, home.path().join("elsewhere")).unwrap();
        // Its length is 0, and it never ends.
        for target in ["/dev/zero", "elsewhere"] {
            symlink(target, &marker).unwrap();
            assert_eq!(written_at(home.path()), None, "{target}");
            assert_eq!(Marker::read(home.path()), Marker::default(), "{target}");
            fs::remove_file(&marker).unwrap();
        }
        mkfifoat(CWD, &marker, Mode::RUSR | Mode::WUSR).unwrap();
        assert_eq!(written_at(home.path()), None);
        assert_eq!(Marker::read(home.path()), Marker::default());
    }

    #[test]
    fn a_save_takes_from_the_directorys_birth_to_its_marker() {
        let home = tempfile::tempdir().unwrap();
        // Not every file system records it.
        let Ok(born) = fs::metadata(home.path()).unwrap().created() else {
            return;
        };
        let took = Duration::from_millis(1_500);
        let at = |marked| save_ms(home.path(), marked, born);
        assert_eq!(at(born + took), Some(1_500));
        assert_eq!(at(born - took), None);
        assert_eq!(save_ms(home.path(), born + took, born + took), None);
        assert_eq!(save_ms(&home.path().join("none"), born, born), None);
    }
}
