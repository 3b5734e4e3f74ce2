//! Lays the view model out for a terminal.

use comfy_table::{CellAlignment, ContentArrangement, LineStyle, Table as Grid, presets};

use crate::view::{
    self, Column, ColumnKind, Overflow, Section, Sentence, SentenceGroup, Table, TableEntry, Tone, caveats,
    verdicts,
};
use crate::{RunReport, Style};

/// On narrower terminals lines are too long rather than unreadable.
const NARROWEST: usize = 40;
/// Longer lines are hard to read.
const WIDEST: usize = 110;

/// The report for a terminal of `width` columns; ends in a newline.
pub fn render(report: &RunReport<'_>, style: Style, width: u16) -> String {
    let canvas = Canvas::new(style, width);
    let strata = view::strata(report);
    let mut lines = canvas.heading(&verdicts::title(report));
    let banner = verdicts::banner(report, &strata);
    lines.extend(banner.iter().flat_map(|sentence| canvas.sentence(sentence, Indent::None)));
    for group in &verdicts::groups(report, &strata) {
        lines.extend(canvas.group(group));
    }
    for section in &view::sections(report, &strata) {
        lines.push(String::new());
        lines.extend(canvas.section(section));
    }
    lines.push(String::new());
    let footer = wrap(&caveats::footer(report), canvas.width);
    lines.extend(footer.iter().map(|line| canvas.paint(Ink::Faint, line)));
    let mut text = lines.iter().map(|line| line.trim_end()).collect::<Vec<_>>().join("\n");
    text.push('\n');
    text
}

/// A single table; every line ends in a newline.
pub(crate) fn table(table: &Table, style: Style, width: u16) -> String {
    let lines = Canvas { style, width: usize::from(width) }.table(table);
    lines.iter().fold(String::new(), |text, line| text + line + "\n")
}

/// Lays sentences and tables out in a width.
pub(crate) struct Canvas {
    style: Style,
    width: usize,
}

#[derive(Clone, Copy)]
enum Indent {
    None,
    Group,
}

#[derive(Clone, Copy)]
enum Ink {
    Bold,
    Faint,
    Of(Tone),
}

impl Canvas {
    pub(crate) fn new(style: Style, width: u16) -> Self {
        Self { style, width: usize::from(width).clamp(NARROWEST, WIDEST) }
    }

    pub(crate) fn bold(&self, text: &str) -> String {
        self.paint(Ink::Bold, text)
    }

    pub(crate) fn faint(&self, text: &str) -> String {
        self.paint(Ink::Faint, text)
    }

    /// Broken at the width.
    pub(crate) fn faint_lines(&self, text: &str) -> Vec<String> {
        wrap(text, self.width).iter().map(|line| self.faint(line)).collect()
    }

    pub(crate) fn plain_sentence(&self, sentence: &Sentence) -> Vec<String> {
        self.sentence(sentence, Indent::None)
    }

    /// Indented.
    pub(crate) fn group_sentence(&self, sentence: &Sentence) -> Vec<String> {
        self.sentence(sentence, Indent::Group)
    }

    pub(crate) fn heading(&self, text: &str) -> Vec<String> {
        wrap(text, self.width).iter().map(|line| self.paint(Ink::Bold, line)).collect()
    }

    fn group(&self, group: &SentenceGroup) -> Vec<String> {
        let mut lines = vec![String::new()];
        if let Some(heading) = &group.heading {
            lines.extend(self.heading(heading));
        }
        lines.extend(group.sentences.iter().flat_map(|sentence| self.sentence(sentence, Indent::Group)));
        lines
    }

    fn section(&self, section: &Section) -> Vec<String> {
        let mut lines = self.heading(&section.heading);
        if let Some(table) = &section.table {
            lines.extend(self.table(table));
        }
        lines.extend(section.notes.iter().flat_map(|note| self.sentence(note, Indent::None)));
        lines
    }

