//! The link: the network between client and server.

use std::fmt;
use std::str::FromStr;

use ciphertoll_vocabulary::parse_with_unit;

use super::{Factor, LevelError, as_text, match_name, parse_modified};

/// The network between client and server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Link {
    /// This machine's loopback, or a unix socket.
    Local,
    /// The real network to a server at a URL.
    AsIs,
    /// An emulated long link on this machine.
    Emulated(LinkShape),
}

/// Parameters of an emulated link; the same in both directions, each with half of the round trip.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LinkShape {
    rtt_us: u32,
    jitter_us: u32,
    loss_ppm: u32,
    /// 0: unlimited.
    rate_kbit: u32,
}

impl Link {
    /// Levels with a name; the others are named by their round-trip time.
    pub const NAMED: [Self; 2] = [Self::Local, Self::AsIs];

    /// The parameters of an emulated link.
    pub fn shape(self) -> Option<LinkShape> {
        match self {
            Self::Local | Self::AsIs => None,
            Self::Emulated(shape) => Some(shape),
        }
    }
}

impl LinkShape {
    /// The longest round trip, jitter included.
    const MAX_MICROS: f64 = 10_000_000.0;
    const MOST_KBIT: f64 = 100_000_000.0;

    /// A link with this round trip, without jitter, loss or rate limit.
    pub const fn of_rtt_us(rtt_us: u32) -> Self {
        Self { rtt_us, jitter_us: 0, loss_ppm: 0, rate_kbit: 0 }
    }

    pub fn rtt_ns(self) -> u64 {
        u64::from(self.rtt_us) * 1_000
    }

    /// Maximum extra delay of a packet, each way, ns; uniformly distributed from 0.
    pub fn jitter_ns(self) -> u64 {
        u64::from(self.jitter_us) * 1_000
    }

    /// The share of lost packets, each way.
    pub fn loss(self) -> f64 {
        f64::from(self.loss_ppm) * 1e-6
    }

    /// Bandwidth each way; unlimited if absent.
    pub fn rate_bits_per_s(self) -> Option<u64> {
        (self.rate_kbit > 0).then(|| u64::from(self.rate_kbit) * 1_000)
    }

    /// Whether packets must pass one by one, as on a wire. Otherwise the kernel may pass a large segment, to be split
    /// later, which would be lost or delayed as a whole.
    pub fn needs_single_packets(self) -> bool {
        self.loss_ppm > 0 || self.rate_kbit > 0
    }

    /// Whether it only delays packets: no loss, jitter or rate limit.
    pub fn is_pure_delay(self) -> bool {
        self == Self::of_rtt_us(self.rtt_us)
    }

    fn modified(mut self, modifier: &str) -> Result<Option<Self>, LevelError> {
        let (key, value) = modifier.split_once('=').unwrap_or((modifier, ""));
        let (part, number) = match key {
            "jitter" => (&mut self.jitter_us, micros(value)),
            "loss" => (&mut self.loss_ppm, parts_per_million(value)),
            "rate" => (&mut self.rate_kbit, rate(value)),
            _ => return Ok(None),
        };
        let expected = "+jitter=2ms, +loss=1% up to 50%, +rate=100mbit";
        *part = number.ok_or_else(|| {
            LevelError::out_of_range(Factor::Link.label(), &format!("+{modifier}"), expected)
        })?;
        Ok(Some(self))
    }
}

/// A whole number of the smallest units: at least one and at most `most`.
fn within(number: f64, most: f64) -> Option<u32> {
    let value = number.round();
    (1.0..=most).contains(&value).then_some(value as u32)
}

fn micros(text: &str) -> Option<u32> {
    within(parse_with_unit(text, &[("us", 1.0), ("ms", 1e3), ("s", 1e6)])?, LinkShape::MAX_MICROS)
}

fn parts_per_million(text: &str) -> Option<u32> {
    within(text.strip_suffix('%')?.parse::<f64>().ok()? * 1e4, 500_000.0)
}

