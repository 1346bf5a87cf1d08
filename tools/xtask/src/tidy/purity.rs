//! Purity check of the core: no I/O, no clock, no randomness, only ordered collections, and no floating point
//! in decisions, so that replicas agree to the bit.

use proc_macro2::{TokenStream, TokenTree};
use syn::visit::Visit;
use syn::{ItemUse, UseTree};

use crate::tidy::finding::Finding;
use crate::tidy::source::Source;

/// The product code that is pure.
const PURE: &str = "core/";
/// Tests of the core that are not beside its code, and its benchmarks.
const TESTING: [&str; 2] = ["core/harness/tests/", "core/harness/examples/"];

/// Banned names, with the reason.
const BANNED: [(&str, &str); 16] = [
    ("tokio", "the core does not wait"),
    ("rand", "the core knows no randomness"),
    ("std::fs", "the core does no I/O"),
    ("std::io", "the core does no I/O"),
    ("std::net", "the core does no I/O"),
    ("std::process", "the core does no I/O"),
    ("std::env", "configuration comes in as a value"),
    ("std::thread", "the core is data: a driver owns threads"),
    ("std::sync::Mutex", "the core is data: a driver owns locks"),
    ("std::time::Instant", "the core knows no clock"),
    ("std::time::SystemTime", "the core knows no clock"),
    ("HashMap", "its order differs between replicas"),
    ("HashSet", "its order differs between replicas"),
    ("RandomState", "its order differs between replicas"),
    ("f32", "rounding may differ between replicas"),
    ("f64", "rounding may differ between replicas"),
];

/// Checks the core's files; ignores others.
pub(crate) fn check(source: &Source) -> Vec<Finding> {
    let is_testing = TESTING.iter().any(|folder| source.path.starts_with(folder));
    if !source.path.starts_with(PURE) || is_testing {
        return Vec::new();
    }
    let mut named = Vec::new();
    collect_paths(source.tokens.clone(), &mut named);
    Uses { named: &mut named }.visit_file(&source.syntax);
    let product = named.into_iter().filter(|name| !source.is_test(name.line));
    let mut findings: Vec<Finding> = product
        .filter_map(|name| {
            let (banned, reason) = BANNED.iter().find(|(banned, _)| name.means(banned))?;
            Some(Finding::new(
                &source.path,
                name.line,
                "purity",
                format!("`{banned}`: {reason}"),
            ))
        })
        .collect();
    // A `use` is seen both as tokens and as a tree.
    findings.sort();
    findings.dedup();
    findings
}

/// A path in the code, such as `std::fs::read`.
struct Name {
    line: usize,
    segments: Vec<String>,
}

impl Name {
    /// Whether a banned name applies: a banned path includes all paths below it, a banned name matches
    /// anywhere in a path, a crate only at its beginning.
    fn means(&self, banned: &str) -> bool {
        let wanted: Vec<&str> = banned.split("::").collect();
        let is_type_name =
            banned.starts_with(char::is_uppercase) || banned.starts_with("f3") || banned == "f64";
        if is_type_name {
            return self.segments.iter().any(|segment| segment == banned);
        }
        if wanted.len() == 1 && self.segments.len() == 1 {
            return false; // a lone word may be a variable; a crate is used through its paths
        }
        self.segments.len() >= wanted.len()
            && self
                .segments
                .iter()
                .zip(&wanted)
                .all(|(segment, wanted)| segment == wanted)
    }
}

/// Every path among `tokens`, inside macros too; a float literal counts as its type.
fn collect_paths(tokens: TokenStream, named: &mut Vec<Name>) {
    let mut segments: Vec<String> = Vec::new();
    let mut line = 0;
    let mut colons = 0;
    for token in tokens {
        let start = token.span().start().line;
        match token {
            TokenTree::Ident(ident) => {
                if colons != 2 || segments.is_empty() {
                    flush(&mut segments, line, named);
                    line = start;
                }
                segments.push(ident.to_string());
                colons = 0;
                continue;
            }
            TokenTree::Punct(punct) if punct.as_char() == ':' => {
                colons += 1;
                continue;
            }
            TokenTree::Group(group) => collect_paths(group.stream(), named),
            TokenTree::Literal(literal) if is_float(&literal.to_string()) => {
                named.push(Name {
                    line: start,
                    segments: vec!["f64".to_owned()],
                });
            }
            _ => {}
        }
        flush(&mut segments, line, named);
        colons = 0;
    }
    flush(&mut segments, line, named);
}

