//! `muster health tickets`.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use muster_client::{Client, ClientError, WatchFilter, WatchUpdate};
use muster_documents::component_name;
use muster_model::ids::Revision;
use muster_proto::v1;
use tokio::process::{Child, Command};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use crate::connection::Options;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::output::{instant, note};
use crate::parse;
use crate::platform::{kill_group, own_group};

/// Interval after which a failed program is called again, and the list is read even without events.
const AGAIN: Duration = Duration::from_secs(60);

/// Longest wait for the end of a killed program.
const REAPED: Duration = Duration::from_secs(10);

/// `muster health tickets`
#[derive(Debug, Args)]
#[command(
    after_help = "muster health tickets --seen /var/lib/tickets -- /opt/site/open-ticket --queue \
        hardware\n\nEnvironment of the program: MUSTER_TICKET (stable for a case, also across repeated \
        calls), MUSTER_COMPONENT, MUSTER_HOST, MUSTER_GPU_INDEX, MUSTER_PHASE, MUSTER_SINCE, \
        MUSTER_STRIKES and MUSTER_EVIDENCE."
)]
pub(crate) struct Tickets {
    /// File with the opened tickets; without it, all tickets are opened again at each start
    #[arg(long, value_name = "FILE")]
    seen: Option<PathBuf>,
    /// Programs that run at a time
    #[arg(long, default_value_t = 4, value_name = "COUNT", value_parser = clap::value_parser!(u16).range(1..))]
    at_once: u16,
    /// Time limit of the program; then it is killed, and called again later
    #[arg(long, default_value = "5m", value_name = "DURATION", value_parser = parse::duration)]
    limit: Duration,
    /// Process the list once, and exit
    #[arg(long)]
    once: bool,
    /// The program that opens a ticket, and its arguments; it is called again if it does not exit with 0
    #[arg(required = true, last = true, value_name = "PROGRAM")]
    program: Vec<String>,
}

/// A component that only an operator can return to service.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Case {
    /// Stable id of the case.
    ticket: String,
    /// Name for display.
    name: String,
    variables: BTreeMap<&'static str, String>,
}

impl Tickets {
    /// Runs the command.
    pub(crate) async fn run(self, options: &Options) -> Result<Exit, Failure> {
        let client = options.connect().await?;
        let mut opened = Opened::read(self.seen.as_deref())?;
        loop {
            let round = self.round(&client, &mut opened).await;
            if self.once {
                let failed = round?.1;
                return Ok(if failed > 0 { Exit::Error } else { Exit::Ok });
            }
            match round {
                // After the timeout, failed programs are retried even without events.
                Ok((revision, _)) => match timeout(AGAIN, wait_for_change(&client, revision)).await
                {
                    Ok(Ok(())) | Err(_) => {}
                    Ok(Err(failure)) => pause_after(&failure).await,
                },
                Err(failure) => pause_after(&failure).await,
            }
        }
    }

    /// Processes the list once; returns its revision and the number of cases whose program failed.
    async fn round(
        &self,
        client: &Client,
        opened: &mut Opened,
    ) -> Result<(Revision, usize), Failure> {
        let health = client.health(v1::Consistency::Linearizable).await?;
        let cases: Vec<Case> = health.components.iter().filter_map(Case::of).collect();
        opened.keep(&cases)?;
        let new = cases.into_iter().filter(|case| !opened.has(case));
        let failed = self.open(new.collect(), opened).await?;
        Ok((Revision(health.revision), failed))
    }

    /// Calls the program for each case, several at a time; returns the number of failures.
    async fn open(&self, cases: Vec<Case>, opened: &mut Opened) -> Result<usize, Failure> {
        let places = Arc::new(Semaphore::new(usize::from(self.at_once)));
        let mut calls = JoinSet::new();
        for case in cases {
            let (places, program, limit) = (Arc::clone(&places), self.program.clone(), self.limit);
            calls.spawn(async move {
                let place = places.acquire_owned().await;
                let called = call(&program, &case, limit).await;
                drop(place);
                (case, called)
            });
        }
        let mut failed = 0;
        while let Some(ended) = calls.join_next().await {
            let (case, called) = ended.map_err(|error| Failure::internal(&error))?;
            match called {
                Ok(()) => {
                    note(&format!("{}: ticket opened", case.name));
                    opened.add(case)?;
                }
                Err(why) => {
                    failed += 1;
                    note(&format!("{}: no ticket opened: {why}", case.name));
                }
            }
        }
        Ok(failed)
    }
}

