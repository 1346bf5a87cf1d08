//! The shipped rules against the facts they were written from, and errors of wrong files.

use std::collections::BTreeMap;
use std::path::Path;

use muster_model::health::{Component, Finding};
use muster_model::ids::GpuUuid;
use muster_model::time::{HOUR_MS, TimeMs};

use super::*;

fn shipped() -> RuleSet {
    RuleSet::shipped().expect("the shipped rules parse")
}

/// Rows of a table of facts by their first column; `None` if the tables are not next to the repository.
#[expect(clippy::disallowed_methods, reason = "a test reads its facts")]
fn facts(name: &str) -> Option<BTreeMap<String, BTreeMap<String, String>>> {
    let above = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors();
    let paths = above.map(|folder| folder.join("shared/data/health").join(name));
    let text = paths
        .filter_map(|path| std::fs::read_to_string(path).ok())
        .next();
    let Some(text) = text else {
        let mut notice = std::io::stderr();
        let _ = std::io::Write::write_all(
            &mut notice,
            format!("skipped: there is no {name} beside the repository\n").as_bytes(),
        );
        return None;
    };
    let mut rows = csv(&text).into_iter();
    let head = rows.next()?;
    let row = |cells: Vec<String>| {
        let key = cells[0].clone();
        (key, head.iter().cloned().zip(cells).collect())
    };
    Some(rows.map(row).collect())
}

/// Cells of a table whose quoted cells may contain commas.
fn csv(text: &str) -> Vec<Vec<String>> {
    let read = |line: &str| {
        let mut cells = vec![String::new()];
        let mut inside = false;
        for letter in line.chars() {
            match letter {
                '"' => inside = !inside,
                ',' if !inside => cells.push(String::new()),
                _ => cells.last_mut().expect("there is one").push(letter),
            }
        }
        cells
    };
    text.lines().map(read).collect()
}

#[test]
fn every_rule_of_the_facts_is_shipped_with_its_block_and_its_origin() {
    let set = shipped();
    let Some(facts) = facts("health_rules.csv") else {
        return;
    };
    assert_eq!(facts.len(), 89);
    // All members of a gang report the same step, however slow one is; and only the job knows whether GPUs
    // may be idle under a task.
    let unfed = ["straggler", "util_zero"];
    assert!(unfed.iter().all(|id| set.rule(id).is_none()));
    for (id, fact) in &facts {
        if unfed.contains(&id.as_str()) {
            continue;
        }
        let rule = set.rule(id).unwrap_or_else(|| panic!("no rule {id}"));
        assert_eq!(rule.component.name(), fact["scope"], "{id}");
        assert_eq!(rule.origin.name(), fact["origin"], "{id}");
        let blocks = [rule.degraded.block.name(), rule.fatal.block.name()];
        let expected = fact["auto_block"].split(' ').next().expect("a word");
        // Where services are restarted, their host continues to work, and less is placed on it meanwhile.
        let restarts = rule.fatal.actions.contains(&Action::RestartService);
        if restarts {
            assert_eq!(blocks, ["none", "none"], "{id}");
        } else if expected != "see" {
            assert!(blocks.contains(&expected), "{id}: {blocks:?}, {expected}");
        }
    }
}

#[test]
fn every_xid_of_the_facts_has_its_policy() {
    let codes = shipped().codes;
    assert_eq!(codes.xids.len(), 173);
    let Some(facts) = facts("xid.csv") else {
        return;
    };
    for (code, fact) in &facts {
        let policy = codes
            .xid(code.parse().expect("a number"))
            .expect("a policy");
        let severity = fact["sched_severity"].trim_start_matches("by_");
        assert!(severity.starts_with(policy.severity.name()), "{code}");
        let block = fact["sched_auto_block"].as_str();
        if !block.starts_with("by_") {
            assert_eq!(policy.block.name(), block, "{code}");
        }
        let charge = fact["sched_retry_charged_to"].as_str();
        assert_eq!(
            policy.infra_if_repeated,
            charge == "infra_if_repeat",
            "{code}"
        );
        if !policy.infra_if_repeated {
            assert_eq!(policy.charge.name(), charge, "{code}");
        }
        assert_eq!(policy.sticky, fact["nvsentinel_sticky"] == "Y", "{code}");
        let unused = fact["meaning"].starts_with("Unused");
        assert_eq!(policy.unused, unused, "{code}");
    }
}

