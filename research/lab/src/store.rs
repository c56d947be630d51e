//! Reads and writes result files: one line per run, each flushed before the next run begins.

use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, Seek, SeekFrom, Write};
use std::marker::PhantomData;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::schema::SCHEMA;

/// A line of a result file.
pub(crate) trait ResultLine: Serialize + DeserializeOwned {
    /// The line's type.
    const KIND: &str;

    /// Stores in the run what follows from it. Fails when it contradicts itself.
    fn measure(&mut self) -> anyhow::Result<()>;
}

/// Appends runs to a result file. A run is on its way to the disk before [`Writer::append`] returns.
pub(crate) struct Writer<R> {
    file: File,
    path: PathBuf,
    runs: PhantomData<R>,
}

impl<R: ResultLine> Writer<R> {
    /// Opens `path` for appending, creating it where it is missing, and returns the runs that it already holds.
    ///
    /// A last line without its end, which is what an interrupted run leaves behind, is cut off. Fails when another
    /// line cannot be read: a file that is not ours is never written to.
    pub(crate) fn resume(path: &Path) -> anyhow::Result<(Self, Vec<R>)> {
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(path)
            .with_context(|| format!("cannot open {} for writing", path.display()))?;
        let read = parse(BufReader::new(&file), path)?;
        file.set_len(read.whole_bytes)
            .and_then(|()| file.seek(SeekFrom::End(0)))
            .with_context(|| format!("cannot cut the unfinished last line off {}", path.display()))?;
        Ok((Self { file, path: path.to_owned(), runs: PhantomData }, read.runs))
    }

    /// Measures the run and appends it as one line.
    ///
    /// Fails when the run contradicts itself or when the line cannot be written; what was written of it is taken
    /// back, so that the file stays readable.
    pub(crate) fn append(&mut self, run: &mut R) -> anyhow::Result<()> {
        run.measure()?;
        let mut line = serde_json::to_vec(&Line { kind: R::KIND, schema: SCHEMA, data: &*run })
            .context("cannot write a run as JSON")?;
        line.push(b'\n');
        let start = self.file.stream_position().unwrap_or_default();
        if let Err(error) = self.file.write_all(&line).and_then(|()| self.file.sync_data()) {
            return Err(self.take_back(start, error));
        }
        Ok(())
    }

    fn take_back(&mut self, start: u64, error: io::Error) -> anyhow::Error {
        // Best effort: a line that stays torn is cut off by the next `resume`.
        let _ = self.file.set_len(start).and_then(|()| self.file.seek(SeekFrom::Start(start)));
        let advice = match error.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
                ": the disk is full; free some space and run the same command again, it goes on where it stopped"
            }
            _ => "",
        };
        anyhow::Error::new(error).context(format!("cannot append a run to {}{advice}", self.path.display()))
    }
}

/// Reads every run of a result file.
///
/// Fails with the line's number and the reason when a line is not a run of this schema, the unfinished last line of an
/// interrupted run included.
pub(crate) fn read<R: ResultLine>(path: &Path) -> anyhow::Result<Vec<R>> {
    let file = File::open(path).with_context(|| format!("cannot open {}", path.display()))?;
    let read = parse(BufReader::new(file), path)?;
    if let Some(line) = read.torn_line {
        bail!(
            "{}, line {line}: the line has no end, its run was interrupted; resume the experiment or remove the line",
            path.display()
        );
    }
    Ok(read.runs)
}

struct Parsed<R> {
    runs: Vec<R>,
    whole_bytes: u64,
    torn_line: Option<usize>,
}

fn parse<R: ResultLine>(mut input: impl BufRead, path: &Path) -> anyhow::Result<Parsed<R>> {
    let mut parsed = Parsed { runs: Vec::new(), whole_bytes: 0, torn_line: None };
    let mut line = Vec::new();
    for number in 1.. {
        line.clear();
        let length = input
            .read_until(b'\n', &mut line)
            .with_context(|| format!("{}, line {number}: cannot read", path.display()))?;
        if length == 0 {
            break;
        }
        if line.last() != Some(&b'\n') {
            parsed.torn_line = Some(number);
            break;
        }
        if !line.trim_ascii().is_empty() {
            let run = parse_line(&line).with_context(|| format!("{}, line {number}", path.display()))?;
            parsed.runs.push(run);
        }
        parsed.whole_bytes += length as u64;
    }
    Ok(parsed)
}

