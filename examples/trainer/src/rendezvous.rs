//! Rendezvous of the ranks: rank 0 listens at `MASTER_ADDR` and `MASTER_PORT`, every rank sends it the
//! address of its own listener, and rank 0 answers each with all addresses.

use std::net::{SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::time::Duration;

use anyhow::{Context, Result, anyhow, ensure};
use serde::{Deserialize, Serialize};

use crate::arguments::TrainArguments;
use crate::clock::{Deadline, pause};
use crate::duplex::{Peer, is_readable_within};
use crate::line::{read_line, write_line};
use crate::ring::{Neighbours, Ring};
use crate::stop::StopSignal;

/// Interval at which a waiting rank checks for a stop request, and retries to reach rank 0.
const RETRY: Duration = Duration::from_millis(50);
/// Maximum time that a silent unknown connection may hold up the listener.
const GREETING_TIMEOUT: Duration = Duration::from_secs(2);

/// A rank's greeting to rank 0 and to the next rank.
#[derive(Debug, Serialize, Deserialize)]
struct Greeting {
    attempt: String,
    rank: usize,
    world_size: usize,
    /// The address at which it accepts the previous rank.
    listener: Option<SocketAddr>,
}

/// Rank 0's answer.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Answer {
    /// Listeners of all ranks, by rank.
    Roster(Vec<SocketAddr>),
    /// Reason why the rank does not belong here.
    Refused(String),
}

/// Joins the ring. Returns `None` if this rank was asked to stop meanwhile.
pub(crate) fn join(arguments: &TrainArguments, stop: &StopSignal) -> Result<Option<Ring>> {
    if arguments.world_size == 1 {
        return Ok(Some(Ring::alone()));
    }
    let wait = Duration::from_secs(arguments.rendezvous_seconds);
    let meeting = Rendezvous {
        arguments,
        stop,
        deadline: Deadline::after(wait),
    };
    let Some((listener, roster)) = meeting.roster()? else {
        return Ok(None);
    };
    let next_rank = (arguments.rank + 1) % arguments.world_size;
    let mut next = TcpStream::connect_timeout(&roster[next_rank], arguments.peer_timeout())
        .with_context(|| format!("rank {next_rank} is gone: connect to {}", roster[next_rank]))?;
    write_line(&mut next, &meeting.greeting(None))?;
    let Some(previous) = meeting.accept_previous(&listener)? else {
        return Ok(None);
    };
    let neighbours = Neighbours {
        next: Peer::new(next_rank, next)?,
        previous,
    };
    Ok(Some(Ring::new(
        arguments.rank,
        arguments.world_size,
        neighbours,
        arguments.peer_timeout(),
    )))
}

/// One rank's part in the rendezvous.
struct Rendezvous<'a> {
    arguments: &'a TrainArguments,
    stop: &'a StopSignal,
    deadline: Deadline,
}

