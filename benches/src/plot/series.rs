//! Lines over a number, and groups of bars: figures that compare a few sides over many points.

use std::path::Path;

use plotters::chart::{ChartBuilder, ChartContext};
use plotters::coord::ranged1d::{AsRangedCoord, Ranged, ValueFormatter};
use plotters::drawing::IntoDrawingArea;
use plotters::element::{Circle, PathElement, Rectangle};
use plotters::prelude::{Cartesian2d, IntoLogRange, SVGBackend, SeriesLabelPosition};
use plotters::series::LineSeries;
use plotters::style::{BLACK, Color, RGBColor, WHITE};

use crate::plot::{Area, COLOURS, Drawn, FONT, SIZE, failed, legend, tidy};

/// What stands around a figure.
#[derive(Clone, Copy)]
pub struct Axes<'a> {
    /// Above it.
    pub title: &'a str,
    /// Below it.
    pub x: &'a str,
    /// On its left.
    pub y: &'a str,
}

/// A line.
pub struct Series {
    /// What the legend says.
    pub name: String,
    /// Where it goes through, from left to right.
    pub points: Vec<(f64, f64)>,
}

/// How the height of a line grows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scale {
    /// As the value does, from zero.
    Linear,
    /// As its logarithm does.
    Logarithmic,
}

/// One of several pictures that stand above each other and share what is below them.
pub struct Panel<'a> {
    /// What stands around it.
    pub axes: Axes<'a>,
    /// Its height.
    pub scale: Scale,
    /// Its lines.
    pub series: Vec<Series>,
    /// Where their names stand.
    pub names: SeriesLabelPosition,
}

/// Bars that stand together, one of each side.
pub struct Group {
    /// What stands below them.
    pub name: String,
    /// How high they are.
    pub heights: Vec<f64>,
}

/// Draws lines, with a mark at each of their points.
pub fn lines(path: &Path, panel: &Panel<'_>) -> Result<(), String> {
    draw_panels(path, (SIZE.1, Scale::Linear), std::slice::from_ref(panel), true)
}

/// Draws panels above each other, all from the same left to the same right; the first one names the lines, and those
/// that have others. Marks are at points if so wished: for lines of few.
pub fn panels(path: &Path, across: Scale, panels: &[Panel<'_>], marks: bool) -> Result<(), String> {
    draw_panels(path, (SIZE.1 * 3 / 5, across), panels, marks)
}

fn draw_panels(
    path: &Path,
    (height, scale): (u32, Scale),
    panels: &[Panel<'_>],
    marks: bool,
) -> Result<(), String> {
    let area = SVGBackend::new(path, (SIZE.0, height * panels.len() as u32)).into_drawing_area();
    let all = || panels.iter().flat_map(|panel| &panel.series).flat_map(|series| &series.points);
    let left = all().map(|point| point.0).fold(f64::MAX, f64::min);
    let right = all().map(|point| point.0).fold(f64::MIN, f64::max);
    let across = left.min(right)..right.max(left + 1.0);
    let names = |panel: &Panel<'_>| panel.series.iter().map(|line| line.name.clone()).collect::<Vec<_>>();
    let draw = || {
        for (at, (area, panel)) in area.split_evenly((panels.len(), 1)).iter().zip(panels).enumerate() {
            let named = (at == 0 || names(panel) != names(&panels[0]), marks);
            match scale {
                Scale::Linear => draw_panel(area, panel, across.clone(), named)?,
                Scale::Logarithmic => draw_panel(area, panel, across.clone().log_scale(), named)?,
            }
        }
        area.present()
    };
    draw().map_err(failed(path))
}

/// Draws groups of bars; `names` are those of the bars of each group.
pub fn groups(path: &Path, axes: &Axes<'_>, names: &[&str], groups: &[Group]) -> Result<(), String> {
    let area = SVGBackend::new(path, SIZE).into_drawing_area();
    draw_groups(&area, axes, names, groups).and_then(|()| area.present()).map_err(failed(path))
}

fn colours() -> impl Iterator<Item = &'static RGBColor> {
    // Black is for lines that stand alone.
    COLOURS[1..].iter().cycle()
}

fn highest(values: impl Iterator<Item = f64>) -> f64 {
    values.fold(f64::MIN_POSITIVE, f64::max) * 1.15
}

fn draw_panel<'a, X>(area: &Area<'a>, panel: &Panel<'_>, across: X, (names, marks): (bool, bool)) -> Drawn<'a>
where
    X: AsRangedCoord<Value = f64>,
    X::CoordDescType: ValueFormatter<f64>,
{
    area.fill(&WHITE)?;
    let heights = || panel.series.iter().flat_map(|series| &series.points).map(|point| point.1);
    let mut builder = ChartBuilder::on(area);
    builder.margin(12).margin_right(36).x_label_area_size(44).y_label_area_size(84);
    if !panel.axes.title.is_empty() {
        builder.caption(panel.axes.title, (FONT, 20));
    }
    match panel.scale {
        Scale::Linear => {
            let chart = builder.build_cartesian_2d(across, 0.0..highest(heights()))?;
            draw_panel_lines(chart, panel, (names, marks))
        }
        Scale::Logarithmic => {
            let least = heights().fold(f64::MAX, f64::min).min(highest(heights()));
            let decades = 10f64.powf(least.log10().floor())..10f64.powf(highest(heights()).log10().ceil());
            let chart = builder.build_cartesian_2d(across, decades.log_scale())?;
            draw_panel_lines(chart, panel, (names, marks))
        }
    }
}

fn draw_panel_lines<'a, X, Y>(
    mut chart: ChartContext<'a, SVGBackend<'a>, Cartesian2d<X, Y>>,
    panel: &Panel<'_>,
    (names, marks): (bool, bool),
) -> Drawn<'a>
where
    X: Ranged<ValueType = f64> + ValueFormatter<f64>,
    Y: Ranged<ValueType = f64> + ValueFormatter<f64>,
{
    chart
        .configure_mesh()
        .x_desc(panel.axes.x)
        .y_desc(panel.axes.y)
        .x_label_formatter(&|value| tidy(*value).to_string())
        .y_label_formatter(&|value| tidy(*value).to_string())
        .label_style((FONT, 14))
        .axis_desc_style((FONT, 15))
        .light_line_style(WHITE)
        .bold_line_style(BLACK.mix(0.15))
        .draw()?;
    for (series, colour) in panel.series.iter().zip(colours()) {
        let style = colour.stroke_width(2);
        chart
            .draw_series(LineSeries::new(series.points.iter().copied(), style))?
            .label(series.name.as_str())
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 20, y)], style));
        if marks {
            chart.draw_series(series.points.iter().map(|&point| Circle::new(point, 3, colour.filled())))?;
        }
    }
    if names { legend(&mut chart, panel.names.clone()) } else { Ok(()) }
}

