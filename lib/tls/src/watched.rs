//! Files that are read again when they change.

use std::fmt::Debug;
use std::fs;
use std::path::Path;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, SystemTime};

/// Pause between two looks at the files: what a renewal wrote is in use after it.
pub const FILES_LOOKED_AT_EVERY: Duration = Duration::from_secs(2);

/// Files that are read together.
pub(crate) trait Files: Debug + Send + Sync + 'static {
    /// What they hold.
    type Held: Debug + Send + Sync;
    /// Why they cannot be used.
    type Error;

    /// Where they are.
    fn paths(&self) -> Vec<&Path>;

    /// Reads them.
    fn read(&self) -> Result<Self::Held, Self::Error>;

    /// Tells that they have changed: from now on what they hold is used, or cannot be.
    fn tell(&self, outcome: Result<(), Self::Error>);
}

/// What files hold, as it was when they could be used last.
#[derive(Debug)]
pub(crate) struct Watched<F: Files> {
    files: F,
    current: RwLock<Current<F::Held>>,
}

#[derive(Debug)]
struct Current<Held> {
    stamps: Vec<Stamp>,
    held: Arc<Held>,
}

/// What shows that a file has changed: a renewal writes anew, or puts another file in its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Stamp {
    modified: Option<SystemTime>,
    bytes: u64,
}

impl Stamp {
    /// Of a file now; one that is not there has a stamp too.
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
    /// Why they cannot be used.
    pub(crate) fn open(files: F) -> Result<Self, F::Error> {
        let current = RwLock::new(read(&files)?);
        Ok(Self { files, current })
    }

    /// What no files hold: nothing of it changes.
    pub(crate) fn fixed(files: F, held: F::Held) -> Self {
        let (stamps, held) = (stamps(&files), Arc::new(held));
        Self {
            files,
            current: RwLock::new(Current { stamps, held }),
        }
    }

    /// What they held last.
    pub(crate) fn current(&self) -> Arc<F::Held> {
        let current = { self.current.read() }.unwrap_or_else(PoisonError::into_inner);
        Arc::clone(&current.held)
    }

    /// Reads the files now.
    ///
    /// # Errors
    /// Why they cannot be used; what was read before stays then.
    pub(crate) fn reload(&self) -> Result<(), F::Error> {
        let fresh = read(&self.files)?;
        *self.current.write().unwrap_or_else(PoisonError::into_inner) = fresh;
        Ok(())
    }

    /// Looks at the files again and again, in a task that ends with the last owner.
    pub(crate) fn keep_current(self: &Arc<Self>) {
        let watched = Arc::downgrade(self);
        tokio::spawn(async move {
            let mut failed = None;
            loop {
                tokio::time::sleep(FILES_LOOKED_AT_EVERY).await;
                let Some(watched) = watched.upgrade() else {
                    return;
                };
                watched.look(&mut failed);
            }
        });
    }

    /// Reads the files if they have changed. `failed` is the state of them that could not be used: a renewal that is half done
    /// fails once, and not again before something more is written.
    pub(crate) fn look(&self, failed: &mut Option<Vec<Stamp>>) {
        let stamps = stamps(&self.files);
        let is_known = {
            let current = { self.current.read() }.unwrap_or_else(PoisonError::into_inner);
            current.stamps == stamps
        };
        if is_known || failed.as_ref() == Some(&stamps) {
            return;
        }
        let outcome = self.reload();
        *failed = outcome.is_err().then_some(stamps);
        self.files.tell(outcome);
    }
}

fn read<F: Files>(files: &F) -> Result<Current<F::Held>, F::Error> {
    // Before the files: a change while they are read shows at the next look.
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
        told: Mutex<Vec<bool>>,
    }

    impl Files for Number {
        type Held = u64;
        type Error = ();

        fn paths(&self) -> Vec<&Path> {
            vec![&self.path]
        }

        fn read(&self) -> Result<u64, ()> {
            let text = fs::read_to_string(&self.path).map_err(drop)?;
            text.parse().map_err(drop)
        }

        fn tell(&self, outcome: Result<(), ()>) {
            self.told.lock().unwrap().push(outcome.is_ok());
        }
    }

    #[test]
    fn what_cannot_be_used_is_told_once_and_what_was_before_stays() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("number");
        fs::write(&path, "7").unwrap();
        let number = |path: &Path| Number {
            path: path.to_owned(),
            told: Mutex::default(),
        };
        let watched = Watched::open(number(&path)).unwrap();
        let mut failed = None;
        let mut look = |text: Option<&str>| {
            if let Some(text) = text {
                // Of another length each time: clocks of file systems are coarse.
                fs::write(&path, text).unwrap();
            }
            watched.look(&mut failed);
            watched.look(&mut failed);
            let told = std::mem::take(&mut *watched.files.told.lock().unwrap());
            (*watched.current(), told)
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
