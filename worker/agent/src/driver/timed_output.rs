//! Answers to requests for output by lines with their times, of one stream or of both in order of arrival.

use bytes::BytesMut;
use muster_proto::v1;
use muster_proto::v1::log_request::Start;
use muster_supervisor::lease::clock::wall_clock;
use muster_supervisor::output::segments::OutputStream;

use crate::driver::output::{Answer, blocking};
use crate::limits::{LOG_FOLLOW_INTERVAL, LOG_TAIL_LINES_MAX};
use crate::tasks::logs::{Line, StartPosition, Timeline};

/// Microseconds in a millisecond.
const US_PER_MS: u64 = 1_000;

/// Answers a request until all requested output is sent or the receiver is gone.
pub(super) async fn answer(answer: Answer, request: v1::LogRequest) {
    match send_all(&answer, &request).await {
        Ok(true) => answer.end(0, None).await,
        Ok(false) => {}
        Err(error) => answer.end(0, Some(error)).await,
    }
}

/// Returns false if the receiver is gone.
async fn send_all(answer: &Answer, request: &v1::LogRequest) -> Result<bool, String> {
    let mut timeline = open(answer, request).await?;
    let mut ended = !request.follow;
    // Whether the reader knows the position at which to resume; without it, it would resume behind later
    // output.
    let mut knows_position = false;
    loop {
        let now_us = wall_clock().0.saturating_mul(US_PER_MS);
        let (again, found) = blocking(move || {
            let found = timeline.read(ended, now_us)?;
            Ok((timeline, found))
        })
        .await?;
        timeline = again;
        if !found.lines.is_empty() {
            knows_position = true;
            let lines = chunk(&found.lines, timeline.position());
            if !answer.send_chunk(lines).await {
                return Ok(false);
            }
        }
        if found.is_over {
            return Ok(true);
        }
        if found.is_all {
            // Checked before reading again: output written before the end is read after the end is known.
            ended = answer.has_ended().await;
            // Not for a task that has ended: a restarted one may run on another host, and its reader must
            // move there.
            if !ended && !knows_position {
                knows_position = true;
                let nothing = chunk(&[], timeline.position());
                if !answer.send_chunk(nothing).await {
                    return Ok(false);
                }
            }
            if !ended {
                tokio::time::sleep(LOG_FOLLOW_INTERVAL).await;
            }
        }
    }
}

async fn open(answer: &Answer, request: &v1::LogRequest) -> Result<Timeline, String> {
    let streams: &[OutputStream] = match request.stream() {
        v1::LogStream::Both => &OutputStream::ALL,
        v1::LogStream::Stderr => &[OutputStream::Stderr],
        v1::LogStream::Unspecified | v1::LogStream::Stdout => &[OutputStream::Stdout],
    };
    let begin = match (request.start, request.since_ms) {
        (Some(Start::OffsetBytes(offset)), _) => StartPosition::At(offset, offset),
        (Some(Start::Position(position)), _) => {
            StartPosition::At(position.stdout_bytes, position.stderr_bytes)
        }
        (Some(Start::TailLines(lines)), _) => StartPosition::Last(lines.min(LOG_TAIL_LINES_MAX)),
        (None, Some(since_ms)) => StartPosition::Since(since_ms.saturating_mul(US_PER_MS)),
        (None, None) => StartPosition::Oldest,
    };
    // Includes the whole last millisecond.
    let until_us = request.until_ms.map_or(u64::MAX, |until_ms| {
        until_ms.saturating_add(1).saturating_mul(US_PER_MS) - 1
    });
    let (directory, follow) = (answer.log_directory(), request.follow);
    blocking(move || Timeline::open(&directory, streams, begin, until_us, follow)).await
}

fn chunk(lines: &[Line], (stdout_bytes, stderr_bytes): (u64, u64)) -> v1::LogChunk {
    let mut data = BytesMut::new();
    let mut pieces = Vec::with_capacity(lines.len());
    for line in lines {
        data.extend_from_slice(&line.data);
        let stream = match line.stream {
            OutputStream::Stdout => v1::LogStream::Stdout,
            OutputStream::Stderr => v1::LogStream::Stderr,
        };
        pieces.push(v1::LogPiece {
            stream: stream.into(),
            offset_bytes: line.offset,
            length_bytes: u32::try_from(line.data.len()).unwrap_or(u32::MAX),
            arrived_us: line.at_us,
        });
    }
    v1::LogChunk {
        data: data.freeze(),
        pieces,
        position: Some(v1::LogPosition {
            stdout_bytes,
            stderr_bytes,
        }),
        ..v1::LogChunk::default()
    }
}
