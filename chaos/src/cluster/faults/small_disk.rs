//! A small file system for one folder of a cluster, which can be filled without side effects.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{fs, io};

use crate::cluster::{ClusterError, failed};

/// Name of the file that fills it.
const BALLAST: &str = "ballast";
/// Suffix of the folder with the copy that is kept.
const KEPT: &str = "kept";

/// A file system in memory; unmounted when dropped.
#[derive(Debug)]
pub(in crate::cluster) struct SmallDisk {
    path: PathBuf,
}

impl SmallDisk {
    /// Mounts a file system of this size over a folder, which is created if missing. The folder's contents
    /// are copied into it.
    ///
    /// # Errors
    /// If it cannot be mounted or filled with the contents.
    pub(super) fn mount(path: &Path, size_mib: u64) -> Result<Self, ClusterError> {
        let operation = format!("creating a disk of {size_mib} MiB at {}", path.display());
        let disk = Self::try_mount(path, size_mib).map_err(failed(operation))?;
        Ok(disk)
    }

    /// The folder over which it is mounted.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    fn try_mount(path: &Path, size_mib: u64) -> io::Result<Self> {
        fs::create_dir_all(path)?;
        let aside = path.with_extension("aside");
        fs::rename(path, &aside)?;
        fs::create_dir(path)?;
        let mounted = Command::new("mount")
            .args([
                "-t",
                "tmpfs",
                "-o",
                &format!("size={size_mib}m"),
                "muster-trials",
            ])
            .arg(path)
            .output()?;
        if !mounted.status.success() {
            let complaint = String::from_utf8_lossy(&mounted.stderr);
            return Err(io::Error::other(complaint.trim().to_owned()));
        }
        let disk = Self {
            path: path.to_owned(),
        };
        copy(&aside, path)?;
        fs::remove_dir_all(aside)?;
        Ok(disk)
    }

    /// Fills it to the last byte.
    ///
    /// # Errors
    /// If writing fails for a reason other than lack of space.
    pub(super) fn fill(&self) -> Result<(), ClusterError> {
        let operation = format!("filling {}", self.path.display());
        let filled = fs::File::create(self.path.join(BALLAST))
            .and_then(|mut ballast| io::copy(&mut io::repeat(1), &mut ballast));
        match filled {
            Err(error) if error.kind() == io::ErrorKind::StorageFull => Ok(()),
            Err(error) => Err(failed(operation)(error)),
            Ok(_) => Err(failed(operation)(io::Error::other("it never becomes full"))),
        }
    }

    /// Frees the space again.
    ///
    /// # Errors
    /// If the file that fills it cannot be removed.
    pub(super) fn free_space(&self) -> Result<(), ClusterError> {
        let ballast = self.path.join(BALLAST);
        fs::remove_file(&ballast).map_err(failed(format!("removing {}", ballast.display())))
    }

    /// Copies its contents to a neighbouring folder, since they disappear with the disk; the file that
    /// fills it is left out.
    ///
    /// # Errors
    /// If it cannot be read, or the copy cannot be written.
    pub(super) fn copy_beside(&self) -> Result<(), ClusterError> {
        let operation = format!("copying the disk at {}", self.path.display());
        copy_beside(&self.path).map_err(failed(operation))
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // Lazily: a process that is being killed may hold a file for a moment.
        let unmounted = Command::new("umount").arg("-l").arg(&self.path).status();
        if !unmounted.is_ok_and(|status| status.success()) {
            tracing::error!(path = %self.path.display(), "could not unmount the small disk");
        }
    }
}

fn copy_beside(path: &Path) -> io::Result<()> {
    let beside = path.with_extension(KEPT);
    fs::create_dir(&beside)?;
    copy(path, &beside)
}

/// Copies folders and files except the file that fills the disk.
fn copy(from: &Path, to: &Path) -> io::Result<()> {
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        if entry.file_name() == BALLAST {
            continue;
        }
        let target = to.join(entry.file_name());
        let kind = entry.file_type()?;
        if kind.is_dir() {
            fs::create_dir(&target)?;
            copy(&entry.path(), &target)?;
        } else if kind.is_file() {
            fs::copy(entry.path(), target)?;
        }
    }
    Ok(())
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    #[test]
    fn the_contents_of_a_disk_are_copied_without_the_filler() {
        let folder = tempfile::tempdir().unwrap();
        let data = folder.path().join("data");
        fs::create_dir_all(data.join("log")).unwrap();
        fs::write(data.join("log/000004.log"), "entries").unwrap();
        fs::write(data.join(BALLAST), "full").unwrap();
        copy_beside(&data).unwrap();
        let kept = folder.path().join("data.kept");
        assert_eq!(
            fs::read_to_string(kept.join("log/000004.log")).unwrap(),
            "entries"
        );
        assert!(!kept.join(BALLAST).exists());
    }
}
