//! Rows of bars that lie: a name on the left, a bar of each column beside it. For many sides with long names.
//!
//! ```text
//!               p50, us                    M requests/s
//!   udp         |█████████ 12.1            |███ 0.09
//!   shm         |█ 0.91                    |█████████ 4.1
//! ```
//! A bar ends at the median; a thin line goes from the least to the most of the runs, a thick one across the target. A row
//! without figures says why.

use std::path::Path;

use plotters::drawing::IntoDrawingArea;
use plotters::element::{PathElement, Rectangle, Text};
use plotters::prelude::SVGBackend;
use plotters::style::text_anchor::{HPos, Pos, VPos};
use plotters::style::{BLACK, Color, IntoFont, WHITE};

use crate::plot::series::Scale;
use crate::plot::{Area, COLOURS, Drawn, FONT, SIZE, failed, tidy};
use crate::report::Spread;

/// Pixels of a row.
const ROW: i32 = 26;
/// Pixels above the rows: a title, and the names of the columns.
const HEAD: i32 = 74;
/// Pixels below the rows: the axes.
const FOOT: i32 = 34;
/// Pixels of the names.
const NAMES: i32 = 176;
/// Pixels on the right of the longest bar, for its figure.
const FIGURE: i32 = 64;

/// A column of bars.
pub struct Column<'a> {
    /// What stands above it.
    pub name: &'a str,
    /// How long bars are.
    pub scale: Scale,
}

/// A row.
pub struct PlotRow {
    /// Its name.
    pub name: String,
    /// Which colour it has; rows that belong together have the same.
    pub group: usize,
    /// A figure for each column, or why there are none.
    pub figures: Result<Vec<Spread>, String>,
    /// Where the target of the first column is, if there is one.
    pub target: Option<f64>,
}

/// Draws rows of bars.
pub fn rows(path: &Path, title: &str, columns: &[Column<'_>], rows: &[PlotRow]) -> Result<(), String> {
    let height = HEAD + ROW * rows.len() as i32 + FOOT;
    let area = SVGBackend::new(path, (SIZE.0, height as u32)).into_drawing_area();
    draw(&area, title, columns, rows).and_then(|()| area.present()).map_err(failed(path))
}

fn draw<'a>(area: &Area<'a>, title: &str, columns: &[Column<'_>], rows: &[PlotRow]) -> Drawn<'a> {
    area.fill(&WHITE)?;
    write(area, title, (SIZE.0 as i32 / 2, 26), HPos::Center, 20)?;
    let width = (SIZE.0 as i32 - NAMES) / columns.len().max(1) as i32;
    for (index, row) in rows.iter().enumerate() {
        write(area, &row.name, (NAMES - 10, middle(index)), HPos::Right, 14)?;
        if let Err(why) = &row.figures {
            write(area, why, (NAMES + 6, middle(index)), HPos::Left, 12)?;
        }
    }
    for (index, column) in columns.iter().enumerate() {
        let left = NAMES + index as i32 * width;
        let axis = Axis::new(column.scale, rows, index, (left, width - FIGURE));
        write(area, column.name, (left, HEAD - 18), HPos::Left, 15)?;
        draw_column(area, &axis, rows, index)?;
    }
    Ok(())
}

fn draw_column<'a>(area: &Area<'a>, axis: &Axis, rows: &[PlotRow], index: usize) -> Drawn<'a> {
    let bottom = HEAD + ROW * rows.len() as i32;
    for (row, figures) in
        rows.iter().enumerate().filter_map(|(at, row)| Some((at, row.figures.as_ref().ok()?)))
    {
        let Some(spread) = figures.get(index) else { continue };
        let (end, middle) = (axis.at(spread.median), middle(row));
        let colour = COLOURS[1 + rows[row].group % (COLOURS.len() - 1)];
        let bar = Rectangle::new([(axis.left, middle - 8), (end, middle + 8)], colour.mix(0.7).filled());
        area.draw(&bar)?;
        let thin = [(axis.at(spread.least), middle), (axis.at(spread.most), middle)];
        area.draw(&PathElement::new(thin, BLACK.stroke_width(1)))?;
        if let Some(at) = rows[row].target.filter(|_| index == 0).map(|target| axis.at(target)) {
            let across = [(at, middle - 11), (at, middle + 11)];
            area.draw(&PathElement::new(across, BLACK.stroke_width(2)))?;
        }
        let beside = end.max(axis.at(spread.most)) + 5;
        write(area, &figure(spread.median), (beside, middle), HPos::Left, 13)?;
    }
    for mark in axis.marks() {
        let at = axis.at(mark);
        // Where rows say why they have no figures, their words stay readable.
        area.draw(&PathElement::new([(at, bottom), (at, bottom + 5)], BLACK.stroke_width(1)))?;
        write(area, &format!("{mark}"), (at, bottom + 14), HPos::Center, 12)?;
    }
    area.draw(&PathElement::new([(axis.left, HEAD - 4), (axis.left, bottom)], BLACK.stroke_width(1)))?;
    area.draw(&PathElement::new(
        [(axis.left, bottom), (axis.left + axis.width, bottom)],
        BLACK.stroke_width(1),
    ))
}

/// The middle of a row.
fn middle(row: usize) -> i32 {
    HEAD + ROW * row as i32 + ROW / 2
}

fn write<'a>(area: &Area<'a>, text: &str, at: (i32, i32), across: HPos, size: i32) -> Drawn<'a> {
    let style = (FONT, size).into_font().color(&BLACK).pos(Pos::new(across, VPos::Center));
    area.draw(&Text::new(text.to_owned(), at, style))
}

