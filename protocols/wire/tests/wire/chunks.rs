//! Passes bytes in portions, as a driver with one read buffer does.

/// Feeds `bytes` in portions of these sizes (the last one repeats) until `step` returns a result. Returns it with the
/// bytes that were not consumed.
pub(crate) fn feed<T>(
    bytes: &[u8],
    sizes: &[usize],
    mut step: impl FnMut(&mut &[u8]) -> Option<T>,
) -> (Option<T>, Vec<u8>) {
    let mut sizes = sizes.iter().copied().chain(std::iter::repeat(sizes.last().copied().unwrap_or(1)));
    let mut later = bytes;
    let mut received = Vec::new();
    loop {
        let mut input = received.as_slice();
        let answer = step(&mut input);
        let consumed = received.len() - input.len();
        received.drain(..consumed);
        if answer.is_some() || later.is_empty() {
            received.extend_from_slice(later);
            return (answer, received);
        }
        let size = sizes.next().unwrap_or(1).clamp(1, later.len());
        received.extend_from_slice(&later[..size]);
        later = &later[size..];
    }
}
