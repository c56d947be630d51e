//! Which frames to send so that most are whole, decodable and on time, if the link behaves as predicted.

/// One frame that is queued or expected. Times are nanoseconds on the receiver's side of the path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Item {
    /// Time its bytes take at the predicted rate.
    pub(super) cost: u64,
    /// Its first byte cannot arrive before this.
    pub(super) release: u64,
    /// Its last byte has to arrive by this.
    pub(super) deadline: u64,
    /// Items before it that it depends on, one bit each.
    pub(super) needs: u128,
    /// False if something that it depends on is lost already.
    pub(super) possible: bool,
    /// What it is worth on time.
    pub(super) value: u32,
    /// How much sooner or later than predicted it may be complete. Near its deadline it counts in proportion.
    pub(super) doubt: u64,
    /// How long after its deadline it is still sent, worth nothing itself, for those that depend on it.
    pub(super) patience: u64,
}

impl Item {
    /// What it is worth if its last byte is predicted to arrive at `finish`; `None` if it is not sent then.
    fn worth(&self, finish: u64) -> Option<u32> {
        let Some(spare) = self.deadline.saturating_add(self.doubt).checked_sub(finish) else {
            return (finish <= self.deadline.saturating_add(self.patience)).then_some(0);
        };
        let doubt = u128::from(self.doubt);
        let chance = u128::from(spare).min(2 * doubt);
        let worth = (u128::from(self.value) * chance).checked_div(2 * doubt);
        worth.map_or(Some(self.value), |worth| u32::try_from(worth).ok())
    }
}

/// A way of having handled the items so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct State {
    /// Items sent that a later item depends on.
    sent: u128,
    /// When the last byte sent arrives.
    finish: u64,
    value: u32,
    /// The first item sent, [`NONE`] if there is none.
    first: u8,
}

/// Memory that is kept from plan to plan.
#[derive(Clone, Debug, Default)]
pub(super) struct Planner {
    states: Vec<State>,
    next: Vec<State>,
    /// For each item, the items that a later one depends on.
    needed: Vec<u128>,
}

impl Planner {
    /// The first item that the best plan sends; `None` if it sends nothing. Items go in order, because a decoder needs
    /// them in order, and because with deadlines in the same order no other order is better. `start` is when the next
    /// byte committed would arrive. `lag_price` is what a nanosecond of delay left behind at the end costs.
    ///
    /// Dynamic programming over the items: of two ways with the same references at hand only the one that is not both
    /// later and worth less is kept.
    //= spec/choice.md 21
    pub(super) fn first(&mut self, items: &[Item], start: u64, lag_price: Price) -> Option<usize> {
        let items = &items[..items.len().min(MAX_ITEMS)];
        self.states.clear();
        self.states.push(State { sent: 0, finish: start, value: 0, first: NONE });
        self.needed.clear();
        self.needed.resize(items.len(), 0);
        let mut needed = 0;
        for (item, needed_after) in items.iter().zip(&mut self.needed).rev() {
            *needed_after = needed;
            needed |= item.needs;
        }
        for (at, item) in items.iter().enumerate() {
            self.step(at, item, self.needed[at]);
        }
        let end = items.last().map_or(start, |item| item.release);
        let worth = |state: &State| {
            let lag = state.finish.saturating_sub(end.max(start));
            i64::from(state.value) - lag_price.of(lag)
        };
        let best = self.states.iter().max_by_key(|state| (worth(state), u8::MAX - state.first))?;
        (best.first != NONE).then_some(usize::from(best.first))
    }

