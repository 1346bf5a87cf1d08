//! Merging the lines of several outputs on one screen.

use muster_documents::{Instant, LogLine};
use muster_proto::v1;

use crate::failure::Failure;
use crate::output::{Format, Screen, instant, to_json_line};

/// Prefixes of each line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::command::job) struct Marks {
    /// The task.
    pub(in crate::command::job) task: bool,
    /// The output stream.
    pub(in crate::command::job) stream: bool,
    /// The time.
    pub(in crate::command::job) time: bool,
}

/// One line, or a part of it.
#[derive(Clone, Copy, Debug)]
pub(in crate::command::job) struct Printed<'a> {
    pub(in crate::command::job) task: u32,
    pub(in crate::command::job) attempt: u32,
    pub(in crate::command::job) stream: v1::LogStream,
    pub(in crate::command::job) arrived_us: u64,
    pub(in crate::command::job) data: &'a [u8],
}

/// Prints lines as they arrive.
#[derive(Debug)]
pub(in crate::command::job) struct Printer {
    screen: Screen,
    job: u64,
    marks: Marks,
    /// The source of an unfinished line.
    open: Option<(u32, v1::LogStream)>,
}

impl Printer {
    pub(in crate::command::job) const fn new(screen: Screen, job: u64, marks: Marks) -> Self {
        Self {
            screen,
            job,
            marks,
            open: None,
        }
    }

    /// Prints a progress note on stderr.
    pub(in crate::command::job) fn note(&self, text: &str) {
        self.screen.progress(&format!("note: {text}"));
    }

    /// Prints a line, or a part of it.
    pub(in crate::command::job) fn print(&mut self, line: &Printed<'_>) -> Result<(), Failure> {
        if matches!(self.screen.format, Format::Json | Format::Jsonl) {
            let text = String::from_utf8_lossy(line.data);
            return self.screen.data(&to_json_line(&LogLine {
                job: self.job,
                task: line.task,
                attempt: line.attempt,
                stream: name(line.stream).to_owned(),
                time: Instant {
                    ms: line.arrived_us / 1_000,
                },
                text: text.strip_suffix('\n').unwrap_or(&text).to_owned(),
            })?);
        }
        let bytes = self.marked(line);
        self.screen.bytes(&bytes)
    }

    fn marked(&mut self, line: &Printed<'_>) -> Vec<u8> {
        let source = (line.task, line.stream);
        let mut bytes = Vec::new();
        if self.marks != Marks::default() && self.open != Some(source) {
            // Another source's line is unfinished.
            if self.open.is_some() {
                bytes.push(b'\n');
            }
            bytes.extend_from_slice(self.mark(line).as_bytes());
        }
        bytes.extend_from_slice(line.data);
        self.open = (!line.data.ends_with(b"\n")).then_some(source);
        bytes
    }

    fn mark(&self, line: &Printed<'_>) -> String {
        let mut labels = Vec::new();
        if self.marks.task {
            labels.push(format!("task {}", line.task));
        }
        if self.marks.stream {
            labels.push(name(line.stream).to_owned());
        }
        let mut mark = String::new();
        if self.marks.time {
            mark.push_str(&instant(line.arrived_us / 1_000));
            mark.push(' ');
        }
        if !labels.is_empty() {
            mark.push_str(&format!("[{}] ", labels.join(" ")));
        }
        mark
    }
}

/// Name of an output stream.
pub(in crate::command::job) const fn name(stream: v1::LogStream) -> &'static str {
    match stream {
        v1::LogStream::Stderr => "stderr",
        v1::LogStream::Both => "both",
        v1::LogStream::Unspecified | v1::LogStream::Stdout => "stdout",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn printer(marks: Marks) -> Printer {
        let screen = Screen {
            format: Format::Table,
            headers: true,
            quiet: true,
        };
        Printer::new(screen, 7, marks)
    }

    fn printed(marks: Marks, lines: &[(u32, v1::LogStream, &str)]) -> String {
        let mut printer = printer(marks);
        let bytes = lines.iter().flat_map(|(task, stream, text)| {
            printer.marked(&Printed {
                task: *task,
                attempt: 1,
                stream: *stream,
                arrived_us: 1_700_000_000_007_999,
                data: text.as_bytes(),
            })
        });
        String::from_utf8_lossy(&bytes.collect::<Vec<u8>>()).into_owned()
    }

    #[test]
    fn prefixes_appear_only_at_the_start_of_lines() {
        use v1::LogStream::{Stderr, Stdout};
        let lines = [
            (0, Stdout, "whole\n"),
            (1, Stdout, "begun"),
            (1, Stdout, " and ended\n"),
            (0, Stdout, "begun"),
            (0, Stderr, "bad\n"),
        ];
        let plain = printed(Marks::default(), &lines);
        assert_eq!(plain, "whole\nbegun and ended\nbegunbad\n");
        let marks = Marks {
            task: true,
            stream: true,
            time: false,
        };
        let expected = "[task 0 stdout] whole\n[task 1 stdout] begun and ended\n[task 0 stdout] begun\n\
                        [task 0 stderr] bad\n";
        assert_eq!(printed(marks, &lines), expected);
        let marks = Marks {
            time: true,
            ..Marks::default()
        };
        let expected = "2023-11-14T22:13:20.007Z whole\n";
        assert_eq!(printed(marks, &lines[..1]), expected);
    }
}