    /// A mark followed by the text; further lines are indented.
    fn sentence(&self, sentence: &Sentence, indent: Indent) -> Vec<String> {
        let margin = match indent {
            Indent::None => "",
            Indent::Group => "  ",
        };
        let mark = self.paint(Ink::Of(sentence.tone), sentence.tone.mark());
        let room = self.width - margin.len() - 2;
        let line = |(number, text): (usize, String)| {
            if number == 0 { format!("{margin}{mark} {text}") } else { format!("{margin}  {text}") }
        };
        wrap(&sentence.text, room).into_iter().enumerate().map(line).collect()
    }

    fn table(&self, table: &Table) -> Vec<String> {
        if let Some(lines) = self.fitting(table) {
            return lines;
        }
        match table.overflow {
            Overflow::SplitKinds => {
                let mut lines = Vec::new();
                for kind in [ColumnKind::Text, ColumnKind::Level, ColumnKind::Ratio] {
                    if !lines.is_empty() {
                        lines.push(String::new());
                    }
                    lines.extend(self.pieces(&table.only(kind)));
                }
                lines
            }
            Overflow::Transpose => self.pieces(&table.transposed()),
        }
    }

    /// As many tables as needed, each with as many columns as fit.
    fn pieces(&self, table: &Table) -> Vec<String> {
        let last = table.columns.len();
        let mut lines = Vec::new();
        let mut from = 1;
        while from < last {
            let widest =
                (from + 1..=last).rev().find_map(|to| Some((to, self.fitting(&table.slice(from..to))?)));
            let (to, piece) =
                widest.unwrap_or_else(|| (from + 1, self.broken_grid(&table.slice(from..from + 1))));
            lines.extend(piece);
            from = to;
        }
        lines
    }

    /// `None` if the table is too wide.
    pub(crate) fn fitting(&self, table: &Table) -> Option<Vec<String>> {
        // Without colours, because escapes have no width.
        let plain = Self { style: Style::Plain, width: self.width };
        let widest = plain.grid(table).iter().map(|line| line.chars().count()).max().unwrap_or(0);
        (widest <= self.width).then(|| self.grid(table))
    }

    fn grid(&self, table: &Table) -> Vec<String> {
        self.laid_out(table, Grid::new())
    }

    /// Breaks lines within entries, the last resort for a table that is too wide.
    fn broken_grid(&self, table: &Table) -> Vec<String> {
        let mut grid = Grid::new();
        grid.set_content_arrangement(ContentArrangement::Dynamic);
        grid.set_width(u16::try_from(self.width).unwrap_or(u16::MAX));
        self.laid_out(table, grid)
    }

    fn laid_out(&self, table: &Table, mut grid: Grid) -> Vec<String> {
        grid.load_style(presets::NOTHING.header_separator(LineStyle::none().fill('─').junction('─')));
        grid.force_no_tty();
        grid.set_header(table.columns.iter().map(|column| self.lines(Ink::Bold, &column.lines)));
        for row in &table.rows {
            grid.add_row(row.iter().map(|entry| self.lines(Ink::Of(entry.tone), &entry.lines)));
        }
        for (index, column) in grid.column_iter_mut().enumerate() {
            let is_text = table
                .columns
                .get(index)
                .is_none_or(|column| matches!(column.kind, ColumnKind::Label | ColumnKind::Text));
            column.set_padding((0, 1));
            column.set_cell_alignment(if is_text { CellAlignment::Left } else { CellAlignment::Right });
        }
        grid.lines().map(|line| line.trim_end().to_owned()).collect()
    }

    fn lines(&self, ink: Ink, lines: &[String]) -> String {
        lines.iter().map(|line| self.paint(ink, line)).collect::<Vec<_>>().join("\n")
    }

    fn paint(&self, ink: Ink, text: &str) -> String {
        let code = match ink {
            Ink::Of(Tone::Neutral) => return text.to_owned(),
            Ink::Bold => "1",
            Ink::Faint => "2",
            Ink::Of(Tone::Same | Tone::Better) => "32",
            Ink::Of(Tone::Negligible) => "36",
            Ink::Of(Tone::Unsure | Tone::Caution) => "33",
            Ink::Of(Tone::Worse) => "31",
        };
        match self.style {
            Style::Colour if !text.is_empty() => format!("\u{1b}[{code}m{text}\u{1b}[0m"),
            Style::Colour | Style::Plain => text.to_owned(),
        }
    }
}

