//! Tests of exec sessions, relayed by a real agent between a test leader and a real supervisor.

use muster_model::desired::TaskAssignment;
use muster_model::heartbeat::WorkerTaskPhase;
use muster_proto::v1;
use muster_proto::v1::exec_request::Kind as RequestKind;
use muster_proto::v1::exec_response::Kind as ResponseKind;
use muster_proto::v1::leader_message::Kind as LeaderKind;

use crate::agent::Host;
use crate::support::leader::Leader;
use crate::support::{eventually, is_gone, script};

const WINDOW: v1::WindowSize = v1::WindowSize {
    columns: 91,
    rows: 17,
};

fn order(task: &TaskAssignment, token: &str, text: &str, with_terminal: bool) -> LeaderKind {
    LeaderKind::Exec(v1::ExecOrder {
        token: token.to_owned(),
        epoch: task.epoch.get(),
        open: Some(v1::ExecOpen {
            job_id: task.key.job.get(),
            task: task.key.task.get(),
            author: "ada".to_owned(),
            command: ["sh", "-c", text].map(str::to_owned).to_vec(),
            window: with_terminal.then_some(WINDOW),
            terminal: "dumb".to_owned(),
            by_admin: false,
        }),
    })
}

/// Messages of a command: its outputs, and its last message.
async fn outcome(leader: &Leader, token: &str) -> (String, String, ResponseKind) {
    let all = leader
        .eventually("the command's end", |inner| {
            let (_, responses) = inner.execs.get(token)?;
            let is_over = matches!(
                responses.last(),
                Some(ResponseKind::End(_) | ResponseKind::Refused(_))
            );
            is_over.then(|| responses.clone())
        })
        .await;
    let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
    for kind in &all {
        match kind {
            ResponseKind::Stdout(bytes) => stdout.extend_from_slice(bytes),
            ResponseKind::Stderr(bytes) => stderr.extend_from_slice(bytes),
            _ => {}
        }
    }
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (text(stdout), text(stderr), all.last().cloned().unwrap())
}

async fn send_input(leader: &Leader, token: &str, kind: RequestKind) {
    let input = leader
        .eventually("the call", |inner| inner.execs.get(token)?.0.clone())
        .await;
    let message = v1::ExecRequest { kind: Some(kind) };
    input.send(Ok(message)).await.unwrap();
}

const fn ended(code: i32) -> ResponseKind {
    ResponseKind::End(v1::ExecEnd {
        code: Some(code),
        signal: None,
        lost: None,
    })
}

async fn running(leader: &Leader, task: &TaskAssignment) {
    leader.want([task.clone()]);
    leader
        .eventually_task("running", |task| {
            (task.phase == WorkerTaskPhase::Running).then_some(())
        })
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_is_carried_with_its_input_its_outputs_and_its_exit_code() {
    let leader = Leader::start(3).await;
    let _host = Host::start(&[&leader]);
    let task = script("echo mine > file; sleep 1000");
    running(&leader, &task).await;
    let text = "cat; cat file; echo bad >&2; exit 9";
    leader.send(order(&task, "piped", text, false));
    send_input(&leader, "piped", RequestKind::Input("typed\n".into())).await;
    send_input(&leader, "piped", RequestKind::InputEnd(v1::ExecInputEnd {})).await;
    let (stdout, stderr, end) = outcome(&leader, "piped").await;
    assert_eq!(
        (stdout.as_str(), stderr.as_str(), end),
        ("typed\nmine\n", "bad\n", ended(9))
    );

    // With a terminal that is resized, and by which the command is interrupted.
    let text = "stty size; read line; stty size; echo $TERM; trap 'exit 3' INT; echo ready; \
                while :; do sleep 0.05; done";
    leader.send(order(&task, "terminal", text, true));
    let resized = v1::WindowSize {
        columns: 120,
        rows: 40,
    };
    send_input(&leader, "terminal", RequestKind::Resized(resized)).await;
    send_input(&leader, "terminal", RequestKind::Input("go\n".into())).await;
    leader
        .eventually("the trap", |inner| {
            let (_, responses) = inner.execs.get("terminal")?;
            let all: Vec<u8> = responses
                .iter()
                .flat_map(|kind| match kind {
                    ResponseKind::Stdout(bytes) => bytes.to_vec(),
                    _ => Vec::new(),
                })
                .collect();
            String::from_utf8_lossy(&all)
                .contains("ready")
                .then_some(())
        })
        .await;
    send_input(&leader, "terminal", RequestKind::Input("\u{3}".into())).await;
    let (stdout, _, end) = outcome(&leader, "terminal").await;
    assert_eq!(end, ended(3), "{stdout}");
    assert!(stdout.contains("40 120\r\ndumb"), "{stdout}");
}

#[tokio::test(flavor = "multi_thread")]
async fn output_that_its_user_does_not_read_blocks_the_command() {
    let leader = Leader::start(3).await;
    let _host = Host::start(&[&leader]);
    let task = script("sleep 1000");
    running(&leader, &task).await;
    let text = "yes muster | head -c 3000000";
    leader.send(order(&task, "loud", text, false));
    let (stdout, _, end) = outcome(&leader, "loud").await;
    assert_eq!((stdout.len(), end), (3_000_000, ended(0)));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_ends_with_its_user_and_is_refused_without_its_task() {
    let leader = Leader::start(3).await;
    let host = Host::start(&[&leader]);
    let task = script("sleep 1000");
    running(&leader, &task).await;
    leader.send(order(&task, "left", "echo $$ > left; sleep 1000", false));
    let pid = host.scratch_file(&task, "left");
    // The leader closes its side.
    leader.inner().execs.get_mut("left").unwrap().0 = None;
    eventually("the command's end", || is_gone(&pid));

    let mut other = task.clone();
    other.epoch = muster_model::ids::AttemptEpoch(12);
    leader.send(order(&other, "stale", "true", false));
    let (_, _, end) = outcome(&leader, "stale").await;
    let ResponseKind::Refused(refusal) = end else {
        panic!("not refused: {end:?}");
    };
    assert!(refusal.detail.contains("does not run"), "{refusal:?}");
}