impl Case {
    /// The case of a component that only an operator can return to service; `None` for others, and for one
    /// blocked by an operator.
    fn of(known: &v1::ComponentHealth) -> Option<Self> {
        let is_for_vendor = known.phase == "rma";
        if !known.by_hand && !is_for_vendor {
            return None;
        }
        let name = component_name(known.component.as_ref(), &known.host);
        let newest = known.history.last();
        let evidence = newest.map(|change| format!("{}: {}", change.actor, change.evidence));
        let index = known.gpu_index.map(|index| index.to_string());
        let ticket = format!("{name} since {}", known.since_ms).replace(' ', "-");
        let variables = [
            ("MUSTER_TICKET", ticket.clone()),
            ("MUSTER_COMPONENT", name.clone()),
            ("MUSTER_HOST", known.host.clone()),
            ("MUSTER_GPU_INDEX", index.unwrap_or_default()),
            ("MUSTER_PHASE", known.phase.clone()),
            ("MUSTER_SINCE", instant(known.since_ms)),
            ("MUSTER_STRIKES", known.strikes.to_string()),
            ("MUSTER_EVIDENCE", evidence.unwrap_or_default()),
        ];
        Some(Self {
            ticket,
            name,
            variables: variables.into(),
        })
    }
}

/// Calls the program for a case.
async fn call(program: &[String], case: &Case, limit: Duration) -> Result<(), String> {
    let (name, arguments) = program.split_first().ok_or("no program given")?;
    let mut command = Command::new(name);
    command
        .args(arguments)
        .envs(&case.variables)
        .stdin(Stdio::null())
        .kill_on_drop(true);
    let mut child = own_group(&mut command)
        .spawn()
        .map_err(|error| format!("{name}: {error}"))?;
    match timeout(limit, child.wait()).await {
        Ok(Ok(status)) if status.success() => Ok(()),
        Ok(Ok(status)) => Err(format!("{name} ended with {status}")),
        Ok(Err(error)) => Err(format!("{name}: {error}")),
        Err(_) => {
            let killed = kill(&mut child).await;
            let why = killed.map_or_else(
                |error| format!(", and could not be killed: {error}"),
                |()| String::new(),
            );
            Err(format!("{name} took longer than {limit:?}{why}"))
        }
    }
}

/// Kills a program with its process group, and waits for its end.
async fn kill(child: &mut Child) -> std::io::Result<()> {
    kill_group(child)?;
    match timeout(REAPED, child.wait()).await {
        Ok(ended) => ended.map(drop),
        Err(elapsed) => Err(elapsed.into()),
    }
}

/// Reports a failure, and pauses: the cluster will answer again later.
async fn pause_after(failure: &Failure) {
    failure.print();
    sleep(AGAIN).await;
}

