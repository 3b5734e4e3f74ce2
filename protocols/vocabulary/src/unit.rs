//! Numbers with a unit, as users write them: `500ms`, `100mbit`, `8w`.

use std::time::Duration;

/// The number × its unit; `None` if it is no number or has no such unit.
pub fn parse_with_unit(text: &str, units: &[(&str, f64)]) -> Option<f64> {
    let at = text.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(text.len());
    let (number, unit) = text.split_at(at);
    let (_, factor) = units.iter().find(|(name, _)| *name == unit)?;
    Some(number.trim().parse::<f64>().ok()? * factor)
}

/// `90s`, `2m`, `500ms`: in the first of these units, given in ms, that makes a whole number.
pub fn print_duration(duration: Duration, units: &[(&str, u128)]) -> String {
    let millis = duration.as_millis();
    let whole = units.iter().find(|(_, unit_ms)| millis > 0 && millis.is_multiple_of(*unit_ms));
    whole.map_or_else(|| "0s".to_owned(), |(unit, unit_ms)| format!("{}{unit}", millis / unit_ms))
}
