//! Merged lines of an attempt's outputs, in the order in which they were completed.

use std::io;
use std::path::Path;

use muster_supervisor::output::segments::OutputStream;

use crate::limits::{LOG_CHUNK_BYTES, LOG_LINES_MAX, LOG_PARTIAL_US_MAX};
use crate::tasks::logs::line_reader::{Line, LineReader};

/// Start position of a reader of lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StartPosition {
    /// With the oldest line kept.
    Oldest,
    /// At these positions, standard output first.
    At(u64, u64),
    /// At this number of lines before the end.
    Last(u64),
    /// At the first line completed at or after a time, in microseconds since the Unix epoch.
    Since(u64),
}

/// Lines available now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Lines {
    /// Lines, and parts of lines.
    pub(crate) lines: Vec<Line>,
    /// False: one message could not hold all lines.
    pub(crate) is_all: bool,
    /// Whether all requested lines were returned.
    pub(crate) is_over: bool,
}

/// One or both outputs of an attempt.
#[derive(Clone, Debug)]
pub(crate) struct Timeline {
    tracks: Vec<LineReader>,
    /// For each output: lines up to this position precede all later lines of the other one.
    safe: Vec<u64>,
    /// Lines before this time are skipped.
    since_us: u64,
    /// Lines after this time are skipped.
    until_us: u64,
    /// Number of lines to skip.
    skip: u64,
}

impl Timeline {
    /// The lines of some outputs, from `begin` on; with `follow` also future ones.
    ///
    /// # Errors
    /// Of the file system.
    pub(crate) fn open(
        directory: &Path,
        streams: &[OutputStream],
        begin: StartPosition,
        until_us: u64,
        follow: bool,
    ) -> io::Result<Self> {
        let track = |stream: &OutputStream| LineReader::new(directory.to_owned(), *stream);
        let mut timeline = Self {
            tracks: streams.iter().map(track).collect(),
            safe: vec![0; streams.len()],
            since_us: match begin {
                StartPosition::Since(since_us) => since_us,
                _ => 0,
            },
            until_us,
            skip: 0,
        };
        for (track, stream) in timeline.tracks.iter_mut().zip(streams) {
            track.end_here()?;
            match begin {
                StartPosition::Oldest => {}
                StartPosition::At(stdout, _) if *stream == OutputStream::Stdout => {
                    track.begin_at(stdout)
                }
                StartPosition::At(_, stderr) => track.begin_at(stderr),
                StartPosition::Last(lines) => track.begin_with_last(lines)?,
                StartPosition::Since(since_us) => track.begin_since(since_us)?,
            }
        }
        if let StartPosition::Last(lines) = begin {
            // That many lines of each output are more than needed of both.
            timeline.skip = timeline.clone().count()?.saturating_sub(lines);
        }
        if follow {
            timeline.tracks.iter_mut().for_each(LineReader::clear_end);
        }
        Ok(timeline)
    }

    /// Lines that are new since the last call. With `all`, output without a line end counts as a line:
    /// nothing more will come. Otherwise it waits a moment, by the wall clock, for a line end.
    ///
    /// # Errors
    /// Of the file system.
    pub(crate) fn read(&mut self, all: bool, now_us: u64) -> io::Result<Lines> {
        self.tracks.iter_mut().for_each(LineReader::reset_end);
        let mut found = Lines {
            lines: Vec::new(),
            is_all: false,
            is_over: false,
        };
        let mut bytes = 0;
        while found.lines.len() < LOG_LINES_MAX && bytes < LOG_CHUNK_BYTES {
            let line = match self.next(all)? {
                Some(line) => line,
                None if all => {
                    found.is_all = true;
                    found.is_over = true;
                    break;
                }
                None => match self.next_partial(now_us) {
                    Some(line) => line,
                    None => {
                        found.is_all = true;
                        break;
                    }
                },
            };
            if line.at_us > self.until_us {
                found.is_all = true;
                found.is_over = true;
                break;
            }
            if self.skip > 0 || line.at_us < self.since_us {
                self.skip = self.skip.saturating_sub(1);
                continue;
            }
            bytes += line.data.len();
            found.lines.push(line);
        }
        Ok(found)
    }