#[test]
fn every_sxid_of_the_facts_has_its_policy() {
    let codes = shipped().codes;
    assert_eq!(codes.sxids.len(), 92);
    let Some(facts) = facts("sxid.csv") else {
        return;
    };
    for (code, fact) in &facts {
        let policy = codes
            .sxid(code.parse().expect("a number"))
            .expect("a policy");
        assert_eq!(policy.severity.name(), fact["sched_severity"], "{code}");
        assert_eq!(policy.block.name(), fact["sched_auto_block"], "{code}");
        let is_port = fact["class"] == "fatal_port";
        assert_eq!(policy.reach == SxidReach::Port, is_port, "{code}");
        let is_fabric = fact["class"] == "always_fatal";
        assert_eq!(policy.reach == SxidReach::Fabric, is_fabric, "{code}");
    }
}

#[test]
fn errors_of_nvlink_5_are_read_by_the_form_of_the_driver() {
    let codes = shipped().codes;
    // `NETIR_LINK_EVT Fatal`, as a driver before release 575 writes it.
    let words = [0x0045_05c6, 0];
    let found = codes.link(149, words, Some(570)).expect("a row");
    assert_eq!(
        (found.unit.as_str(), found.then),
        ("netir_link_down", Link5Then::Reset)
    );
    assert!(found.is_fatal);
    assert_eq!(codes.link(149, words, Some(580)), None);
    assert_eq!(codes.link(149, words, None), Some(found));
    let newer = codes
        .link(145, [0b000_0100, 0x40], Some(580))
        .expect("a row");
    assert_eq!(
        (newer.unit.as_str(), newer.then),
        ("rlw_remap", Link5Then::Reset)
    );
    assert_eq!(codes.link(144, [0xffff_ffff, 1], None), None);
}

/// Sources of thresholds: published works that others can look up.
const SOURCES: &[&str] = &[
    "Azure",
    "BGP",
    "ByteRobust",
    "CockroachDB",
    "DCGM",
    "EKS",
    "IBTA",
    "Meta",
    "NHC",
    "NVIDIA",
    "NVML",
    "NVRx",
    "NVSentinel",
    "Nagios",
    "OpenPAI",
    "Slurm",
    "SuperBench",
    "gpud",
    "node problem detector",
    "the kernel's ABI",
    "systemd",
];

/// The tables of codes name their sources at their heads, and which parts are our own.
#[test]
fn every_table_of_codes_names_its_sources() {
    for (list, sources) in [
        (
            "xids",
            &["NVIDIA's catalogue", "NVSentinel", "are ours"][..],
        ),
        ("sxids", &["NVIDIA's fabric manager guide", "gpud"]),
        ("links", &["NVIDIA's XID catalogue", "NVSentinel"]),
    ] {
        let (before, _) = RuleSet::SHIPPED_TEXT
            .split_once(&format!("\n{list} = [\n"))
            .expect("it ships");
        let lines = before
            .lines()
            .rev()
            .take_while(|line| line.starts_with('#'));
        let mut comment: Vec<&str> = lines.map(|line| line.trim_start_matches("# ")).collect();
        comment.reverse();
        let head = comment.join(" ");
        for source in sources {
            assert!(head.contains(source), "{source} in `{head}`");
        }
    }
}

/// The error for a file.
fn mistake(text: &str) -> String {
    parse::file(text).err().expect(text).to_string()
}

#[test]
fn error_code_tables_are_part_of_the_rule_file_and_their_mistakes_are_named() {
    let whole = |codes: &str| format!("format = 1\n[codes]\n{codes}");
    let row = "\"79 fatal hw kill reboot host infra - - gone\"";
    let lists = |xids: &str| whole(&format!("xids = [{xids}]\nsxids = []\nlinks = []\n"));
    let shipped = shipped();
    let xid = shipped.codes.xid(79).expect("it ships");
    let mut rows = RuleSet::SHIPPED_TEXT.lines().map(str::trim);
    let row_79 = rows.find(|line| line.starts_with("\"79 "));
    let of_79 = row_79.expect("it ships").trim_end_matches(',');
    let own = RuleSet::parse(&lists(of_79)).expect("it is right");
    assert_eq!(own.codes.xids, std::slice::from_ref(xid));
    assert_eq!(RuleSet::parse_whole(&lists(of_79)), Ok(own));

    let bare = RuleSet::parse("format = 1").expect("it is right");
    assert_eq!(bare.codes, shipped.codes);
    let refused = RuleSet::parse_whole("format = 1").expect_err("it is not whole");
    assert!(refused.to_string().contains("`codes`"), "{refused}");

    let twice = lists(&format!("{of_79}, {of_79}"));
    for (text, part) in [
        (lists(row), "is not a row of this table"),
        (twice, "code 79 follows one that is not less"),
        (whole("xids = []\nsxids = []\n"), "field `links`"),
        (whole("xids = []\nxids = []\n"), "duplicate entry"),
        (whole("xid = []\n"), "write one of xids, sxids, links"),
        (whole("xids = 7\n"), "not a list"),
        (format!("{}[codes]\n", lists("")), "field `xids`"),
    ] {
        let mistake = mistake(&text);
        assert!(mistake.contains(part), "`{part}` in `{mistake}`");
    }
}

