//! Truncation of untrusted texts before they are repeated.

use std::borrow::Cow;

/// Returns the text, truncated at a character boundary with an ellipsis if it is longer than `bytes_max`.
pub(crate) fn clip(text: &str, bytes_max: usize) -> Cow<'_, str> {
    const ELLIPSIS: char = '…';
    if text.len() <= bytes_max {
        return Cow::Borrowed(text);
    }
    let room = bytes_max.saturating_sub(ELLIPSIS.len_utf8());
    let end = text.floor_char_boundary(room);
    Cow::Owned(format!("{}{ELLIPSIS}", &text[..end]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_text_is_cut_between_characters() {
        assert_eq!(clip("short", 5), "short");
        assert_eq!(clip("ééééé", 8), "éé…");
        assert!(clip(&"é".repeat(1_000), 101).len() <= 101);
    }
}
