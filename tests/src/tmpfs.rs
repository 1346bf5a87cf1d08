//! Small separate file system that a test may fill.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Whether the test may mount. A test that needs it skips otherwise.
#[must_use]
pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// A tmpfs; unmounted when it is dropped.
#[derive(Debug)]
pub struct Tmpfs {
    path: PathBuf,
}

impl Tmpfs {
    /// Mounts a tmpfs of this size over a folder, which is created if missing.
    ///
    /// # Panics
    /// If it cannot be mounted: check [`is_root`] first.
    #[must_use]
    pub fn mount(path: &Path, size_mib: u64) -> Self {
        fs::create_dir_all(path).unwrap();
        let size = format!("size={size_mib}m");
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", &size, "muster-test"])
            .arg(path)
            .output()
            .unwrap();
        assert!(mounted.status.success(), "{mounted:?}");
        Self {
            path: path.to_owned(),
        }
    }

    /// The mount point.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Fills it to the last byte with a file of the given name; removing the file frees the space.
    ///
    /// # Panics
    /// If it fails for another reason than lack of space.
    #[must_use]
    pub fn fill(&self, name: &str) -> PathBuf {
        let file = self.path.join(name);
        let mut ballast = fs::File::create(&file).unwrap();
        let error = std::io::copy(&mut std::io::repeat(1), &mut ballast).unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::StorageFull, "{error}");
        file
    }
}

impl Drop for Tmpfs {
    fn drop(&mut self) {
        // Lazy unmount: a process that is being killed may hold a file for a moment.
        let unmounted = Command::new("umount").arg("-l").arg(&self.path).status();
        let gone = unmounted.is_ok_and(|status| status.success());
        assert!(
            gone || std::thread::panicking(),
            "{} stays mounted",
            self.path.display()
        );
    }
}
