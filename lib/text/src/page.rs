//! Self-contained HTML page: sentences, tables and pictures.

use std::fmt::Write as _;

use crate::plot::Plot;
use crate::svg::escape;
use crate::table::Table;

const STYLE: &str = "\
:root{color-scheme:light dark;--ink:#1c2330;--paper:#fff;--line:#d7dce4;--soft:#667085}\
@media(prefers-color-scheme:dark){:root{--ink:#e6e9ef;--paper:#14171c;--line:#333a45;--soft:#98a2b3}}\
body{font:15px/1.5 system-ui,sans-serif;color:var(--ink);background:var(--paper);max-width:940px;margin:2rem auto;\
padding:0 1rem}h1,h2,h3{line-height:1.2;margin:2rem 0 .6rem}p{margin:.4rem 0}.soft{color:var(--soft)}\
.scroll{overflow-x:auto}table{border-collapse:collapse;font-variant-numeric:tabular-nums;font-size:13px}\
th,td{padding:.25rem .6rem;text-align:right;border-bottom:1px solid var(--line);white-space:nowrap}\
th:first-child,td:first-child{text-align:left}svg{width:100%;height:auto;display:block}\
svg text{font:11px system-ui,sans-serif;fill:var(--soft)}.grid{stroke:var(--line);fill:none}\
.legend{display:flex;flex-wrap:wrap;gap:.2rem 1rem;font-size:13px}.legend i{display:inline-block;width:.8em;\
height:.8em;border-radius:2px;margin-right:.4em}";

/// A page being written; all text arguments are escaped.
#[derive(Clone, Debug)]
pub struct Page(String);

impl Page {
    /// A page with nothing but its title.
    #[must_use]
    pub fn titled(title: &str) -> Self {
        let mut page = Self(String::from(
            "<!doctype html><html lang=en><meta charset=utf-8>",
        ));
        let title = escape(title);
        page.add(&format!(
            "<meta name=viewport content='width=device-width'><title>{title}</title>"
        ));
        page.add(&format!("<style>{STYLE}</style><h1>{title}</h1>"));
        page
    }

    /// Returns the whole page.
    #[must_use]
    pub fn finish(self) -> String {
        self.0
    }

    /// Appends markup unchanged.
    pub fn add(&mut self, markup: &str) {
        self.0.push_str(markup);
        self.0.push('\n');
    }

    /// Starts a section.
    pub fn heading(&mut self, text: &str) {
        self.add(&format!("<h2>{}</h2>", escape(text)));
    }

    /// Paragraphs.
    pub fn sentences(&mut self, sentences: &[String]) {
        for sentence in sentences {
            self.add(&format!("<p class=soft>{}</p>", escape(sentence)));
        }
    }

    /// Appends a table.
    pub fn table(&mut self, table: &Table) {
        let head: String = table
            .titles()
            .map(|title| format!("<th>{}</th>", escape(title)))
            .collect();
        self.add(&format!("<div class=scroll><table><tr>{head}</tr>"));
        for row in table.rows() {
            let cells = row.iter();
            let cells: String = cells
                .map(|cell| format!("<td>{}</td>", escape(cell)))
                .collect();
            self.add(&format!("<tr>{cells}</tr>"));
        }
        self.add("</table></div>");
    }

    /// Names with their colours, as CSS writes them.
    pub fn legend(&mut self, legend: &[(String, String)]) {
        let mut markup = String::from("<div class=legend>");
        for (name, colour) in legend {
            let name = escape(name);
            write!(
                markup,
                "<span><i style='background:{colour}'></i>{name}</span>"
            )
            .expect("writing to a string cannot fail");
        }
        markup.push_str("</div>");
        self.add(&markup);
    }

    /// Lines over one axis, with their legend.
    pub fn plot(&mut self, plot: &Plot) {
        let (picture, legend) = plot.picture();
        self.legend(&legend);
        self.add(&picture.finish());
    }
}