/// Clusters adopt another file only under another version: raise `SHIPPED_VERSION` with the first change
/// after a release, and write the new sum here.
#[test]
fn a_changed_shipped_file_needs_a_new_version() {
    let sum = xxhash_rust::xxh3::xxh3_64(RuleSet::SHIPPED_TEXT.as_bytes());
    assert_eq!(
        (RuleSet::SHIPPED_VERSION, sum),
        (1, 10_511_554_147_914_559_652)
    );
}

#[test]
fn proposed_figures_are_only_observed_and_every_figure_has_a_source() {
    // Our own, and in force: it restricts placement while it lasts, stops nothing, and cannot hold for most
    // hosts at once.
    const IN_FORCE: &str = "clock_skew";
    for rule in &shipped().rules {
        assert_eq!(
            rule.mode == Mode::Observe,
            rule.origin == Origin::Proposed && rule.id != IN_FORCE,
            "{}",
            rule.id
        );
        let names_one = SOURCES.iter().any(|source| rule.figure.contains(source));
        assert!(names_one, "{}: no source in `{}`", rule.id, rule.figure);
        // A rule that is partly our own says so, and others do not claim it.
        let mut words = rule.figure.split(|letter: char| !letter.is_alphabetic());
        let says_ours = words.any(|word| ["ours", "our"].contains(&word));
        let may = matches!(rule.origin, Origin::Sourced);
        assert!(!(may && says_ours), "{}: `{}`", rule.id, rule.figure);
        if rule.mode == Mode::Observe {
            assert_eq!(rule.block(Severity::Fatal), Scope::None, "{}", rule.id);
        }
    }
}

#[test]
fn a_condition_is_written_as_it_was_read() {
    for rule in &shipped().rules {
        let sides = rule
            .healthy
            .iter()
            .chain(&rule.degraded.when)
            .chain(&rule.fatal.when);
        for condition in sides {
            assert_eq!(
                Condition::parse(&condition.to_string()).as_ref(),
                Ok(condition)
            );
        }
    }
    let condition = Condition::parse("a_c >= -5, 6 of 10, on H100").expect("it is right");
    assert_eq!(condition.to_string(), "a_c >= -5, 6 of 10, on H100");
    assert!(condition.is_about("NVIDIA H100 80GB HBM3") && !condition.is_about("NVIDIA A100"));
}

const RULE: &str = r#"format = 1
[gpu_odd]
component = "gpu"
source = "nvml"
fatal = [
    "errors >= 3, 2 in 24h", # twice
    "lost = 1",
]
fatal_actions = ["kill"]
fatal_block = "gpu"
clears = "check"
charge = "infra"
evidence = "hard"
mode = "enforce"
origin = "proposed"
figure = "ours"
"#;

const FROM_COMPONENT_TO_BLOCK: &str = r#"component = "gpu"
source = "nvml"
fatal = [
    "errors >= 3, 2 in 24h", # twice
    "lost = 1",
]
fatal_actions = ["kill"]
fatal_block = "gpu""#;