    /// Position to resume at with [`StartPosition::At`], standard output first.
    pub(crate) fn position(&self) -> (u64, u64) {
        let mut position = (0, 0);
        for track in &self.tracks {
            match track.position() {
                (OutputStream::Stdout, next) => position.0 = next,
                (OutputStream::Stderr, next) => position.1 = next,
            }
        }
        position
    }

    fn count(mut self) -> io::Result<u64> {
        let mut lines = 0;
        while self.next(true)?.is_some() {
            lines += 1;
        }
        Ok(lines)
    }

    fn next(&mut self, all: bool) -> io::Result<Option<Line>> {
        loop {
            let whole: Vec<Option<u64>> = self
                .tracks
                .iter_mut()
                .map(|track| track.next_at(all))
                .collect();
            let known = whole.iter().enumerate();
            let first = known
                .filter_map(|(index, at_us)| at_us.map(|at_us| (at_us, index)))
                .min();
            let Some((_, index)) = first else {
                for track in &mut self.tracks {
                    track.fill()?;
                }
                if self
                    .tracks
                    .iter_mut()
                    .all(|track| track.next_at(all).is_none())
                {
                    return Ok(None);
                }
                continue;
            };
            let is_only = whole.iter().flatten().count() < self.tracks.len();
            if !is_only || self.tracks[index].line_position(all) <= self.safe[index] {
                return Ok(self.tracks[index].take(all));
            }
            self.make_safe(index, all)?;
        }
    }

    /// Reads the other outputs: what they contain now includes all lines that precede this output's next
    /// line.
    fn make_safe(&mut self, index: usize, all: bool) -> io::Result<()> {
        let shown = self.tracks[index]
            .known_end()
            .max(self.tracks[index].line_position(all));
        let others = self.tracks.iter_mut().enumerate();
        for (_, track) in others.filter(|(other, _)| *other != index) {
            track.fill()?;
        }
        self.safe[index] = shown;
        Ok(())
    }

