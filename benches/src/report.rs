//! What a bench shows: a table for people, lines of JSON for programs.
//!
//! A [`Figure`] says once how a figure of a row is called in both and how it is read; [`Spreads`] are the figures of all
//! runs. The table goes to standard output. Lines of JSON go to `NAME.jsonl` in the folder of the run, one for each
//! row of each run and one with the medians, and each names machine and settings; without a folder they are
//! not written. Plots go beside them ([`crate::plot`]).

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};

use serde::{Serialize, Serializer};

use crate::machine::Machine;

/// The median of some runs, with the least and the most of them.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Spread {
    /// Half of the runs had no more.
    pub median: f64,
    /// The least.
    pub least: f64,
    /// The most.
    pub most: f64,
}

impl Spread {
    /// Of the figures of all runs; zeros when there are none.
    pub fn of(figures: impl IntoIterator<Item = f64>) -> Self {
        let mut sorted: Vec<f64> = figures.into_iter().collect();
        sorted.sort_by(f64::total_cmp);
        let at = |index: usize| sorted.get(index).copied().unwrap_or(0.0);
        let last = sorted.len().saturating_sub(1);
        Self { median: at(last / 2), least: at(0), most: at(last) }
    }
}

/// A figure of rows: its name in lines of JSON, its columns in the table, and how it is read from a row.
pub struct Figure<R> {
    name: &'static str,
    head: &'static str,
    columns: Columns,
    of: fn(&R) -> f64,
}

impl<R> Figure<R> {
    /// Its name in lines of JSON.
    pub fn name(&self) -> &'static str {
        self.name
    }
}

/// The columns of a figure, with so many decimals.
#[derive(Clone, Copy)]
enum Columns {
    None,
    Median(usize),
    /// The median, and the least and the most beside it.
    Range(usize),
}

/// A figure of the lines of JSON alone.
pub const fn hidden<R>(name: &'static str, of: fn(&R) -> f64) -> Figure<R> {
    Figure { name, head: "", columns: Columns::None, of }
}

/// A figure whose median has a column, with so many decimals.
pub const fn median<R>(
    name: &'static str,
    head: &'static str,
    decimals: usize,
    of: fn(&R) -> f64,
) -> Figure<R> {
    Figure { name, head, columns: Columns::Median(decimals), of }
}

/// A figure whose median has a column, and the least and the most another one.
pub const fn range<R>(
    name: &'static str,
    head: &'static str,
    decimals: usize,
    of: fn(&R) -> f64,
) -> Figure<R> {
    Figure { name, head, columns: Columns::Range(decimals), of }
}

/// The heads of the figures' columns, as [`print`] takes them.
pub fn heads<R>(figures: &[Figure<R>]) -> String {
    let heads = figures.iter().filter_map(|figure| match figure.columns {
        Columns::None => None,
        Columns::Median(_) => Some(figure.head.to_owned()),
        Columns::Range(_) => Some(format!("{}|least-most", figure.head)),
    });
    heads.collect::<Vec<_>>().join("|")
}

/// The figures of some runs; in a line of JSON under their names.
pub struct Spreads(Vec<(&'static str, Columns, Spread)>);

impl Spreads {
    /// Of the rows of all runs.
    pub fn of<'r, R: 'r>(figures: &[Figure<R>], rows: impl IntoIterator<Item = &'r R>) -> Self {
        let rows: Vec<&R> = rows.into_iter().collect();
        let spread = |figure: &Figure<R>| Spread::of(rows.iter().map(|row| (figure.of)(row)));
        Self(figures.iter().map(|figure| (figure.name, figure.columns, spread(figure))).collect())
    }

    /// The figure of this name.
    ///
    /// # Panics
    /// If there is none.
    pub fn get(&self, name: &str) -> Spread {
        self.0.iter().find(|(known, ..)| *known == name).expect("a figure of the bench").2
    }

    /// The median of the figure of this name.
    ///
    /// # Panics
    /// If there is none.
    pub fn median(&self, name: &str) -> f64 {
        self.get(name).median
    }

    /// What stands below the heads.
    pub fn cells(&self) -> Vec<String> {
        let cells = self.0.iter().flat_map(|(_, columns, spread)| match *columns {
            Columns::None => Vec::new(),
            Columns::Median(decimals) => vec![format!("{:.decimals$}", spread.median)],
            Columns::Range(decimals) => vec![
                format!("{:.decimals$}", spread.median),
                format!("{:.decimals$}-{:.decimals$}", spread.least, spread.most),
            ],
        });
        cells.collect()
    }
}

impl Serialize for Spreads {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(name, _, spread)| (name, spread)))
    }
}

/// Whether a target is met, as a cell.
pub fn yes_or_no(met: bool) -> String {
    if met { "yes" } else { "NO" }.to_owned()
}

/// What one case of a bench came to.
pub struct Rows<C, R> {
    /// What was measured.
    pub case: C,
    /// What each run showed.
    pub rows: Vec<R>,
}

/// The output of one bench.
pub struct Report {
    folder: Option<PathBuf>,
    lines: Option<File>,
    machine: Machine,
    name: &'static str,
}

/// One line.
#[derive(Serialize)]
struct Line<'a, S: Serialize, F: Serialize> {
    bench: &'static str,
    run: Option<usize>,
    machine: &'a Machine,
    settings: &'a S,
    #[serde(flatten)]
    figures: &'a F,
}

