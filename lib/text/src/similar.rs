//! Names similar to one that is unknown or misspelt.

/// Similarity (0 to 1) from which a name is suggested in place of another.
const LIKENESS_MIN: f64 = 0.75;
/// Similarity to a keyword from which a word counts as misspelt, where arbitrary words are allowed.
const MISSPELT_MIN: f64 = 0.9;

/// The most similar name, if any is similar. In a dotted name the last part is also compared by itself, so
/// that an option in the wrong table is found.
pub fn nearest<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    most_similar(known, LIKENESS_MIN, |candidate| {
        let whole = strsim::jaro_winkler(name, candidate);
        whole.max(strsim::jaro_winkler(last(name), last(candidate)) + whole / 100.0)
    })
}

/// The keyword that a word nearly matches, ignoring case: `submitter` for `submiter`. None for an exact or
/// no match.
pub fn misspelt<'a>(word: &str, keywords: &[&'a str]) -> Option<&'a str> {
    let small = word.to_lowercase();
    let likeness = |keyword: &str| strsim::jaro_winkler(&small, keyword);
    let keyword = most_similar(keywords.iter().copied(), MISSPELT_MIN, likeness);
    keyword.filter(|keyword| word != *keyword)
}

fn most_similar<'a>(
    known: impl IntoIterator<Item = &'a str>,
    likeness_min: f64,
    likeness: impl Fn(&str) -> f64,
) -> Option<&'a str> {
    let rated = known.into_iter().map(|name| (likeness(name), name));
    let best = rated.max_by(|(left, _), (right, _)| left.total_cmp(right));
    best.filter(|(likeness, _)| *likeness >= likeness_min)
        .map(|(_, name)| name)
}

fn last(name: &str) -> &str {
    name.rsplit('.').next().unwrap_or(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_name_is_compared_as_a_whole_and_by_its_last_part() {
        let known = ["listen", "metrics.listen", "tls.key"];
        assert_eq!(nearest("lisen", known), Some("listen"));
        assert_eq!(nearest("metric.listen", known), Some("metrics.listen"));
        assert_eq!(nearest("audit.key", known), Some("tls.key"));
        assert_eq!(nearest("quota", known), None);
        assert_eq!(nearest("a", []), None);
    }

    #[test]
    fn misspelt_keywords_are_distinguished_from_other_words() {
        let keywords = ["auto", "submitter", "agent"];
        for (word, keyword) in [
            ("submiter", Some("submitter")),
            ("sumbitter", Some("submitter")),
            ("Submitter", Some("submitter")),
            ("agents", Some("agent")),
            ("atuo", Some("auto")),
            ("auto", None),
            ("muster", None),
            ("nobody", None),
            ("alice", None),
            ("", None),
        ] {
            assert_eq!(misspelt(word, &keywords), keyword, "{word}");
        }
    }
}
