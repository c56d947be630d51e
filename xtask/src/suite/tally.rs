//! Counts tests from what the test programs print.

use std::ops::AddAssign;

/// How many tests passed, failed and were ignored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Tally {
    pub(super) passed: u64,
    pub(super) failed: u64,
    pub(super) ignored: u64,
    /// Measurements whose claim held.
    pub(super) measured: u64,
    /// Measurements of which no run could be trusted.
    pub(super) too_busy: u64,
}

/// How the lines begin that measurements print: `freshwire_netns::trust`.
const MEASURED: &str = "freshwire measured: ";
const TOO_BUSY: &str = "freshwire machine too busy: ";

/// The report of a measurement for which the machine was too busy, if this line is one: its name and the
/// reasons.
pub(super) fn too_busy(line: &str) -> Option<&str> {
    line.split_once(TOO_BUSY).map(|(_, name)| name.trim_end())
}

impl Tally {
    /// A step that counted nothing and ended well is itself one test that passed.
    pub(super) fn or_passed(self) -> Self {
        if self.passed + self.failed + self.ignored == 0 { Self { passed: 1, ..self } } else { self }
    }

    /// A step that failed has at least one failure, also when no test program got as far as to say so.
    pub(super) fn or_failed(self) -> Self {
        Self { failed: self.failed.max(1), ..self }
    }

    /// Reads one line of output: the closing line of a Rust or a Python test program, or of pytest.
    pub(super) fn read_line(line: &str) -> Option<Self> {
        if too_busy(line).is_some() {
            return Some(Self { too_busy: 1, ..Self::default() });
        }
        if line.contains(MEASURED) {
            return Some(Self { measured: 1, ..Self::default() });
        }
        if let Some((_, counts)) =
            line.split_once("test result: ").and_then(|(_, rest)| rest.split_once(". "))
        {
            return Some(Self {
                passed: before(counts, " passed")?,
                failed: before(counts, " failed")?,
                ignored: before(counts, " ignored")?,
                ..Self::default()
            });
        }
        if let Some(ran) = line.strip_prefix("Ran ") {
            return Some(Self { passed: before(ran, " test")?, ..Self::default() });
        }
        let Some(failures) = line.strip_prefix("FAILED (") else { return Self::read_pytest(line) };
        let failed = after(failures, "failures=") + after(failures, "errors=");
        Some(Self { failed, ..Self::default() })
    }
}

impl Tally {
    /// Such as "=== 1 failed, 12 passed, 3 skipped in 1.23s ===".
    fn read_pytest(line: &str) -> Option<Self> {
        let (counts, time) = line.trim_matches(['=', ' ']).rsplit_once(" in ")?;
        if !time.starts_with(|first: char| first.is_ascii_digit()) {
            return None;
        }
        let mut tally = Self::default();
        for count in counts.split(", ") {
            let (number, kind) = count.split_once(' ')?;
            let number: u64 = number.parse().ok()?;
            match kind {
                "passed" | "xfailed" => tally.passed += number,
                "failed" | "error" | "errors" | "xpassed" => tally.failed += number,
                "skipped" => tally.ignored += number,
                "warning" | "warnings" | "deselected" => {}
                _ => return None,
            }
        }
        Some(tally)
    }
}

impl AddAssign for Tally {
    fn add_assign(&mut self, other: Self) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.ignored += other.ignored;
        self.measured += other.measured;
        self.too_busy += other.too_busy;
    }
}

fn before(text: &str, word: &str) -> Option<u64> {
    let (left, _) = text.split_once(word)?;
    left.rsplit(' ').next()?.parse().ok()
}

fn after(text: &str, word: &str) -> u64 {
    let digits = text.split_once(word).map_or("", |(_, right)| right);
    digits.split(|c: char| !c.is_ascii_digit()).next().and_then(|digits| digits.parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn closing_lines_of_pytest_are_read() {
        let line =
            "========= 2 failed, 12 passed, 1 skipped, 3 warnings, 1 error in 61.20s (0:01:01) =========";
        assert_eq!(
            Tally::read_line(line),
            Some(Tally { passed: 12, failed: 3, ignored: 1, ..Tally::default() })
        );
        assert_eq!(Tally::read_line("99 passed in 18.38s"), Some(Tally { passed: 99, ..Tally::default() }));
        assert_eq!(Tally::read_line("3 things failed in 2 places"), None);
    }

    #[test]
    fn rust_closing_lines_are_read() {
        let line =
            "test result: FAILED. 12 passed; 3 failed; 1 ignored; 0 measured; 0 filtered out; finished in 1s";
        assert_eq!(
            Tally::read_line(line),
            Some(Tally { passed: 12, failed: 3, ignored: 1, ..Tally::default() })
        );
        assert_eq!(Tally::read_line("test tests::result ... ok"), None);
    }

    #[test]
    fn python_closing_lines_are_read() {
        assert_eq!(
            Tally::read_line("Ran 1 test in 0.1s"),
            Some(Tally { passed: 1, failed: 0, ignored: 0, ..Tally::default() })
        );
        let failed = Tally::read_line("FAILED (failures=2, errors=1)");
        assert_eq!(failed, Some(Tally { passed: 0, failed: 3, ignored: 0, ..Tally::default() }));
    }

    #[test]
    fn measurements_are_counted() {
        let held = "freshwire measured: account: fast\n";
        let busy = "test x ... freshwire machine too busy: account: slow: off (one wake-up in a hundred is 9ms late)\n";
        assert_eq!(Tally::read_line(held), Some(Tally { measured: 1, ..Tally::default() }));
        assert_eq!(Tally::read_line(busy), Some(Tally { too_busy: 1, ..Tally::default() }));
        assert_eq!(too_busy(busy), Some("account: slow: off (one wake-up in a hundred is 9ms late)"));
        // The markers are those of the tests.
        let trust = include_str!("../../../crates/netns/src/trust.rs");
        assert!([MEASURED, TOO_BUSY].iter().all(|marker| trust.contains(&format!("\"{marker}\""))));
    }

    #[test]
    fn a_step_without_counts_is_one_test() {
        assert_eq!(Tally::default().or_passed(), Tally { passed: 1, ..Tally::default() });
        let died = Tally { passed: 4, ..Tally::default() };
        assert_eq!(died.or_failed(), Tally { passed: 4, failed: 1, ignored: 0, ..Tally::default() });
    }
}