    fn step(&mut self, at: usize, item: &Item, needed: u128) {
        self.next.clear();
        for state in &self.states {
            self.next.push(State { sent: state.sent & needed, ..*state });
            let finish = state.finish.max(item.release).saturating_add(item.cost);
            let usable = item.possible && state.sent & item.needs == item.needs;
            if usable && let Some(value) = item.worth(finish) {
                self.next.push(State {
                    sent: (state.sent | 1 << at) & needed,
                    finish,
                    value: state.value.saturating_add(value),
                    first: if state.first == NONE { at as u8 } else { state.first },
                });
            }
        }
        // A finish before the next release is as good as any other one before it.
        for state in &mut self.next {
            state.finish = state.finish.max(item.release);
        }
        self.next
            .sort_unstable_by_key(|state| (state.sent, state.finish, u32::MAX - state.value, state.first));
        self.states.clear();
        for &state in &self.next {
            let dominated =
                self.states.last().is_some_and(|kept| kept.sent == state.sent && kept.value >= state.value);
            if !dominated {
                self.states.push(state);
            }
        }
        if self.states.len() > MAX_STATES {
            self.states.sort_unstable_by_key(|state| {
                (u32::MAX - state.value, state.finish, state.sent, state.first)
            });
            self.states.truncate(MAX_STATES);
        }
    }
}

/// Value per time: `value` for every `per` nanoseconds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Price {
    pub(super) value: u32,
    pub(super) per: u64,
}

impl Price {
    fn of(self, nanos: u64) -> i64 {
        let price = u128::from(self.value) * u128::from(nanos) / u128::from(self.per.max(1));
        i64::try_from(price).unwrap_or(i64::MAX)
    }
}

/// Items that a plan looks at: one bit each.
pub(super) const MAX_ITEMS: usize = 128;
/// Ways kept at each item. Real ladders need a few dozen; the bound is for streams with a web of references.
/// Chosen, not measured.
const MAX_STATES: usize = 256;
const NONE: u8 = u8::MAX;

#[cfg(test)]
mod tests {
    use super::*;

    const FREE: Price = Price { value: 0, per: 1 };

    /// The best value by trying every subset.
    fn brute(items: &[Item], start: u64) -> u32 {
        let value = |subset: u32| {
            let (mut finish, mut value) = (start, 0);
            for (_, item) in items.iter().enumerate().filter(|(at, _)| subset & 1 << at != 0) {
                finish = finish.max(item.release) + item.cost;
                let worth = item.worth(finish);
                let (true, Some(worth)) =
                    (u128::from(subset) & item.needs == item.needs && item.possible, worth)
                else {
                    return 0;
                };
                value += worth;
            }
            value
        };
        (0..1 << items.len()).map(value).max().unwrap_or(0)
    }

    //= spec/choice.md 21
    #[test]
    fn no_subset_is_better() {
        bolero::check!().with_type::<Vec<(u8, u8, u8, u8)>>().for_each(|frames| {
            let items: Vec<Item> = (0..)
                .zip(frames.iter().take(10))
                .map(|(at, &(cost, slack, needs, value)): (u64, _)| Item {
                    cost: u64::from(cost),
                    release: at * 20,
                    deadline: at * 20 + 2 * u64::from(slack),
                    needs: u128::from(needs) & ((1 << at) - 1),
                    possible: needs != 255,
                    value: u32::from(value % 4),
                    doubt: u64::from(value / 16),
                    patience: u64::from(cost % 3) * 10,
                })
                .collect();
            let mut planner = Planner::default();
            let first = planner.first(&items, 5, FREE);
            let best = planner.states.iter().map(|state| state.value).max();
            assert_eq!(best, Some(brute(&items, 5)));
            assert!(first.is_none_or(|first| first < items.len()));
        });
    }

    #[test]
    fn a_web_of_references_stays_bounded() {
        let items: Vec<Item> = (0..128)
            .map(|at| Item {
                cost: 1,
                release: 0,
                deadline: u64::MAX,
                needs: if at > 64 { 3 << (at - 64) } else { 0 },
                possible: true,
                value: 1,
                doubt: 0,
                patience: 0,
            })
            .collect();
        let mut planner = Planner::default();
        assert_eq!(planner.first(&items, 0, FREE), Some(0));
        assert!(planner.states.len() <= MAX_STATES);
    }
}
