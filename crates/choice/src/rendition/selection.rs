use std::sync::atomic::{AtomicU32, Ordering};

/// Which rendition a receiver has and which it wants: written by its policy, read by the one who fills its queue.
#[derive(Debug)]
pub struct Selection(AtomicU32);

/// What a [`Selection`] says at one instant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Selected {
    /// The rendition whose pictures it gets; `None` before the first.
    pub current: Option<usize>,
    /// The one whose next key frame it waits for; [`current`](Self::current) if it is content. `None`: any to begin with.
    pub wanted: Option<usize>,
    /// Why it has the present one, or wants the other one.
    pub why: Why,
    /// How often it has changed.
    pub changes: u16,
}

/// Why a receiver has or wants a rendition.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
#[repr(u8)]
pub enum Why {
    /// The first one.
    #[default]
    Start = 0,
    /// Key frames have left so quickly that the path carries it.
    Carries = 1,
    /// The path carried less than the one before.
    Slow = 2,
    /// Pictures of the one before came late or were dropped.
    Late = 3,
    /// The one before has no source any more.
    Gone = 4,
}

impl Why {
    /// The name used in logs, metrics and pages.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Start => "start",
            Self::Carries => "carries",
            Self::Slow => "slow",
            Self::Late => "late",
            Self::Gone => "gone",
        }
    }

    fn of(code: u8) -> Self {
        [Self::Start, Self::Carries, Self::Slow, Self::Late, Self::Gone]
            .into_iter()
            .find(|why| *why as u8 == code)
            .unwrap_or_default()
    }
}

/// The code of no rendition.
const NONE: u8 = 15;

impl Default for Selection {
    fn default() -> Self {
        Self(AtomicU32::new(pack(Selected { current: None, wanted: None, why: Why::Start, changes: 0 })))
    }
}

fn pack(selected: Selected) -> u32 {
    let code = |rendition: Option<usize>| {
        rendition.and_then(|it| u8::try_from(it).ok()).filter(|it| *it < NONE).unwrap_or(NONE)
    };
    let places = code(selected.current) | code(selected.wanted) << 4;
    let [low, high] = selected.changes.to_le_bytes();
    u32::from_le_bytes([places, selected.why as u8, low, high])
}

impl Selection {
    /// What it says now.
    pub fn get(&self) -> Selected {
        // Acquire: a change that is seen here was made after what it follows from.
        let [places, why, low, high] = self.0.load(Ordering::Acquire).to_le_bytes();
        let rendition = |code: u8| (code < NONE).then_some(usize::from(code));
        Selected {
            current: rendition(places & 15),
            wanted: rendition(places >> 4),
            why: Why::of(why),
            changes: u16::from_le_bytes([low, high]),
        }
    }

    /// Wants this rendition.
    pub fn want(&self, rendition: usize, why: Why) {
        self.update(|now| {
            let is_new = now.wanted != Some(rendition);
            Selected { wanted: Some(rendition), why: if is_new { why } else { now.why }, ..now }
        });
    }

    /// Is content with the present one, if nothing has changed since `seen`: the source of the present one may have gone, and who
    /// has none is asked no more.
    pub(super) fn stay(&self, seen: Selected) {
        let content = Selected { wanted: seen.current, ..seen };
        let _ = self.0.compare_exchange(pack(seen), pack(content), Ordering::AcqRel, Ordering::Acquire);
    }

    /// Has changed to this rendition.
    pub(super) fn change(&self, rendition: usize) {
        self.update(|now| Selected {
            current: Some(rendition),
            wanted: Some(rendition),
            changes: now.changes.saturating_add(u16::from(now.current.is_some())),
            ..now
        });
    }

    fn update(&self, change: impl Fn(Selected) -> Selected) {
        let mut now = self.get();
        loop {
            let (before, after) = (pack(now), pack(change(now)));
            if before == after {
                return;
            }
            match self.0.compare_exchange_weak(before, after, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return,
                Err(_) => now = self.get(),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packed_values_are_read_back() {
        bolero::check!().with_type::<(u8, u8, u8, u16)>().for_each(|&(current, wanted, why, changes)| {
            let rendition = |code: u8| (code < NONE).then_some(usize::from(code));
            let said = Selected {
                current: rendition(current % 16),
                wanted: rendition(wanted % 16),
                why: Why::of(why),
                changes,
            };
            assert_eq!(Selection(AtomicU32::new(pack(said))).get(), said);
        });
    }

    #[test]
    fn the_first_is_no_change() {
        let selection = Selection::default();
        selection.want(2, Why::Start);
        selection.change(2);
        assert_eq!(selection.get().changes, 0);
        selection.want(1, Why::Slow);
        selection.want(1, Why::Late);
        selection.change(1);
        let expected = Selected { current: Some(1), wanted: Some(1), why: Why::Slow, changes: 1 };
        assert_eq!(selection.get(), expected);
    }

    #[test]
    fn a_wish_made_meanwhile_is_not_overwritten() {
        let selection = Selection::default();
        selection.change(0);
        selection.want(2, Why::Slow);
        let seen = selection.get();
        selection.want(1, Why::Gone);
        selection.stay(seen);
        assert_eq!(selection.get().wanted, Some(1));
        selection.stay(selection.get());
        assert_eq!(selection.get().wanted, Some(0));
    }
}
