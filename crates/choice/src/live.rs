use freshwire_record::Timestamp;

use crate::number::is_sound;
use crate::screen::Screen;
use crate::{Choice, Decision, Frames, LinkView, Outcome, Progress, Reason, Record};

/// Where the pictures of a receiver go, which decides what is worth most.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Aim {
    /// A screen, now: age, freezes and motion count, as [`Screen`] weighs them.
    #[default]
    Screen,
    /// A player or recorder with a delay of its own, such as a platform: each whole picture that is there by its deadline counts, as
    /// [`Frames`] does. Pictures need deadlines.
    Deadline,
}

/// For live pictures with sound: sound first, as long as it is fresh, also before the rest of a picture in progress;
/// and then as [`Screen`] or [`Frames`] do. Sound has numbers of no rendition ([`rendition_of`](crate::rendition_of)), because
/// pictures are numbered without gaps. A viewer forgives a picture that is missing more easily than a word. Made
/// ready by [`crate::live`].
#[derive(Debug)]
pub struct Live {
    pictures: Pictures,
}

#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "nearly every receiver has a screen")]
enum Pictures {
    Screen(Screen),
    Frames(Box<Frames>),
}

impl Live {
    /// Chooses among pictures with `pictures`.
    pub fn new(pictures: Screen) -> Self {
        Self { pictures: Pictures::Screen(pictures) }
    }

    /// Chooses among pictures with `pictures`.
    pub fn of_frames(pictures: Frames) -> Self {
        Self { pictures: Pictures::Frames(Box::new(pictures)) }
    }

    fn pictures(&mut self) -> &mut dyn Choice {
        match &mut self.pictures {
            Pictures::Screen(screen) => screen,
            Pictures::Frames(frames) => &mut **frames,
        }
    }

    /// Tells of a record of the stream, when it is offered; see [`Screen::observe`]. [`Frames`] learns from its queue only.
    pub fn observe(&self, now: Timestamp, record: &Record) {
        if let Pictures::Screen(screen) = &self.pictures
            && !is_sound(record)
        {
            screen.observe(now, record);
        }
    }

    /// A policy for another receiver of the same stream; see [`Screen::for_another`].
    #[must_use]
    pub fn for_another(&self) -> Self {
        match &self.pictures {
            Pictures::Screen(screen) => Self::new(screen.for_another()),
            Pictures::Frames(frames) => Self::of_frames(frames.for_another()),
        }
    }
}

impl Choice for Live {
    fn pick(&mut self, now: Timestamp, queue: &[Record], link: &LinkView) -> Decision {
        // Once no sound is left, all of the queue is pictures.
        let sounds = queue.iter().enumerate().filter(|(_, record)| is_sound(record));
        if let Some((at, sound)) = sounds.min_by_key(|(_, record)| record.seq) {
            let fresh = sound.deadline >= now;
            return if fresh { Decision::Send(at) } else { Decision::Drop(at, Reason::Expired) };
        }
        self.pictures().pick(now, queue, link)
    }

    fn progress(&mut self, now: Timestamp, record: &Record, remaining: u32, link: &LinkView) -> Progress {
        if is_sound(record) {
            Progress::Continue
        } else {
            self.pictures().progress(now, record, remaining, link)
        }
    }

    fn overtakes(&self, now: Timestamp, record: &Record, in_progress: &Record) -> bool {
        is_sound(record) && !is_sound(in_progress) && record.deadline >= now
    }

    fn outcome(&mut self, record: &Record, outcome: Outcome) {
        if !is_sound(record) {
            self.pictures().outcome(record, outcome);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use freshwire_record::Rate;

    use super::*;

    const SOUND: u64 = 1 << 62;

    fn at(milliseconds: u64) -> Timestamp {
        Timestamp::ZERO + Duration::from_millis(milliseconds)
    }

    fn record(seq: u64, back: u32, generated: u64) -> Record {
        Record {
            index: seq,
            seq,
            len: 1000,
            layer: u8::from(back > 0),
            group: 0,
            key: 0,
            refs: [back, 0],
            generated: at(generated),
            deadline: at(generated + 100),
        }
    }

    /// 1000 bytes take 80 ms.
    fn slow() -> LinkView {
        LinkView { rate: Some(Rate::from_bits_per_sec(100_000)), in_flight: 1, ..LinkView::default() }
    }

    #[test]
    fn sound_goes_before_pictures_and_none_that_is_stale() {
        let mut live = crate::live();
        let queue = [record(1, 0, 0), record(SOUND, 0, 0), record(SOUND + 1, 0, 60)];
        assert_eq!(live.pick(at(10), &queue, &slow()), Decision::Send(1));
        assert_eq!(live.pick(at(101), &queue, &slow()), Decision::Drop(1, Reason::Expired));
        assert_eq!(live.pick(at(10), &queue[..1], &slow()), Decision::Send(0));
    }

    #[test]
    fn fresh_sound_overtakes_pictures_and_nothing_else_does() {
        let live = crate::live();
        let (picture, sound) = (record(1, 0, 0), record(SOUND, 0, 0));
        assert!(live.overtakes(at(100), &sound, &picture));
        assert!(!live.overtakes(at(101), &sound, &picture), "stale");
        assert!(!live.overtakes(at(0), &picture, &picture) && !live.overtakes(at(0), &picture, &sound));
        assert!(!live.overtakes(at(0), &sound, &sound));
    }

    #[test]
    fn lost_sound_costs_no_picture() {
        let mut live = crate::live();
        for sound in 0..100 {
            live.outcome(&record(SOUND + sound, 0, 0), Outcome::Dropped(Reason::Expired));
        }
        let queue = [record(1, 0, 0), record(2, 1, 5)];
        assert_eq!(live.pick(at(10), &queue, &LinkView::default()), Decision::Send(0));
    }

    #[test]
    fn a_deadline_keeps_pictures_that_a_screen_sheds() {
        let queue: Vec<Record> =
            (0..8).map(|seq| Record { deadline: at(seq * 40 + 1000), ..record(seq, 0, seq * 40) }).collect();
        let stream = crate::Adaptive::default();
        queue.iter().for_each(|record| stream.observe(record.generated, record));
        for (aim, first) in
            [(Aim::Screen, Decision::Drop(0, Reason::LayerShed)), (Aim::Deadline, Decision::Send(0))]
        {
            let mut policy = stream.for_another(u8::MAX).with_aim(aim);
            // It has the rendition from here on.
            policy.outcome(&record(0, 0, 0), Outcome::Sent);
            assert_eq!(policy.pick(at(280), &queue, &slow()), first, "{aim:?}");
        }
    }

    #[test]
    fn one_receivers_loss_is_not_anothers() {
        let mut first = crate::live();
        let mut second = first.for_another();
        first.outcome(&record(1, 0, 0), Outcome::Dropped(Reason::Expired));
        let queue = [record(2, 1, 40)];
        assert_eq!(first.pick(at(40), &queue, &slow()), Decision::Drop(0, Reason::ReferenceLost));
        second.outcome(&record(1, 0, 0), Outcome::Sent);
        assert_eq!(second.pick(at(40), &queue, &slow()), Decision::Send(0));
    }
}
