//! The files of `research/evidence`: the contents of each publication, and an item for each table or figure that was measured.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail, ensure};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

/// The file with the contents of the publications.
const CONTENTS: &str = "contents.toml";

pub(super) struct Catalogue {
    pub(super) publications: Vec<Publication>,
    pub(super) items: Vec<Item>,
    /// The repository, for commands that are scripts.
    pub(super) root: PathBuf,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Contents {
    publication: Vec<Publication>,
}

/// Every table and figure of a publication, by its caption's number.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Publication {
    /// As `docs/references.md` cites it.
    pub(super) name: String,
    /// The items with measurements; each has a file.
    pub(super) measured: Vec<String>,
    /// The others, and why they need no measurement.
    pub(super) drawings: BTreeMap<String, String>,
}

/// A table, a figure or a section with numbers.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Item {
    /// The file's name without its ending.
    #[serde(skip)]
    pub(super) id: String,
    /// The publication, as `docs/references.md` cites it.
    pub(super) publication: String,
    /// `table 5.1`, `figure 12`, or a section.
    pub(super) item: String,
    /// Items of other publications that show the same measurement.
    #[serde(default)]
    pub(super) same: Vec<Same>,
    /// The section that describes the measurement.
    pub(super) section: String,
    /// What the original shows.
    pub(super) shows: String,
    /// Why ours differs.
    pub(super) why: String,
    pub(super) run: Vec<Run>,
    #[serde(default)]
    pub(super) row: Vec<Row>,
    #[serde(default)]
    pub(super) claim: Vec<Claim>,
    pub(super) chart: Option<Chart>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Same {
    pub(super) publication: String,
    pub(super) item: String,
}

/// Commands that fill one result file. Items with a run of the same name share it.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Run {
    pub(super) name: String,
    /// Command lines as a person types them. `$OUT` is the run's folder; without it, standard output is the result.
    pub(super) commands: Vec<String>,
    /// The command lines of the short form.
    #[serde(default)]
    pub(super) short: Vec<String>,
    /// Why there is no short form.
    #[serde(default)]
    pub(super) no_short: Option<String>,
    /// The result file in the run's folder.
    #[serde(default = "results")]
    pub(super) file: String,
    #[serde(default)]
    pub(super) needs: Vec<Need>,
    /// About how long it takes.
    pub(super) minutes: f64,
    #[serde(default)]
    pub(super) short_seconds: f64,
    /// In virtual time: the same on every machine.
    #[serde(default)]
    pub(super) virtual_time: bool,
}

fn results() -> String {
    "results.jsonl".to_owned()
}

/// A requirement of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Need {
    Namespaces,
    Root,
    Guests,
    Perf,
}

/// Numbers of the result file: one, or a curve.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Row {
    pub(super) name: String,
    /// The run; the item's first if not given.
    pub(super) run: Option<String>,
    /// A list in each line whose elements are taken instead of the line.
    pub(super) each: Option<String>,
    /// Values of the lines that count, by path; `none` is null.
    #[serde(rename = "where")]
    pub(super) filter: BTreeMap<String, Value>,
    /// A path, or values that replace `{x}` in `where`.
    pub(super) x: Option<Abscissa>,
    /// The path of the number, of a list of numbers, or of a list of pairs.
    pub(super) y: String,
    /// Factor for the unit.
    pub(super) scale: Option<f64>,
    /// Another row: this one is divided by it.
    pub(super) over: Option<String>,
    /// Another row: this one is shown as per cent below it.
    pub(super) below: Option<String>,
    pub(super) unit: String,
    /// The published numbers, in the order of the points.
    pub(super) published: Option<Numbers>,
    /// Ours divided by the published, at least and at most.
    pub(super) ratio: Option<[f64; 2]>,
    /// The expected ratio is for the long form alone.
    pub(super) long: bool,
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
pub(super) enum Abscissa {
    Path(String),
    Values(Vec<f64>),
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
pub(super) enum Numbers {
    One(f64),
    Many(Vec<f64>),
}

impl Numbers {
    pub(super) fn as_slice(&self) -> &[f64] {
        match self {
            Self::One(number) => std::slice::from_ref(number),
            Self::Many(numbers) => numbers,
        }
    }
}

/// A sentence about rows that can be checked.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Claim {
    pub(super) says: String,
    pub(super) row: String,
    /// Each point is at least `times` that of this row.
    #[serde(default)]
    pub(super) above: Option<String>,
    #[serde(default = "once")]
    pub(super) times: f64,
    #[serde(default)]
    pub(super) order: Option<Order>,
    /// The part of the greatest value by which `order` may be missed.
    #[serde(default)]
    pub(super) slack: f64,
    /// Each point is within.
    #[serde(default)]
    pub(super) between: Option<[f64; 2]>,
    /// For the long form alone.
    #[serde(default)]
    pub(super) long: bool,
}

