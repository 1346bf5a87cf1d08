//! Check for `unwrap()`, and for `allow` instead of `expect`, in product code. It works on tokens, so code
//! inside macros counts and comments do not.

use proc_macro2::{Delimiter, Group, TokenStream, TokenTree};

use crate::tidy::finding::Finding;
use crate::tidy::source::Source;

/// Checks both words.
pub(crate) fn check(source: &Source) -> Vec<Finding> {
    let mut findings = Vec::new();
    scan(source, source.tokens.clone(), &mut findings);
    findings
}

fn scan(source: &Source, tokens: TokenStream, findings: &mut Vec<Finding>) {
    let tokens: Vec<TokenTree> = tokens.into_iter().collect();
    for (index, token) in tokens.iter().enumerate() {
        let line = token.span().start().line;
        if is_unwrap(&tokens[index..]) && !source.is_test(line) {
            let message = "`unwrap()` outside tests: return the error, or `expect` with the invariant that rules it \
                           out";
            findings.push(Finding::new(&source.path, line, "unwrap", message));
        }
        let TokenTree::Group(group) = token else {
            continue;
        };
        if is_attribute(&tokens[..index]) && allows(group) {
            let message =
                "`allow` outlives its cause unnoticed: use `#[expect(..., reason = \"...\")]`";
            findings.push(Finding::new(&source.path, line, "allow", message));
        }
        scan(source, group.stream(), findings);
    }
}

/// `.unwrap()`.
fn is_unwrap(tokens: &[TokenTree]) -> bool {
    let [
        TokenTree::Punct(dot),
        TokenTree::Ident(name),
        TokenTree::Group(arguments),
        ..,
    ] = tokens
    else {
        return false;
    };
    dot.as_char() == '.' && name == "unwrap" && arguments.stream().is_empty()
}

/// Whether the next token is the bracket of `#[...]` or `#![...]`.
fn is_attribute(before: &[TokenTree]) -> bool {
    let is =
        |token: &TokenTree, wanted| matches!(token, TokenTree::Punct(it) if it.as_char() == wanted);
    match before {
        [.., last] if is(last, '#') => true,
        [.., hash, last] => is(hash, '#') && is(last, '!'),
        _ => false,
    }
}

/// Whether an attribute contains `allow(...)`, directly or inside `cfg_attr`.
fn allows(attribute: &Group) -> bool {
    if attribute.delimiter() == Delimiter::Brace {
        return false;
    }
    let tokens: Vec<TokenTree> = attribute.stream().into_iter().collect();
    tokens.windows(2).any(
        |pair| matches!(pair, [TokenTree::Ident(name), TokenTree::Group(_)] if name == "allow"),
    ) || tokens
        .iter()
        .any(|token| matches!(token, TokenTree::Group(inner) if allows(inner)))
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

    #[test]
    fn unwrap_is_found_in_code_and_macros_but_not_in_tests_comments_and_strings() {
        assert_eq!(rules("fn f() { g().unwrap(); }"), ["unwrap"]);
        assert_eq!(
            rules("fn f() { println!(\"{}\", g().unwrap()); }"),
            ["unwrap"]
        );
        assert!(rules("#[cfg(test)]\nmod tests { fn f() { g().unwrap(); } }").is_empty());
        assert!(rules("// g().unwrap()\nfn f() -> &'static str { \"g().unwrap()\" }").is_empty());
        assert!(rules("fn f() { g().unwrap_or(1); h.unwrap(2); }").is_empty());
    }

    #[test]
    fn allow_is_found_everywhere_even_in_tests() {
        assert_eq!(rules("#[allow(dead_code)]\nfn f() {}"), ["allow"]);
        assert_eq!(rules("#![allow(dead_code)]"), ["allow"]);
        assert_eq!(
            rules("#[cfg_attr(test, allow(dead_code))]\nfn f() {}"),
            ["allow"]
        );
        assert_eq!(
            rules("#[cfg(test)]\nmod tests { #[allow(dead_code)] fn f() {} }"),
            ["allow"]
        );
        assert!(rules("#[expect(dead_code, reason = \"x\")]\nfn f() { allow(1); }").is_empty());
    }
}