/// From values to pixels.
struct Axis {
    scale: Scale,
    least: f64,
    most: f64,
    left: i32,
    width: i32,
}

impl Axis {
    fn new(scale: Scale, rows: &[PlotRow], index: usize, (left, width): (i32, i32)) -> Self {
        let spreads = || rows.iter().filter_map(|row| row.figures.as_ref().ok()?.get(index));
        let targets = rows.iter().filter_map(|row| row.target.filter(|_| index == 0));
        let most = spreads().map(|spread| spread.most).chain(targets).fold(f64::MIN_POSITIVE, f64::max);
        let (least, most) = match scale {
            Scale::Linear => (0.0, most),
            Scale::Logarithmic => {
                let least = spreads().map(|spread| spread.least).filter(|it| *it > 0.0).fold(most, f64::min);
                // Bars begin a bit before the shortest ends, at a number that people read.
                (round_below(least / 2.0), most)
            }
        };
        Self { scale, least, most: most.max(least * 1.01 + f64::MIN_POSITIVE), left, width }
    }

    fn at(&self, value: f64) -> i32 {
        let part = match self.scale {
            Scale::Linear => value / self.most,
            Scale::Logarithmic => {
                (value.max(self.least) / self.least).log10() / (self.most / self.least).log10()
            }
        };
        self.left + (part.clamp(0.0, 1.0) * f64::from(self.width)) as i32
    }

    /// Numbers below the axis.
    fn marks(&self) -> Vec<f64> {
        let mut marks = Vec::new();
        match self.scale {
            Scale::Linear => {
                let step = round_below(self.most / 3.0);
                let count = if step > 0.0 { (self.most / step) as i32 } else { 0 };
                marks.extend((0..=count).map(|number| tidy(f64::from(number) * step)));
            }
            Scale::Logarithmic => {
                let mut mark = self.least;
                while mark <= self.most && marks.len() < 64 {
                    marks.push(mark);
                    mark = tidy(mark * if is_two(mark) { 2.5 } else { 2.0 });
                }
                if marks.len() > 8 {
                    marks.retain(|mark| is_power(*mark));
                }
            }
        }
        marks
    }
}

/// The largest of 1, 2, 5, 10, 20 .. that is not above.
fn round_below(value: f64) -> f64 {
    let power = 10f64.powf(value.max(f64::MIN_POSITIVE).log10().floor());
    let first = [5.0, 2.0, 1.0].into_iter().find(|first| first * power <= value * 1.000_001).unwrap_or(1.0);
    tidy(first * power)
}

fn leading(value: f64) -> f64 {
    value / 10f64.powf(value.log10().floor())
}

fn is_two(value: f64) -> bool {
    (leading(value) - 2.0).abs() < 0.01
}

fn is_power(value: f64) -> bool {
    (leading(value) - 1.0).abs() < 0.01
}

fn figure(value: f64) -> String {
    match value.abs() {
        100.0.. => format!("{value:.0}"),
        10.0.. => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

#[cfg(test)]
mod tests {
    use super::{Axis, Column, PlotRow, figure, round_below, rows};
    use crate::plot::series::Scale;
    use crate::report::Spread;

    fn row(name: &str, values: &[f64]) -> PlotRow {
        let spread = |value: &f64| Spread { median: *value, least: value * 0.9, most: value * 1.2 };
        let figures = Ok(values.iter().map(spread).collect());
        PlotRow { name: name.into(), group: 0, figures, target: None }
    }

    #[test]
    fn axes_have_numbers_that_people_read() {
        assert_eq!([0.3, 1.0, 4.9, 5.0, 99.0].map(round_below), [0.2, 1.0, 2.0, 5.0, 50.0]);
        assert_eq!([0.913, 12.34, 456.7].map(figure), ["0.91", "12.3", "457"]);
        let rows = [row("a", &[0.9, 4.0]), row("b", &[30.0, 0.1])];
        let logarithmic = Axis::new(Scale::Logarithmic, &rows, 0, (100, 300));
        assert_eq!(logarithmic.marks(), [0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0]);
        assert!(logarithmic.at(0.9) > 100 && logarithmic.at(36.0) == 400);
        let linear = Axis::new(Scale::Linear, &rows, 1, (100, 300));
        assert_eq!(linear.marks(), [0.0, 1.0, 2.0, 3.0, 4.0]);
        assert_eq!((linear.at(0.0), linear.at(2.4), linear.at(99.0)), (100, 250, 400));
    }

    #[test]
    fn rows_are_drawn_with_figures_and_with_reasons() {
        let path = std::env::temp_dir().join(format!("splinter-rows-{}.svg", std::process::id()));
        let columns = [
            Column { name: "p50, us", scale: Scale::Logarithmic },
            Column { name: "M requests/s", scale: Scale::Linear },
        ];
        let without = PlotRow { figures: Err("not here".into()), ..row("memif", &[]) };
        let with = PlotRow { target: Some(20.0), ..row("udp", &[12.0, 0.4]) };
        rows(&path, "Title", &columns, &[with, without]).expect("it is drawn");
        let text = std::fs::read_to_string(&path).expect("there is a plot");
        for word in ["Title", "udp", "memif", "not here", "p50, us", "12.0", "0.40"] {
            assert!(text.contains(word), "{word}: {text}");
        }
        // Nothing at all is no reason to panic.
        rows(&path, "Title", &columns, &[]).expect("it is drawn");
        std::fs::remove_file(&path).expect("it is there");
    }
}
