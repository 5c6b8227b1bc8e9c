//! Plots as SVG: latency by percentile; lines and groups of bars in [`series`], bars with targets in [`rows`],
//! what scripts have measured in [`points`].
//!
//! Plain files without scripts, for a report or a browser. Latencies stand on a logarithmic axis, percentiles on
//! one where each mark leaves a tenth of the requests of the mark before, so that the tail has its room.

pub mod points;
pub mod rows;
pub mod series;

use std::fmt::Display;
use std::ops::Range;
use std::path::Path;

use hdrhistogram::Histogram;
use plotters::chart::{ChartBuilder, ChartContext};
use plotters::coord::Shift;
use plotters::drawing::{DrawingArea, DrawingAreaErrorKind, IntoDrawingArea};
use plotters::element::{Cross, PathElement};
use plotters::prelude::{Cartesian2d, IntoLogRange, SVGBackend, SeriesLabelPosition};
use plotters::series::LineSeries;
use plotters::style::{BLACK, Color, RGBColor, WHITE};

/// Size of a plot, in pixels.
const SIZE: (u32, u32) = (960, 540);

/// The letters.
const FONT: &str = "sans-serif";

/// Colours that are told apart also by who does not see all of them (Okabe and Ito).
const COLOURS: [RGBColor; 7] = [
    RGBColor(0, 0, 0),
    RGBColor(86, 180, 233),
    RGBColor(0, 158, 115),
    RGBColor(230, 159, 0),
    RGBColor(213, 94, 0),
    RGBColor(0, 114, 178),
    RGBColor(204, 121, 167),
];

/// Points of a curve for each tenth part of the requests.
const POINTS_PER_DECADE: usize = 40;

/// A curve of latencies.
#[derive(Clone, Copy)]
pub struct Curve<'a> {
    /// What the legend says.
    pub name: &'a str,
    /// The latencies, in nanoseconds.
    pub latency_ns: &'a Histogram<u64>,
}

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

/// Draws latencies by percentile, with targets as (quantile, microseconds).
pub fn percentiles(
    path: &Path,
    title: &str,
    curves: &[Curve<'_>],
    targets: &[(f64, f64)],
) -> Result<(), String> {
    let area = SVGBackend::new(path, SIZE).into_drawing_area();
    draw_percentiles(&area, title, curves, targets).and_then(|()| area.present()).map_err(failed(path))
}

fn failed<E: Display>(path: &Path) -> impl Fn(E) -> String + '_ {
    move |error| format!("cannot draw {}: {error}", path.display())
}

type Drawn<'a> =
    Result<(), DrawingAreaErrorKind<<SVGBackend<'a> as plotters::backend::DrawingBackend>::ErrorType>>;

fn draw_percentiles<'a>(
    area: &Area<'a>,
    title: &str,
    curves: &[Curve<'_>],
    targets: &[(f64, f64)],
) -> Drawn<'a> {
    area.fill(&WHITE)?;
    let decades = decades(curves);
    let bounds = bounds_us(curves, targets);
    let mut chart = ChartBuilder::on(area)
        .caption(title, (FONT, 20))
        .margin(12)
        .margin_right(36)
        .x_label_area_size(44)
        .y_label_area_size(72)
        .build_cartesian_2d(0.0..decades, bounds.log_scale())?;
    chart
        .configure_mesh()
        .x_desc("percentile of requests")
        .y_desc("latency")
        .x_labels(decades as usize + 1)
        .x_label_formatter(&|at| percentile(*at))
        .y_label_formatter(&|us| duration(*us))
        .label_style((FONT, 14))
        .axis_desc_style((FONT, 15))
        .light_line_style(BLACK.mix(0.06))
        .bold_line_style(BLACK.mix(0.18))
        .draw()?;
    for (curve, colour) in curves.iter().zip(COLOURS.iter().cycle()) {
        let style = colour.stroke_width(2);
        chart
            .draw_series(LineSeries::new(points(curve.latency_ns, decades), style))?
            .label(curve.name)
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 20, y)], style));
    }
    let marks = targets
        .iter()
        .map(|&(quantile, us)| Cross::new((-(1.0 - quantile).log10(), us), 7, BLACK.stroke_width(2)));
    if !targets.is_empty() {
        chart
            .draw_series(marks)?
            .label("target: at most")
            .legend(|(x, y)| Cross::new((x + 10, y), 6, BLACK.stroke_width(2)));
    }
    legend(&mut chart, SeriesLabelPosition::UpperLeft)
}

