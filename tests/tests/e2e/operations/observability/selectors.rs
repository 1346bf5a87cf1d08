//! Selectors of a PromQL expression, one by one.

use std::collections::BTreeSet;

/// Prefixes of series whose names have no label in the expressions that use them.
const PREFIXES: [&str; 3] = ["muster_", "DCGM_", "process_"];

/// The selectors of an expression, each with its label matchers, without ranges and offsets.
pub(super) fn selectors_of(expression: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let mut rest = expression;
    while let Some(at) = rest.find(is_word) {
        if let Some(quote) = rest[..at].find(['"', '\'']) {
            rest = behind_text(&rest[quote..]);
            continue;
        }
        rest = &rest[at..];
        let word = &rest[..rest.find(|it| !is_word(it)).unwrap_or(rest.len())];
        rest = &rest[word.len()..];
        let matchers = if rest.starts_with('{') {
            braces(rest)
        } else {
            ""
        };
        rest = &rest[matchers.len()..];
        if !matchers.is_empty() || PREFIXES.iter().any(|prefix| word.starts_with(prefix)) {
            found.insert(format!("{word}{matchers}"));
        }
    }
    found
}

fn is_word(character: char) -> bool {
    character.is_ascii_alphanumeric() || character == '_' || character == ':'
}

/// The rest of an expression after the quoted text that it begins with.
fn behind_text(expression: &str) -> &str {
    let (quote, rest) = expression.split_at(1);
    let end = rest.find(quote).expect("it has an end");
    &rest[end + 1..]
}

/// The braces that an expression begins with, including their content.
fn braces(expression: &str) -> &str {
    let mut end = 0;
    while !expression[end..].starts_with('}') {
        end += if expression[end..].starts_with('"') {
            expression[end..].len() - behind_text(&expression[end..]).len()
        } else {
            1
        };
    }
    &expression[..=end]
}

#[test]
fn selectors_keep_their_matchers_and_lose_everything_else() {
    let of = |expression| -> Vec<String> { selectors_of(expression).into_iter().collect() };
    assert_eq!(
        of(
            r#"sum by (muster) (rate(muster_a_total{x=~"}|b", y="c"}[5m] offset 1m)) > 2 * up{job="z"}"#
        ),
        [r#"muster_a_total{x=~"}|b", y="c"}"#, r#"up{job="z"}"#]
    );
    assert_eq!(
        of(r#"label_replace(muster_a == 1, "muster_b", "$1", "x", "(.*)") and on (host) muster_c"#),
        ["muster_a", "muster_c"]
    );
    assert_eq!(of("absent(vector(0))"), [] as [String; 0]);
}
