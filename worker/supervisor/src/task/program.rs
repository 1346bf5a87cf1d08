//! Lookup of a task's program as `execvp` does it, so that a missing program is reported before a gang is
//! released.

use std::ffi::OsStr;
use std::fs;
use std::io::{self, ErrorKind};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{Access, AtFlags, CWD, accessat};
use rustix::io::Errno;

/// Search path of the C library without a `PATH`.
const DEFAULT_PATH: &str = "/bin:/usr/bin";

/// Resolves a program's name for a process with this `PATH` in this directory.
///
/// # Errors
/// The error that the start would return; a file that is found may still turn out not to be executable.
pub(crate) fn find(name: &OsStr, path: Option<&OsStr>, directory: &Path) -> io::Result<PathBuf> {
    if name.as_bytes().contains(&b'/') {
        return executable(directory.join(name));
    }
    let path = path.unwrap_or(OsStr::new(DEFAULT_PATH));
    let mut denied = None;
    for folder in std::env::split_paths(path).filter(|_| !name.is_empty()) {
        match executable(directory.join(folder).join(name)) {
            Ok(found) => return Ok(found),
            // Another folder may have one that may be executed.
            Err(error) if error.kind() == ErrorKind::PermissionDenied => denied = Some(error),
            Err(_) => {}
        }
    }
    Err(denied.unwrap_or_else(|| Errno::NOENT.into()))
}

fn executable(file: PathBuf) -> io::Result<PathBuf> {
    if fs::metadata(&file)?.is_dir() {
        return Err(Errno::ACCESS.into());
    }
    // Checked with this thread's file access rights, which may be the task's account's at the moment.
    accessat(CWD, &file, Access::EXEC_OK, AtFlags::EACCESS)?;
    Ok(file)
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a failed test should panic")]
mod tests {
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_program_is_found_where_a_shell_would_find_it() {
        let home = tempfile::tempdir().unwrap();
        for (folder, mode) in [("first", 0o644), ("second", 0o755)] {
            fs::create_dir_all(home.path().join(folder).join("folder")).unwrap();
            let program = home.path().join(folder).join("program");
            fs::write(&program, "").unwrap();
            fs::set_permissions(&program, Permissions::from_mode(mode)).unwrap();
        }
        let find =
            |name: &str, path: &str| find(OsStr::new(name), Some(OsStr::new(path)), home.path());
        let second = home.path().join("second/program");
        // Files that may not be executed are skipped; relative folders and programs start from the directory.
        assert_eq!(find("program", "/nowhere:first:second").unwrap(), second);
        assert_eq!(find("second/program", "").unwrap(), second);
        let error = |name, path| find(name, path).unwrap_err().kind();
        assert_eq!(
            error("program", "/nowhere:first"),
            ErrorKind::PermissionDenied
        );
        assert_eq!(error("folder", "second"), ErrorKind::PermissionDenied);
        assert_eq!(
            error("first/program", "second"),
            ErrorKind::PermissionDenied
        );
        assert_eq!(error("program", "/nowhere"), ErrorKind::NotFound);
        assert_eq!(error("second/none", "second"), ErrorKind::NotFound);
        assert_eq!(error("", "second"), ErrorKind::NotFound);
    }

    #[test]
    fn without_a_path_the_systems_folders_are_looked_through() {
        assert!(find(OsStr::new("sh"), None, Path::new("/nowhere")).is_ok());
    }
}