    /// Output that has waited long enough for its line end.
    fn next_partial(&mut self, now_us: u64) -> Option<Line> {
        let waited = |track: &mut LineReader| {
            let since = track.waits_since();
            since.is_some_and(|since| now_us.abs_diff(since) >= LOG_PARTIAL_US_MAX)
        };
        let track = self.tracks.iter_mut().find_map(|track| {
            let is_due = waited(track);
            is_due.then_some(track)
        });
        track.and_then(|track| track.take(true))
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a failed test should panic")]
mod tests {
    use muster_supervisor::LogLimits;
    use muster_supervisor::output::segments::SegmentWriter;

    use super::*;

    const BOTH: [OutputStream; 2] = OutputStream::ALL;

    struct Task {
        home: tempfile::TempDir,
        writers: [SegmentWriter; 2],
    }

    impl Task {
        fn new(segment_bytes: u64) -> Self {
            let home = tempfile::tempdir().unwrap();
            let limits = LogLimits {
                segment_bytes,
                segments_max: 3,
                unshipped_segments_max: None,
            };
            let writers = BOTH.map(|stream| SegmentWriter::new(home.path().into(), stream, limits));
            Self { home, writers }
        }

        fn print(&mut self, stream: OutputStream, text: &str, at_us: u64) {
            let writer = &mut self.writers[usize::from(stream == OutputStream::Stderr)];
            writer.append(text.as_bytes(), at_us);
        }

        fn open(&self, begin: StartPosition, follow: bool) -> Timeline {
            Timeline::open(self.home.path(), &BOTH, begin, u64::MAX, follow).unwrap()
        }

        fn all(&self, begin: StartPosition) -> String {
            text(&self.open(begin, false).read(true, 0).unwrap().lines)
        }
    }

    fn text(lines: &[Line]) -> String {
        let bytes = lines.iter().flat_map(|line| line.data.clone()).collect();
        String::from_utf8(bytes).unwrap()
    }

    use OutputStream::{Stderr, Stdout};

    fn alternating(segment_bytes: u64) -> Task {
        let mut task = Task::new(segment_bytes);
        task.print(Stdout, "one\ntw", 10);
        task.print(Stderr, "bad\n", 20);
        task.print(Stdout, "o\n", 30);
        task.print(Stderr, "worse\n", 40);
        task.print(Stdout, "three", 50);
        task
    }

    #[test]
    fn lines_of_both_outputs_come_in_the_order_of_their_ends() {
        let task = alternating(1_000);
        assert_eq!(
            task.all(StartPosition::Oldest),
            "one\nbad\ntwo\nworse\nthree"
        );
        assert_eq!(task.all(StartPosition::At(4, 4)), "two\nworse\nthree");
        for (lines, expected) in [
            (1, "three"),
            (3, "two\nworse\nthree"),
            (9, "one\nbad\ntwo\nworse\nthree"),
        ] {
            assert_eq!(task.all(StartPosition::Last(lines)), expected);
        }
        for (since, expected) in [
            (0, "one\nbad\ntwo\nworse\nthree"),
            (11, "bad\ntwo\nworse\nthree"),
            (31, "worse\nthree"),
            (51, ""),
        ] {
            assert_eq!(task.all(StartPosition::Since(since)), expected, "{since}");
        }
    }

    #[test]
    fn output_is_merged_across_segments_and_after_rotation() {
        assert_eq!(
            alternating(3).all(StartPosition::Oldest),
            "\no\nworse\nthree"
        );
        let mut task = Task::new(4);
        for number in 0..9 {
            task.print(Stdout, &format!("{number}\n"), number);
        }
        // Three segments of four bytes, the newest with one line.
        assert_eq!(task.all(StartPosition::Oldest), "4\n5\n6\n7\n8\n");
        assert_eq!(task.all(StartPosition::Since(7)), "7\n8\n");
    }

    #[test]
    fn lines_after_a_time_are_left_out() {
        let task = alternating(1_000);
        let mut timeline = task.open(StartPosition::Since(20), false);
        timeline.until_us = 30;
        let found = timeline.read(true, 0).unwrap();
        assert_eq!(
            (text(&found.lines).as_str(), found.is_over),
            ("bad\ntwo\n", true)
        );
    }

    #[test]
    fn a_follower_waits_for_line_ends_up_to_a_limit() {
        let mut task = alternating(1_000);
        let mut timeline = task.open(StartPosition::Last(1), true);
        let found = timeline.read(false, 60).unwrap();
        assert_eq!((found.lines.len(), found.is_over), (0, false));
        task.print(Stderr, "worst\n", 60);
        assert_eq!(text(&timeline.read(false, 70).unwrap().lines), "worst\n");
        task.print(Stdout, " and", 80);
        let late = 80 + LOG_PARTIAL_US_MAX;
        assert_eq!(
            text(&timeline.read(false, late).unwrap().lines),
            "three and"
        );
        task.print(Stdout, " more\nlast", 90);
        assert_eq!(text(&timeline.read(false, 100).unwrap().lines), " more\n");
        let found = timeline.read(true, 100).unwrap();
        assert_eq!((text(&found.lines).as_str(), found.is_over), ("last", true));
    }

    #[test]
    fn more_than_a_message_holds_comes_in_several() {
        let mut task = Task::new(8 << 20);
        for number in 0..5_000u64 {
            let stream = if number % 3 == 0 { Stderr } else { Stdout };
            task.print(stream, &format!("{number}\n"), number + 1);
        }
        let mut timeline = task.open(StartPosition::Oldest, false);
        let mut printed = String::new();
        let mut messages = 0;
        loop {
            let found = timeline.read(true, 0).unwrap();
            printed.push_str(&text(&found.lines));
            messages += 1;
            if found.is_over {
                break;
            }
        }
        assert_eq!(
            task.all(StartPosition::At(
                timeline.position().0,
                timeline.position().1
            )),
            ""
        );
        let expected: String = (0..5_000).map(|number| format!("{number}\n")).collect();
        assert!(printed == expected && messages == 5, "{messages}");
    }
}