fn legend<'a, X, Y>(
    chart: &mut ChartContext<'a, SVGBackend<'a>, Cartesian2d<X, Y>>,
    position: SeriesLabelPosition,
) -> Drawn<'a>
where
    X: plotters::coord::ranged1d::Ranged,
    Y: plotters::coord::ranged1d::Ranged,
{
    chart
        .configure_series_labels()
        .position(position)
        .background_style(WHITE.mix(0.85))
        .border_style(BLACK.mix(0.3))
        .label_font((FONT, 14))
        .draw()
}

/// How many tenths of tenths the curves have requests for.
fn decades(curves: &[Curve<'_>]) -> f64 {
    let most = curves.iter().map(|curve| curve.latency_ns.len()).max().unwrap_or(0);
    (most.max(10) as f64).log10().floor().clamp(1.0, 5.0)
}

fn points(latency_ns: &Histogram<u64>, decades: f64) -> Vec<(f64, f64)> {
    let own = (latency_ns.len().max(1) as f64).log10().min(decades);
    let count = (own * POINTS_PER_DECADE as f64) as usize;
    let at = |index: usize| index as f64 / POINTS_PER_DECADE as f64;
    let us = |at: f64| latency_ns.value_at_quantile(1.0 - 10f64.powf(-at)) as f64 / 1000.0;
    if latency_ns.is_empty() {
        Vec::new()
    } else {
        (0..=count).map(|index| (at(index), us(at(index)))).collect()
    }
}

/// Powers of ten around all that is shown.
fn bounds_us(curves: &[Curve<'_>], targets: &[(f64, f64)]) -> Range<f64> {
    let shown = curves.iter().filter(|curve| !curve.latency_ns.is_empty());
    let ends = shown.flat_map(|curve| [curve.latency_ns.min(), curve.latency_ns.max()]);
    let all = ends.map(|ns| ns.max(1) as f64 / 1000.0).chain(targets.iter().map(|(_, us)| *us));
    let (least, most) = all.fold((f64::MAX, 10.0f64), |(least, most), us| (least.min(us), most.max(us)));
    10f64.powf(least.min(most / 10.0).log10().floor())..10f64.powf(most.log10().ceil())
}

fn percentile(decades: f64) -> String {
    if decades < 0.01 {
        return "fastest".into();
    }
    let text = format!("{:.6}", 100.0 * (1.0 - 10f64.powf(-decades)));
    format!("p{}", text.trim_end_matches('0').trim_end_matches('.'))
}

fn duration(us: f64) -> String {
    match us {
        1e6.. => format!("{} s", us / 1e6),
        1e3.. => format!("{} ms", us / 1e3),
        _ => format!("{us} us"),
    }
}

/// Without what arithmetic leaves behind.
fn tidy(value: f64) -> f64 {
    format!("{value:.9}").parse().unwrap_or(value)
}

#[cfg(test)]
mod tests {
    use super::{Curve, percentile, percentiles};
    use hdrhistogram::Histogram;

    #[test]
    fn percentiles_are_named_as_people_name_them() {
        assert_eq!([0.0, 1.0, 2.0, 3.0].map(percentile), ["fastest", "p90", "p99", "p99.9"]);
    }

    #[test]
    fn plots_are_drawn_with_few_requests_and_with_none() {
        let folder = std::env::temp_dir().join(format!("splinter-plot-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let empty = Histogram::<u64>::new(3).unwrap();
        let mut three = empty.clone();
        [900, 40_000, 2_000_000].iter().for_each(|ns| three.record(*ns).unwrap());
        let curves =
            [Curve { name: "none", latency_ns: &empty }, Curve { name: "<three>", latency_ns: &three }];
        let path = folder.join("percentiles.svg");
        percentiles(&path, "Title", &curves, &[(0.99, 200.0)]).unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(text.starts_with("<svg") && text.contains("&lt;three&gt;") && text.contains("p90"), "{text}");
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