fn rate(text: &str) -> Option<u32> {
    within(parse_with_unit(text, &[("kbit", 1.0), ("mbit", 1e3), ("gbit", 1e6)])?, LinkShape::MOST_KBIT)
}

/// A quotient without trailing zeros.
fn scaled(value: u32, per_unit: u32, decimals: usize) -> String {
    let text = format!("{:.*}", decimals, f64::from(value) / f64::from(per_unit));
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

impl fmt::Display for LinkShape {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { rtt_us, jitter_us, loss_ppm, rate_kbit } = *self;
        write!(formatter, "{}ms", scaled(rtt_us, 1_000, 3))?;
        if jitter_us > 0 {
            write!(formatter, "+jitter={}ms", scaled(jitter_us, 1_000, 3))?;
        }
        if loss_ppm > 0 {
            write!(formatter, "+loss={}%", scaled(loss_ppm, 10_000, 4))?;
        }
        if rate_kbit > 0 {
            write!(formatter, "+rate={}mbit", scaled(rate_kbit, 1_000, 3))?;
        }
        Ok(())
    }
}

impl FromStr for LinkShape {
    type Err = LevelError;

    fn from_str(text: &str) -> Result<Self, LevelError> {
        let expected = "a round-trip time up to 10s, such as 45ms or 0.2ms, and +jitter, +loss, +rate";
        let shape = |name: &str| {
            let rtt_us = if ["0ms", "0us", "0s"].contains(&name) { Some(0) } else { micros(name) };
            rtt_us
                .map(Self::of_rtt_us)
                .ok_or_else(|| LevelError::out_of_range(Factor::Link.label(), text, expected))
        };
        parse_modified(Factor::Link, text, shape, Self::modified)
    }
}

impl fmt::Display for Link {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Local => formatter.write_str("local"),
            Self::AsIs => formatter.write_str("as-is"),
            Self::Emulated(shape) => shape.fmt(formatter),
        }
    }
}

impl FromStr for Link {
    type Err = LevelError;

    fn from_str(text: &str) -> Result<Self, LevelError> {
        if text.starts_with(|first: char| first.is_ascii_digit()) {
            return text.parse().map(Self::Emulated);
        }
        match_name(Factor::Link.label(), text, &Self::NAMED, |link| link.to_string())
    }
}

as_text!(Link, LinkShape);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_prints_in_the_format_it_is_parsed_from() {
        for text in [
            "local",
            "as-is",
            "0ms",
            "0.2ms",
            "44.6ms",
            "45ms",
            "170.1ms",
            "10000ms",
            "45ms+jitter=2ms+loss=1%+rate=100mbit",
            "1ms+loss=0.0001%",
            "1ms+jitter=0.001ms+loss=50%+rate=0.001mbit",
        ] {
            let link: Link = text.parse().unwrap_or_else(|error| panic!("{text}: {error}"));
            assert_eq!(link.to_string(), text);
        }
        let same = |text: &str| text.parse::<Link>().unwrap().to_string();
        assert_eq!(same("200us"), "0.2ms");
        assert_eq!(same("1s+rate=1gbit+jitter=500us"), "1000ms+jitter=0.5ms+rate=1000mbit");
    }

    #[test]
    fn invalid_links_are_refused() {
        for text in
            ["11s", "45", "-1ms", "1m", "1ms+loss=60%", "1ms+loss=1", "1ms+rate=fast", "1ms+x=1", "far"]
        {
            assert!(text.parse::<Link>().is_err(), "{text}");
        }
    }

    #[test]
    fn units_match_their_names() {
        let shape: LinkShape = "45ms+jitter=2ms+loss=1%+rate=100mbit".parse().unwrap();
        assert_eq!((shape.rtt_ns(), shape.jitter_ns()), (45_000_000, 2_000_000));
        assert_eq!((shape.loss(), shape.rate_bits_per_s()), (0.01, Some(100_000_000)));
    }
}
