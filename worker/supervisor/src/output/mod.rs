//! Copies a task's output into its logs on a separate thread: a slow disk delays the task's printing, never
//! its lease. The thread starts with the first byte: many tasks print nothing.

pub mod arrivals;
pub(super) mod evidence;
pub mod segments;
pub(super) mod shipped;
pub(super) mod tail;

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, sync_channel};
use std::thread;

use rustix::buffer::spare_capacity;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::io::Errno;

use crate::lease::clock::wall_clock;
use crate::limits::LOG_DRAIN_MAX;
use crate::link::wake::Wake;
use crate::output::arrivals::ArrivalClock;
use crate::output::segments::{OutputStream, SegmentWriter};
use crate::output::tail::{LastOutput, Tail};
use crate::task::directory::LogOwner;
use crate::task::spec::{LogLimits, TaskSpec};

/// Bytes copied at a time: what a pipe holds.
const COPY_BYTES: usize = 64 << 10;
/// Stack of the copying thread.
const STACK_BYTES: usize = 256 << 10;
/// Timeout for polling without waiting.
const AT_ONCE: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 0,
};

/// Output of a task.
#[derive(Debug)]
pub(crate) struct Output {
    logs: PathBuf,
    limits: LogLimits,
    owner: LogOwner,
    /// Pipes without data so far.
    quiet: Vec<(OutputStream, OwnedFd)>,
    pump: Option<OutputPump>,
}

/// The copying thread.
#[derive(Debug)]
struct OutputPump {
    stop: Wake,
    done: Receiver<LastOutput>,
}

/// One pipe and the log behind it.
struct Channel {
    stream: OutputStream,
    pipe: Option<File>,
    log: SegmentWriter,
    tail: Tail,
}

impl Output {
    /// The output of these pipes.
    pub(crate) fn new(spec: &TaskSpec, stdout: OwnedFd, stderr: OwnedFd) -> Self {
        Self {
            logs: spec.log_directory.clone(),
            limits: spec.log_limits,
            owner: LogOwner::of(&spec.assignment),
            quiet: vec![
                (OutputStream::Stdout, stdout),
                (OutputStream::Stderr, stderr),
            ],
            pump: None,
        }
    }

    /// Pipes to poll for the first byte; call [`Self::start_if_printed`] when one of them is readable.
    pub(crate) fn quiet(&self) -> impl Iterator<Item = &OwnedFd> {
        self.quiet.iter().map(|(_, pipe)| pipe)
    }

    /// Starts copying if the task has printed something; drops pipes that were closed unused.
    ///
    /// # Errors
    /// No thread could be started: nothing was copied.
    pub(crate) fn start_if_printed(&mut self) -> io::Result<()> {
        if self.quiet.is_empty() {
            return Ok(());
        }
        let mut polled: Vec<PollFd<'_>> = self
            .quiet()
            .map(|pipe| PollFd::from_borrowed_fd(pipe.as_fd(), PollFlags::IN))
            .collect();
        match poll(&mut polled, Some(&AT_ONCE)) {
            Err(rustix::io::Errno::INTR) | Ok(0) => return Ok(()),
            Err(error) => return Err(error.into()),
            Ok(_) => {}
        }
        let states: Vec<PollFlags> = polled.iter().map(PollFd::revents).collect();
        if states.iter().any(|state| state.contains(PollFlags::IN)) {
            self.pump = Some(self.start()?);
        } else {
            let mut states = states.into_iter();
            self.quiet
                .retain(|_| states.next().is_some_and(|state| state.is_empty()));
        }
        Ok(())
    }

    fn start(&mut self) -> io::Result<OutputPump> {
        let stop = Wake::new()?;
        let mut channels = Vec::with_capacity(self.quiet.len());
        for (stream, pipe) in std::mem::take(&mut self.quiet) {
            let log = SegmentWriter::new(self.logs.clone(), stream, self.limits);
            channels.push(Channel::new(stream, pipe, log)?);
        }
        let (logs, owner) = (self.logs.clone(), self.owner);
        OutputPump::start(channels, stop, move || owner.record(&logs))
    }

