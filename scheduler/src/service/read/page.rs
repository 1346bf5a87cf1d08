//! Pages of lists: limits in rows and bytes, and page tokens.

use muster_proto::status;
use prost::Message;
use tonic::{Code, Status};

/// Default rows per page.
const ROWS_DEFAULT: u32 = 100;
/// Rows examined for one page, so that a selective filter cannot occupy a request for long.
pub(crate) const EXAMINED_ROWS_MAX: usize = 50_000;

/// Bytes of rows after which a page ends: half of the largest message, so that there is room for the
/// accompanying data.
const PAGE_BYTES_MAX: usize = 8 << 20;
/// Room kept free in a message for the last row of a page, a job with the longest specification, and for the
/// accompanying data.
const LAST_ROW_BYTES: usize = 2 << 20;

/// Size limit of pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Limit {
    rows: u32,
    bytes: usize,
}

impl Limit {
    /// Limit in rows, and in bytes of a message.
    pub(crate) fn new(rows: u32, message_bytes_max: usize) -> Self {
        let bytes = message_bytes_max.saturating_sub(LAST_ROW_BYTES);
        Self {
            rows,
            bytes: bytes.min(PAGE_BYTES_MAX),
        }
    }
}

/// A page that is being filled. It has at least one row, if there is any: otherwise a large row would block
/// the list.
#[derive(Debug)]
pub(crate) struct Page<Row> {
    rows_max: usize,
    bytes_max: usize,
    rows: Vec<Row>,
    bytes: usize,
}

impl<Row: Message> Page<Row> {
    /// A page of the requested number of rows, within the limit.
    pub(crate) fn new(given: u32, limit: Limit) -> Self {
        let rows = if given == 0 { ROWS_DEFAULT } else { given };
        Self {
            rows_max: usize::try_from(rows.min(limit.rows)).unwrap_or(usize::MAX),
            bytes_max: limit.bytes,
            rows: Vec::new(),
            bytes: 0,
        }
    }

    /// Reserves room for data that accompanies the rows.
    pub(crate) fn reserving(mut self, other: &impl Message) -> Self {
        self.bytes = other.encoded_len();
        self
    }

    /// Whether the next row belongs to the next page.
    pub(crate) fn is_full(&self) -> bool {
        let is_long = !self.rows.is_empty() && self.bytes >= self.bytes_max;
        is_long || self.rows.len() >= self.rows_max
    }

    /// Adds a row.
    pub(crate) fn add(&mut self, row: Row) {
        self.bytes = self.bytes.saturating_add(row.encoded_len());
        self.rows.push(row);
    }

    /// Fills the page; what is left in `sources` is for the next one.
    pub(crate) fn fill<Source>(
        mut self,
        sources: &mut impl Iterator<Item = Source>,
        show: impl Fn(Source) -> Row,
    ) -> Vec<Row> {
        while !self.is_full() {
            let Some(source) = sources.next() else { break };
            self.add(show(source));
        }
        self.rows
    }

    /// The rows of the page.
    pub(crate) fn into_rows(self) -> Vec<Row> {
        self.rows
    }
}

/// Parses the numbers of a token; `None` for an empty one.
pub(crate) fn parse<const PARTS: usize>(
    field: &str,
    token: &str,
) -> Result<Option<[u64; PARTS]>, Status> {
    if token.is_empty() {
        return Ok(None);
    }
    let mut numbers = [0; PARTS];
    let mut parts = token.split('.');
    for number in &mut numbers {
        let part = parts.next().and_then(|part| part.parse().ok());
        *number = part.ok_or_else(|| damaged(field, token))?;
    }
    match parts.next() {
        None => Ok(Some(numbers)),
        Some(_) => Err(damaged(field, token)),
    }
}

/// Error for an invalid page token.
pub(crate) fn damaged(field: &str, token: &str) -> Status {
    let shown: String = token.chars().take(64).collect();
    status::error(
        Code::InvalidArgument,
        "INVALID_REQUEST",
        &format!("{field}: `{shown}` is not a valid page token"),
        &[("field", field.to_owned())],
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_numbers_with_dots() {
        assert_eq!(parse::<2>("page_token", "").ok(), Some(None));
        assert_eq!(parse::<2>("page_token", "7.3").ok(), Some(Some([7, 3])));
        for token in ["7", "7.x", "7.3.1", "-1.2"] {
            assert!(parse::<2>("page_token", token).is_err(), "{token}");
        }
    }

    /// The rows of one page; what is left is for the next.
    fn filled(given: u32, limit: Limit, rows: &mut impl Iterator<Item = usize>) -> Vec<usize> {
        let page: Page<Vec<u8>> = Page::new(given, limit);
        let shown = page.fill(rows, |bytes| vec![0; bytes]);
        shown.iter().map(Vec::len).collect()
    }

    #[test]
    fn pages_have_a_default_and_a_limit() {
        let limit = Limit::new(1_000, usize::MAX);
        let rows = |given| filled(given, limit, &mut std::iter::repeat_n(1, 2_000)).len();
        assert_eq!(rows(0), 100);
        assert_eq!(rows(7), 7);
        assert_eq!(rows(u32::MAX), 1_000);
    }

    #[test]
    fn a_page_ends_with_the_row_that_exceeds_its_limit() {
        let limit = Limit::new(1_000, LAST_ROW_BYTES + 100);
        let mut rows = [60, 60, 500, 1, 1].into_iter();
        let mut page = || filled(0, limit, &mut rows);
        assert_eq!(page(), [60, 60]);
        assert_eq!(page(), [500]);
        assert_eq!(page(), [1, 1]);
        assert!(page().is_empty());
        // Accompanying data counts, and a message without room for two rows has room for one.
        let page: Page<Vec<u8>> = Page::new(0, limit).reserving(&vec![0u8; 90]);
        let shown = page.fill(&mut [60, 60].into_iter(), |bytes| vec![0; bytes]);
        assert_eq!(shown.len(), 1);
        let tight = Limit::new(1_000, 1);
        assert_eq!(filled(0, tight, &mut [7, 7].into_iter()), [7]);
    }
}
