//! Points that a script has measured, as lines: `splinter-bench plot`.

use std::fs;
use std::path::PathBuf;

use clap::Args;
use plotters::prelude::SeriesLabelPosition;
use serde::Deserialize;

use super::series::{Axes, Panel, Scale, Series, panels};

/// The options of `splinter-bench plot`.
#[derive(Args, Clone, Debug)]
pub struct PlotSettings {
    /// Points, each a line of JSON: {"panel": what it shows, "line": its name, "x": number, "y": number}. Panels stand above
    /// each other, in the order of their first points; so do the names of lines in the legend.
    pub points: PathBuf,
    /// What stands above the plot.
    #[arg(long)]
    pub title: String,
    /// What x is.
    #[arg(long)]
    pub x: String,
    /// Whether x grows as its logarithm does.
    #[arg(long)]
    pub log_x: bool,
    /// Panels whose y grows as its logarithm does.
    #[arg(long, value_name = "PANEL")]
    pub log: Vec<String>,
    /// The SVG file.
    #[arg(long)]
    pub out: PathBuf,
}

#[derive(Deserialize)]
struct PlotPoint {
    panel: String,
    line: String,
    x: f64,
    y: f64,
}

/// Draws them.
///
/// # Errors
/// If the points cannot be read, or have no place on a logarithmic axis; if the plot cannot be written.
pub fn run(settings: &PlotSettings) -> Result<(), String> {
    let text = fs::read_to_string(&settings.points)
        .map_err(|error| format!("cannot read {}: {error}", settings.points.display()))?;
    let mut drawn: Vec<(String, Vec<Series>)> = Vec::new();
    for (number, text) in (1..).zip(text.lines()) {
        let PlotPoint { panel, line, x, y } =
            serde_json::from_str(text).map_err(|error| format!("line {number} is no point: {error}"))?;
        if (settings.log_x && x <= 0.0) || (settings.log.contains(&panel) && y <= 0.0) {
            return Err(format!("line {number}: zero and less have no logarithm"));
        }
        let at = position(&drawn, |(name, _)| *name == panel).unwrap_or_else(|| {
            drawn.push((panel, Vec::new()));
            drawn.len() - 1
        });
        let lines = &mut drawn[at].1;
        let at = position(lines, |known| known.name == line).unwrap_or_else(|| {
            lines.push(Series { name: line, points: Vec::new() });
            lines.len() - 1
        });
        lines[at].points.push((x, y));
    }
    if drawn.is_empty() {
        return Err(format!("{} has no points", settings.points.display()));
    }
    let (last, across) = (drawn.len() - 1, if settings.log_x { Scale::Logarithmic } else { Scale::Linear });
    let (names, lines): (Vec<_>, Vec<_>) = drawn.into_iter().unzip();
    let drawn = names.iter().zip(lines).enumerate().map(|(at, (name, series))| Panel {
        axes: Axes {
            title: if at == 0 { &settings.title } else { "" },
            x: if at == last { &settings.x } else { "" },
            y: name,
        },
        scale: if settings.log.contains(name) { Scale::Logarithmic } else { Scale::Linear },
        series,
        names: SeriesLabelPosition::UpperLeft,
    });
    let drawn: Vec<_> = drawn.collect();
    panels(&settings.out, across, &drawn, true)
}

fn position<T>(list: &[T], is_it: impl FnMut(&T) -> bool) -> Option<usize> {
    list.iter().position(is_it)
}

#[cfg(test)]
mod tests {
    use super::{PlotSettings, run};

    #[test]
    fn points_become_lines_of_panels_and_what_is_no_point_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let points = folder.path().join("points");
        let settings = PlotSettings {
            points: points.clone(),
            title: "Title".into(),
            x: "requests/s".into(),
            log_x: true,
            log: vec!["p99, us".into()],
            out: folder.path().join("plot.svg"),
        };
        let point = |panel: &str, line: &str, x: u32, y: u32| {
            format!("{{\"panel\":\"{panel}\",\"line\":\"{line}\",\"x\":{x},\"y\":{y}}}\n")
        };
        let good = [
            point("p50, us", "ours", 10, 1),
            point("p99, us", "ours", 10, 30),
            point("p50, us", "theirs", 2_000, 0),
            point("p50, us", "ours", 90_000, 7),
        ]
        .concat();
        std::fs::write(&points, &good).unwrap();
        run(&settings).unwrap();
        let drawn = std::fs::read_to_string(&settings.out).unwrap();
        for text in ["Title", "requests/s", "p50, us", "p99, us", "ours", "theirs"] {
            assert!(drawn.contains(text), "{text}: {drawn}");
        }
        for (bad, why) in [
            ("{}\n".to_owned(), "line 5 is no point"),
            (point("p99, us", "ours", 10, 0), "line 5: zero and less"),
            (point("p50, us", "ours", 0, 1), "line 5: zero and less"),
        ] {
            std::fs::write(&points, good.clone() + &bad).unwrap();
            assert!(run(&settings).unwrap_err().contains(why), "{bad}");
        }
        std::fs::write(&points, "").unwrap();
        assert!(run(&settings).unwrap_err().ends_with("has no points"));
    }
}