fn parse_line<R: ResultLine>(line: &[u8]) -> anyhow::Result<R> {
    let head: Head = serde_json::from_slice(line).context("not a line of a Freshwire result file")?;
    if head.schema != SCHEMA {
        bail!("schema {} is not known here; this program reads schema {SCHEMA}", head.schema);
    }
    if head.kind != R::KIND {
        bail!("type {:?} is not known here; this program reads {:?}", head.kind, R::KIND);
    }
    let line: Line<'_, R> = serde_json::from_slice(line).context("not a run")?;
    Ok(line.data)
}

#[derive(Deserialize)]
struct Head {
    #[serde(rename = "type")]
    kind: String,
    schema: u32,
}

#[derive(Serialize, Deserialize)]
struct Line<'a, T> {
    #[serde(rename = "type", borrow)]
    kind: &'a str,
    schema: u32,
    data: T,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::Run;
    use crate::testing;

    #[test]
    fn runs_come_back_as_they_were_appended() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("runs.jsonl");
        let (mut writer, before) = Writer::resume(&path).unwrap();
        assert_eq!(before, []);
        let mut first = testing::layers_run("tcp", 1);
        let mut second = testing::frames_run("freshwire", 2);
        writer.append(&mut first).unwrap();
        writer.append(&mut second).unwrap();
        assert!(first.metrics.is_some());
        assert_eq!(read::<Run>(&path).unwrap(), [first, second]);
    }

    #[test]
    fn a_torn_file_is_refused_by_readers_and_resumed_by_writers() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("runs.jsonl");
        let mut run = testing::layers_run("tcp", 1);
        Writer::resume(&path).unwrap().0.append(&mut run).unwrap();
        let whole = std::fs::read(&path).unwrap();
        let mut torn = whole.clone();
        torn.extend_from_slice(&whole[..whole.len() / 2]);
        std::fs::write(&path, torn).unwrap();

        let error = format!("{:#}", read::<Run>(&path).unwrap_err());
        assert!(error.contains("line 2") && error.contains("interrupted"), "{error}");

        let (mut writer, runs) = Writer::resume(&path).unwrap();
        assert_eq!(runs, [run.clone()]);
        writer.append(&mut run).unwrap();
        assert_eq!(read::<Run>(&path).unwrap().len(), 2);
    }

    #[test]
    fn the_reference_file_is_what_this_program_writes() {
        let slow = || testing::link(Some(262_144), 0.05, 20.0);
        testing::assert_reference(
            "runs",
            &mut [
                testing::layers_run("tcp", 1),
                testing::layers_run_on("tcp", slow(), 2, 5),
                testing::layers_run_on("thesis-improper", slow(), 3, 5),
                testing::frames_run("freshwire", 1),
            ],
            |_, _| (),
        );
    }

    #[test]
    fn errors_name_the_line_and_the_reason() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("runs.jsonl");
        for (line, reason) in [
            ("garbage\n", "not a line of a Freshwire result file"),
            ("{\"type\":\"run\",\"schema\":9,\"data\":{}}\n", "schema 9 is not known"),
            ("{\"type\":\"jog\",\"schema\":1,\"data\":{}}\n", "type \"jog\" is not known"),
            ("{\"type\":\"run\",\"schema\":1,\"data\":{}}\n", "missing field `plan`"),
        ] {
            std::fs::write(&path, format!("\n{line}")).unwrap();
            for error in [read::<Run>(&path).err(), Writer::<Run>::resume(&path).err()] {
                let error = format!("{:#}", error.unwrap());
                assert!(error.contains("line 2") && error.contains(reason), "{error}");
            }
            assert_eq!(
                std::fs::read_to_string(&path).unwrap(),
                format!("\n{line}"),
                "a foreign file is left alone"
            );
        }
    }

    #[test]
    fn a_full_disk_says_so() {
        let path = PathBuf::from("/dev/full");
        let file = OpenOptions::new().write(true).open(&path).unwrap();
        let mut writer = Writer { file, path, runs: PhantomData };
        let error = format!("{:#}", writer.append(&mut testing::layers_run("tcp", 1)).unwrap_err());
        assert!(error.contains("/dev/full") && error.contains("disk is full"), "{error}");
    }
}
