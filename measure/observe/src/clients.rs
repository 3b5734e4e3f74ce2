//! The processes of clients, where the client runs on the machine that observes.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};

use crate::observation::{ClientProcess, Observation};

const MOST_PER_PAIR: usize = 20;
const MOST_CHARS: usize = 100;
/// How many the first screen names.
const MOST_NAMED: usize = 2;

impl Observation {
    /// Adds processes that had connections from an address to a server. Those of pairs without packets are left out.
    pub fn add_processes(&mut self, seen: impl IntoIterator<Item = (IpAddr, SocketAddr, ClientProcess)>) {
        let mut by_pair: HashMap<(IpAddr, SocketAddr), Vec<ClientProcess>> = HashMap::new();
        for (client, server, process) in seen {
            let server = SocketAddr::new(server.ip().to_canonical(), server.port());
            by_pair.entry((client.to_canonical(), server)).or_default().push(process);
        }
        for pair in &mut self.pairs {
            if let (Ok(client), Ok(server)) = (pair.client.parse(), pair.server.parse()) {
                pair.processes.extend(by_pair.remove(&(client, server)).unwrap_or_default());
                bound(&mut pair.processes);
            }
        }
    }
}

impl ClientProcess {
    /// Where it runs: its container or its service.
    #[must_use]
    pub fn place(&self) -> Option<&str> {
        self.container.as_deref().or(self.unit.as_deref())
    }

    /// `php-fpm in 3f2a91c0d7e1`.
    #[must_use]
    pub fn words(&self) -> String {
        match self.place() {
            Some(place) => format!("{} in {place}", self.name),
            None => self.name.clone(),
        }
    }
}

/// Leaves those with most connections. Their names are printable and short then, whoever chose them.
pub(crate) fn bound(processes: &mut Vec<ClientProcess>) {
    processes.sort_by_key(|process| Reverse(process.connections));
    processes.truncate(MOST_PER_PAIR);
    for process in processes {
        let places = [&mut process.container, &mut process.unit].into_iter().flatten();
        for text in places.chain([&mut process.name]) {
            *text = printable(text);
        }
    }
}

fn printable(text: &str) -> String {
    let is_printable = |c: char| c == ' ' || c.is_ascii_graphic() || c.is_alphanumeric();
    text.chars().map(|c| if is_printable(c) { c } else { '?' }).take(MOST_CHARS).collect()
}

/// ` (php-fpm in 3f2a91c0d7e1, cron and 3 more)`; nothing if none is known.
pub(crate) fn named(processes: &[ClientProcess]) -> String {
    if processes.is_empty() {
        return String::new();
    }
    let names: Vec<_> = processes.iter().take(MOST_NAMED).map(ClientProcess::words).collect();
    match processes.len() - names.len() {
        0 => format!(" ({})", names.join(" and ")),
        more => format!(" ({} and {more} more)", names.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn process(name: &str, connections: u64) -> ClientProcess {
        ClientProcess { name: name.to_owned(), container: None, unit: None, connections }
    }

    #[test]
    fn two_processes_are_named_and_others_counted() {
        let container = Some("3f2a91c0d7e1".to_owned());
        let shop = ClientProcess { container, ..process("php-fpm", 9) };
        assert_eq!(named(&[]), "");
        assert_eq!(named(std::slice::from_ref(&shop)), " (php-fpm in 3f2a91c0d7e1)");
        let cron = ClientProcess { unit: Some("cron.service".to_owned()), ..process("php", 2) };
        assert_eq!(
            named(&[shop.clone(), cron.clone()]),
            " (php-fpm in 3f2a91c0d7e1 and php in cron.service)"
        );
        let all = [shop, cron, process("psql", 1), process("java", 1)];
        assert_eq!(named(&all), " (php-fpm in 3f2a91c0d7e1, php in cron.service and 2 more)");
    }

    #[test]
    fn lists_and_names_are_bounded_and_printable() {
        let mut processes: Vec<_> = (0..100).map(|number| process("x", number)).collect();
        processes[99] = ClientProcess {
            container: Some("a\u{1b}[31m\n".to_owned()),
            unit: Some("\u{202e}".repeat(1_000)),
            ..process(&"n".repeat(1_000), 99)
        };
        bound(&mut processes);
        assert_eq!((processes.len(), processes[0].connections, processes[19].connections), (20, 99, 80));
        assert_eq!(processes[0].name, "n".repeat(MOST_CHARS));
        assert_eq!(processes[0].container.as_deref(), Some("a?[31m?"));
        assert_eq!(processes[0].unit, Some("?".repeat(MOST_CHARS)));
    }
}