#[test]
fn an_error_in_a_rules_file_names_the_line_and_the_correction() {
    assert_eq!(parse::file(RULE).expect("it is right").rules.len(), 1);
    for (from, to, message) in [
        (
            "format = 1",
            "format = 2",
            "field `format`, line 1: this build cannot read this format; write `format = 1`",
        ),
        (
            "format = 1",
            "format = 1\nfirst_wait_s = 0",
            "field `first_wait_s`, line 2: not a valid span; write seconds from 1 to 604800",
        ),
        (
            "format = 1",
            "",
            "rules: the file names no format; write `format = 1` before the first rule",
        ),
        (
            "\"gpu\"\nsource",
            "\"board\"\nsource",
            "rule `gpu_odd`, field `component`, line 3: there is no `board`; write one of gpu, nic, host, rack, task",
        ),
        (
            "clears = \"check\"\n",
            "",
            "rule `gpu_odd`, field `clears`, line 2: it is missing; write one of reading, reset, check, manual",
        ),
        (
            "errors >= 3",
            "errors => 3",
            "rule `gpu_odd`, field `fatal`, line 5: `=>` is not understood; compare with one of >, >=, <, <=, =, !=",
        ),
        (
            "errors >= 3",
            "errors >= 0.5",
            "rule `gpu_odd`, field `fatal`, line 5: `0.5` is not understood; write a whole number; parts are per mille",
        ),
        (
            "2 in 24h",
            "2 in 24 hours",
            "rule `gpu_odd`, field `fatal`, line 5: `2 in 24 hours` is not understood; write `3 in a row`, `6 \
             of 10`, `2 in 24h` or `for 60s` (s, m, h or d)",
        ),
        (
            "2 in 24h",
            "65 in a row",
            "rule `gpu_odd`, field `fatal`, line 5: `65 in a row` is not understood; count from 1 to 64 (COUNT_MAX)",
        ),
        (
            "2 in 24h",
            "for 31d",
            "rule `gpu_odd`, field `fatal`, line 5: `for 31d` is not understood; name a span of at least 1s and \
             at most 30d (SPAN_MS_MAX)",
        ),
        (
            "mode =",
            "modus =",
            "rule `gpu_odd`, field `modus`, line 14: no rule has this field; fields are component, source, \
             healthy, degraded, fatal, degraded_actions, fatal_actions, degraded_block, fatal_block, clears, \
             charge, evidence, mode, origin, figure",
        ),
        (
            "\"kill\"",
            "\"ending\"",
            "rule `gpu_odd`, field `fatal_actions`, line 9: there is no `ending`; actions are count, alert, \
             no_new_task, no_gang, no_peer_gang, check, restart_service, reset_idle, kill, reset, reboot, \
             inspect, rma, doubt_results",
        ),
        (
            "\"kill\"",
            "\"slow\"",
            "rule `gpu_odd`, field `fatal_actions`, line 9: there is no `slow`; actions are count, alert, \
             no_new_task, no_gang, no_peer_gang, check, restart_service, reset_idle, kill, reset, reboot, \
             inspect, rma, doubt_results",
        ),
        (
            "\"kill\"",
            "\"restart_service\"",
            "rule `gpu_odd`, field `fatal_actions`, line 9: services are restarted only while placement on \
             their host is restricted; add `no_gang` or `no_new_task` in a rule about hosts, and block nothing",
        ),
        (
            "component = \"gpu\"",
            "component = \"nic\"",
            "rule `gpu_odd`, field `fatal_block`, line 10: a nic has no GPU to block; block the host, or nothing",
        ),
        (
            FROM_COMPONENT_TO_BLOCK,
            "component = \"nic\"\nsource = \"nvml\"\nfatal = [\"lost = 1\"]\nfatal_actions = [\"doubt_results\"]",
            "rule `gpu_odd`, field `fatal_actions`, line 6: a nic computes no results; let a rule about GPUs \
             doubt results",
        ),
        (
            "\"lost = 1\",\n]",
            "\"lost = 1\",",
            "rule `gpu_odd`, field `fatal`, line 5: `[ \"errors >= 3, 2 in 24h\", \"lost = 1\", fatal_actions = \
             [\"kill\"]` is no value",
        ),
        (
            "figure = \"ours\"",
            "figure = \"\"",
            "rule `gpu_odd`, field `figure`, line 16: not a text of valid length; write 1 to 4096 bytes \
             (TEXT_BYTES_MAX) in quotes",
        ),
        (
            "mode = ",
            "charge = ",
            "rule `gpu_odd`, field `charge`, line 14: duplicate entry; remove one",
        ),
        (
            "[gpu_odd]",
            "[GPU odd]",
            "line 2: `[GPU odd]` is not understood; write `[rule_name]` or `field = \"text\"`, with names of \
             small letters, digits and `_`",
        ),
    ] {
        let text = RULE.replacen(from, to, 1);
        assert_ne!(text, RULE, "{from}");
        let error = mistake(&text).to_string();
        assert!(error.contains(message), "{error}\nshould be\n{message}");
    }
    let twice = format!("{RULE}{}", RULE.replacen("format = 1", "", 1));
    let error = mistake(&twice).to_string();
    assert_eq!(
        error,
        "rule `gpu_odd`, line 18: duplicate entry; rename or remove one"
    );
}

fn finding(rule: &str, metric: &str, measured: i64, hours: u64) -> Finding {
    Finding {
        sequence: hours + 1,
        rule: rule.to_owned(),
        component: Component::Gpu(GpuUuid(7)),
        severity: Severity::Fatal,
        metric: metric.to_owned(),
        measured,
        code: None,
        cluster: None,
        evidence: format!("{metric} {measured}"),
        at: TimeMs(hours * HOUR_MS),
    }
}

