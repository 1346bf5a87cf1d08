//! A parsed Rust file: its syntax, and which of its lines are tests.

use std::collections::BTreeSet;
use std::ops::RangeInclusive;

use syn::spanned::Spanned;
use syn::visit::{self, Visit};
use syn::{Attribute, ImplItemFn, Item, ItemFn, ItemMod, Meta};

/// A parsed file.
pub(crate) struct Source {
    /// Relative to the repository's root.
    pub(crate) path: String,
    pub(crate) text: String,
    pub(crate) syntax: syn::File,
    is_test: bool,
    test_lines: Vec<RangeInclusive<usize>>,
}

impl Source {
    /// Parses `text`.
    pub(crate) fn parse(path: &str, text: &str) -> syn::Result<Self> {
        let syntax = syn::parse_file(text)?;
        let mut tests = TestLines::default();
        tests.visit_file(&syntax);
        Ok(Self {
            path: path.to_owned(),
            text: text.to_owned(),
            syntax,
            // Cargo's test folders, and the crate of end-to-end tests.
            is_test: path.split('/').any(|part| part == "tests"),
            test_lines: tests.lines,
        })
    }

    /// Marks this file as a test if it belongs to one of `modules`, which other files declare for tests only.
    pub(crate) fn mark_tests(&mut self, modules: &BTreeSet<String>) {
        self.is_test |= modules.iter().any(|module| {
            let rest = self.path.strip_prefix(module.as_str());
            rest.is_some_and(|rest| rest == ".rs" || rest.starts_with('/'))
        });
    }

    /// Out-of-line modules that this file declares for tests only, as paths without `.rs`.
    pub(crate) fn test_modules(&self) -> Vec<String> {
        let folder = module_folder(&self.path);
        let items = self.syntax.items.iter().filter_map(|item| match item {
            Item::Mod(module) if module.content.is_none() && is_test_only(&module.attrs) => {
                Some(module)
            }
            _ => None,
        });
        items
            .map(|module| format!("{folder}/{}", module.ident))
            .collect()
    }

    /// Whether `line` (counted from 1) is only compiled for tests.
    pub(crate) fn is_test(&self, line: usize) -> bool {
        self.is_test || self.test_lines.iter().any(|lines| lines.contains(&line))
    }

    /// Lines that are compiled into the product.
    pub(crate) fn product_lines(&self) -> usize {
        (1..=self.text.lines().count())
            .filter(|line| !self.is_test(*line))
            .count()
    }
}

/// Folder of the modules that the file at `path` declares.
fn module_folder(path: &str) -> String {
    let stem = path.strip_suffix(".rs").unwrap_or(path);
    match stem.rsplit_once('/') {
        Some((folder, "lib" | "main" | "mod")) => folder.to_owned(),
        _ => stem.to_owned(),
    }
}

/// Collects the lines of test items.
#[derive(Default)]
struct TestLines {
    lines: Vec<RangeInclusive<usize>>,
}

impl TestLines {
    /// Records `item` if it is for tests; returns whether it is.
    fn note(&mut self, item: &impl Spanned, attributes: &[Attribute]) -> bool {
        let is_test = is_test_only(attributes);
        if is_test {
            let span = item.span();
            self.lines.push(span.start().line..=span.end().line);
        }
        is_test
    }
}

impl<'ast> Visit<'ast> for TestLines {
    fn visit_item_mod(&mut self, item: &'ast ItemMod) {
        if !self.note(item, &item.attrs) {
            visit::visit_item_mod(self, item);
        }
    }

    fn visit_item_fn(&mut self, item: &'ast ItemFn) {
        if !self.note(item, &item.attrs) {
            visit::visit_item_fn(self, item);
        }
    }

    fn visit_impl_item_fn(&mut self, item: &'ast ImplItemFn) {
        if !self.note(item, &item.attrs) {
            visit::visit_impl_item_fn(self, item);
        }
    }

    fn visit_item_impl(&mut self, item: &'ast syn::ItemImpl) {
        if !self.note(item, &item.attrs) {
            visit::visit_item_impl(self, item);
        }
    }

    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        self.note(item, &item.attrs);
    }
}

/// `#[test]`, `#[tokio::test]`, `#[cfg(test)]`, `#[cfg(all(test, ...))]`; not `#[cfg(not(test))]` or `any`.
fn is_test_only(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        let last = attribute
            .path()
            .segments
            .last()
            .map(|segment| segment.ident.to_string());
        match (last.as_deref(), &attribute.meta) {
            (Some("test"), _) => true,
            (Some("cfg"), Meta::List(list)) => {
                let condition = list.tokens.to_string().replace(' ', "");
                condition == "test" || condition.starts_with("all(test,")
            }
            _ => false,
        }
    })
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;

    #[test]
    fn test_modules_functions_and_folders_are_distinguished_from_the_product() {
        let text = "fn product() {}\n#[cfg(test)]\nmod tests {\n    fn helper() {}\n}\n#[test]\nfn test() {}\n\
                    #[cfg(not(test))]\nfn other() {}\n";
        let source = Source::parse("core/src/a.rs", text).unwrap();
        let tests: Vec<bool> = (1..=9).map(|line| source.is_test(line)).collect();
        assert_eq!(
            tests,
            [false, true, true, true, true, true, true, false, false]
        );
        assert_eq!(source.product_lines(), 3);
        assert!(
            Source::parse("core/harness/tests/a.rs", text)
                .unwrap()
                .is_test(1)
        );
    }

    #[test]
    fn a_test_module_in_a_file_of_its_own_is_a_test() {
        let parent =
            Source::parse("core/src/plan.rs", "#[cfg(test)]\nmod trials;\nmod gang;\n").unwrap();
        let modules: BTreeSet<String> = parent.test_modules().into_iter().collect();
        assert_eq!(modules, BTreeSet::from(["core/src/plan/trials".to_owned()]));
        for (path, expected) in [
            ("core/src/plan/trials.rs", true),
            ("core/src/plan/trials/more.rs", true),
            ("core/src/plan/gang.rs", false),
        ] {
            let mut source = Source::parse(path, "fn f() {}").unwrap();
            source.mark_tests(&modules);
            assert_eq!(source.is_test(1), expected, "{path}");
        }
    }
}