const fn once() -> f64 {
    1.0
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Order {
    Rises,
    Falls,
    Flat,
}

/// A drawing of the rows that are curves: those whose unit is the label of the y axis, or all where there is none.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Chart {
    pub(super) x: String,
    pub(super) y: String,
    /// Bars by category instead of curves.
    #[serde(default)]
    pub(super) bars: bool,
}

impl Catalogue {
    /// Reads the folder. Fails where a file cannot be understood, or refers to something that is not there.
    pub(super) fn read(folder: &Path) -> anyhow::Result<Self> {
        let contents = folder.join(CONTENTS);
        ensure!(
            contents.is_file(),
            "{} is missing: run this in the repository's folder, or name the catalogue with --catalogue",
            contents.display()
        );
        let publications = parse::<Contents>(&contents)?.publication;
        let entries =
            std::fs::read_dir(folder).with_context(|| format!("cannot read {}", folder.display()))?;
        let mut paths: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
        paths.retain(|path| path.extension().is_some_and(|ending| ending == "toml") && *path != contents);
        paths.sort();
        let mut items = Vec::new();
        for path in paths {
            let mut item: Item = parse(&path)?;
            item.id = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
            item.check().with_context(|| path.display().to_string())?;
            items.push(item);
        }
        let root = folder.canonicalize()?.ancestors().nth(2).unwrap_or(Path::new("/")).to_owned();
        let catalogue = Self { publications, items, root };
        catalogue.check()?;
        Ok(catalogue)
    }

    fn check(&self) -> anyhow::Result<()> {
        let mut runs: BTreeMap<&str, &Run> = BTreeMap::new();
        for item in &self.items {
            for run in &item.run {
                let first = runs.entry(&run.name).or_insert(run);
                ensure!(
                    *first == run,
                    "{}: run {:?} differs from the one of that name elsewhere",
                    item.id,
                    run.name
                );
            }
        }
        Ok(())
    }

    /// Tables and figures without a file and without a reason, and files whose item no publication has.
    pub(super) fn gaps(&self) -> Vec<String> {
        let covered: Vec<(&str, &str)> = self.items.iter().flat_map(Item::covers).collect();
        let mut gaps = Vec::new();
        for publication in &self.publications {
            let name = publication.name.as_str();
            let without = publication.measured.iter().filter(|item| !covered.contains(&(name, item)));
            gaps.extend(without.map(|item| format!("{name}, {item} has no file")));
        }
        for (name, item) in covered {
            let publication = self.publications.iter().find(|publication| publication.name == name);
            let is_known = item.starts_with("section ")
                || publication
                    .is_some_and(|publication| publication.measured.iter().any(|known| known == item));
            if !is_known {
                gaps.push(format!("{CONTENTS} has no {name}, {item}"));
            }
        }
        gaps
    }
}

impl Item {
    /// The publications and items whose measurement this is.
    pub(super) fn covers(&self) -> impl Iterator<Item = (&str, &str)> {
        let same = self.same.iter().map(|same| (same.publication.as_str(), same.item.as_str()));
        std::iter::once((self.publication.as_str(), self.item.as_str())).chain(same)
    }

    /// For a heading.
    pub(super) fn title(&self) -> String {
        let names: Vec<String> =
            self.covers().map(|(publication, item)| format!("{publication}, {item}")).collect();
        names.join(" = ")
    }

    fn check(&self) -> anyhow::Result<()> {
        ensure!(!self.run.is_empty(), "there is no [[run]]");
        for run in &self.run {
            ensure!(!run.commands.is_empty(), "run {:?} has no command", run.name);
            if run.short.is_empty() == run.no_short.is_none() {
                bail!("run {:?} needs either `short` or `no_short`", run.name);
            }
        }
        let row_of = |name: &str| {
            self.row.iter().find(|row| row.name == name).with_context(|| format!("there is no row {name:?}"))
        };
        for (place, row) in self.row.iter().enumerate() {
            ensure!(!row.name.is_empty() && !row.y.is_empty(), "row {place} lacks a name or `y`");
            ensure!(
                self.row[..place].iter().all(|other| other.name != row.name),
                "row {:?} is there twice",
                row.name
            );
            let run = row.run.as_ref();
            ensure!(
                run.is_none_or(|run| self.run.iter().any(|one| one.name == *run)),
                "row {:?} is of no run",
                row.name
            );
            ensure!(
                row.ratio.is_none() || row.published.is_some(),
                "row {:?} expects a ratio to nothing",
                row.name
            );
            for other in row.over.iter().chain(&row.below) {
                row_of(other)?;
            }
        }
        for claim in &self.claim {
            row_of(&claim.row)?;
            claim.above.as_ref().map(|other| row_of(other)).transpose()?;
            let kinds = [claim.above.is_some(), claim.order.is_some(), claim.between.is_some()];
            ensure!(
                kinds.into_iter().filter(|kind| *kind).count() == 1,
                "claim {:?} needs one of `above`, `order` and `between`",
                claim.says
            );
        }
        Ok(())
    }
}

