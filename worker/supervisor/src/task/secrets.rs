//! A task's secrets: read from the host's folder at the start, passed as variables or as files in memory, and
//! nowhere else.
//! No message here contains a secret's value: errors and records contain only names.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use muster_model::spec::{Secret, SecretForm};

use crate::files;
use crate::isolation::secret_folder::SecretFolder;
use crate::limits::SECRET_BYTES_MAX;
use crate::task::ready::not_there;
use crate::task::spec::TaskSpec;

/// Secrets of one task.
#[derive(Clone)]
pub(crate) struct Secrets {
    variables: Vec<(OsString, OsString)>,
    /// Folder that was created for them; `None` if no secret is a file.
    folder: Option<PathBuf>,
}

impl Secrets {
    /// Reads the secrets and writes those that are passed as files.
    ///
    /// # Errors
    /// The unavailable secret, as a message for the user. No secret is left then.
    pub(crate) fn prepare(spec: &TaskSpec) -> Result<Self, String> {
        let mut prepared = Self {
            variables: Vec::new(),
            folder: None,
        };
        match prepared.fill(spec) {
            Ok(()) => Ok(prepared),
            Err(error) => {
                prepared.remove();
                Err(error)
            }
        }
    }

    fn fill(&mut self, spec: &TaskSpec) -> Result<(), String> {
        let mut folder = None;
        for secret in &spec.assignment.execution.secrets {
            let bytes = find(secret, spec)?;
            let added = self.add(secret, bytes, spec, &mut folder);
            added.map_err(|error| failed(secret, &error))?;
        }
        match (&spec.identity.account, folder) {
            (Some(account), Some(folder)) => folder
                .give_to(account)
                .map_err(|error| format!("providing the secrets failed: {error}")),
            _ => Ok(()),
        }
    }

    /// Environment variables with the secrets or their paths.
    pub(crate) fn variables(&self) -> impl Iterator<Item = (OsString, OsString)> {
        self.variables.iter().cloned()
    }

    /// Removes the files.
    pub(crate) fn remove(&self) {
        remove(self.folder.as_deref());
    }

    fn add(
        &mut self,
        secret: &Secret,
        bytes: Vec<u8>,
        spec: &TaskSpec,
        folder: &mut Option<SecretFolder>,
    ) -> Result<(), String> {
        let (variable, value) = match &secret.form {
            SecretForm::Variable(variable) => (variable, value(bytes)?),
            SecretForm::File(variable) => {
                let folder = match folder {
                    Some(folder) => folder,
                    None => folder.insert(self.make_folder(spec)?),
                };
                let account = spec.identity.account.as_ref();
                let path = folder
                    .write(&secret.name, &bytes, account)
                    .map_err(|error| format!("{}: {error}", folder.path().display()))?;
                (variable, path.into())
            }
        };
        self.variables.push((variable.into(), value));
        Ok(())
    }

    fn make_folder(&mut self, spec: &TaskSpec) -> Result<SecretFolder, String> {
        let target = spec
            .secrets
            .target
            .as_deref()
            .ok_or("this host has no folder in memory (run_dir)")?;
        let made = SecretFolder::make(target)?;
        self.folder = Some(target.to_owned());
        Ok(made)
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
        // The agent tries again when it removes the task, and reports a failure.
        drop(files::remove_directory(folder));
    }
}

/// Reads a secret from the host's folder.
fn find(secret: &Secret, spec: &TaskSpec) -> Result<Vec<u8>, String> {
    let Some(source) = &spec.secrets.source else {
        let message = "this host has no folder of secrets (secrets_dir)";
        return Err(not_there(&failed(secret, message)));
    };
    read(&source.join(&secret.name)).map_err(|error| {
        let message = failed(secret, &error.to_string());
        let is_missing = error.kind() == io::ErrorKind::NotFound;
        if is_missing {
            not_there(&message)
        } else {
            message
        }
    })
}

fn failed(secret: &Secret, error: &str) -> String {
    format!("providing the secret `{}` failed: {error}", secret.name)
}

fn read(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let limit = u64::try_from(SECRET_BYTES_MAX + 1).unwrap_or(u64::MAX);
    File::open(path)?.take(limit).read_to_end(&mut bytes)?;
    if bytes.len() > SECRET_BYTES_MAX {
        let message =
            format!("larger than the limit of {SECRET_BYTES_MAX} bytes (SECRET_BYTES_MAX)");
        return Err(io::Error::other(message));
    }
    Ok(bytes)
}

/// Value for an environment variable: editors and `echo` end files with a line end that is not part of the
/// secret.
fn value(mut bytes: Vec<u8>) -> Result<OsString, String> {
    if bytes.last() == Some(&b'\n') {
        bytes.pop();
        if bytes.last() == Some(&b'\r') {
            bytes.pop();
        }
    }
    if bytes.contains(&0) {
        return Err("a variable cannot hold NUL bytes: pass the secret as a file".to_owned());
    }
    Ok(OsString::from_vec(bytes))
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
