//! Audit log on disk: append-only files of JSON lines.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufRead as _, BufReader, Write as _};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use crate::audit_log::record::Record;

/// Prefix and suffix of the file names; between them is the sequence number of the first record, or a lower
/// one if that record could not be written.
const PREFIX: &str = "audit-";
const SUFFIX: &str = ".jsonl";

/// Retention limits.
#[derive(Clone, Copy, Debug)]
pub(super) struct Retention {
    /// File size in bytes after which a new file is started.
    pub(super) file_bytes_max: u64,
    /// Number of files kept; 0 keeps all.
    pub(super) files_max: usize,
}

/// The files of one replica, open for appending.
pub(super) struct Files {
    folder: PathBuf,
    bounds: Retention,
    file: Option<File>,
    bytes: u64,
    /// Whether there may be more files than the limit: a new file was opened, and its content is not synced
    /// yet.
    may_be_over: bool,
    next: u64,
}

impl Files {
    /// Opens the folder and finds the last record, so that numbering continues after it.
    pub(super) fn open(folder: &Path, bounds: Retention) -> io::Result<Self> {
        fs::create_dir_all(folder)?;
        let mut last = 0;
        for (first, path) in list(folder)?.into_iter().rev() {
            last = last.max(first.saturating_sub(1));
            let mut newest = None;
            read(&path, &mut |record| {
                newest = Some(record.sequence);
                true
            })?;
            if let Some(newest) = newest {
                last = last.max(newest);
                break;
            }
        }
        Ok(Self {
            folder: folder.to_owned(),
            bounds,
            file: None,
            bytes: 0,
            may_be_over: false,
            next: last + 1,
        })
    }

    /// Numbers and appends the records; they are durable after the next sync.
    pub(super) fn append(&mut self, records: &mut [Record]) -> io::Result<()> {
        let mut lines = Vec::new();
        for record in records.iter_mut() {
            record.sequence = self.next;
            self.next += 1;
            serde_json::to_writer(&mut lines, record)?;
            lines.push(b'\n');
        }
        let first = records.first().map_or(self.next, |record| record.sequence);
        let written = self.file_for(first).and_then(|file| file.write_all(&lines));
        if written.is_ok() {
            self.bytes += lines.len() as u64;
        } else {
            // A partial line stays in the file; its line is terminated when the file is reopened.
            self.file = None;
        }
        written
    }

    /// Syncs what was appended. Only then are the oldest files removed, so a failed write never costs old
    /// records.
    pub(super) fn sync(&mut self) -> io::Result<()> {
        let Some(file) = &self.file else {
            return Ok(());
        };
        file.sync_data()?;
        if self.may_be_over {
            self.may_be_over = false;
            if let Err(error) = self.remove_oldest() {
                tracing::error!(%error, "cannot remove the oldest audit log files");
            }
        }
        Ok(())
    }

    fn file_for(&mut self, first: u64) -> io::Result<&mut File> {
        if self.bytes >= self.bounds.file_bytes_max {
            self.sync()?;
            self.file = None;
        }
        if self.file.is_none() {
            let (file, bytes) = self.open_file(first)?;
            self.file = Some(file);
            self.bytes = bytes;
            self.may_be_over = true;
        }
        self.file
            .as_mut()
            .ok_or_else(|| io::Error::other("no file is open"))
    }

    /// The newest file if it has room, else a new one, with its size in bytes. Neither a restart nor a
    /// temporarily full disk starts a new file: each would push out an old one.
    fn open_file(&self, first: u64) -> io::Result<(File, u64)> {
        let mut path = self.folder.join(format!("{PREFIX}{first:020}{SUFFIX}"));
        if let Some((_, newest)) = list(&self.folder)?.pop()
            && fs::metadata(&newest)?.len() < self.bounds.file_bytes_max
        {
            path = newest;
        }
        let mut options = OpenOptions::new();
        let mut file = options.read(true).append(true).create(true).open(path)?;
        let mut bytes = file.metadata()?.len();
        if !ends_with_line(&file, bytes)? {
            file.write_all(b"\n")?;
            bytes += 1;
        }
        File::open(&self.folder)?.sync_all()?;
        Ok((file, bytes))
    }

