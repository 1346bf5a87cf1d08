//! Errors of invalid scripts: line, column and the allowed syntax.

use muster_simulate::scenario::{Failure, NoFiles, Script, run};

fn complaint(text: &str) -> String {
    match Script::parse(text, &NoFiles) {
        Ok(_) => "none".to_owned(),
        Err(error) => error.to_string(),
    }
}

#[test]
fn unknown_statements_and_options() {
    let unknown = complaint("hosts 1\n  sumbit a");
    assert!(
        unknown
            .starts_with("line 2, column 3: unknown statement `sumbit`; allowed: levels, hosts,"),
        "{unknown}"
    );
    let option = complaint("hosts 2 gpu=8");
    assert!(
        option.starts_with("line 1, column 9: `gpu=` is not allowed here; allowed: hosts COUNT"),
        "{option}"
    );
}

#[test]
fn errors_name_missing_and_invalid_values() {
    let missing = complaint("submit");
    assert!(
        missing
            .starts_with("line 1, column 7: the job's name is missing here; allowed: submit JOB"),
        "{missing}"
    );
    let wrong = complaint("hosts 1\nadvance 5");
    assert!(
        wrong.starts_with("line 2, column 9: invalid `5`: expected a duration"),
        "{wrong}"
    );
    let number = complaint("submit a gpus=many");
    assert!(
        number.starts_with("line 1, column 10: invalid `gpus=many`: expected a whole number"),
        "{number}"
    );
}

#[test]
fn errors_in_documents_and_blocks_have_their_position() {
    let field = complaint("hosts 1\nqueues\n  queues:\n    a: {weigth: 2}");
    assert!(field.starts_with("line 4, column "), "{field}");
    assert!(field.contains("weigth"), "{field}");
    assert!(
        !field.contains("at line"),
        "the position is given once: {field}"
    );
    let document = "queues\n  queues:\n    a: {weight: 2}\n> queue a: 0 GPUs\n";
    for indented in ["submit a", "# of a"] {
        let inside = complaint(&format!("{document}\n  {indented}"));
        assert!(
            inside.starts_with("line 6, column 1: an indented line below a document"),
            "{inside}"
        );
    }
    assert_eq!(complaint(&format!("{document}\nsubmit a")), "none");
    let open = complaint("repeat 3\nsubmit a");
    assert!(
        open.starts_with("line 1, column 8: its `end` is missing"),
        "{open}"
    );
    let early = complaint("> a: running");
    assert!(early.starts_with("line 1, column 1: a result"), "{early}");
}

#[test]
fn a_run_reports_each_difference_with_its_line() {
    let text = "hosts 1 gpus=4\nsubmit a gpus=2\n> a: running on n1[2-3]\nexpect waiting a\n";
    let script = Script::parse(text, &NoFiles).expect("the script is well formed");
    let failures = run(&script).failures;
    let shown: Vec<String> = failures.iter().map(ToString::to_string).collect();
    assert_eq!(
        shown,
        [
            "line 4: expected a waiting, found a: running on n1[0-1]".to_owned(),
            "line 2: the result differs from the recorded one:\n  - a: running on n1[2-3]\n  + a: \
             running on n1[0-1]"
                .to_owned(),
        ]
    );
    assert!(matches!(failures[1].failure, Failure::Recorded(_)));
}