/// Waits until the health of a component changes.
async fn wait_for_change(client: &Client, revision: Revision) -> Result<(), Failure> {
    let filter = WatchFilter {
        jobs: Vec::new(),
        kinds: vec![v1::EventKind::HealthChanged],
    };
    let mut watch = client.watch(Some(revision), filter);
    loop {
        match watch.next().await {
            Ok(WatchUpdate::Events { .. }) | Err(ClientError::Compacted { .. }) => return Ok(()),
            Ok(WatchUpdate::Bookmark { .. } | WatchUpdate::Resumed { .. }) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// The opened tickets of open cases.
#[derive(Debug)]
struct Opened {
    file: Option<PathBuf>,
    tickets: BTreeSet<String>,
}

impl Opened {
    fn read(file: Option<&Path>) -> Result<Self, Failure> {
        let mut tickets = BTreeSet::new();
        if let Some(file) = file.filter(|file| file.exists()) {
            let text = std::fs::read_to_string(file).map_err(|error| unusable(file, &error))?;
            tickets.extend(text.lines().map(str::to_owned));
        }
        let opened = Self {
            file: file.map(Path::to_owned),
            tickets,
        };
        // A file that cannot be written is reported before the first ticket is opened, not after.
        opened.write()?;
        Ok(opened)
    }

    fn has(&self, case: &Case) -> bool {
        self.tickets.contains(&case.ticket)
    }

    fn add(&mut self, case: Case) -> Result<(), Failure> {
        self.tickets.insert(case.ticket);
        self.write()
    }

    /// Removes tickets whose case is closed.
    fn keep(&mut self, cases: &[Case]) -> Result<(), Failure> {
        let before = self.tickets.len();
        let open: BTreeSet<&str> = cases.iter().map(|case| case.ticket.as_str()).collect();
        self.tickets.retain(|ticket| open.contains(ticket.as_str()));
        if self.tickets.len() == before {
            return Ok(());
        }
        self.write()
    }

    fn write(&self) -> Result<(), Failure> {
        let Some(file) = &self.file else {
            return Ok(());
        };
        let lines = self.tickets.iter().map(|ticket| format!("{ticket}\n"));
        let beside = file.with_extension("new");
        std::fs::write(&beside, lines.collect::<String>())
            .and_then(|()| std::fs::rename(&beside, file))
            .map_err(|error| unusable(file, &error))
    }
}

fn unusable(file: &Path, error: &std::io::Error) -> Failure {
    Failure::new(format!("{}: {error}", file.display())).help("give a writable file with --seen")
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a failed test should panic")]
mod tests {
    use super::*;

    fn component(phase: &str, by_hand: bool) -> v1::ComponentHealth {
        v1::ComponentHealth {
            component: Some(v1::Component {
                kind: Some(v1::component::Kind::Gpu("GPU-1".to_owned())),
            }),
            host: "node01".to_owned(),
            gpu_index: Some(3),
            phase: phase.to_owned(),
            since_ms: 1_700_000_000_000,
            strikes: 5,
            by_hand,
            history: vec![v1::HealthChange {
                event: "block".to_owned(),
                actor: "rule xid".to_owned(),
                evidence: "Xid 48".to_owned(),
                at_ms: 1_700_000_000_000,
            }],
            ..v1::ComponentHealth::default()
        }
    }

    #[test]
    fn only_what_waits_for_a_person_is_a_case() {
        assert_eq!(Case::of(&component("blocked(auto)", false)), None);
        let case = Case::of(&component("blocked(auto)", true)).unwrap();
        assert_eq!(case.ticket, "GPU-1-on-node01-since-1700000000000");
        assert_eq!(case.variables["MUSTER_HOST"], "node01");
        assert_eq!(case.variables["MUSTER_GPU_INDEX"], "3");
        assert_eq!(case.variables["MUSTER_EVIDENCE"], "rule xid: Xid 48");
        assert!(Case::of(&component("rma", false)).is_some());
    }

    #[test]
    fn opened_tickets_are_remembered_as_long_as_their_cases() {
        let home = tempfile::tempdir().unwrap();
        let file = home.path().join("seen");
        let case = Case::of(&component("rma", false)).unwrap();
        let mut opened = Opened::read(Some(&file)).unwrap();
        assert!(!opened.has(&case));
        opened.add(case.clone()).unwrap();
        let mut again = Opened::read(Some(&file)).unwrap();
        again.keep(std::slice::from_ref(&case)).unwrap();
        assert!(again.has(&case));
        again.keep(&[]).unwrap();
        assert!(!Opened::read(Some(&file)).unwrap().has(&case));
        let nowhere = home.path().join("nowhere/seen");
        assert!(Opened::read(Some(&nowhere)).is_err());
    }

    #[tokio::test]
    async fn a_program_receives_its_case_and_failures_and_timeouts_are_reported() {
        let home = tempfile::tempdir().unwrap();
        let file = home.path().join("output");
        let case = Case::of(&component("rma", false)).unwrap();
        let shell = |script: &str| ["sh", "-c", script].map(str::to_owned).to_vec();
        let limit = Duration::from_secs(20);
        let script = format!("echo $MUSTER_TICKET $MUSTER_STRIKES > {}", file.display());
        call(&shell(&script), &case, limit).await.unwrap();
        let output = std::fs::read_to_string(&file).unwrap();
        assert_eq!(output, "GPU-1-on-node01-since-1700000000000 5\n");
        let failed = call(&shell("exit 3"), &case, limit).await;
        assert!(failed.unwrap_err().contains("exit status: 3"));
        let absent = call(&["/nonexistent/open".to_owned()], &case, limit).await;
        assert!(absent.is_err());
        let hangs = call(&shell("sleep 1000"), &case, Duration::from_millis(50)).await;
        assert!(hangs.unwrap_err().contains("longer than"));
    }

    #[tokio::test]
    async fn processes_left_by_a_credential_program_end_at_its_time_limit() {
        let home = tempfile::tempdir().unwrap();
        let file = home.path().join("child");
        let case = Case::of(&component("rma", false)).unwrap();
        let script = format!("sleep 1000 & echo $! > {}; wait", file.display());
        let program = ["sh", "-c", &script].map(str::to_owned);
        let limit = Duration::from_secs(2);
        assert!(call(&program, &case, limit).await.is_err());
        let child = std::fs::read_to_string(&file).unwrap();
        let status = format!("/proc/{}/stat", child.trim());
        // Gone, or a zombie that was not reaped yet.
        let is_alive = || {
            let text = std::fs::read_to_string(&status);
            text.is_ok_and(|text| !text.contains(") Z "))
        };
        let over = async {
            while is_alive() {
                sleep(Duration::from_millis(10)).await;
            }
        };
        let ended = timeout(Duration::from_secs(20), over).await;
        assert!(
            ended.is_ok(),
            "{}",
            std::fs::read_to_string(&status).unwrap()
        );
    }
}
