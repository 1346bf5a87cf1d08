//! Files that are reloaded when they change.

use std::fmt::Debug;
use std::fs;
use std::path::Path;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, SystemTime};

/// Polling interval of the files: a renewed file is in use after it.
pub const FILE_CHECK_INTERVAL: Duration = Duration::from_secs(2);

/// Files that are read together.
pub(crate) trait Files: Debug + Send + Sync + 'static {
    /// Their content.
    type Content: Debug + Send + Sync;
    /// Error of unusable files.
    type Error;

    /// Paths of the files.
    fn paths(&self) -> Vec<&Path>;

    /// Reads the files.
    fn read(&self) -> Result<Self::Content, Self::Error>;

    /// Called when they have changed: their content is used from now on, or the error is given.
    fn on_reload(&self, outcome: Result<(), Self::Error>);
}

/// Content of files, as of the last time they were usable.
#[derive(Debug)]
pub(crate) struct Watched<F: Files> {
    files: F,
    current: RwLock<Current<F::Content>>,
}

#[derive(Debug)]
struct Current<Held> {
    stamps: Vec<Stamp>,
    held: Arc<Held>,
}

/// Change indicator of a file: a renewal rewrites it, or replaces it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Stamp {
    modified: Option<SystemTime>,
    bytes: u64,
}

impl Stamp {
    /// Stamp of a file now; a missing file has a stamp too.
    fn of(path: &Path) -> Self {
        let metadata = fs::metadata(path).ok();
        Self {
            modified: metadata
                .as_ref()
                .and_then(|metadata| metadata.modified().ok()),
            bytes: metadata.map_or(0, |metadata| metadata.len()),
        }
    }
}

impl<F: Files> Watched<F> {
    /// Reads the files.
    ///
    /// # Errors
    /// They cannot be used.
    pub(crate) fn open(files: F) -> Result<Self, F::Error> {
        let current = RwLock::new(read(&files)?);
        Ok(Self { files, current })
    }

    /// Fixed content without files.
    pub(crate) fn fixed(files: F, held: F::Content) -> Self {
        let (stamps, held) = (stamps(&files), Arc::new(held));
        Self {
            files,
            current: RwLock::new(Current { stamps, held }),
        }
    }

    /// Content last read.
    pub(crate) fn current(&self) -> Arc<F::Content> {
        let current = self.current.read().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(&current.held)
    }

    /// Reads the files now.
    ///
    /// # Errors
    /// They cannot be used; the previous content stays in use then.
    pub(crate) fn reload(&self) -> Result<(), F::Error> {
        let fresh = read(&self.files)?;
        *self.current.write().unwrap_or_else(PoisonError::into_inner) = fresh;
        Ok(())
    }

    /// Polls the files for changes, in a task that ends with the last owner.
    pub(crate) fn keep_current(self: &Arc<Self>) {
        let watched = Arc::downgrade(self);
        tokio::spawn(async move {
            let mut failed = None;
            loop {
                tokio::time::sleep(FILE_CHECK_INTERVAL).await;
                let Some(watched) = watched.upgrade() else {
                    return;
                };
                watched.poll(&mut failed);
            }
        });
    }

    /// Reads the files if they have changed. `failed` is the state of files that could not be used: a
    /// half-finished renewal fails once, and not again before something more is written.
    pub(crate) fn poll(&self, failed: &mut Option<Vec<Stamp>>) {
        let stamps = stamps(&self.files);
        let is_known = {
            let current = self.current.read().unwrap_or_else(PoisonError::into_inner);
            current.stamps == stamps
        };
        if is_known || failed.as_ref() == Some(&stamps) {
            return;
        }
        let outcome = self.reload();
        *failed = outcome.is_err().then_some(stamps);
        self.files.on_reload(outcome);
    }
}

fn read<F: Files>(files: &F) -> Result<Current<F::Content>, F::Error> {
    // Taken before reading: a change while the files are read is noticed at the next poll.
    let stamps = stamps(files);
    let held = Arc::new(files.read()?);
    Ok(Current { stamps, held })
}

fn stamps<F: Files>(files: &F) -> Vec<Stamp> {
    files.paths().into_iter().map(Stamp::of).collect()
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a failed test should panic")]
mod tests {
    use std::path::PathBuf;
    use std::sync::Mutex;

    use super::*;

    /// A file with a number.
    #[derive(Debug)]
    struct Number {
        path: PathBuf,
        reloads: Mutex<Vec<bool>>,
    }

    impl Files for Number {
        type Content = u64;
        type Error = ();

        fn paths(&self) -> Vec<&Path> {
            vec![&self.path]
        }

        fn read(&self) -> Result<u64, ()> {
            let text = fs::read_to_string(&self.path).map_err(drop)?;
            text.parse().map_err(drop)
        }

        fn on_reload(&self, outcome: Result<(), ()>) {
            self.reloads.lock().unwrap().push(outcome.is_ok());
        }
    }

    #[test]
    fn an_unusable_file_is_reported_once_and_the_previous_content_stays() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("number");
        fs::write(&path, "7").unwrap();
        let number = |path: &Path| Number {
            path: path.to_owned(),
            reloads: Mutex::default(),
        };
        let watched = Watched::open(number(&path)).unwrap();
        let mut failed = None;
        let mut look = |text: Option<&str>| {
            if let Some(text) = text {
                // With a different length each time: file system time stamps are coarse.
                fs::write(&path, text).unwrap();
            }
            watched.poll(&mut failed);
            watched.poll(&mut failed);
            let reloads = std::mem::take(&mut *watched.files.reloads.lock().unwrap());
            (*watched.current(), reloads)
        };
        assert_eq!(look(None), (7, vec![]));
        assert_eq!(look(Some("none")), (7, vec![false]));
        assert_eq!(look(Some("not any more")), (7, vec![false]));
        assert_eq!(look(Some("12")), (12, vec![true]));
        assert_eq!(look(Some("none")), (12, vec![false]));
        fs::remove_file(&path).unwrap();
        assert_eq!(look(None), (12, vec![false]));
        assert!(Watched::open(number(&path)).is_err());
    }
}
