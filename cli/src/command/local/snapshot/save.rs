//! `muster snapshot save`.

use std::fs::{self, File};
use std::io::{self, BufWriter, Read, Write as _};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use clap::Args;
use muster_client::{Client, ClientError};
use muster_documents::Backup;
use muster_scheduler::offline::{BackupError, Key, reseal};
use muster_tls::begin_private;

use crate::command::local::snapshot::{KeyFile, read, render};
use crate::connection::{Options, current_user};
use crate::exit::Exit;
use crate::failure::{Failure, chain};
use crate::view::backup;

/// Pieces buffered for the writer.
const PIECES_AHEAD: usize = 4;
/// Maximum number of attempts: an interrupted save restarts, at another replica if one is known.
const ATTEMPTS_MAX: usize = 3;

/// `muster snapshot save`
#[derive(Debug, Args)]
pub(crate) struct Save {
    /// The file; it appears only once it is complete and verified
    file: PathBuf,
    #[command(flatten)]
    key: KeyFile,
    /// Replace an existing file
    #[arg(long)]
    force: bool,
}

/// Why an attempt wrote no complete file.
enum SaveError {
    Final(Failure),
    /// The connection broke, or the replica stopped: another attempt may succeed.
    Interrupted(ClientError),
}

impl Save {
    pub(crate) async fn run(self, options: &Options) -> Result<Exit, Failure> {
        let key = self.key.read()?;
        if self.file.exists() && !self.force {
            let message = format!("{} already exists", self.file.display());
            return Err(Failure::usage(message).help("--force replaces it"));
        }
        let client = options.connect_to_follow().await?;
        let partial = partial(&self.file);
        let mut attempts = 0;
        let saved = loop {
            attempts += 1;
            match receive(&client, &partial, key.clone()).await {
                Err(SaveError::Interrupted(error)) if attempts < ATTEMPTS_MAX => {
                    tracing::debug!(%error, "save interrupted");
                }
                Err(SaveError::Interrupted(error)) => break Err(error.into()),
                Err(SaveError::Final(failure)) => break Err(failure),
                Ok(()) => break self.publish(&partial, key.as_ref()),
            }
        };
        if saved.is_err() {
            // The failure is reported; the file may not exist.
            drop(fs::remove_file(&partial));
        }
        let saved = saved?;
        let screen = options.screen();
        screen.data(&render(&screen, &saved)?)?;
        Ok(Exit::Ok)
    }

    /// Verifies the file on disk, and renames it to its final name.
    fn publish(&self, partial: &Path, key: Option<&Key>) -> Result<Backup, Failure> {
        let backup = read(partial, key)?;
        let renamed = fs::rename(partial, &self.file).and_then(|()| sync_folder(&self.file));
        renamed.map_err(|error| Failure::new(format!("{}: {error}", self.file.display())))?;
        backup::document(&self.file, &backup)
    }
}

/// Name of an incomplete file.
fn partial(file: &Path) -> PathBuf {
    let mut name = file.as_os_str().to_owned();
    name.push(".partial");
    name.into()
}

fn sync_folder(file: &Path) -> io::Result<()> {
    let folder = file
        .parent()
        .filter(|folder| !folder.as_os_str().is_empty());
    File::open(folder.unwrap_or_else(|| Path::new(".")))?.sync_all()
}

/// Writes the received data, checked and encrypted on the way.
async fn receive(client: &Client, path: &Path, key: Option<Key>) -> Result<(), SaveError> {
    let saved = client.save_snapshot(&current_user()).await;
    let mut saved = saved.map_err(|error| SaveError::Final(error.into()))?;
    let (sender, receiver) = sync_channel(PIECES_AHEAD);
    let path = path.to_owned();
    let writing = tokio::task::spawn_blocking(move || write(receiver, &path, key.as_ref()));
    let interruption = loop {
        match saved.next().await {
            Ok(Some(piece)) => {
                if !send(&sender, piece.to_vec()).await {
                    break None;
                }
            }
            Ok(None) => break None,
            Err(error) => break Some(error),
        }
    };
    drop(sender);
    let written = writing
        .await
        .map_err(|error| SaveError::Final(Failure::internal(&error)))?;
    match (interruption, written) {
        (Some(error @ ClientError::Unreachable { .. }), _) => Err(SaveError::Interrupted(error)),
        (Some(error), _) => Err(SaveError::Final(error.into())),
        (None, Err(failure)) => Err(SaveError::Final(failure)),
        (None, Ok(())) => Ok(()),
    }
}

/// Passes a piece to the writer without blocking the runtime's thread; false if the writer has given up.
async fn send(sender: &SyncSender<Vec<u8>>, piece: Vec<u8>) -> bool {
    let sender = sender.clone();
    let sent = tokio::task::spawn_blocking(move || sender.send(piece).is_ok());
    sent.await.unwrap_or(false)
}

fn write(receiver: Receiver<Vec<u8>>, path: &Path, key: Option<&Key>) -> Result<(), Failure> {
    let about = |detail: String| Failure::new(format!("{}: {detail}", path.display()));
    let file = begin(path).map_err(|error| about(error.to_string()))?;
    let mut out = BufWriter::new(file);
    let mut input = Pieces {
        receiver,
        piece: io::Cursor::new(Vec::new()),
    };
    match reseal(&mut input, &mut out, None, key) {
        Ok(_) => {}
        Err(BackupError::Read(error)) => return Err(about(error.to_string())),
        Err(error) => {
            return Err(Failure::new(format!(
                "the replica sent invalid data: {}",
                chain(&error)
            )));
        }
    }
    let synced = out.flush().and_then(|()| out.get_ref().sync_all());
    synced.map_err(|error| about(error.to_string()))
}

/// Creates a file readable by its owner only: it will contain the secrets of all users. A leftover of an
/// earlier save may have other permissions, and is removed.
fn begin(path: &Path) -> io::Result<File> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => begin_private(path),
    }
}

/// Reader of the received pieces.
struct Pieces {
    receiver: Receiver<Vec<u8>>,
    piece: io::Cursor<Vec<u8>>,
}

impl Read for Pieces {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            let read = self.piece.read(buffer)?;
            if read > 0 || buffer.is_empty() {
                return Ok(read);
            }
            match self.receiver.recv() {
                Ok(piece) => self.piece = io::Cursor::new(piece),
                Err(_) => return Ok(0),
            }
        }
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn saved_files_are_private_even_if_one_was_left() {
        let folder = tempfile::tempdir().unwrap();
        let path = partial(&folder.path().join("saved.backup"));
        fs::write(&path, "left").unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o644)).unwrap();
        let (sender, receiver) = sync_channel(PIECES_AHEAD);
        sender.send(b"no backup".to_vec()).unwrap();
        drop(sender);
        assert!(write(receiver, &path, None).is_err());
        let mode = fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }
}