fn draw_groups<'a>(area: &Area<'a>, axes: &Axes<'_>, names: &[&str], groups: &[Group]) -> Drawn<'a> {
    area.fill(&WHITE)?;
    let top = highest(groups.iter().flat_map(|group| group.heights.iter().copied()));
    let mut chart = ChartBuilder::on(area)
        .caption(axes.title, (FONT, 20))
        .margin(12)
        .x_label_area_size(44)
        .y_label_area_size(72)
        .build_cartesian_2d(0.0..groups.len() as f64, 0.0..top)?;
    let name_at = |at: &f64| {
        // Labels stand at the middles of the groups.
        let group = groups.get(at.floor() as usize).filter(|_| (at.fract() - 0.5).abs() < 0.01);
        group.map_or(String::new(), |group| group.name.clone())
    };
    chart
        .configure_mesh()
        .disable_x_mesh()
        .x_desc(axes.x)
        .y_desc(axes.y)
        .x_labels(4 * groups.len() + 1)
        .x_label_formatter(&name_at)
        .label_style((FONT, 14))
        .axis_desc_style((FONT, 15))
        .light_line_style(WHITE)
        .bold_line_style(BLACK.mix(0.15))
        .draw()?;
    let width = 0.8 / names.len().max(1) as f64;
    for (index, (name, colour)) in names.iter().zip(colours()).enumerate() {
        let fill = colour.mix(0.8).filled();
        let bar = |(at, group): (usize, &Group)| {
            let left = at as f64 + 0.1 + index as f64 * width;
            let height = group.heights.get(index).copied().unwrap_or(0.0);
            Rectangle::new([(left, 0.0), (left + width * 0.95, height)], fill)
        };
        chart
            .draw_series(groups.iter().enumerate().map(bar))?
            .label(*name)
            .legend(move |(x, y)| Rectangle::new([(x, y - 5), (x + 20, y + 5)], fill));
    }
    legend(&mut chart, SeriesLabelPosition::UpperLeft)
}

#[cfg(test)]
mod tests {
    use plotters::prelude::SeriesLabelPosition;

    use super::{Axes, Group, Panel, Scale, Series, groups, lines, panels};

    #[test]
    fn lines_and_groups_name_what_they_show() {
        let folder = std::env::temp_dir().join(format!("splinter-series-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let axes = Axes { title: "Title", x: "across", y: "upwards" };
        let path = folder.join("lines.svg");
        let series = vec![Series { name: "a line".into(), points: vec![(30.0, 1.0), (95.0, 0.5)] }];
        let names = SeriesLabelPosition::LowerLeft;
        lines(&path, &Panel { axes, scale: Scale::Linear, series, names }).unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(["a line", "Title", "across", "upwards"].iter().all(|name| text.contains(name)), "{text}");
        let path = folder.join("panels.svg");
        let panel = |y: &'static str, scale: Scale| Panel {
            axes: Axes { title: "", x: "across", y },
            scale,
            series: vec![Series { name: "one way".into(), points: vec![(-1.0, 20.0), (2.0, 4_000.0)] }],
            names: SeriesLabelPosition::UpperLeft,
        };
        let both = [panel("upper", Scale::Linear), panel("lower", Scale::Logarithmic)];
        panels(&path, Scale::Linear, &both, false).unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(["upper", "lower", "one way", "10000"].iter().all(|name| text.contains(name)), "{text}");
        let group = |name: &str| Group { name: name.into(), heights: vec![1.0, 2.0] };
        groups(&path, &axes, &["ours", "theirs"], &["W1", "W2", "W3"].map(group)).unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(["W1", "W2", "W3", "ours", "theirs"].iter().all(|name| text.contains(name)), "{text}");
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
