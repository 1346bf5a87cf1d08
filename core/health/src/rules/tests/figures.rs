//! Thresholds of rules that the state itself evaluates: parsing and rejection.

use muster_model::time::{DAY_MS, MINUTE_MS, SECOND_MS};

use super::*;

fn often(times: u32, span_ms: u64) -> Option<Frequency> {
    Some(Frequency { times, span_ms })
}

#[test]
fn the_shipped_file_has_the_expected_figures() {
    let set = shipped();
    for (id, expected) in [
        (XID_REPEAT, often(5, DAY_MS)),
        (XID_31, often(2, DAY_MS)),
        (XID_13, often(2, DAY_MS)),
        (REMEDIATIONS, often(5, 7 * DAY_MS)),
        (HISTORY, often(2, DAY_MS)),
        (FLAPPING, often(3, 10 * MINUTE_MS)),
        ("xid", None),
    ] {
        assert_eq!(set.often(id), expected, "{id}");
        assert_eq!(
            Some(set.often_or_usual(id)),
            expected.or(often(u32::MAX, 0))
        );
    }
    assert_eq!(set.lemon_milli(), 3_000);
    assert_eq!(set.rails, RailsLimits::default());
    let RecoveryLimits {
        repairs_max,
        repairs_span_ms,
        reboots_max,
        reboots_span_ms,
        ..
    } = set.recovery_limits;
    assert_eq!((repairs_max, repairs_span_ms), (5, 7 * DAY_MS));
    assert_eq!((reboots_max, reboots_span_ms), (2, 3 * DAY_MS));
}

/// Also in the form of older files: without a span, the default applies.
#[test]
fn a_site_may_change_the_figures_of_a_rule() {
    let of = |id: &str, from: &str, to: &str| RuleSet::edited(id, from, to).often(id);
    let bursts = "bursts >= 1, 5 in 24h";
    assert_eq!(
        of(XID_REPEAT, bursts, "bursts >= 1, 3 in 12h"),
        often(3, DAY_MS / 2)
    );
    assert_eq!(of(XID_REPEAT, bursts, "bursts >= 7"), often(7, DAY_MS));
    assert_eq!(of(XID_REPEAT, bursts, "bursts > 7"), often(8, DAY_MS));
    let counted = format!("fatal = [\"{bursts}\"]");
    let as_before =
        "fatal = [\"bursts >= 4\"]\ndegraded = [\"bursts >= 1\"]\ndegraded_actions = [\"count\"]";
    assert_eq!(of(XID_REPEAT, &counted, as_before), often(4, DAY_MS));
    let score = RuleSet::edited(LEMON, "score_milli >= 3000", "score_milli > 4500");
    assert_eq!(score.lemon_milli(), 4_501);
    let repairs = |from: &str, to: &str| {
        let recovery_limits = RuleSet::edited(REMEDIATIONS, from, to).recovery_limits;
        (recovery_limits.repairs_max, recovery_limits.repairs_span_ms)
    };
    assert_eq!(repairs("5 in 7d", "3 in 2d"), (3, 2 * DAY_MS));
    assert_eq!(repairs("\"enforce\"", "\"observe\"").0, u32::MAX);
    let text = RuleSet::SHIPPED_TEXT
        .replace("reboots_max = 2", "reboots_max = 4")
        .replace("reboots_span_s = 259200", "reboots_span_s = 60");
    let recovery_limits = RuleSet::parse(&text).expect("it parses").recovery_limits;
    assert_eq!(
        (recovery_limits.reboots_max, recovery_limits.reboots_span_ms),
        (4, 60 * SECOND_MS)
    );
}

#[test]
fn conditions_that_the_state_cannot_count_are_rejected_with_a_suggestion() {
    for (id, from, to, message) in [
        (
            XID_REPEAT,
            "bursts >= 1, 5 in 24h",
            "bursts >= 1, 5 in 8d",
            "rule `xid_repeat`, field `fatal`, line LINE: the state itself counts for this rule, and not \
             `bursts >= 1, 5 in 8d`; write `bursts >= 1, 5 in 1d`, with 1 to 64 times in at most 7d",
        ),
        (
            XID_31,
            "bursts >= 1, 2 in 24h",
            "bursts = 2",
            "not `bursts = 2`; write `bursts >= 1, 2 in 1d`",
        ),
        (
            XID_13,
            "bursts >= 1, 2 in 24h",
            "faults >= 2",
            "not `faults >= 2`",
        ),
        (
            HISTORY,
            "failures >= 1, 2 in 24h",
            "failures >= 1, 2 in 2d",
            "with 1 to 64 times in at most 1d",
        ),
        (
            HISTORY,
            "failures >= 1, 2 in 24h",
            "failures >= 2, 3 in a row",
            "not `failures >= 2, 3 in a row`",
        ),
        (
            REMEDIATIONS,
            "repairs >= 1, 5 in 7d",
            "repairs >= 17",
            "with 1 to 16 times in at most 30d",
        ),
        (
            LEMON,
            "score_milli >= 3000",
            "score_milli >= 3000, 2 in 24h",
            "write `score_milli >= NUMBER`, and nothing else",
        ),
        (
            FLAPPING,
            "degraded = [\"silences >= 1, 3 in 10m\"]",
            "degraded = [\"silences >= 1, 3 in 10m\", \"silences >= 9\"]",
            "field `degraded`, line LINE: the state itself counts for this rule, by one condition",
        ),
        (
            FLAPPING,
            "degraded_actions",
            "fatal = [\"silences >= 9\"]\nfatal_block = \"host\"\ndegraded_actions",
            "field `fatal`, line LINE: only `degraded` has an effect in this rule; remove it, and let \
             `degraded` say when",
        ),
        (
            XID_REPEAT,
            "fatal_actions",
            "degraded = [\"bursts >= 3\"]\nfatal_actions",
            "only `fatal` has an effect in this rule",
        ),
        (
            LEMON,
            "fatal_actions",
            "healthy = [\"score_milli < 10\"]\nfatal_actions",
            "field `healthy`, line LINE: the state itself knows when this rule is over; remove it",
        ),
    ] {
        let text = RuleSet::edited_text(id, from, to);
        let error = RuleSet::parse(&text).expect_err(to);
        let message = message.replace("LINE", &error.line.to_string());
        assert!(
            error.to_string().contains(&message),
            "{error}\nshould be\n{message}"
        );
    }
}

