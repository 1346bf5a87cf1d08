//! Check that Grafana's dashboards match their description.

use anyhow::{Context, Result};

use crate::dashboards::{SOURCE, render};
use crate::tidy::TextFile;
use crate::tidy::finding::Finding;

/// Compares the dashboards with freshly generated ones.
pub(super) fn check(files: &[TextFile]) -> Result<Vec<Finding>> {
    let text = |path: &str| {
        files
            .iter()
            .find(|file| file.path == path)
            .map(|file| &*file.text)
    };
    let source = text(SOURCE).with_context(|| format!("{SOURCE} is missing"))?;
    let written = render(source)?.into_iter();
    let behind = written.filter(|(path, expected)| text(path) != Some(expected));
    let message = "is not what its description says: run `cargo xtask dashboards`";
    Ok(behind
        .map(|(path, _)| Finding::new(&path, 1, "dashboards", message))
        .collect())
}
