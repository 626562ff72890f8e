//! Tests of barriers and the state that moves at them.

use std::sync::Arc;

use slackwater_link::{Sender, Waiter, channel};

use super::*;
use crate::chunk::{Chunk, Message};
use crate::counters::InstanceCounters;
use crate::exchange::LinkReceiver;
use crate::instance::Stepped;
use crate::operator::{Facts, Output, Progress, Stateful, Timer};
use crate::ports::{Port, Ports};
use crate::state::KeyedState;
use crate::testing::Letters;
use crate::time::EventTime;
use crate::time::Laps;

/// Keeps nothing and emits nothing.
struct Silent;

impl Stateful for Silent {
    fn facts(&self) -> Facts {
        Facts {
            placed_by: vec![None],
            is_replicated: false,
            first_input: None,
            delay_us: 0,
            shares_input: false,
        }
    }

    fn process(&mut self, _: usize, _: Chunk, _: &mut Output) -> Result<()> {
        Ok(())
    }

    fn rest(&mut self, _: &mut Output) -> Result<Progress> {
        Ok(Progress::Done)
    }

    fn advance(&mut self, _: EventTime, _: &mut Output) -> Result<Progress> {
        Ok(Progress::Done)
    }

    fn timer(&mut self) -> Option<&mut dyn Timer> {
        None
    }

    fn end_unit(&mut self, _: &mut Output) -> Result<()> {
        Ok(())
    }

    fn state(&mut self) -> Option<&mut dyn KeyedState> {
        None
    }

    fn bytes(&self) -> usize {
        0
    }
}

/// An instance of one operator, node 7, and the link that feeds it.
fn instance() -> (Instance, Sender<Message>) {
    let waiter = Waiter::new().unwrap();
    let (sender, receiver) = channel(16, waiter.waker(), waiter.waker());
    let ports = Ports::new(vec![Port {
        links: vec![(LinkReceiver::Local(receiver), None)],
        acknowledges: false,
        in_step: false,
        first: false,
    }]);
    let head = Head::new(Box::new(Silent), 7, Arc::new(Letters::default()));
    let counters = Arc::new(InstanceCounters::new(1, &[], &[]));
    let input = InstanceInput::Head(ports, head);
    let instance = Instance::new("test".into(), 0, input, vec![], vec![], 10, counters);
    (instance, sender)
}

fn barrier(number: u64, moves: &[crate::barrier::BucketMove]) -> Message {
    Message::Barrier(Barrier {
        number,
        purpose: crate::barrier::Purpose::Move {
            node: 7,
            moves: moves.into(),
        },
    })
}

fn handover(barrier: u64) -> Handover {
    Handover {
        barrier,
        node: 7,
        from: 1,
        to: 0,
    }
}

const FROM_ONE: crate::barrier::BucketMove = crate::barrier::BucketMove {
    bucket: 3,
    from: 1,
    to: 0,
};

#[test]
fn an_instance_waits_at_the_barrier_for_the_state_that_it_receives() {
    let (mut instance, mut sender) = instance();
    sender.send(barrier(1, &[FROM_ONE])).unwrap();
    instance.step(&mut Laps::now()).unwrap();
    assert!(instance.cut.is_some());
    instance.take_over(handover(1), vec![]).unwrap();
    assert!(instance.cut.is_none());
    let notices = instance.take_notices();
    assert!(matches!(notices[..], [Notice::Moved { barrier: 1 }]));
}

#[test]
fn regression_state_for_the_next_barrier_does_not_keep_it_at_this_one() {
    let (mut instance, mut sender) = instance();
    instance.take_over(handover(2), vec![]).unwrap();
    sender.send(barrier(1, &[])).unwrap();
    instance.step(&mut Laps::now()).unwrap();
    assert!(instance.cut.is_none(), "nothing was to come for the first");
    sender.send(barrier(2, &[FROM_ONE])).unwrap();
    instance.step(&mut Laps::now()).unwrap();
    assert!(
        instance.cut.is_none(),
        "what was to come for the second was there"
    );
    assert!(instance.early.is_empty());
}

#[test]
fn regression_an_instance_that_has_lost_a_sender_has_not_ended() {
    let end = Message::EndOfStream {
        ingest_ns: 1,
        stopped: false,
    };
    for (message, is_whole) in [(Some(end), true), (None, false)] {
        let (mut instance, mut sender) = instance();
        instance.take_part(0);
        if let Some(message) = message {
            sender.send(message).unwrap();
        }
        drop(sender);
        while instance.step(&mut Laps::now()).unwrap() != Stepped::Ended {}
        assert_eq!(instance.is_whole(), is_whole);
    }
}
