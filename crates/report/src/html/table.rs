//! Tables that a screen reader can walk through.

use super::flowing;
use crate::chart::tone_class;
use crate::markup::Element;
use crate::view::{Column, Entry, Part, Table, Tone};

/// A table that scrolls by itself where the page is narrow; `caption` names it.
pub(super) fn scrolling(table: &Table, caption: &str) -> Element {
    Element::new("div")
        .class("scroll")
        .with("tabindex", "0")
        .with("role", "region")
        .with("aria-label", format!("Table: {caption}"))
        .child(grid(table, caption))
}

fn grid(table: &Table, caption: &str) -> Element {
    let headings = table.columns.iter().map(heading);
    let head = Element::new("thead").child(Element::new("tr").children(headings));
    let row = |row: &Vec<Entry>| {
        let entries = row.iter().enumerate().map(|(index, entry)| match table.columns.get(index) {
            Some(Column { part: Part::Label, .. }) => {
                lines(Element::new("th").with("scope", "row"), &entry.lines)
            }
            Some(Column { part: Part::Text, .. }) => {
                lines(Element::new("td").class("prose-cell"), &entry.lines)
            }
            Some(Column { part: Part::Level, .. }) => level(entry),
            _ => number(entry),
        });
        Element::new("tr").children(entries)
    };
    Element::new("table")
        .child(Element::new("caption").class("visually-hidden").text(caption))
        .child(head)
        .child(Element::new("tbody").children(table.rows.iter().map(row)))
}

fn heading(column: &Column) -> Element {
    let heading = Element::new("th").with("scope", "col");
    let heading = if column.part == Part::Text { heading.class("prose-cell") } else { heading };
    let text = column.lines.join(" ");
    // An empty heading would be read as one.
    heading.text(if text.is_empty() { "\u{2013}".to_owned() } else { flowing(&text) })
}

/// A number and whatever is beside it.
fn level(entry: &Entry) -> Element {
    let cell = lines(toned(entry), entry.lines.get(..2).unwrap_or(&entry.lines));
    let more =
        entry.lines.iter().skip(2).map(|line| Element::new("span").class("beside").text(flowing(line)));
    cell.children(more)
}

/// A number, what is beside it, and the verdict in words.
fn number(entry: &Entry) -> Element {
    lines(toned(entry), &entry.lines)
}

fn toned(entry: &Entry) -> Element {
    let cell = Element::new("td");
    if entry.tone == Tone::Neutral { cell } else { cell.class(tone_class(entry.tone)) }
}

fn lines(cell: Element, lines: &[String]) -> Element {
    const CLASSES: [&str; 3] = ["value", "beside", "word"];
    let shown = lines.iter().zip(CLASSES).filter(|(line, _)| !line.is_empty());
    cell.children(shown.map(|(line, class)| Element::new("span").class(class).text(flowing(line))))
}