impl Report {
    /// Opens the folder, which is made if it is missing; what a bench of that name left there is overwritten.
    pub fn open(name: &'static str, folder: Option<&Path>) -> Result<Self, String> {
        let lines = folder.map(|folder| {
            fs::create_dir_all(folder).map_err(|error| format!("no folder {}: {error}", folder.display()))?;
            let path = folder.join(format!("{name}.jsonl"));
            File::create(&path).map_err(|error| format!("cannot write {}: {error}", path.display()))
        });
        let lines = lines.transpose()?;
        Ok(Self { folder: folder.map(Path::to_path_buf), lines, machine: Machine::read(), name })
    }

    /// Measures every case once a run, in turn; writes each row.
    pub fn rounds<C, R: Serialize>(
        &mut self,
        runs: usize,
        settings: &impl Serialize,
        cases: impl IntoIterator<Item = C>,
        mut measure: impl FnMut(&mut C, usize) -> Result<R, String>,
    ) -> Result<Vec<Rows<C, R>>, String> {
        let fresh = |case| Rows { case, rows: Vec::with_capacity(runs) };
        let mut all: Vec<Rows<C, R>> = cases.into_iter().map(fresh).collect();
        for run in 0..runs {
            for Rows { case, rows } in &mut all {
                let row = measure(case, run)?;
                self.line(Some(run), settings, &row)?;
                rows.push(row);
            }
        }
        Ok(all)
    }

    /// Writes the figures of a row: of a run, or the medians.
    pub fn line(
        &mut self,
        run: Option<usize>,
        settings: &impl Serialize,
        figures: &impl Serialize,
    ) -> Result<(), String> {
        let Some(file) = &mut self.lines else { return Ok(()) };
        let line = Line { bench: self.name, run, machine: &self.machine, settings, figures };
        let text = serde_json::to_string(&line).map_err(|error| error.to_string())?;
        writeln!(file, "{text}").map_err(|error| format!("cannot write figures: {error}"))
    }

    /// Where a plot goes, if plots go anywhere.
    pub fn plot(&self, name: &str) -> Option<PathBuf> {
        self.folder.as_ref().map(|folder| folder.join(name))
    }
}

/// Prints rows under their heads, between which stand `|`: the first column to the left, the others to the right. A row
/// that is shorter than the heads says something instead of figures: its second cell goes on over all columns.
pub fn print(title: &str, heads: &str, rows: &[Vec<String>]) {
    println!("{}", table(title, heads, rows));
}

fn table(title: &str, heads: &str, rows: &[Vec<String>]) -> String {
    let heads: Vec<String> = heads.split('|').map(str::to_owned).collect();
    let cell = |row: &[String], column: usize| row.get(column).map_or(0, |text| text.chars().count());
    let width = |column: usize| {
        let counts = |row: &&Vec<String>| column == 0 || row.len() == heads.len();
        let most = rows.iter().filter(counts).map(|row| cell(row, column)).max().unwrap_or(0);
        most.max(heads[column].chars().count())
    };
    let widths: Vec<usize> = (0..heads.len()).map(width).collect();
    let line = |cells: &[String]| {
        let padded = cells.iter().zip(&widths).enumerate().map(|(column, (text, &width))| match column {
            0 => format!("{text:<width$}"),
            _ if cells.len() < heads.len() => text.clone(),
            _ => format!("{text:>width$}"),
        });
        padded.collect::<Vec<_>>().join("  ").trim_end().to_string() + "\n"
    };
    let rule = "-".repeat(widths.iter().sum::<usize>() + 2 * (widths.len() - 1));
    let rows: String = rows.iter().map(|row| line(row)).collect();
    format!("\n{title}\n\n{}{rule}\n{rows}", line(&heads))
}

#[cfg(test)]
mod tests {
    use super::{Figure, Spread, Spreads, heads, hidden, median, range, table};

    #[test]
    fn the_spread_names_median_least_and_most() {
        assert_eq!(Spread::of([3.0, 1.0, 2.0]), Spread { median: 2.0, least: 1.0, most: 3.0 });
        assert_eq!(Spread::of([4.0]).median, 4.0);
        assert_eq!(Spread::of([]).median, 0.0);
    }

    #[test]
    fn a_figure_has_a_name_in_json_and_columns_in_the_table() {
        const FIGURES: &[Figure<[f64; 2]>] = &[
            median("first", "one", 1, |row| row[0]),
            hidden("sum", |row| row[0] + row[1]),
            range("second", "two", 0, |row| row[1]),
        ];
        let spreads = Spreads::of(FIGURES, &[[1.0, 20.0], [2.0, 30.0], [4.0, 10.0]]);
        assert_eq!(heads(FIGURES), "one|two|least-most");
        assert_eq!(spreads.cells(), ["2.0", "20", "10-30"]);
        assert_eq!((spreads.median("sum"), spreads.get("second").most), (21.0, 30.0));
        let line = serde_json::to_value(&spreads).unwrap();
        assert_eq!((&line["sum"]["least"], &line["first"]["median"]), (&14.0.into(), &2.0.into()));
    }

    #[test]
    fn columns_stand_under_their_heads() {
        let rows = [vec!["alone".to_string(), "7".to_string()], vec!["storm".into(), "1234567".into()]];
        let text = table("Title", "case|p99", &rows);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(
            lines,
            ["", "Title", "", "case       p99", "--------------", "alone        7", "storm  1234567"]
        );
    }

    #[test]
    fn a_row_without_figures_goes_on_over_all_columns() {
        let rows = [vec!["a".to_string(), "1".into(), "2".into()], vec!["b".into(), "not here".into()]];
        let text = table("Title", "way|p50|p99", &rows);
        let lines: Vec<&str> = text.lines().skip(3).collect();
        assert_eq!(lines, ["way  p50  p99", "-------------", "a      1    2", "b    not here"]);
    }
}
