//! The kernel's mount tables (`proc(5)`): one reader for cgroups and for health checks.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

/// Mount table of this process, in the format of `/etc/fstab`.
const OWN: &str = "/proc/self/mounts";

/// One mounted file system.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Mount {
    /// Mount point.
    pub(crate) point: PathBuf,
    /// Type of the file system.
    pub(crate) kind: String,
    /// Mount options, separated by commas.
    pub(crate) options: String,
}

/// File systems mounted in this process's mount namespace, in the order of the table.
///
/// # Errors
/// If the table cannot be read.
pub(crate) fn own() -> io::Result<Vec<Mount>> {
    Ok(parse(&std::fs::read(OWN)?))
}

/// Parses a table in the format of `/proc/PID/mounts`; incomplete lines are skipped.
pub(crate) fn parse(table: &[u8]) -> Vec<Mount> {
    let mounts = table.split(|byte| *byte == b'\n').filter_map(|line| {
        let mut fields = line.split(|byte| *byte == b' ').skip(1);
        Some(Mount {
            point: path(fields.next()?),
            kind: String::from_utf8_lossy(fields.next()?).into_owned(),
            options: String::from_utf8_lossy(fields.next()?).into_owned(),
        })
    });
    mounts.collect()
}

/// Mount points of a table in the format of `/proc/PID/mountinfo`.
///
/// # Errors
/// If the table cannot be read.
pub fn mount_points(table: &Path) -> io::Result<BTreeSet<PathBuf>> {
    /// Position of the mount point among the fields of a line.
    const POINT: usize = 4;
    let text = std::fs::read(table)?;
    let lines = text.split(|byte| *byte == b'\n');
    let points = lines.filter_map(|line| line.split(|byte| *byte == b' ').nth(POINT));
    Ok(points.map(path).collect())
}

/// Decodes a path in which the kernel wrote blanks and backslashes as a backslash with three octal digits.
fn path(field: &[u8]) -> PathBuf {
    let mut decoded = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((byte, after)) = rest.split_first() {
        match octal(rest) {
            Some(escaped) => {
                decoded.push(escaped);
                rest = &rest[4..];
            }
            None => {
                decoded.push(*byte);
                rest = after;
            }
        }
    }
    PathBuf::from(OsString::from_vec(decoded))
}

/// The byte that begins `text` as an escape of three octal digits.
fn octal(text: &[u8]) -> Option<u8> {
    let [b'\\', digits @ ..] = text.get(..4)? else {
        return None;
    };
    digits.iter().try_fold(0_u8, |value, digit| match digit {
        b'0'..=b'7' => value.checked_mul(8)?.checked_add(digit - b'0'),
        _ => None,
    })
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a failed test should panic")]
mod tests {
    use super::*;

    #[test]
    fn mount_points_with_blanks_and_backslashes_are_decoded() {
        let table = b"tmpfs /my\\040data\\134040 tmpfs rw,size=1 0 0\nshort\ncgroup2 /a\\9 cgroup2 rw 0 0\n";
        let mounts = parse(table);
        assert_eq!(mounts.len(), 2);
        assert_eq!(mounts[0].point, Path::new("/my data\\040"));
        assert_eq!(mounts[0].options, "rw,size=1");
        assert_eq!(mounts[1].point, Path::new("/a\\9"));
    }

    #[test]
    fn mount_points_are_read_from_mountinfo() {
        let folder = tempfile::tempdir().unwrap();
        let table = folder.path().join("mountinfo");
        let line = "41 24 0:36 / /mnt/my\\040data rw - nfs4 store:/data rw\n";
        std::fs::write(&table, line).unwrap();
        assert_eq!(
            mount_points(&table).unwrap(),
            BTreeSet::from([PathBuf::from("/mnt/my data")])
        );
        assert!(mount_points(&folder.path().join("none")).is_err());
    }

    #[test]
    fn the_own_table_has_the_root() {
        let mounts = own().unwrap();
        assert!(mounts.iter().any(|mount| mount.point == Path::new("/")));
    }
}