fn flush(segments: &mut Vec<String>, line: usize, named: &mut Vec<Name>) {
    if !segments.is_empty() {
        named.push(Name {
            line,
            segments: std::mem::take(segments),
        });
    }
}

fn is_float(literal: &str) -> bool {
    literal.starts_with(|it: char| it.is_ascii_digit())
        && !literal.starts_with("0x")
        && (literal.contains('.') || literal.ends_with("f32") || literal.ends_with("f64"))
}

/// Expands `use std::{fs, net}`.
struct Uses<'a> {
    named: &'a mut Vec<Name>,
}

impl Uses<'_> {
    fn collect(&mut self, tree: &UseTree, mut segments: Vec<String>) {
        let line = match tree {
            UseTree::Path(path) => {
                segments.push(path.ident.to_string());
                return self.collect(&path.tree, segments);
            }
            UseTree::Group(group) => {
                for tree in &group.items {
                    self.collect(tree, segments.clone());
                }
                return;
            }
            UseTree::Name(name) => {
                segments.push(name.ident.to_string());
                name.ident.span().start().line
            }
            UseTree::Rename(rename) => {
                segments.push(rename.ident.to_string());
                rename.ident.span().start().line
            }
            UseTree::Glob(glob) => glob.star_token.spans[0].start().line,
        };
        self.named.push(Name { line, segments });
    }
}

impl<'ast> Visit<'ast> for Uses<'_> {
    fn visit_item_use(&mut self, item: &'ast ItemUse) {
        self.collect(&item.tree, Vec::new());
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;

    fn count(path: &str, text: &str) -> usize {
        check(&Source::parse(path, text).unwrap()).len()
    }

    #[test]
    fn every_banned_name_is_found_however_it_is_written() {
        for impure in [
            "use std::fs;",
            "use std::{collections::BTreeMap, net::TcpStream};",
            "use std::collections::HashMap;",
            "use imbl::HashSet as Set;",
            "fn f() { std::thread::spawn(|| ()); }",
            "fn f() { let _ = format!(\"{:?}\", std::env::var(\"X\")); }",
            "use std::time::{Duration, Instant};",
            "fn f(_: ::std::time::SystemTime) {}",
            "async fn f() { tokio::task::yield_now().await }",
            "fn f() -> u8 { rand::random() }",
            "struct Share(f32);",
            "fn f() -> bool { g() > 0.5 }",
            "use std::sync::Mutex;",
        ] {
            assert_eq!(count("core/src/a.rs", impure), 1, "{impure}");
            assert_eq!(count("worker/agent/src/a.rs", impure), 0, "{impure}");
            assert_eq!(count("core/harness/tests/a.rs", impure), 0, "{impure}");
            let tests = format!("#[cfg(test)]\nmod tests {{ {impure} }}");
            assert_eq!(count("core/src/a.rs", &tests), 0, "{tests}");
        }
    }

    #[test]
    fn what_is_pure_is_left_alone() {
        for pure in [
            "use std::collections::BTreeMap;",
            "use std::time::Duration;",
            "fn f(rand: u64, env: u8) -> u64 { rand + 1 + 0x1f32 }",
            "fn f(pair: (u8, u8)) -> u8 { pair.0 }",
            "mod fs { pub fn std() {} }",
            "// HashMap, f64 and std::fs in a comment\nconst TEXT: &str = \"std::fs\";",
            "for_each! { 1..=3 }",
        ] {
            assert_eq!(count("core/src/a.rs", pure), 0, "{pure}");
        }
    }
}
