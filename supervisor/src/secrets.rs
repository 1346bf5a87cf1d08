//! A task's secrets: read from the host's folder at the start, given as variables or as files in memory, and nowhere else.
//!
//! Nothing here says what a secret is: names stand in errors, and what is written down names them as well.

use std::ffi::OsString;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, lchown};
use std::path::{Path, PathBuf};

use muster_core::spec::{Secret, SecretForm};
use rustix::fs::statfs;

use crate::account::Account;
use crate::files;
use crate::limits::SECRET_BYTES_MAX;
use crate::spec::{SecretFolders, TaskSpec};

/// Kinds of file systems that are in memory alone: tmpfs and ramfs, by the kernel's numbers.
const IN_MEMORY: [u64; 2] = [0x0102_1994, 0x8584_58f6];
/// Who may use the folder, and who its files: the task's user alone, and nobody writes.
const FOLDER_MODE: u32 = 0o700;
const FILE_MODE: u32 = 0o400;

/// The secrets of one task, as it is given them.
#[derive(Clone)]
pub(crate) struct Secrets {
    variables: Vec<(OsString, OsString)>,
    folder: Option<PathBuf>,
}

impl Secrets {
    /// Reads them and writes those that are given as files.
    ///
    /// # Errors
    /// Which one cannot be given, in words for the user. Nothing of them is left then.
    pub(crate) fn prepare(spec: &TaskSpec) -> Result<Self, String> {
        let mut prepared = Self {
            variables: Vec::new(),
            folder: spec.secrets.target.clone(),
        };
        for secret in &spec.assignment.execution.secrets {
            if let Err(error) = prepared.add(secret, &spec.secrets) {
                prepared.remove();
                return Err(format!(
                    "giving it the secret `{}` failed: {error}",
                    secret.name
                ));
            }
        }
        if let Err(error) = prepared.give_to(spec.identity.account.as_ref()) {
            prepared.remove();
            return Err(format!("giving it its secrets failed: {error}"));
        }
        Ok(prepared)
    }

    /// Makes the files an account's, and then their folder: until then, nobody else can change what is in it.
    fn give_to(&self, account: Option<&Account>) -> io::Result<()> {
        let folder = self.folder.as_ref().filter(|folder| folder.is_dir());
        let (Some(account), Some(folder)) = (account, folder) else {
            return Ok(());
        };
        for file in fs::read_dir(folder)? {
            lchown(file?.path(), Some(account.uid), Some(account.gid))?;
        }
        account.own(folder)
    }

    /// The environment variables that say them, or where they are.
    pub(crate) fn variables(&self) -> impl Iterator<Item = (OsString, OsString)> {
        self.variables.iter().cloned()
    }

    /// Removes the files.
    pub(crate) fn remove(&self) {
        remove(self.folder.as_deref());
    }

    fn add(&mut self, secret: &Secret, folders: &SecretFolders) -> Result<(), String> {
        let source = folders.source.as_ref();
        let source = source.ok_or("this host has no folder of secrets (secrets_dir)")?;
        let bytes = read(&source.join(&secret.name)).map_err(|error| error.to_string())?;
        let (variable, value) = match &secret.form {
            SecretForm::Variable(variable) => (variable, value(bytes)?),
            SecretForm::File(variable) => {
                let target = folders.target.as_ref();
                let target = target.ok_or("this host has no folder in memory (run_dir)")?;
                (variable, written(target, &secret.name, &bytes)?.into())
            }
        };
        self.variables.push((variable.into(), value));
        Ok(())
    }
}

impl std::fmt::Debug for Secrets {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let names = self.variables.iter().map(|(variable, _)| variable);
        formatter.debug_list().entries(names).finish()
    }
}

/// Removes the folder of a task's secrets, if there is one.
pub(crate) fn remove(folder: Option<&Path>) {
    if let Some(folder) = folder {
        // The agent tries again when it lets the task go, and says so if it cannot.
        drop(files::remove_directory(folder));
    }
}

fn read(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let limit = u64::try_from(SECRET_BYTES_MAX + 1).unwrap_or(u64::MAX);
    File::open(path)?.take(limit).read_to_end(&mut bytes)?;
    if bytes.len() > SECRET_BYTES_MAX {
        let message =
            format!("it is over the limit of {SECRET_BYTES_MAX} bytes (SECRET_BYTES_MAX)");
        return Err(io::Error::other(message));
    }
    Ok(bytes)
}

/// What a variable can hold: editors and `echo` end files with a line end that is not part of the secret.
fn value(mut bytes: Vec<u8>) -> Result<OsString, String> {
    if bytes.last() == Some(&b'\n') {
        bytes.pop();
        if bytes.last() == Some(&b'\r') {
            bytes.pop();
        }
    }
    if bytes.contains(&0) {
        return Err("a variable cannot hold its NUL bytes: have it as a file".to_owned());
    }
    Ok(OsString::from_vec(bytes))
}

fn written(folder: &Path, name: &str, bytes: &[u8]) -> Result<PathBuf, String> {
    let at = |error: io::Error| format!("{}: {error}", folder.display());
    DirBuilder::new()
        .recursive(true)
        .mode(FOLDER_MODE)
        .create(folder)
        .map_err(at)?;
    let kind = statfs(folder).map_err(|error| at(error.into()))?.f_type;
    if !IN_MEMORY.contains(&u64::try_from(kind).unwrap_or_default()) {
        return Err(format!(
            "{} is on a disk: `run_dir` must be a folder in memory (tmpfs)",
            folder.display()
        ));
    }
    let path = folder.join(name);
    // A secret may be given twice under two variables; it is the same file.
    match fs::remove_file(&path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(at(error)),
        _ => {}
    }
    let mut file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(FILE_MODE)
        .open(&path)
        .map_err(at)?;
    file.write_all(bytes).map_err(at)?;
    Ok(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_variable_has_no_line_end_and_no_nul() {
        let of = |text: &str| value(text.as_bytes().to_vec()).map(OsString::into_string);
        assert_eq!(of("token\n"), Ok(Ok("token".to_owned())));
        assert_eq!(of("token\r\n"), Ok(Ok("token".to_owned())));
        assert_eq!(of("two\nlines\n\n"), Ok(Ok("two\nlines\n".to_owned())));
        assert!(of("a\0b").is_err());
    }
}