impl Rendezvous<'_> {
    fn greeting(&self, listener: Option<SocketAddr>) -> Greeting {
        Greeting {
            attempt: self.arguments.attempt(),
            rank: self.arguments.rank,
            world_size: self.arguments.world_size,
            listener,
        }
    }

    fn master(&self) -> Result<SocketAddr> {
        let (host, port) = (
            self.arguments.master_addr.as_str(),
            self.arguments.master_port,
        );
        (host, port)
            .to_socket_addrs()
            .with_context(|| format!("resolve MASTER_ADDR {host:?}"))?
            .next()
            .ok_or_else(|| anyhow!("MASTER_ADDR {host:?} has no address"))
    }

    /// This rank's listener and the listeners of all ranks.
    fn roster(&self) -> Result<Option<(TcpListener, Vec<SocketAddr>)>> {
        let master = self.master()?;
        if self.arguments.rank == 0 {
            self.host(master)
        } else {
            self.visit(master)
        }
    }

    /// Whether to continue waiting for `what`: false if asked to stop, an error if the time is over.
    fn may_wait(&self, what: impl Fn() -> String) -> Result<bool> {
        if self.stop.is_raised() {
            return Ok(false);
        }
        ensure!(
            !self.deadline.has_passed(),
            "gave up after {} s: {}",
            self.arguments.rendezvous_seconds,
            what()
        );
        Ok(true)
    }

    /// Rank 0: collects the other ranks and answers them all.
    fn host(&self, master: SocketAddr) -> Result<Option<(TcpListener, Vec<SocketAddr>)>> {
        let Some(meeting_point) = self.bind(master)? else {
            return Ok(None);
        };
        let own = TcpListener::bind((master.ip(), 0)).context("listen for the ring")?;
        let mut visitors: Vec<Option<(TcpStream, SocketAddr)>> =
            (0..self.arguments.world_size).map(|_| None).collect();
        while visitors[1..].iter().any(Option::is_none) {
            if !self.may_wait(|| format!("ranks {} did not come", absent(&visitors)))? {
                return Ok(None);
            }
            if !is_readable_within(&meeting_point, RETRY)? {
                continue;
            }
            let (mut stream, _) = meeting_point.accept().context("accept a rank")?;
            match self.receive(&mut stream, &visitors) {
                Ok(greeting) => {
                    let listener = greeting
                        .listener
                        .context("a rank came without its listener")?;
                    visitors[greeting.rank] = Some((stream, listener));
                }
                // An unknown connection, or a rank of an older attempt: refuse it, and continue waiting for
                // ours.
                Err(error) => {
                    let refused = Answer::Refused(format!("{error:#}"));
                    write_line(&mut stream, &refused).ok();
                }
            }
        }
        let mut roster = vec![own.local_addr().context("read the ring's address")?];
        roster.extend(visitors.iter().flatten().map(|(_, listener)| *listener));
        let answer = Answer::Roster(roster.clone());
        for (stream, _) in visitors.iter_mut().flatten() {
            write_line(stream, &answer)?;
        }
        Ok(Some((own, roster)))
    }

    /// Listens at `master`, where a rank of the previous attempt may still be shutting down.
    fn bind(&self, master: SocketAddr) -> Result<Option<TcpListener>> {
        loop {
            match TcpListener::bind(master) {
                Ok(listener) => return Ok(Some(listener)),
                Err(error) if self.may_wait(|| format!("listen at {master}: {error}"))? => {
                    pause(RETRY)
                }
                Err(_) => return Ok(None),
            }
        }
    }

    /// Rank 0: reads a greeting, and checks that the rank belongs here.
    fn receive(
        &self,
        stream: &mut TcpStream,
        visitors: &[Option<(TcpStream, SocketAddr)>],
    ) -> Result<Greeting> {
        stream
            .set_read_timeout(Some(GREETING_TIMEOUT))
            .context("set a time-out")?;
        let greeting: Greeting = read_line(stream)?;
        self.check(&greeting)?;
        let rank = greeting.rank;
        ensure!(
            rank != 0 && visitors[rank].is_none(),
            "rank {rank} has already joined"
        );
        Ok(greeting)
    }

    fn check(&self, greeting: &Greeting) -> Result<()> {
        let (attempt, world_size) = (self.arguments.attempt(), self.arguments.world_size);
        ensure!(
            greeting.attempt == attempt,
            "this is attempt {attempt:?}, not {:?}",
            greeting.attempt
        );
        ensure!(
            greeting.world_size == world_size && greeting.rank < world_size,
            "this gang has {world_size} ranks; rank {} of {} does not belong to it",
            greeting.rank,
            greeting.world_size
        );
        Ok(())
    }

    /// Any other rank: sends rank 0 the address of its listener, and waits for the answer.
    fn visit(&self, master: SocketAddr) -> Result<Option<(TcpListener, Vec<SocketAddr>)>> {
        let mut reason = "it was never reached".to_owned();
        while self.may_wait(|| format!("rank 0 at {master} did not gather the gang: {reason}"))? {
            match self.ask(master) {
                Ok(Some((own, Answer::Roster(roster)))) => return Ok(Some((own, roster))),
                Ok(Some((_, Answer::Refused(refusal)))) => {
                    reason = format!("it refused: {refusal}")
                }
                Ok(None) => return Ok(None),
                Err(error) => reason = format!("{error:#}"),
            }
            pause(RETRY);
        }
        Ok(None)
    }

    fn ask(&self, master: SocketAddr) -> Result<Option<(TcpListener, Answer)>> {
        let mut stream =
            TcpStream::connect_timeout(&master, GREETING_TIMEOUT).context("connect")?;
        // The local address of the connection to rank 0 is one at which the others can reach this rank.
        let address = stream.local_addr().context("read the own address")?;
        let own = TcpListener::bind((address.ip(), 0)).context("listen for the ring")?;
        let listener = own.local_addr().context("read the ring's address")?;
        write_line(&mut stream, &self.greeting(Some(listener)))?;
        while !is_readable_within(&stream, RETRY)? {
            if !self.may_wait(|| format!("rank 0 at {master} still waits for other ranks"))? {
                return Ok(None);
            }
        }
        stream
            .set_read_timeout(Some(GREETING_TIMEOUT))
            .context("set a time-out")?;
        Ok(Some((own, read_line(&mut stream)?)))
    }

    /// Accepts the previous rank and no other connection.
    fn accept_previous(&self, listener: &TcpListener) -> Result<Option<Peer>> {
        let world_size = self.arguments.world_size;
        let expected = (self.arguments.rank + world_size - 1) % world_size;
        while self.may_wait(|| format!("rank {expected} did not connect"))? {
            if !is_readable_within(listener, RETRY)? {
                continue;
            }
            let (mut stream, _) = listener.accept().context("accept the rank before")?;
            stream
                .set_read_timeout(Some(GREETING_TIMEOUT))
                .context("set a time-out")?;
            let greeting = read_line::<Greeting>(&mut stream);
            if greeting.is_ok_and(|it| self.check(&it).is_ok() && it.rank == expected) {
                return Ok(Some(Peer::new(expected, stream)?));
            }
        }
        Ok(None)
    }
}

/// The missing ranks, for an error message.
fn absent(visitors: &[Option<(TcpStream, SocketAddr)>]) -> String {
    let ranks = visitors
        .iter()
        .enumerate()
        .skip(1)
        .filter(|(_, visitor)| visitor.is_none());
    ranks
        .map(|(rank, _)| rank.to_string())
        .collect::<Vec<_>>()
        .join(", ")
}
