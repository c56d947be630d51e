//! Man pages and shell completions, from a command's own definition.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use crate::output::say;
use anyhow::Context as _;
use clap_complete::Shell;
use clap_mangen::Man;

/// Write the man pages and shell completions.
///
/// Below the folder they lie where man, bash, zsh and fish look in a folder named `share`.
#[derive(clap::Args)]
#[command(after_help = "Example: freshwire generate ~/.local/share")]
pub struct GenerateArgs {
    /// A folder; it and its subfolders are made where they are missing.
    folder: PathBuf,
}

/// Shells, and the file below `share` in which each looks for the completions of a command: its path up to the name, and its ending.
const SHELLS: [(Shell, &str, &str); 3] = [
    (Shell::Bash, "bash-completion/completions/", ""),
    (Shell::Zsh, "zsh/site-functions/_", ""),
    (Shell::Fish, "fish/vendor_completions.d/", ".fish"),
];

/// Writes the files of the command `root`.
pub fn run(args: &GenerateArgs, root: clap::Command) -> anyhow::Result<ExitCode> {
    let name = root.get_name().to_owned();
    for (shell, path, ending) in SHELLS {
        let mut script = Vec::new();
        clap_complete::generate(shell, &mut root.clone(), &name, &mut script);
        write(&args.folder.join(format!("{path}{name}{ending}")), &script)?;
    }
    // Otherwise each page would have one for its `help` as well.
    let mut root = root.disable_help_subcommand(true);
    // Gives the subcommands their full names.
    root.build();
    let pages = write_pages(&root, &args.folder.join("man/man1"))?;
    say(&format!("{}: {pages} man pages, completions for bash, zsh and fish", args.folder.display()));
    Ok(ExitCode::SUCCESS)
}

/// Writes the page of a command and those of its subcommands, and returns how many.
fn write_pages(command: &clap::Command, folder: &Path) -> anyhow::Result<usize> {
    let page = Man::new(command.clone())
        .manual("Freshwire")
        .source(concat!("freshwire ", env!("CARGO_PKG_VERSION")));
    let mut text = Vec::new();
    page.render(&mut text).context("cannot render a man page")?;
    write(&folder.join(page.get_filename()), &text)?;
    let shown = command.get_subcommands().filter(|subcommand| !subcommand.is_hide_set());
    shown
        .map(|subcommand| write_pages(subcommand, folder))
        .sum::<anyhow::Result<usize>>()
        .map(|below| below + 1)
}

fn write(path: &Path, content: &[u8]) -> anyhow::Result<()> {
    let folder = path.parent().context("a file without a folder")?;
    fs::create_dir_all(folder)
        .and_then(|()| fs::write(path, content))
        .with_context(|| format!("cannot write {}; give a folder that can be written", path.display()))
}
