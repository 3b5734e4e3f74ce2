//! Numbers in sentences.

/// `1 connection`, `12,345 queries`.
pub(crate) fn counted(count: u64, what: &str) -> String {
    let number = grouped(count);
    match (count, what.strip_suffix('y')) {
        (1, _) => format!("{number} {what}"),
        (_, Some(stem)) if !stem.ends_with(['a', 'e', 'o', 'u']) => format!("{number} {stem}ies"),
        _ => format!("{number} {what}s"),
    }
}

/// `12,345`.
pub(crate) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut grouped = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_have_the_right_form() {
        assert_eq!(counted(1, "query"), "1 query");
        assert_eq!(counted(0, "query"), "0 queries");
        assert_eq!(counted(2, "day"), "2 days");
        assert_eq!(counted(1_234_567, "connection"), "1,234,567 connections");
    }
}