fn parse<T: DeserializeOwned>(path: &Path) -> anyhow::Result<T> {
    let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    toml::from_str(&text).with_context(|| path.display().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn own() -> Catalogue {
        Catalogue::read(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../evidence")).unwrap()
    }

    /// The numbers of the captions of one kind, by chapter.
    fn numbers(publication: &Publication, kind: &str) -> BTreeMap<u32, Vec<u32>> {
        let mut chapters: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
        for item in publication.measured.iter().chain(publication.drawings.keys()) {
            let Some(number) = item.strip_prefix(kind) else { continue };
            let (chapter, number) = number.split_once('.').unwrap_or(("0", number));
            chapters.entry(chapter.parse().unwrap()).or_default().push(number.parse().unwrap());
        }
        chapters
    }

    #[test]
    fn every_table_and_figure_has_a_file_or_a_reason() {
        let catalogue = own();
        assert_eq!(catalogue.gaps(), [""; 0]);
        // The last caption of each kind in each publication, as its pages have them.
        let last: [(&str, usize, usize); 5] = [
            ("Birkedal 2006", 22, 4),
            ("Mapp 1997", 3, 0),
            ("Birkedal 2007", 8, 1),
            ("Choi 2007", 16, 3),
            ("Marigi 2012", 22, 7),
        ];
        for (publication, (name, figures, tables)) in catalogue.publications.iter().zip(last) {
            assert_eq!(publication.name, name);
            for (kind, count) in [("figure ", figures), ("table ", tables)] {
                let chapters = numbers(publication, kind);
                assert_eq!(chapters.values().map(Vec::len).sum::<usize>(), count, "{name}, {kind}");
                for (chapter, mut numbers) in chapters {
                    numbers.sort_unstable();
                    assert_eq!(
                        numbers,
                        (1..=numbers.len() as u32).collect::<Vec<_>>(),
                        "{name}, {kind}{chapter}"
                    );
                }
            }
            assert!(publication.drawings.values().all(|why| why.len() > 10), "{name}");
        }
    }

    #[test]
    fn an_item_without_a_file_and_a_file_without_an_item_are_gaps() {
        let mut catalogue = own();
        catalogue.publications[0].measured.push("figure 9.9".to_owned());
        catalogue.items[0].item = "table 77".to_owned();
        let gaps = catalogue.gaps().join("; ");
        assert!(
            gaps.contains("figure 9.9 has no file")
                && gaps.contains("contents.toml has no Birkedal 2006, table 77"),
            "{gaps}"
        );
    }

    #[test]
    fn short_form_takes_less_than_five_minutes() {
        let mut short: BTreeMap<String, f64> = BTreeMap::new();
        for item in own().items {
            assert!(
                !item.shows.is_empty() && !item.why.is_empty() && !item.section.is_empty(),
                "{}",
                item.id
            );
            assert!(!item.row.is_empty(), "{}", item.id);
            for run in item.run.iter().filter(|run| !run.short.is_empty()) {
                assert!(run.short_seconds > 0.0, "{}, {}", item.id, run.name);
                short.insert(run.name.clone(), run.short_seconds);
            }
        }
        assert!(short.values().sum::<f64>() < 300.0, "{short:?}");
    }

    #[test]
    fn a_mistake_in_a_file_is_named() {
        let item = |rest: &str| {
            let text = "publication = 'P'\nitem = 'table 1'\nsection = ''\nshows = ''\nwhy = ''\n".to_owned()
                + "[[run]]\nname = 'r'\ncommands = ['x']\nshort = ['x']\nminutes = 1\n[[row]]\nname = 'a'\ny = 'y'\n"
                + rest;
            toml::from_str::<Item>(&text).unwrap().check().map_err(|error| error.to_string())
        };
        assert_eq!(item(""), Ok(()));
        for (rest, message) in [
            ("over = 'b'", "no row \"b\""),
            ("ratio = [1, 2]", "a ratio to nothing"),
            ("run = 'other'", "of no run"),
            ("[[row]]\nname = 'a'\ny = 'y'", "there twice"),
            ("[[claim]]\nsays = 'so'\nrow = 'a'", "needs one of"),
            ("[[run]]\nname = 's'\ncommands = ['x']\nminutes = 1", "needs either `short` or `no_short`"),
        ] {
            let error = item(rest).unwrap_err();
            assert!(error.contains(message), "{rest}: {error}");
        }
    }
}
