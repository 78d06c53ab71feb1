//! The tables of the manual's page.

use std::collections::{BTreeMap, BTreeSet};

const PAGE: &str = include_str!("../../../leasehold/src/manual/observing.md");

/// The rows of a section's table, cut into cells.
fn rows(section: &str) -> Vec<Vec<&'static str>> {
    let (_, rest) = PAGE.split_once(section).expect("the page has the section");
    let section = rest.split("\n## ").next().unwrap_or_default();
    let rows = section.lines().filter(|line| line.starts_with("| `"));
    let cells = |row: &'static str| row.split('|').skip(1).map(str::trim).collect();
    rows.map(cells).collect()
}

fn words(cell: &str) -> BTreeSet<String> {
    cell.split('`')
        .skip(1)
        .step_by(2)
        .map(str::to_owned)
        .collect()
}

/// Names with level and fields.
pub(crate) fn told(section: &str) -> BTreeMap<String, (String, BTreeSet<String>)> {
    let row = |cells: Vec<&str>| {
        let name = words(cells[0]).pop_first().expect("a name");
        (name, (cells[1].to_owned(), words(cells[2])))
    };
    rows(section).into_iter().map(row).collect()
}

/// Names with kind, unit and labels.
pub(crate) fn measured() -> BTreeMap<String, (String, String, BTreeSet<String>)> {
    let row = |cells: Vec<&str>| {
        let name = words(cells[0]).pop_first().expect("a name");
        (
            name,
            (cells[1].to_owned(), cells[2].to_owned(), words(cells[3])),
        )
    };
    rows("## Measurements").into_iter().map(row).collect()
}