#[test]
fn a_dry_run_reports_what_a_new_set_adds_and_drops() {
    let old = shipped();
    let mut new = old.clone();
    let change = |set: &mut RuleSet, id: &str, edit: fn(&mut Rule)| {
        let rule = set
            .rules
            .iter_mut()
            .find(|rule| rule.id == id)
            .expect("it is there");
        edit(rule);
    };
    change(&mut new, "ecc_unc_volatile", |rule| {
        rule.fatal.when[0].value = 5
    });
    change(&mut new, "pcie_fatal", |rule| rule.mode = Mode::Enforce);
    new.rules.retain(|rule| rule.id != "raid");
    let mut xid = finding("xid", "policy", 3, 4);
    xid.code = Some(79);
    let mut over = finding("remap_failure", "failure", 0, 5);
    over.severity = Severity::Healthy;
    let history = [
        finding("ecc_unc_volatile", "errors_increase", 2, 1),
        finding("pcie_fatal", "fatal_increase", 1, 2),
        finding("raid", "failures", 1, 3),
        xid,
        over,
    ];
    let result = dry_run(&old, &new, &history);
    let would_block = |blocks: &[WouldBlock]| -> Vec<String> {
        blocks
            .iter()
            .map(|it| format!("{} {}", it.rule, it.scope))
            .collect()
    };
    assert_eq!(would_block(&result.added), ["pcie_fatal host"]);
    assert_eq!(
        would_block(&result.dropped),
        ["ecc_unc_volatile gpu", "raid host"]
    );
    assert_eq!(
        (result.kept, result.without_rule, result.findings),
        (1, 1, 5)
    );
    assert_eq!(result.since, Some(TimeMs(HOUR_MS)));
    // Workers reported values above 1, and not how far above: whether any exceeded 5 is unknown. A rule that
    // is only enforced from now on was reported.
    assert_eq!(result.not_evaluated, ["ecc_unc_volatile"]);
}

#[test]
fn a_dry_run_names_what_it_cannot_judge() {
    let old = shipped();
    assert_eq!(dry_run(&old, &old, &[]), DryRun::default());
    let mut new = old.clone();
    for rule in &mut new.rules {
        match rule.id.as_str() {
            // Stricter, sooner, of another metric; codes judge XIDs, and actions are not conditions.
            "temp_core" => rule.degraded.when[0].value = -10,
            "nvidia_dstate" => rule.fatal.when[0].hold = Hold::Once,
            "disk_free" => rule.fatal.when[0].metric = "free_mib".to_owned(),
            "xid" => rule.fatal.when[0].value = 2,
            "raid" => rule.fatal.block = Scope::HostAtTaskEnd,
            _ => {}
        }
    }
    let mut own = new.rules[0].clone();
    own.id = "zz_own".to_owned();
    own.fatal.when = vec![Condition::parse("hot >= 1").expect("it is right")];
    new.rules.push(own);
    let found = dry_run(&old, &new, &[]);
    assert_eq!(
        found.not_evaluated,
        ["disk_free", "nvidia_dstate", "temp_core", "zz_own"]
    );
    assert_eq!(found.since, None);
}

#[test]
fn a_dry_run_counts_occurrences_over_the_history() {
    let text = RULE.replacen("\"lost = 1\",", "", 1);
    let new = RuleSet::parse(&text).expect("it is right");
    let old = RuleSet {
        rules: Vec::new(),
        ..new.clone()
    };
    let apart = [
        finding("gpu_odd", "errors", 3, 0),
        finding("gpu_odd", "errors", 3, 25),
    ];
    assert_eq!(dry_run(&old, &new, &apart).added, []);
    let near = [
        finding("gpu_odd", "errors", 3, 0),
        finding("gpu_odd", "errors", 9, 23),
    ];
    let added = dry_run(&old, &new, &near).added;
    assert_eq!((added[0].at, added[0].findings), (TimeMs(23 * HOUR_MS), 1));
}

#[test]
fn the_shipped_rules_may_have_other_spans() {
    let short = RuleSet::parse(&RuleSet::shipped_text_with(3, 5)).expect("it parses");
    let spans = (
        short.recovery_limits.first_wait_ms,
        short.recovery_limits.first_probation_ms,
    );
    assert_eq!(spans, (3_000, 5_000));
    let shipped = shipped();
    assert_eq!(short.rules, shipped.rules);
    assert_eq!(
        RuleSet::shipped_text_with(900, 3_600),
        RuleSet::SHIPPED_TEXT
    );
}

mod figures;
