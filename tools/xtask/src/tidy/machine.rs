//! Check that committed files are independent of the machine they were written on: no local paths, no private
//! registry.

use crate::tidy::finding::Finding;

/// Folders that exist only on a developer's machine, spelt so that this file does not match.
const FOLDERS: [&str; 4] = [
    concat!("/wo", "rk/"),
    concat!("/ro", "ot/"),
    concat!("/home/", "user/"),
    concat!("/Us", "ers/"),
];
/// Suffixes of host names that resolve only in a private network.
const PRIVATE_SUFFIXES: [&str; 4] = [".internal", ".corp", ".lan", ".intranet"];
/// Source of every crate.
const CRATES_IO: &str = "registry+https://github.com/rust-lang/crates.io-index";

/// Checks paths, hosts and sources.
pub(crate) fn check(path: &str, text: &str) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut find = |index: usize, message: String| {
        findings.push(Finding::new(path, index + 1, "machine", message));
    };
    for (index, line) in text.lines().enumerate() {
        for folder in FOLDERS.iter().filter(|folder| names_folder(line, folder)) {
            find(index, format!("`{folder}` is a folder of one machine"));
        }
        for host in hosts(line).filter(|host| is_private(host)) {
            find(index, format!("`{host}` is known in one network only"));
        }
        if path.ends_with("Cargo.lock") && names_source(line) {
            find(index, format!("a crate from elsewhere than {CRATES_IO}"));
        }
        if path.ends_with(".cargo/config.toml") && line.trim_start().starts_with("[source") {
            find(
                index,
                "a registry mirror belongs into the machine's own configuration".to_owned(),
            );
        }
    }
    findings
}

/// Whether `line` has `folder` at the start of a path, not in the middle of one.
fn names_folder(line: &str, folder: &str) -> bool {
    line.match_indices(folder).any(|(start, _)| {
        !line[..start].ends_with(|it: char| it.is_alphanumeric() || "_-.}/".contains(it))
    })
}

fn names_source(line: &str) -> bool {
    line.strip_prefix("source = ")
        .is_some_and(|source| source.trim_matches('"') != CRATES_IO)
}

/// The host names of the URLs in `line`.
fn hosts(line: &str) -> impl Iterator<Item = &str> {
    line.split("://").skip(1).map(|rest| {
        let end = rest.find(|it: char| !(it.is_ascii_alphanumeric() || ".-".contains(it)));
        &rest[..end.unwrap_or(rest.len())]
    })
}

fn is_private(host: &str) -> bool {
    PRIVATE_SUFFIXES.iter().any(|suffix| host.ends_with(suffix))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(path: &str, text: &str) -> usize {
        check(path, text)
            .iter()
            .filter(|finding| finding.rule == "machine")
            .count()
    }

    #[test]
    fn folders_of_one_machine_are_found() {
        for folder in FOLDERS {
            assert_eq!(count("docs/a.md", &format!("see {folder}main/x")), 1);
            assert_eq!(count("docs/a.md", &format!("see target{folder}main/x")), 0);
        }
    }

    #[test]
    fn private_hosts_and_mirrors_are_found() {
        let suffix = PRIVATE_SUFFIXES[0];
        assert_eq!(
            count("a.toml", &format!("url = \"https://crates{suffix}/index\"")),
            1
        );
        assert_eq!(count("a.toml", "url = \"https://docs.rs/tokio\""), 0);
        assert_eq!(
            count(
                "Cargo.lock",
                "source = \"registry+https://mirror.example/index\""
            ),
            1
        );
        assert_eq!(count("Cargo.lock", &format!("source = \"{CRATES_IO}\"")), 0);
        assert_eq!(count(".cargo/config.toml", "[source.crates-io]"), 1);
        assert_eq!(count(".cargo/config.toml", "[build]"), 0);
    }
}
