//! Lists in order of first appearance, and lists in sentences.

/// The values of equal keys together.
pub(crate) fn grouped<K: PartialEq, V>(items: impl IntoIterator<Item = (K, V)>) -> Vec<(K, Vec<V>)> {
    let mut groups: Vec<(K, Vec<V>)> = Vec::new();
    for (key, value) in items {
        match groups.iter_mut().find(|(known, _)| *known == key) {
            Some((_, values)) => values.push(value),
            None => groups.push((key, vec![value])),
        }
    }
    groups
}

/// Each item once.
pub(crate) fn distinct<T: PartialEq>(items: impl IntoIterator<Item = T>) -> Vec<T> {
    grouped(items.into_iter().map(|item| (item, ()))).into_iter().map(|(item, _)| item).collect()
}

/// `a`, `a and b`, `a, b and c`.
pub(crate) fn listed(items: &[String]) -> String {
    match items {
        [rest @ .., last] if !rest.is_empty() => format!("{} and {last}", rest.join(", ")),
        all => all.concat(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn items_are_listed_as_in_a_sentence() {
        let of = |items: &[&str]| listed(&items.iter().map(|item| (*item).to_owned()).collect::<Vec<_>>());
        assert_eq!(
            [of(&[]), of(&["a"]), of(&["a", "b"]), of(&["a", "b", "c"])],
            ["", "a", "a and b", "a, b and c"]
        );
    }
}
