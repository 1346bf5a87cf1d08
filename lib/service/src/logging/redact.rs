//! Redaction of secrets in texts that go into a bug report.
//!
//! Muster writes no secret into a log or a setting. This is the second line of defence: for output of other
//! programs, or user-defined labels.

use serde_json::Value;

/// Placeholder of redacted text.
pub const REDACTED: &str = "[redacted]";

/// Prefix of a user's token.
const TOKEN: &str = "muster:";
/// Authentication schemes that precede a credential in headers.
const SCHEMES: [&str; 3] = ["bearer ", "basic ", "token "];
/// First and last line of a private key.
const KEY_BEGINS: &str = "-----BEGIN ";
const KEY_ENDS: &str = "-----END ";
/// Parts of names of secrets.
const NAMES: [&str; 8] = [
    "password",
    "passwd",
    "secret",
    "token",
    "api_key",
    "apikey",
    "credential",
    "private_key",
];
/// Suffixes of names that only denote a location or a limit.
const PLACES: [&str; 9] = [
    "_file", "_dir", "_path", "_max", "_ms", "_hash", "_seconds", "_total", "_bytes",
];

/// Redacts tokens, keys, credentials in addresses, and values whose name denotes a secret.
#[must_use]
pub fn redact(text: &str) -> String {
    let text = without_keys(text);
    let text = without_schemes(&text);
    let text = without_credentials(&text);
    let text = without_tokens(&text);
    without_assignments(&text)
}

/// Redacts every string in a document, and every value whose name denotes a secret.
#[must_use]
pub fn redact_value(value: Value) -> Value {
    match value {
        Value::String(text) => Value::String(redact(&text)),
        Value::Array(items) => items.into_iter().map(redact_value).collect(),
        Value::Object(fields) => {
            let fields = fields.into_iter().map(|(name, value)| {
                let value = match value {
                    Value::String(text) if !text.is_empty() && is_secret(&name) => REDACTED.into(),
                    value => redact_value(value),
                };
                (name, value)
            });
            Value::Object(fields.collect())
        }
        other => other,
    }
}

fn is_secret(name: &str) -> bool {
    let name = name.to_ascii_lowercase().replace('-', "_");
    let has_secret_part = NAMES.iter().any(|part| name.contains(part));
    has_secret_part && !PLACES.iter().any(|ending| name.ends_with(ending))
}

fn is_word(character: char) -> bool {
    character.is_ascii_alphanumeric() || "-_".contains(character)
}

/// Whether the character may be part of a credential.
fn is_credential(character: char) -> bool {
    character.is_ascii_alphanumeric() || "-_.~+/=:@".contains(character)
}

/// Replaces every range (begin, end) that `found` returns from a position on.
fn replace(text: &str, found: impl Fn(&str, usize) -> Option<(usize, usize)>) -> String {
    let (mut clean, mut at) = (String::with_capacity(text.len()), 0);
    while let Some((begin, end)) = found(text, at) {
        clean.push_str(&text[at..begin]);
        clean.push_str(REDACTED);
        at = end;
    }
    clean.push_str(&text[at..]);
    clean
}

/// Redacts PEM blocks; public ones are redacted too, which does no harm.
fn without_keys(text: &str) -> String {
    replace(text, |text, from| {
        let begin = from + text[from..].find(KEY_BEGINS)?;
        let body = begin + KEY_BEGINS.len();
        let last = text[body..]
            .find(KEY_ENDS)
            .map(|at| body + at + KEY_ENDS.len());
        let end = last.map_or(text.len(), |last| {
            text[last..]
                .find("-----")
                .map_or(text.len(), |at| last + at + 5)
        });
        Some((begin, end))
    })
}

/// `Bearer ...`.
fn without_schemes(text: &str) -> String {
    let lower = text.to_ascii_lowercase();
    replace(text, |text, from| {
        let mut begins: Vec<usize> = SCHEMES
            .iter()
            .flat_map(|scheme| {
                let found = lower[from..].match_indices(scheme);
                found.map(|(at, _)| from + at + scheme.len())
            })
            .collect();
        begins.sort_unstable();
        begins.into_iter().find_map(|begin| {
            let end = end_of(text, begin, is_credential);
            // An ordinary word is not a credential.
            (end - begin >= 16).then_some((begin, end))
        })
    })
}

/// `//user:password@host`.
fn without_credentials(text: &str) -> String {
    replace(text, |text, from| {
        text[from..].match_indices("//").find_map(|(at, _)| {
            let begin = from + at + 2;
            let is_part =
                |character: char| !character.is_whitespace() && !"/@\"'<>".contains(character);
            let end = end_of(text, begin, is_part);
            let has_some = text[end..].starts_with('@') && text[begin..end].contains(':');
            has_some.then_some((begin, end))
        })
    })
}