impl Table {
    /// The label and the columns of one kind, without empty rows.
    fn only(&self, kind: ColumnKind) -> Self {
        let wanted = |&index: &usize| index == 0 || self.columns[index].kind == kind;
        let kept: Vec<usize> = (0..self.columns.len()).filter(wanted).collect();
        let mut table = self.select(&kept);
        let is_blank = |entry: &TableEntry| entry.lines.iter().all(String::is_empty);
        table.rows.retain(|row| !row.iter().skip(1).all(is_blank));
        table
    }

    fn slice(&self, columns: std::ops::Range<usize>) -> Self {
        self.select(&std::iter::once(0).chain(columns).collect::<Vec<_>>())
    }

    pub(crate) fn select(&self, kept: &[usize]) -> Self {
        let pick = |row: &Vec<TableEntry>| kept.iter().filter_map(|&index| row.get(index).cloned()).collect();
        Self {
            columns: kept.iter().map(|&index| self.columns[index].clone()).collect(),
            rows: self.rows.iter().map(pick).collect(),
            overflow: self.overflow,
        }
    }

    fn transposed(&self) -> Self {
        let label = |row: &Vec<TableEntry>| Column {
            lines: row.first().map(|entry| entry.lines.clone()).unwrap_or_default(),
            kind: ColumnKind::Level,
        };
        let row = |(index, column): (usize, &Column)| {
            let heading = TableEntry::new([column.lines.join(" ")]);
            std::iter::once(heading)
                .chain(self.rows.iter().filter_map(|row| row.get(index).cloned()))
                .collect()
        };
        Self {
            columns: self.columns.iter().take(1).cloned().chain(self.rows.iter().map(label)).collect(),
            rows: self.columns.iter().enumerate().skip(1).map(row).collect(),
            overflow: self.overflow,
        }
    }
}

/// Breaks at spaces, but never between a number and its unit. Breaks a word only if it is longer than a line, after a `/` if
/// possible.
pub(crate) fn wrap(text: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    let mut used = 0;
    for word in unbreakable(text).iter().flat_map(|word| pieces_of(word, width)) {
        let length = word.chars().count();
        if used > 0 && used + 1 + length > width {
            lines.push(String::new());
            used = 0;
        }
        let Some(line) = lines.last_mut() else { break };
        if used > 0 {
            line.push(' ');
            used += 1;
        }
        line.push_str(word);
        used += length;
    }
    lines
}

/// `word` in pieces of at most `width` characters.
fn pieces_of(word: &str, width: usize) -> Vec<&str> {
    let mut pieces = Vec::new();
    let mut rest = word;
    while let Some((end, _)) = rest.char_indices().nth(width.max(1)) {
        let at = rest[..end].rfind('/').map_or(end, |slash| slash + 1);
        let (piece, after) = rest.split_at(at);
        pieces.push(piece);
        rest = after;
    }
    pieces.push(rest);
    pieces
}

/// The words of a text; a number and its unit are one word.
pub(crate) fn unbreakable(text: &str) -> Vec<String> {
    const UNITS: [&str; 12] = ["µs", "ms", "s", "/s", "k/s", "M/s", "%", "×", "B", "KiB", "MiB", "GiB"];
    let mut words: Vec<String> = Vec::new();
    for word in text.split(' ').filter(|word| !word.is_empty()) {
        let bare = word.trim_end_matches([',', ';', ':', '.', ')']);
        let is_digit_group = bare.len() == 3 && bare.bytes().all(|byte| byte.is_ascii_digit());
        let is_unit = UNITS.contains(&bare) || is_digit_group;
        match words.last_mut().filter(|last| is_unit && last.ends_with(|c: char| c.is_ascii_digit())) {
            Some(number) => {
                number.push(' ');
                number.push_str(word);
            }
            None => words.push(word.to_owned()),
        }
    }
    words
}
