//! A command as a step runs it.

/// A program with its arguments and what its environment has beside ours.
#[derive(Clone, Debug)]
pub(super) struct CommandLine {
    pub(super) program: String,
    pub(super) arguments: Vec<String>,
    pub(super) environment: Vec<(&'static str, String)>,
}

impl CommandLine {
    pub(super) fn new(program: &str, arguments: &[&str]) -> Self {
        let arguments = arguments.iter().map(|&argument| argument.to_owned()).collect();
        Self { program: program.to_owned(), arguments, environment: Vec::new() }
    }

    pub(super) fn with(mut self, name: &'static str, value: &str) -> Self {
        self.environment.push((name, value.to_owned()));
        self
    }

    /// The line that a person would type.
    pub(super) fn describe(&self) -> String {
        let environment = self.environment.iter().map(|(name, value)| format!("{name}='{value}' "));
        environment.collect::<String>() + &self.program + " " + &self.arguments.join(" ")
    }
}