/// `muster:NAME:SECRET`.
fn without_tokens(text: &str) -> String {
    replace(text, |text, from| {
        text[from..].match_indices(TOKEN).find_map(|(at, _)| {
            let begin = from + at;
            let name = begin + TOKEN.len();
            let end = end_of(text, name, is_credential);
            text[name..end].contains(':').then_some((begin, end))
        })
    })
}

/// `PASSWORD=...`, `"token": "..."`, `--secret ...`.
fn without_assignments(text: &str) -> String {
    let (mut clean, mut at) = (String::with_capacity(text.len()), 0);
    while at < text.len() {
        let word = at + text[at..].find(is_word).unwrap_or(text.len() - at);
        let end = end_of(text, word, is_word);
        clean.push_str(&text[at..end]);
        at = end;
        if is_secret(&text[word..end])
            && let Some((begin, stop)) = value_after(text, end)
        {
            clean.push_str(&text[end..begin]);
            clean.push_str(REDACTED);
            at = stop;
        }
    }
    clean
}

/// Range of the value assigned after a name.
fn value_after(text: &str, name_end: usize) -> Option<(usize, usize)> {
    let quote = |character: char| "\"'\\".contains(character);
    let at = end_of(text, name_end, quote);
    let blank = |character: char| character == ' ';
    let sign = end_of(text, at, blank);
    let sign_end = text[sign..].starts_with(['=', ':']).then_some(sign + 1)?;
    let begin = end_of(text, end_of(text, sign_end, blank), quote);
    let is_quoted = text[..begin].ends_with(['"', '\'']);
    let end = end_of(text, begin, |character| {
        if is_quoted {
            !"\"'\\".contains(character)
        } else {
            !character.is_whitespace() && !",;\"'}".contains(character)
        }
    });
    (end > begin).then_some((begin, end))
}

/// End of the range from `from` in which every character satisfies `holds`.
fn end_of(text: &str, from: usize, holds: impl Fn(char) -> bool) -> usize {
    text[from..]
        .find(|character| !holds(character))
        .map_or(text.len(), |at| from + at)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn secrets_in_texts_are_redacted() {
        let cases = [
            (
                "muster:ada:Zm9vYmFyYmF6cXV4Zm9vYmFy leaked",
                "[redacted] leaked",
            ),
            (
                "authorization: Bearer abcdefghijklmnopqrst, next",
                "authorization: Bearer [redacted], next",
            ),
            (
                "http://user:pa55@etcd:2379/x",
                "http://[redacted]@etcd:2379/x",
            ),
            (
                "DB_PASSWORD=hunter2 DEBUG=1",
                "DB_PASSWORD=[redacted] DEBUG=1",
            ),
            (
                r#"{"api_key": "hunter 2", "level": "INFO"}"#,
                r#"{"api_key": "[redacted]", "level": "INFO"}"#,
            ),
            (
                r#"said \"token\": \"hunter2\" twice"#,
                r#"said \"token\": \"[redacted]\" twice"#,
            ),
            (
                "a -----BEGIN PRIVATE KEY-----\nMIG\n-----END PRIVATE KEY----- b",
                "a [redacted] b",
            ),
            ("-----BEGIN EC PRIVATE KEY-----\nMIG", "[redacted]"),
        ];
        for (text, clean) in cases {
            assert_eq!(redact(text), clean);
        }
    }

    #[test]
    fn text_without_secrets_is_unchanged() {
        let texts = [
            "invalid or revoked user token; ask an admin for a new one",
            "token_file = /etc/muster/token",
            "secrets_dir=/etc/muster/secrets",
            "muster_tls_reloads_total{result=\"ok\"} 3",
            "muster: a scheduler; fencing token 17",
            "see http://host:4317/v1 and http://127.0.0.1:7400",
            "basic settings are fine, bearer of news",
            "ünïcödé token",
        ];
        for text in texts {
            assert_eq!(redact(text), text);
        }
    }

    #[test]
    fn secrets_in_documents_are_redacted() {
        let document = json!({
            "registry_auth_file": "/etc/auth.json",
            "password": "hunter2",
            "labels": {"access-token": "hunter2", "rack": "r1"},
            "commands": ["curl", "-H", "Authorization: Bearer abcdefghijklmnopqrst"],
            "secrets": 3,
        });
        assert_eq!(
            redact_value(document),
            json!({
                "registry_auth_file": "/etc/auth.json",
                "password": "[redacted]",
                "labels": {"access-token": "[redacted]", "rack": "r1"},
                "commands": ["curl", "-H", "Authorization: Bearer [redacted]"],
                "secrets": 3,
            })
        );
    }
}