    /// Copies what the pipes still hold, for a bounded time, and returns the end of it. Call it once no
    /// process of the task is alive. False if the thread still copies.
    pub(crate) fn finish(mut self) -> (LastOutput, bool) {
        if let Err(error) = self.start_if_printed() {
            log_error(&format!(
                "copying the last output of the task failed: {error}"
            ));
        }
        match self.pump.map(OutputPump::finish) {
            Some(Some(last)) => (last, true),
            Some(None) => (LastOutput::default(), false),
            None => (LastOutput::default(), true),
        }
    }
}

impl OutputPump {
    /// Starts the thread with `introduce`, which uses the disk.
    fn start(
        mut channels: Vec<Channel>,
        stop: Wake,
        introduce: impl FnOnce() -> io::Result<()> + Send + 'static,
    ) -> io::Result<Self> {
        let stopped = stop.clone();
        let (done_sender, done) = sync_channel(1);
        thread::Builder::new()
            .name("output".to_owned())
            .stack_size(STACK_BYTES)
            .spawn(move || {
                if let Err(error) = introduce() {
                    log_error(&format!(
                        "recording the owner of the output failed: {error}"
                    ));
                }
                if let Err(error) = pump(&mut channels, &stopped) {
                    log_error(&format!("copying the task's output failed: {error}"));
                }
                let lost: u64 = channels
                    .iter()
                    .map(|channel| channel.log.lost_bytes())
                    .sum();
                if lost > 0 {
                    log_error(&format!("lost {lost} bytes of output: writing them failed"));
                }
                // The receiver may have given up waiting.
                let _ = done_sender.send(last_output(channels));
            })?;
        Ok(Self { stop, done })
    }

    fn finish(self) -> Option<LastOutput> {
        self.stop.raise();
        let last = self.done.recv_timeout(LOG_DRAIN_MAX).ok();
        if last.is_none() {
            log_error("writing the last output timed out");
        }
        last
    }
}

fn last_output(channels: Vec<Channel>) -> LastOutput {
    let mut last = LastOutput::default();
    for Channel { stream, tail, .. } in channels {
        let text = tail.into_text();
        match stream {
            OutputStream::Stdout => last.stdout = text,
            OutputStream::Stderr => last.stderr = text,
        }
    }
    last
}

/// Logs a message to `supervisor.err`, which is this process's standard error; if that fails, there is no
/// other place to report to.
pub(crate) fn log_error(text: &str) {
    drop(writeln!(io::stderr(), "{text}"));
}

impl Channel {
    fn new(stream: OutputStream, pipe: OwnedFd, log: SegmentWriter) -> io::Result<Self> {
        fcntl_setfl(&pipe, fcntl_getfl(&pipe)? | OFlags::NONBLOCK)?;
        Ok(Self {
            stream,
            pipe: Some(File::from(pipe)),
            log,
            tail: Tail::default(),
        })
    }

    /// Copies until the pipe is empty, or once if `once`; closes it at its end.
    fn copy(
        &mut self,
        buffer: &mut Vec<u8>,
        clock: &mut ArrivalClock,
        once: bool,
    ) -> io::Result<()> {
        while let Some(pipe) = &self.pipe {
            buffer.clear();
            match rustix::io::read(pipe, spare_capacity(buffer)) {
                Ok(0) => self.pipe = None,
                Ok(_) => {
                    self.tail.append(buffer);
                    let now_us = wall_clock().0.saturating_mul(1_000);
                    let at_us = clock.stamp(self.stream, now_us);
                    self.log.append(buffer, at_us);
                    if once {
                        return Ok(());
                    }
                }
                Err(Errno::WOULDBLOCK) => return Ok(()),
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }
}

fn pump(channels: &mut [Channel], stop: &Wake) -> io::Result<()> {
    // Not zeroed, so that unused capacity takes no memory.
    let mut buffer = Vec::with_capacity(COPY_BYTES);
    let mut clock = ArrivalClock::default();
    loop {
        let mut polled = vec![PollFd::from_borrowed_fd(stop.as_fd(), PollFlags::IN)];
        let open = channels.iter().filter_map(|channel| channel.pipe.as_ref());
        polled.extend(open.map(|pipe| PollFd::from_borrowed_fd(pipe.as_fd(), PollFlags::IN)));
        if polled.len() == 1 {
            return Ok(());
        }
        match poll(&mut polled, None) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        let stopping = !polled[0].revents().is_empty();
        for channel in &mut *channels {
            channel.copy(&mut buffer, &mut clock, !stopping)?;
        }
        if stopping {
            return Ok(());
        }
    }
}
