//! Evaluation page and its pictures: tables are replaced in place, the rest is left as written.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use crate::Failure;

/// Name of the page and of the folder with its pictures.
const NAME: &str = "evaluation";

pub(super) struct Page {
    path: PathBuf,
    before: String,
    text: String,
    pictures: BTreeMap<PathBuf, String>,
}

impl Page {
    pub(super) fn read(docs: &Path) -> Result<Self, Failure> {
        let path = docs.join(NAME).with_extension("md");
        let text = fs::read_to_string(&path)
            .map_err(|error| format!("reading {}: {error}", path.display()))?;
        Ok(Self {
            path,
            before: text.clone(),
            text,
            pictures: BTreeMap::new(),
        })
    }

    /// Puts a table between its markers.
    pub(super) fn replace(&mut self, name: &str, table: &str) -> Result<(), Failure> {
        let begin = format!("<!-- figures: {name} -->\n");
        let missing = |mark: &str| format!("{} lacks {mark}", self.path.display());
        let (head, rest) = self
            .text
            .split_once(&begin)
            .ok_or_else(|| missing(begin.trim_end()))?;
        let (_, tail) = rest
            .split_once("<!-- end -->")
            .ok_or_else(|| missing("<!-- end -->"))?;
        self.text = format!("{head}{begin}{table}<!-- end -->{tail}");
        Ok(())
    }

    pub(super) fn add_picture(&mut self, name: &str, svg: String) {
        let path = self.path.with_extension("").join(name);
        self.pictures.insert(path.with_extension("svg"), svg);
    }

    /// Files whose content would change.
    pub(super) fn changes(&self) -> Result<Vec<PathBuf>, Failure> {
        let mut changed = Vec::new();
        if self.text != self.before {
            changed.push(self.path.clone());
        }
        for (path, svg) in &self.pictures {
            if !path.exists() || fs::read_to_string(path)? != *svg {
                changed.push(path.clone());
            }
        }
        Ok(changed)
    }

    /// Writes the files whose content changed, and returns them.
    pub(super) fn write(&self) -> Result<Vec<PathBuf>, Failure> {
        let changed = self.changes()?;
        for path in &changed {
            if let Some(folder) = path.parent() {
                fs::create_dir_all(folder)?;
            }
            fs::write(path, self.pictures.get(path).unwrap_or(&self.text))?;
        }
        Ok(changed)
    }
}
