use std::time::Duration;

use freshwire_record::Rate;

const NANOS_PER_SEC: u128 = 1_000_000_000;

/// From `at` on, the link has this rate, until the next step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// Time since the link's start.
    pub at: Duration,
    /// `None` is unlimited; a rate of zero is an outage.
    pub rate: Option<Rate>,
}

/// The rate over time: steps that hold until the next one. The last step holds for ever, or the whole schedule
/// starts again after a period.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Schedule {
    steps: Vec<Step>,
    repeat_after: Option<Duration>,
}

/// A rate trace that cannot be used, and where.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {problem}")]
pub struct TraceError {
    /// Line of the text, or number of the step, counted from 1.
    pub line: usize,
    /// The problem.
    #[source]
    pub problem: TraceProblem,
}

/// The problem of a line of a rate trace.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TraceProblem {
    /// Not two fields.
    #[error("write a time in seconds and a rate, such as \"10 512kbit\", or a time and \"repeat\"")]
    Fields,
    /// The first field is no time.
    #[error("{0:?} is not a time in seconds such as 12.5")]
    Time(String),
    /// The second field is no rate.
    #[error("{0:?} is not a rate such as 512kbit, 0 for an outage, or unlimited")]
    Rate(String),
    /// Steps out of order.
    #[error("each time must be later than the one before")]
    Order,
    /// The first step is late.
    #[error("the first step must be at time 0")]
    Start,
    /// There are no steps.
    #[error("there is no step: write at least \"0 512kbit\"")]
    Empty,
    /// A line follows the end.
    #[error("nothing may follow \"repeat\"")]
    AfterRepeat,
    /// A repeating schedule that never carries anything.
    #[error("a schedule that repeats must have a rate above zero somewhere")]
    Dead,
}

impl Schedule {
    /// No limit, ever.
    pub fn unlimited() -> Self {
        Self { steps: vec![Step { at: Duration::ZERO, rate: None }], repeat_after: None }
    }

    /// The same rate for ever.
    pub fn constant(rate: Rate) -> Self {
        Self { steps: vec![Step { at: Duration::ZERO, rate: Some(rate) }], repeat_after: None }
    }

    /// Checked steps: the first at zero, times ascending. With `repeat_after`, later than the last step, everything
    /// starts again at that time; without, the last step holds.
    ///
    /// # Errors
    ///
    /// If there is no step, the first is not at zero, the times do not ascend, or `repeat_after` is not after the last.
    pub fn from_steps(steps: Vec<Step>, repeat_after: Option<Duration>) -> Result<Self, TraceError> {
        let fail = |index: usize, problem| Err(TraceError { line: index + 1, problem });
        match steps.first() {
            None => return fail(0, TraceProblem::Empty),
            Some(first) if !first.at.is_zero() => return fail(0, TraceProblem::Start),
            Some(_) => {}
        }
        if let Some(index) = steps.windows(2).position(|pair| pair[0].at >= pair[1].at) {
            return fail(index + 1, TraceProblem::Order);
        }
        if let Some(period) = repeat_after {
            if steps.last().is_some_and(|last| last.at >= period) {
                return fail(steps.len(), TraceProblem::Order);
            }
            if steps.iter().all(|step| step.rate == Some(Rate::default())) {
                return fail(steps.len(), TraceProblem::Dead);
            }
        }
        Ok(Self { steps, repeat_after })
    }

