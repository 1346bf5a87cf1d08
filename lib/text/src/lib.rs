//! Text for people: tables, HTML pages, SVG pictures, and suggestions for misspelt names.
#![forbid(unsafe_code)]

mod page;
mod plot;
mod similar;
mod svg;
mod table;

pub use page::Page;
pub use plot::{Line, Plot};
pub use similar::{misspelt, nearest};
pub use svg::{Axis, Legend, Picture, colour};
pub use table::{Cell, Column, Table, Tone, paint};
