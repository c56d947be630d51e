//! `freshwire generate`: every command and option has its place in a man page and in the completions.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::support::run;

/// The subcommands and long options that `freshwire ... --help` shows.
fn shown(command: &[String]) -> (Vec<String>, Vec<String>) {
    let mut arguments: Vec<&str> = command.iter().map(String::as_str).collect();
    arguments.push("--help");
    let ended = run(&arguments).ok();
    let help = ended.text();
    let is_option = |word: &&str| word.len() > 2 && word.starts_with("--");
    let options = help
        .lines()
        .filter(|line| line.trim_start().starts_with('-'))
        .filter_map(|line| line.split([' ', ',', '=', '[']).find(is_option).map(str::to_owned))
        .collect();
    let below = help.split_once("Commands:\n").map_or("", |(_, rest)| rest);
    let commands = below
        .lines()
        .take_while(|line| !line.trim().is_empty())
        // A long description goes on in the next line, further to the right.
        .filter_map(|line| line.strip_prefix("  ")?.split(' ').next())
        .filter(|name| !name.is_empty() && *name != "help")
        .map(str::to_owned)
        .collect();
    (commands, options)
}

/// Checks the page of a command and of those below it, and returns how many there are.
fn check_pages(command: &[String], folder: &Path) -> usize {
    let name = ["freshwire".to_owned()].iter().chain(command).cloned().collect::<Vec<_>>().join("-");
    let page = fs::read_to_string(folder.join(format!("{name}.1")))
        .unwrap_or_else(|error| panic!("{name}: {error}"));
    let page = page.replace("\\-", "-");
    let (commands, options) = shown(command);
    for option in options {
        assert!(page.contains(&option), "{name}.1 lacks {option}");
    }
    commands.into_iter().map(|below| check_pages(&[command, &[below]].concat(), folder)).sum::<usize>() + 1
}

#[test]
fn every_command_and_option_has_its_man_page() {
    let folder = tempfile::tempdir().unwrap();
    run(&["generate", &folder.path().to_string_lossy()]).ok();
    let pages = folder.path().join("man/man1");
    let checked = check_pages(&[], &pages);
    assert!(checked > 10, "{checked} pages");
    assert_eq!(fs::read_dir(pages).unwrap().count(), checked, "a page of no command");
}

#[test]
fn bash_completes_commands_and_options() {
    let folder = tempfile::tempdir().unwrap();
    run(&["generate", &folder.path().to_string_lossy()]).ok();
    // What the shell does at a tab: the function gets the words and the position, and leaves its answers in COMPREPLY.
    let complete = |words: &str| {
        let script = format!(
            "source bash-completion/completions/freshwire; COMP_WORDS=({words}); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1)); \
             _freshwire freshwire \"${{COMP_WORDS[COMP_CWORD]}}\" \"${{COMP_WORDS[COMP_CWORD - 1]}}\"; echo \"${{COMPREPLY[@]}}\""
        );
        let output = Command::new("bash").args(["-c", &script]).current_dir(folder.path()).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    };
    assert_eq!(complete("freshwire se"), "send serve");
    assert_eq!(complete("freshwire serve --log-f"), "--log-format");
}

#[test]
fn a_folder_that_cannot_be_made_is_named() {
    run(&["generate", "/dev/null/share"]).failed(2, "cannot write /dev/null/share");
}
