//! Copies a task's output into its logs, on a thread of its own: a slow disk delays the task's printing,
//! never its lease.

use std::fs::File;
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::mpsc::{Receiver, sync_channel};
use std::thread;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};

use crate::limits::LOG_DRAIN_MAX;
use crate::segments::{OutputStream, SegmentWriter};
use crate::spec::TaskSpec;
use crate::wake::Wake;

/// Bytes copied at a time: what a pipe holds.
const COPY_BYTES: usize = 64 << 10;
/// Stack of the copying thread.
const STACK_BYTES: usize = 256 << 10;

/// The copying thread.
#[derive(Debug)]
pub(crate) struct OutputPump {
    stop: Wake,
    done: Receiver<()>,
}

/// One pipe and the log behind it.
struct Channel {
    pipe: Option<File>,
    log: SegmentWriter,
}

impl OutputPump {
    /// Starts copying.
    pub(crate) fn start(spec: &TaskSpec, stdout: OwnedFd, stderr: OwnedFd) -> io::Result<Self> {
        let mut channels = [
            Channel::open(spec, OutputStream::Stdout, stdout)?,
            Channel::open(spec, OutputStream::Stderr, stderr)?,
        ];
        let stop = Wake::new()?;
        let stopped = stop.clone();
        let (tell_done, done) = sync_channel(1);
        thread::Builder::new()
            .name("output".to_owned())
            .stack_size(STACK_BYTES)
            .spawn(move || {
                if let Err(error) = pump(&mut channels, &stopped) {
                    complain(&format!("copying the task's output failed: {error}"));
                }
                let lost: u64 = channels
                    .iter()
                    .map(|channel| channel.log.lost_bytes())
                    .sum();
                if lost > 0 {
                    complain(&format!(
                        "{lost} bytes of output were lost: the disk refused them"
                    ));
                }
                // The receiver may have given up waiting.
                let _ = tell_done.send(());
            })?;
        Ok(Self { stop, done })
    }

    /// Copies what the pipes still hold, for a bounded time. Call it when nothing of the task lives.
    pub(crate) fn finish(self) {
        self.stop.raise();
        if self.done.recv_timeout(LOG_DRAIN_MAX).is_err() {
            complain("the last output did not reach the disk in time");
        }
    }
}

/// Says something to `supervisor.err`, which is this process's standard error; if that fails there is
/// nobody left to tell.
pub(crate) fn complain(text: &str) {
    drop(writeln!(io::stderr(), "{text}"));
}

impl Channel {
    fn open(spec: &TaskSpec, stream: OutputStream, pipe: OwnedFd) -> io::Result<Self> {
        fcntl_setfl(&pipe, fcntl_getfl(&pipe)? | OFlags::NONBLOCK)?;
        Ok(Self {
            pipe: Some(File::from(pipe)),
            log: SegmentWriter::new(spec.log_directory.clone(), stream, spec.log_limits),
        })
    }

    /// Copies until the pipe is empty, or once if `once`; closes it at its end.
    fn copy(&mut self, buffer: &mut [u8], once: bool) -> io::Result<()> {
        while let Some(pipe) = &mut self.pipe {
            match pipe.read(buffer) {
                Ok(0) => self.pipe = None,
                Ok(count) => {
                    self.log.append(&buffer[..count]);
                    if once {
                        return Ok(());
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

fn pump(channels: &mut [Channel], stop: &Wake) -> io::Result<()> {
    let mut buffer = vec![0u8; COPY_BYTES];
    loop {
        let mut polled = vec![PollFd::from_borrowed_fd(stop.as_fd(), PollFlags::IN)];
        let open = channels.iter().filter_map(|channel| channel.pipe.as_ref());
        polled.extend(open.map(|pipe| PollFd::from_borrowed_fd(pipe.as_fd(), PollFlags::IN)));
        if polled.len() == 1 {
            return Ok(());
        }
        match poll(&mut polled, None) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        let stopping = !polled[0].revents().is_empty();
        for channel in &mut *channels {
            channel.copy(&mut buffer, !stopping)?;
        }
        if stopping {
            return Ok(());
        }
    }
}
