//! Where charts draw, in both widths: dots inside their panels, labels clear of bars.

use ciphertoll_model::{Event, Metric, Workload};
use ciphertoll_report::html;

use crate::at_rest::crossed;
use crate::fixture::{Run, keys, quick, troubled};
use crate::simulated::simulated;

/// A box in the units of its chart.
#[derive(Clone, Copy, Debug)]
struct Extent {
    left: f64,
    top: f64,
    right: f64,
    bottom: f64,
}

impl Extent {
    fn contains(&self, other: &Self) -> bool {
        self.left <= other.left
            && other.right <= self.right
            && self.top <= other.top
            && other.bottom <= self.bottom
    }

    /// Whether less than `space` is between the two.
    fn is_near(&self, other: &Self, space: f64) -> bool {
        self.left < other.right + space
            && other.left < self.right + space
            && self.top < other.bottom + space
            && other.top < self.bottom + space
    }
}

/// An opening tag and the text after it.
#[derive(Clone, Copy, Debug)]
struct Tag<'a> {
    name: &'a str,
    attributes: &'a str,
    text: &'a str,
}

impl<'a> Tag<'a> {
    fn attribute(&self, name: &str) -> &'a str {
        let opening = format!(" {name}=\"");
        let value = self.attributes.split_once(opening.as_str()).and_then(|(_, rest)| rest.split_once('"'));
        value.map_or("", |(value, _)| value)
    }

    fn number(&self, name: &str) -> f64 {
        self.attribute(name).parse().unwrap()
    }

    fn has_class(&self, class: &str) -> bool {
        self.attribute("class").split(' ').any(|name| name == class)
    }

    fn extent(&self) -> Option<Extent> {
        let around = |left: f64, top: f64, width: f64, height: f64| Extent {
            left,
            top,
            right: left + width,
            bottom: top + height,
        };
        match self.name {
            "rect" => {
                Some(around(self.number("x"), self.number("y"), self.number("width"), self.number("height")))
            }
            "circle" => {
                let [x, y, r] = ["cx", "cy", "r"].map(|name| self.number(name));
                Some(around(x - r, y - r, 2.0 * r, 2.0 * r))
            }
            "text" => {
                // The height and depth of letters of 13.5 units, the largest in the style sheet.
                const ABOVE: f64 = 10.5;
                const BELOW: f64 = 3.5;
                let width = self.text.chars().count() as f64 * 7.3;
                let left = self.number("x")
                    - match self.attribute("text-anchor") {
                        "start" => 0.0,
                        "middle" => width / 2.0,
                        _ => width,
                    };
                Some(around(left, self.number("y") - ABOVE, width, ABOVE + BELOW))
            }
            _ => None,
        }
    }
}

/// The tags of each chart of a page, without its key.
fn charts(page: &str) -> Vec<Vec<Tag<'_>>> {
    let charts = page.split("<svg").skip(1).map(|rest| rest.split_once("</svg>").unwrap().0);
    charts.map(|chart| chart.split("<g class=\"key\"").flat_map(without_key).collect()).collect()
}

/// What follows the beginning of a key, or the beginning of the chart.
fn without_key(piece: &str) -> impl Iterator<Item = Tag<'_>> {
    let is_key = piece.starts_with(" transform");
    let rest = if is_key { piece.split_once("</g>").unwrap().1 } else { piece };
    rest.split('<').skip(1).filter_map(|tag| {
        let (head, text) = tag.split_once('>')?;
        let (name, _) = head.split_once(' ').unwrap_or((head, ""));
        Some(Tag { name, attributes: head.strip_prefix(name)?, text })
    })
}

/// A run in which one block is far from the others.
fn with_an_outlier() -> Run {
    let mut run = simulated();
    let mut last_connect = None;
    for event in &mut run.events {
        if let Event::TrialFinished { block: 4, cell, observation, .. } = &mut event.event
            && cell.0.contains("tls1.3")
        {
            last_connect = observation.metrics.get_mut(&Metric::LatencyNsMean).map(|mean| *mean *= 9.0);
        }
    }
    assert!(last_connect.is_some());
    run.analysis = ciphertoll_stats::analyse(&run.plan, &run.events);
    run
}

#[test]
fn every_dot_of_a_block_lies_inside_its_panel() {
    for run in [simulated(), with_an_outlier()] {
        let page = html(&run.report());
        let mut dots = 0;
        for chart in charts(&page) {
            let mut panel = None;
            for tag in chart {
                if tag.has_class("panel") {
                    panel = tag.extent();
                } else if let (Some(panel), true) = (panel, tag.has_class("dot")) {
                    let dot = tag.extent().unwrap();
                    assert!(panel.contains(&dot), "{dot:?} is outside of {panel:?}");
                    dots += 1;
                }
            }
        }
        assert!(dots >= 200, "{dots}");
    }
}

#[test]
fn no_label_touches_a_bar() {
    /// What the eye needs to tell a letter from the bar below it.
    const SPACE: f64 = 2.0;
    for run in [simulated(), with_an_outlier(), keys(), quick(), troubled(), crossed()] {
        let page = html(&run.report());
        let mut labels = 0;
        for chart in charts(&page) {
            let extents = |name: &'static str| {
                let wanted = chart.iter().filter(move |tag| tag.name == name && !tag.has_class("inside"));
                wanted.filter_map(|tag| Some((*tag, tag.extent()?)))
            };
            let bars: Vec<(Tag<'_>, Extent)> = extents("rect").collect();
            for (tag, label) in extents("text") {
                let near = bars.iter().find(|(_, bar)| label.is_near(bar, SPACE));
                assert!(near.is_none(), "{tag:?} touches {near:?}");
                labels += 1;
            }
        }
        assert!(labels > 20, "{labels}");
    }
}

#[test]
fn the_reason_for_an_absent_percentile_is_below_its_chart() {
    let mut run = quick();
    let few =
        ciphertoll_model::Absence::TooFewSamples { samples: 145, needed: 1_000, window_ns: 750_000_000 };
    run.cell(Workload::Connect, crate::fixture::TLS13).absent.insert(Metric::LatencyNsP99, few);
    let page = html(&run.report()).replace('\u{a0}', " ");
    let figure = page.split_once("<figure id=\"stratum-1-percentiles\"").unwrap().1;
    let figure = figure.split_once("</figure>").unwrap().0;
    let reason =
        "No p99 latency for tls1.3-p256: 145 samples in a trial, 1000 are needed: use --trial-time 6s.";
    assert!(figure.contains(reason), "{figure}");
}