#[test]
fn the_file_sets_the_guard_rails() {
    let of = |from: &str, to: &str| {
        RuleSet::parse(&RuleSet::edited_text("rails", from, to)).map(|set| set.rails)
    };
    let limits = of("soft_hour_permille = 50", "soft_hour_permille = 80");
    assert_eq!(limits.expect("it is right").soft_hour_permille, 80);
    let limits = of("breaker_s = 1800", "breaker_s = 60");
    assert_eq!(limits.expect("it is right").breaker_ms, MINUTE_MS);
    for (from, to, message) in [
        (
            "per_job = 2",
            "per_job = 65",
            "field `per_job`, line LINE: not a number in range; write a whole number from 0 to 64",
        ),
        ("hard_permille = 200", "hard_permille = 0", "from 1 to 1000"),
        (
            "breaker_s = 1800",
            "breaker_s = 0",
            "not a valid span; write seconds from 1 to 604800",
        ),
        (
            "users_min",
            "user_min",
            "rule `rails`, field `user_min`, line LINE: no such rail exists; they are soft_hour_permille, ",
        ),
        ("per_tenant", "per_job", "duplicate entry"),
    ] {
        let error = of(from, to).expect_err(to);
        let message = message.replace("LINE", &error.line.to_string());
        assert!(
            error.to_string().contains(&message),
            "{error}\nshould be\n{message}"
        );
    }
    let twice = format!("{}[rails]\n", RuleSet::SHIPPED_TEXT);
    let error = RuleSet::parse(&twice).expect_err("twice").to_string();
    assert!(
        error.contains("rule `rails`") && error.contains("duplicate entry"),
        "{error}"
    );
    let (before, after) = RuleSet::SHIPPED_TEXT
        .split_once("[rails]\n")
        .expect("it ships");
    let (_, rules) = after.split_once("\n[").expect("rules follow");
    let without = RuleSet::parse(&format!("{before}[{rules}")).expect("it parses");
    assert_eq!(without.rails, RailsLimits::default());
}

/// Fatal XIDs are counted again; findings do not name the affected users, and a dry run has no guard rails.
#[test]
fn a_dry_run_counts_by_the_new_figures_and_names_what_it_cannot() {
    let history: Vec<Finding> = [(0, 46), (2, 48), (4, 62)]
        .map(|(hours, code)| {
            let mut xid = finding("xid", "policy", 3, hours);
            xid.code = Some(code);
            xid
        })
        .into();
    let old = shipped();
    assert_eq!(dry_run(&old, &old, &history).added, []);
    let sooner = RuleSet::edited(XID_REPEAT, "5 in 24h", "3 in 24h");
    let found = dry_run(&old, &sooner, &history);
    let [block] = &found.added[..] else {
        panic!("{found:?}")
    };
    assert_eq!((block.rule.as_str(), block.scope), (XID_REPEAT, Scope::Gpu));
    assert_eq!(block.at, TimeMs(4 * HOUR_MS));
    assert_eq!(block.evidence, "3 bursts of fatal XIDs within 24 h");
    assert_eq!(found.not_evaluated, Vec::<String>::new());
    let shorter = RuleSet::edited(XID_REPEAT, "5 in 24h", "3 in 3h");
    assert_eq!(dry_run(&old, &shorter, &history).added, []);
    let other = RuleSet::edited(XID_31, "2 in 24h", "3 in 24h");
    assert_eq!(dry_run(&old, &other, &history).not_evaluated, [XID_31]);
    let other = RuleSet::edited("rails", "per_job = 2", "per_job = 1");
    assert_eq!(dry_run(&old, &other, &history).not_evaluated, ["rails"]);
}
