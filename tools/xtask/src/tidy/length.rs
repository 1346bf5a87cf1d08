//! Recommended lengths of files and functions.
//!
//! Warnings only, because a cut in the wrong place is worse than a long function.

use syn::spanned::Spanned;
use syn::visit::{self, Visit};
use syn::{Block, ImplItemFn, ItemFn, Signature, TraitItemFn};

use crate::tidy::finding::Finding;
use crate::tidy::source::Source;

/// Lines of a file without its tests.
const FILE_LINES_MAX: usize = 500;
/// Lines of a function from its name to its last brace.
const FUNCTION_LINES_MAX: usize = 70;

/// Checks both lengths.
pub(crate) fn check(source: &Source) -> Vec<Finding> {
    let mut functions = Functions {
        source,
        findings: Vec::new(),
    };
    functions.visit_file(&source.syntax);
    let mut findings = functions.findings;
    let lines = source.product_lines();
    if lines > FILE_LINES_MAX {
        let message = format!(
            "{lines} lines without tests: above {FILE_LINES_MAX}, check whether it has two subjects"
        );
        findings.push(Finding::new(&source.path, 1, "file-length", message));
    }
    findings
}

struct Functions<'a> {
    source: &'a Source,
    findings: Vec<Finding>,
}

impl Functions<'_> {
    fn measure(&mut self, signature: &Signature, block: &Block) {
        let first = signature.span().start().line;
        let lines = block.span().end().line + 1 - first;
        if lines > FUNCTION_LINES_MAX && !self.source.is_test(first) {
            let message = format!(
                "`{}` has {lines} lines: above {FUNCTION_LINES_MAX}, check whether it does two things",
                signature.ident
            );
            self.findings.push(Finding::new(
                &self.source.path,
                first,
                "function-length",
                message,
            ));
        }
    }
}

impl<'ast> Visit<'ast> for Functions<'_> {
    fn visit_item_fn(&mut self, item: &'ast ItemFn) {
        self.measure(&item.sig, &item.block);
        visit::visit_item_fn(self, item);
    }

    fn visit_impl_item_fn(&mut self, item: &'ast ImplItemFn) {
        self.measure(&item.sig, &item.block);
        visit::visit_impl_item_fn(self, item);
    }

    fn visit_trait_item_fn(&mut self, item: &'ast TraitItemFn) {
        if let Some(block) = &item.default {
            self.measure(&item.sig, block);
        }
        visit::visit_trait_item_fn(self, item);
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;

    fn rules(text: &str) -> Vec<&'static str> {
        let source = Source::parse("core/src/a.rs", text).unwrap();
        check(&source)
            .into_iter()
            .map(|finding| finding.rule)
            .collect()
    }

    fn function(lines: usize) -> String {
        format!("fn long() {{\n{}}}\n", "    work();\n".repeat(lines - 2))
    }

    #[test]
    fn a_function_may_have_70_lines_and_no_more() {
        assert!(rules(&function(70)).is_empty());
        assert_eq!(rules(&function(71)), ["function-length"]);
        assert_eq!(
            rules(&format!("struct S;\nimpl S {{\n{}}}\n", function(71))),
            ["function-length"]
        );
        assert_eq!(
            rules(&format!("trait T {{\n{}}}\n", function(71))),
            ["function-length"]
        );
        assert!(rules(&format!("#[cfg(test)]\nmod tests {{\n{}}}\n", function(71))).is_empty());
    }

    #[test]
    fn a_file_may_have_500_lines_without_its_tests() {
        let constants = "const A: u8 = 0;\n";
        let tests = format!("#[cfg(test)]\nmod tests {{\n{}}}\n", constants.repeat(100));
        assert!(rules(&(constants.repeat(500) + &tests)).is_empty());
        assert_eq!(rules(&constants.repeat(501)), ["file-length"]);
    }
}
