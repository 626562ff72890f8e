//! The order in which an agent obeys.

use std::sync::mpsc;

use slackwater_control::lease::{Answer, Beat};
use slackwater_secure::Door;

use super::*;

fn begun(receiver: &mut Receiver<&Stream>) -> Beat {
    loop {
        match receiver.receive().unwrap().expect("the agent goes on").0 {
            FromAgent::Beat { beat, .. } => return beat,
            other => println!("{other:?}"),
        }
    }
}

#[test]
fn processes_that_were_ended_before_their_lease_was_granted_do_not_start() {
    let (sender, admitted) = mpsc::channel();
    let admit = move |stream, _| sender.send(stream).unwrap();
    let door = Door::bind("127.0.0.1:0".parse().unwrap(), None, admit, |_| {}).unwrap();
    let options = AgentOptions {
        join: vec![door.local_address().to_string()],
        name: "h2".to_string(),
        secret: None,
        address: None,
        ports: None,
        joined: None,
        machine: Machine::this(),
    };
    let agent = std::thread::spawn(move || run(&options, &Stopping::default()));
    let session = Session::new(admitted.recv().unwrap(), "a test").unwrap();
    let mut receiver = Receiver::new(session.stream());
    receiver.receive::<Greeting>().unwrap().expect("a greeting");
    let say = |message: ToAgent| session.send(&message, Beside::Nothing);
    say(ToAgent::Welcome {
        term: 1,
        name: "h1".to_string(),
        host_timeout_ns: 60_000_000_000,
    });
    let (first, count, records) = (0, 1, false);
    let group = |epoch| Group {
        epoch,
        first,
        count,
        records,
    };
    say(ToAgent::Start(group(1)));
    let beat = begun(&mut receiver);
    say(ToAgent::End { epoch: 1 });
    let answer = Answer {
        epoch: beat.epoch,
        number: beat.number,
        is_granted: true,
    };
    say(ToAgent::Answer {
        answer,
        received_ns: 1,
        answered_ns: 1,
    });
    // Answered in any case, after what came before it; what waits to be sent is dropped at the end.
    say(ToAgent::End { epoch: 1 });
    for _ in 0..2 {
        let heard = receiver.receive::<FromAgent>().unwrap();
        let heard = heard.expect("the agent goes on").0;
        assert!(matches!(heard, FromAgent::Ended { epoch: 1 }), "{heard:?}");
    }
    say(ToAgent::Over { is_drained: false });
    assert!(matches!(agent.join().unwrap(), Ending::Over));
}