    /// Reads a rate trace: lines `seconds rate` in ascending order, the first at 0. A rate is as in
    /// [`Rate`], `0` for an outage, or `unlimited`. A last line `seconds repeat` makes it start again at that
    /// time. `#` begins a comment; empty lines are skipped.
    ///
    /// ```
    /// use freshwire_link::Schedule;
    /// let dip = Schedule::parse("# a dip\n0 6Mbit\n5 1Mbit\n10 6Mbit\n")?;
    /// let error = Schedule::parse("0 6Mbit\n5 fast\n").unwrap_err();
    /// assert_eq!(error.to_string(), "line 2: \"fast\" is not a rate such as 512kbit, 0 for an outage, or unlimited");
    /// # Ok::<(), freshwire_link::TraceError>(())
    /// ```
    ///
    /// # Errors
    ///
    /// If a line is not a step, or the steps are not a schedule as in [`from_steps`](Self::from_steps).
    pub fn parse(text: &str) -> Result<Self, TraceError> {
        let mut steps = Vec::new();
        let mut step_lines = Vec::new();
        let mut repeat_after = None;
        let mut last_line = 1;
        for (index, line) in text.lines().enumerate() {
            let line = line.split('#').next().unwrap_or_default();
            let number = index + 1;
            let fail = |problem| TraceError { line: number, problem };
            let mut fields = line.split_whitespace();
            let (time, rate) = match (fields.next(), fields.next(), fields.next()) {
                (None, _, _) => continue,
                (Some(time), Some(rate), None) => (time, rate),
                _ => return Err(fail(TraceProblem::Fields)),
            };
            if repeat_after.is_some() {
                return Err(fail(TraceProblem::AfterRepeat));
            }
            let at = parse_seconds(time).ok_or_else(|| fail(TraceProblem::Time(time.to_owned())))?;
            last_line = number;
            if rate == "repeat" {
                repeat_after = Some(at);
            } else {
                let rate = parse_rate(rate).ok_or_else(|| fail(TraceProblem::Rate(rate.to_owned())))?;
                steps.push(Step { at, rate });
                step_lines.push(number);
            }
        }
        // `from_steps` counts steps; a person counts lines.
        Self::from_steps(steps, repeat_after).map_err(|error| TraceError {
            line: step_lines.get(error.line - 1).copied().unwrap_or(last_line),
            problem: error.problem,
        })
    }

    /// The same schedule with nothing passing from `start` for `length`; `None` if this schedule repeats, because the
    /// outage would then repeat too. Write it as a step of rate zero.
    #[must_use]
    pub fn with_outage(&self, start: Duration, length: Duration) -> Option<Self> {
        if self.repeat_after.is_some() {
            return None;
        }
        let end = start.saturating_add(length);
        if end == start {
            return Some(self.clone());
        }
        let after = self.steps[self.step_index(end)].rate;
        let mut steps: Vec<_> = self.steps.iter().copied().filter(|step| step.at < start).collect();
        steps.push(Step { at: start, rate: Some(Rate::default()) });
        steps.push(Step { at: end, rate: after });
        steps.extend(self.steps.iter().filter(|step| step.at > end));
        Some(Self { steps, repeat_after: None })
    }

    /// The steps, the first at zero.
    pub fn steps(&self) -> &[Step] {
        &self.steps
    }

    /// When the schedule starts again, if it does.
    pub fn repeat_after(&self) -> Option<Duration> {
        self.repeat_after
    }

    /// When a packet of `bytes` whose serialisation begins at `begin_ns` has left the transmitter; `None` if never.
    /// Both are nanoseconds since the link's start.
    pub(crate) fn finish(&self, begin_ns: u64, bytes: u64) -> Option<u64> {
        let mut need = u128::from(bytes) * 8 * NANOS_PER_SEC;
        let mut at = u128::from(begin_ns);
        if let (Some(period), Some(per_period)) = (self.repeat_after, self.capacity_per_period()) {
            // Whole periods at once, so that a slow link with a short period costs no more than any other.
            let whole = need.saturating_sub(1) / per_period;
            at += whole * period.as_nanos();
            need -= whole * per_period;
        }
        loop {
            let (rate, until) = self.rate_at(at);
            let Some(rate) = rate else { return u64::try_from(at).ok() };
            let rate = u128::from(rate.bits_per_sec());
            if rate > 0 {
                let end = at + need.div_ceil(rate);
                if until.is_none_or(|until| end <= until) {
                    return u64::try_from(end).ok();
                }
            }
            let until = until?;
            need -= rate * (until - at);
            at = until;
        }
    }

    /// The schedule that is this one between `from` and `at`, and has `rate` from `at` on. What it is before `from` does not
    /// matter. Both are nanoseconds since the link's start.
    pub(crate) fn changed(&self, from: u64, at: u64, rate: Option<Rate>) -> Self {
        let mut steps = Vec::new();
        let mut add = |at: u128, rate| {
            // The first step has to be at zero.
            let at = if steps.is_empty() { 0 } else { u64::try_from(at).unwrap_or(u64::MAX) };
            steps.push(Step { at: Duration::from_nanos(at), rate });
        };
        let mut look = u128::from(from);
        while look < u128::from(at) {
            let (before, until) = self.rate_at(look);
            add(look, before);
            look = until.unwrap_or(u128::MAX);
        }
        add(u128::from(at), rate);
        Self { steps, repeat_after: None }
    }

    /// In bits times nanoseconds per second; `None` if a step is unlimited or the schedule does not repeat.
    fn capacity_per_period(&self) -> Option<u128> {
        let period = self.repeat_after?;
        let ends = self.steps.iter().skip(1).map(|step| step.at).chain([period]);
        self.steps
            .iter()
            .zip(ends)
            .map(|(step, end)| Some(u128::from(step.rate?.bits_per_sec()) * (end - step.at).as_nanos()))
            .sum()
    }

