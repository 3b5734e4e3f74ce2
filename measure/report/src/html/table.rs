//! Tables for screen readers and narrow pages.

use super::part::flowing;
use crate::markup::Element;
use crate::view::{Column, ColumnKind, Table, TableEntry, Tone};

/// A table that scrolls on narrow pages.
pub(super) fn scrolling(table: &Table, caption: &str) -> Element {
    scrolling_as("scroll", table, caption)
}

/// The same with wrapped names, for a table of many columns.
pub(super) fn wrapping(table: &Table, caption: &str) -> Element {
    scrolling_as("scroll wrapping", table, caption)
}

fn scrolling_as(class: &str, table: &Table, caption: &str) -> Element {
    Element::new("div")
        .class(class)
        .with("tabindex", "0")
        .with("role", "region")
        .with("aria-label", format!("Table: {caption}"))
        .child(grid(table, caption))
}

fn grid(table: &Table, caption: &str) -> Element {
    let headings = table.columns.iter().map(heading);
    let head = Element::new("thead").child(Element::new("tr").children(headings));
    let row = |row: &Vec<TableEntry>| {
        let entries = row.iter().enumerate().map(|(index, entry)| match table.columns.get(index) {
            Some(Column { kind: ColumnKind::Label, .. }) => {
                lines(Element::new("th").with("scope", "row"), &entry.lines)
            }
            Some(Column { kind: ColumnKind::Text, .. }) => {
                lines(Element::new("td").class("prose-cell"), &entry.lines)
            }
            Some(Column { kind: ColumnKind::Level, .. }) => level(entry),
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
    let heading = if column.kind == ColumnKind::Text { heading.class("prose-cell") } else { heading };
    match column.lines.as_slice() {
        // Screen readers announce an empty heading.
        [only] if only.is_empty() => heading.text("\u{2013}"),
        [only] => heading.text(flowing(only)),
        several => heading.children(several.iter().map(|line| Element::new("span").text(flowing(line)))),
    }
}

/// A number and its uncertainty.
fn level(entry: &TableEntry) -> Element {
    let cell = lines(toned(entry), entry.lines.get(..2).unwrap_or(&entry.lines));
    let more =
        entry.lines.iter().skip(2).map(|line| Element::new("span").class("beside").text(flowing(line)));
    cell.children(more)
}

/// A number, its uncertainty and the verdict.
fn number(entry: &TableEntry) -> Element {
    lines(toned(entry), &entry.lines)
}

fn toned(entry: &TableEntry) -> Element {
    let cell = Element::new("td");
    if entry.tone == Tone::Neutral { cell } else { cell.class(entry.tone.class()) }
}

fn lines(cell: Element, lines: &[String]) -> Element {
    const CLASSES: [&str; 3] = ["value", "beside", "word"];
    let shown = lines.iter().zip(CLASSES).filter(|(line, _)| !line.is_empty());
    cell.children(shown.map(|(line, class)| Element::new("span").class(class).text(flowing(line))))
}
