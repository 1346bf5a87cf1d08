//! Generator of docs/evaluation.md: `evaluation [--traces FOLDER] [--docs FOLDER] [--check] [SECTION...]`.
//!
//! The text of the page is written by hand; the tables between `<!-- figures: NAME -->` and `<!-- end -->`,
//! and the pictures next to the page, are replaced by the results of the simulations. The same traces give
//! the same bytes. `--check` writes nothing and fails if a file would change. Without sections all are
//! generated.

mod backfill;
mod defragmentation;
mod faults;
mod health;
mod page;
mod policies;
mod preemption;
mod sharing;
mod table;
mod traces;
mod work;

use std::error::Error;
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use page::Page;
use traces::Traces;

/// Any error ends the program with its message.
type Failure = Box<dyn Error + Send + Sync>;

/// Output of a section: tables by name, pictures by file name.
#[derive(Debug, Default)]
struct Figures {
    tables: Vec<(&'static str, String)>,
    pictures: Vec<(&'static str, String)>,
}

type Section = fn(&Traces) -> Result<Figures, Failure>;

const SECTIONS: [(&str, Section); 7] = [
    ("sharing", sharing::figures),
    ("policies", policies::figures),
    ("backfill", backfill::figures),
    ("preemption", preemption::figures),
    ("defragmentation", defragmentation::figures),
    ("faults", faults::figures),
    ("health", health::figures),
];

/// The command line.
struct Options {
    traces: PathBuf,
    docs: PathBuf,
    is_check: bool,
    sections: Vec<(&'static str, Section)>,
}

impl Options {
    fn read(mut arguments: impl Iterator<Item = String>) -> Result<Self, Failure> {
        let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("..");
        let mut options = Self {
            traces: root.join("../shared/data/traces"),
            docs: root.join("docs"),
            is_check: false,
            sections: Vec::new(),
        };
        while let Some(argument) = arguments.next() {
            let mut folder = || arguments.next().ok_or(format!("{argument} needs a folder"));
            match argument.as_str() {
                "--traces" => options.traces = folder()?.into(),
                "--docs" => options.docs = folder()?.into(),
                "--check" => options.is_check = true,
                name => {
                    let known = SECTIONS.into_iter().find(|(section, _)| *section == name);
                    options.sections.push(known.ok_or_else(|| unknown(name))?);
                }
            }
        }
        if options.sections.is_empty() {
            options.sections = SECTIONS.to_vec();
        }
        Ok(options)
    }
}

fn unknown(name: &str) -> String {
    let known = SECTIONS.map(|(section, _)| section).join(", ");
    format!("unknown section `{name}` (known: {known})")
}

fn main() -> Result<ExitCode, Failure> {
    let options = Options::read(std::env::args().skip(1))?;
    let traces = Traces::new(options.traces);
    let mut page = Page::read(&options.docs)?;
    for (name, section) in options.sections {
        writeln!(std::io::stderr(), "{name} ...")?;
        let figures = section(&traces)?;
        for (table, text) in figures.tables {
            page.replace(table, &text)?;
        }
        for (picture, svg) in figures.pictures {
            page.add_picture(picture, svg);
        }
    }
    let changed = match options.is_check {
        true => page.changes()?,
        false => page.write()?,
    };
    for path in &changed {
        writeln!(std::io::stdout(), "changed: {}", path.display())?;
    }
    let is_stale = options.is_check && !changed.is_empty();
    Ok(ExitCode::from(u8::from(is_stale)))
}
