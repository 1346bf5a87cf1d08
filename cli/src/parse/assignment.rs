//! `NAME=VALUE`, as in `--env` and `--label`.

/// Splits `NAME=VALUE`; the value may be empty and may contain further `=`.
pub(crate) fn assignment(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
        _ => Err(format!("`{text}` is not NAME=VALUE")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_first_equals_sign_splits() {
        assert_eq!(assignment("A=b=c"), Ok(("A".to_owned(), "b=c".to_owned())));
        assert_eq!(assignment("A="), Ok(("A".to_owned(), String::new())));
    }

    #[test]
    fn a_text_without_a_name_is_refused() {
        for text in ["", "=b", "A"] {
            assert_eq!(assignment(text), Err(format!("`{text}` is not NAME=VALUE")));
        }
    }
}