    fn remove_oldest(&self) -> io::Result<()> {
        let files = list(&self.folder)?;
        let over = match self.bounds.files_max {
            0 => 0,
            kept => files.len().saturating_sub(kept),
        };
        for (_, path) in files.into_iter().take(over) {
            fs::remove_file(path)?;
        }
        Ok(())
    }
}

/// Whether a file's last line is complete; true for an empty file.
fn ends_with_line(file: &File, bytes: u64) -> io::Result<bool> {
    let mut last = *b"\n";
    if let Some(place) = bytes.checked_sub(1) {
        file.read_exact_at(&mut last, place)?;
    }
    Ok(last == *b"\n")
}

/// The files with the sequence number of their first record, oldest first.
fn list(folder: &Path) -> io::Result<Vec<(u64, PathBuf)>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let name = path.file_name().and_then(|name| name.to_str());
        let number = name.and_then(|name| name.strip_prefix(PREFIX)?.strip_suffix(SUFFIX));
        if let Some(first) = number.and_then(|number| number.parse().ok()) {
            files.push((first, path));
        }
    }
    files.sort();
    Ok(files)
}

/// Reads the records after `after`, in order, until `take` returns false. Skips truncated lines.
pub(super) fn read_after(
    folder: &Path,
    after: u64,
    take: &mut dyn FnMut(Record) -> bool,
) -> io::Result<()> {
    let files = list(folder)?;
    let newer = files.partition_point(|(first, _)| *first <= after.saturating_add(1));
    for (_, path) in &files[newer.saturating_sub(1)..] {
        let goes_on = read(path, &mut |record| record.sequence <= after || take(record));
        match goes_on {
            Ok(true) => {}
            Ok(false) => return Ok(()),
            // The oldest file may have been removed since.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Reads the records of one file until `take` returns false; returns false in that case. A last line that
/// lacks only its line end counts: its sequence number is in use.
fn read(path: &Path, take: &mut dyn FnMut(Record) -> bool) -> io::Result<bool> {
    let mut lines = BufReader::new(File::open(path)?);
    let mut line = Vec::new();
    loop {
        line.clear();
        lines.read_until(b'\n', &mut line)?;
        let is_ended = line.last() == Some(&b'\n');
        match serde_json::from_slice(&line) {
            Ok(record) => {
                if !take(record) {
                    return Ok(false);
                }
            }
            Err(error) if is_ended => {
                tracing::warn!(%error, file = %path.display(), "unreadable line in the audit log");
            }
            // End of the file, or a line that is being written or was truncated.
            Err(_) => {}
        }
        if !is_ended {
            return Ok(true);
        }
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    const SMALL: Retention = Retention {
        file_bytes_max: 1_000,
        files_max: 3,
    };

    fn record(subject: &str) -> Record {
        Record {
            subject: subject.to_owned(),
            ..Record::default()
        }
    }

    fn all_after(folder: &Path, after: u64) -> Vec<(u64, String)> {
        let mut found = Vec::new();
        read_after(folder, after, &mut |record| {
            found.push((record.sequence, record.subject));
            true
        })
        .unwrap();
        found
    }

    #[test]
    fn numbering_continues_over_restarts_and_a_truncated_line_is_skipped() {
        let folder = tempfile::tempdir().unwrap();
        let mut files = Files::open(folder.path(), SMALL).unwrap();
        files.append(&mut [record("a"), record("b")]).unwrap();
        files.sync().unwrap();
        drop(files);
        let (_, path) = list(folder.path()).unwrap().remove(0);
        let mut file = OpenOptions::new().append(true).open(path).unwrap();
        file.write_all(b"{\"sequence\":3,\"subj").unwrap();

        let mut files = Files::open(folder.path(), SMALL).unwrap();
        files.append(&mut [record("c")]).unwrap();
        let expected = |number: u64, subject: &str| (number, subject.to_owned());
        let all = [expected(1, "a"), expected(2, "b"), expected(3, "c")];
        assert_eq!(all_after(folder.path(), 0), all);
        assert_eq!(all_after(folder.path(), 2), all[2..]);
        assert_eq!(list(folder.path()).unwrap().len(), 1);
        assert_eq!(all_after(folder.path(), 9), []);
    }

    #[test]
    fn a_last_line_without_its_newline_keeps_its_number() {
        let folder = tempfile::tempdir().unwrap();
        let mut files = Files::open(folder.path(), SMALL).unwrap();
        files.append(&mut [record("a"), record("b")]).unwrap();
        drop(files);
        let (_, path) = list(folder.path()).unwrap().remove(0);
        let file = OpenOptions::new().write(true).open(path).unwrap();
        file.set_len(file.metadata().unwrap().len() - 1).unwrap();

        let mut files = Files::open(folder.path(), SMALL).unwrap();
        files.append(&mut [record("c")]).unwrap();
        let kept = all_after(folder.path(), 0);
        assert!(kept.iter().map(|(number, _)| *number).eq(1..=3), "{kept:?}");
    }

    #[test]
    fn a_restart_appends_to_the_newest_file_and_removes_none() {
        let folder = tempfile::tempdir().unwrap();
        for _ in 0..12 {
            let mut files = Files::open(folder.path(), SMALL).unwrap();
            files.append(&mut [record("a")]).unwrap();
            files.sync().unwrap();
        }
        let kept = all_after(folder.path(), 0);
        assert!(
            kept.iter().map(|(number, _)| *number).eq(1..=12),
            "{kept:?}"
        );
        assert_eq!(list(folder.path()).unwrap().len(), 2);
    }

    #[test]
    fn a_full_disk_loses_only_records_written_meanwhile() {
        let folder = tempfile::tempdir().unwrap();
        let one_each = Retention {
            file_bytes_max: 1,
            ..SMALL
        };
        let mut files = Files::open(folder.path(), one_each).unwrap();
        for subject in ["a", "b", "c"] {
            files.append(&mut [record(subject)]).unwrap();
            files.sync().unwrap();
        }
        // The fourth file cannot be written.
        let full = folder.path().join(format!("{PREFIX}{:020}{SUFFIX}", 4));
        symlink("/dev/full", &full).unwrap();
        for _ in 0..5 {
            files.append(&mut [record("lost")]).unwrap_err();
        }
        fs::remove_file(&full).unwrap();
        let expected = |number: u64, subject: &str| (number, subject.to_owned());
        let before = [expected(1, "a"), expected(2, "b"), expected(3, "c")];
        assert_eq!(all_after(folder.path(), 0), before);

        files.append(&mut [record("d")]).unwrap();
        files.sync().unwrap();
        // The gap in the sequence numbers shows the lost records.
        let after = [expected(2, "b"), expected(3, "c"), expected(9, "d")];
        assert_eq!(all_after(folder.path(), 0), after);
    }

    #[test]
    fn full_files_are_rotated_and_the_oldest_are_removed() {
        let folder = tempfile::tempdir().unwrap();
        let mut files = Files::open(folder.path(), SMALL).unwrap();
        for number in 0..100 {
            files.append(&mut [record(&number.to_string())]).unwrap();
        }
        files.sync().unwrap();
        assert_eq!(list(folder.path()).unwrap().len(), 3);
        let kept = all_after(folder.path(), 0);
        assert!(
            kept.len() < 30 && kept.last() == Some(&(100, "99".to_owned())),
            "{kept:?}"
        );
        assert!(kept.is_sorted());
    }
}