    /// The rate at `at` and when it changes next, both since the start.
    fn rate_at(&self, at: u128) -> (Option<Rate>, Option<u128>) {
        let period = self.repeat_after.map(|period| period.as_nanos());
        let phase = period.map_or(at, |period| at % period);
        let index = self.steps.partition_point(|step| step.at.as_nanos() <= phase).saturating_sub(1);
        let next = self.steps.get(index + 1).map(|step| step.at.as_nanos()).or(period);
        (self.steps[index].rate, next.map(|next| at - phase + next))
    }

    fn step_index(&self, at: Duration) -> usize {
        self.steps.partition_point(|step| step.at <= at).saturating_sub(1)
    }
}

fn parse_seconds(text: &str) -> Option<Duration> {
    if !text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.') {
        return None;
    }
    Duration::try_from_secs_f64(text.parse().ok()?).ok()
}

fn parse_rate(text: &str) -> Option<Option<Rate>> {
    match text {
        "unlimited" => Some(None),
        "0" => Some(Some(Rate::default())),
        _ => text.parse().ok().map(Some),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    fn parse(text: &str) -> Schedule {
        Schedule::parse(text).unwrap()
    }

    #[test]
    fn a_packet_may_span_steps() {
        // 1000 bit/s for 1 s, an outage for 1 s, then 2000 bit/s: 250 bytes are 2000 bit.
        let schedule = parse("0 1kbit\n1 0\n2 2kbit\n");
        assert_eq!(schedule.finish(0, 125), Some(SECOND));
        assert_eq!(schedule.finish(0, 250), Some(2 * SECOND + SECOND / 2));
        assert_eq!(schedule.finish(SECOND + 1, 250), Some(3 * SECOND));
    }

    #[test]
    fn a_period_is_skipped_in_one_step() {
        let schedule = parse("0 1kbit\n0.001 0\n0.002 repeat\n");
        // 1 bit in each period of 2 ms.
        assert_eq!(schedule.finish(0, 1), Some(7 * 2_000_000 + 1_000_000));
        assert_eq!(schedule.finish(0, 1_000_000), Some((8_000_000 - 1) * 2_000_000 + 1_000_000));
        // From the middle of the sending half: what is left of it, and the same again after the pause.
        assert_eq!(schedule.finish(500_000, 1), Some(8 * 2_000_000 + 500_000));
    }

    #[test]
    fn an_endless_outage_never_ends() {
        assert_eq!(parse("0 1Mbit\n1 0\n").finish(SECOND, 1), None);
        assert_eq!(parse("0 0\n3 unlimited").finish(5, 1_000_000), Some(3 * SECOND));
    }

    #[test]
    fn outages_overlay() {
        let outage = |schedule: &str, start, length| {
            parse(schedule).with_outage(Duration::from_secs(start), Duration::from_secs(length))
        };
        assert_eq!(outage("0 6Mbit\n5 1Mbit\n8 2Mbit", 4, 3), Some(parse("0 6Mbit\n4 0\n7 1Mbit\n8 2Mbit")));
        assert_eq!(outage("0 6Mbit\n5 1Mbit", 0, 5), Some(parse("0 0\n5 1Mbit")));
        assert_eq!(outage("0 6Mbit\n5 repeat", 0, 1), None);
    }

    #[test]
    fn errors_name_the_line() {
        for (text, message) in [
            ("", "line 1: there is no step: write at least \"0 512kbit\""),
            ("# x\n\n1 5kbit", "line 3: the first step must be at time 0"),
            ("0 5kbit\n\n2 6kbit\n2 7kbit", "line 4: each time must be later than the one before"),
            ("0 5kbit\n0 repeat", "line 2: each time must be later than the one before"),
            ("0 0\n1 repeat", "line 2: a schedule that repeats must have a rate above zero somewhere"),
            ("0 5kbit\n1 repeat\n2 5kbit", "line 3: nothing may follow \"repeat\""),
            ("0 5kbit\n-1 5kbit", "line 2: \"-1\" is not a time in seconds such as 12.5"),
            (
                "0 5kbit 6",
                "line 1: write a time in seconds and a rate, such as \"10 512kbit\", or a time and \"repeat\"",
            ),
        ] {
            assert_eq!(
                Schedule::parse(text).map_err(|error| error.to_string()),
                Err(message.to_owned()),
                "{text:?}"
            );
        }
    }
}
