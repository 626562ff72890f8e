use slackwater_engine::Error;

use super::super::session::tests::sessions;
use super::*;
use crate::hosts::{Host, HostProcesses};
use crate::machine::Machine;

/// A host whose agent is `obey`: it is told what the orchestrator says, and answers.
fn host(obey: impl Fn(ToAgent) -> Vec<FromAgent> + Send + 'static) -> Joined {
    let [ours, theirs] = sessions();
    let here = "127.0.0.1".parse().unwrap();
    let facts = Facts::here("h2", here, &Machine::this());
    let terms = Terms {
        host_timeout_ns: 1_000_000,
    };
    let host = Arc::new(JoinedHost::new(facts, Arc::clone(&ours), terms));
    let hearing = Arc::clone(&host);
    std::thread::spawn(move || hearing.hear(&mut Receiver::new(ours.stream()), || {}));
    std::thread::spawn(move || {
        let mut receiver = Receiver::new(theirs.stream());
        while let Ok(Some((message, _))) = receiver.receive() {
            for answer in obey(message) {
                theirs.send(&answer, Beside::Nothing);
            }
        }
    });
    Joined(host)
}

fn start(host: &Joined) -> Result<Arc<dyn HostProcesses>, Error> {
    let group = Group {
        epoch: 7,
        first: 1,
        count: 2,
        records: false,
    };
    host.start(&group, Arc::new(|_| {}))
}

#[test]
fn processes_that_could_not_be_started_are_ended() {
    let (sender, told) = std::sync::mpsc::channel();
    let host = host(move |message| match message {
        // One is missing.
        ToAgent::Start(Group { epoch, .. }) => vec![FromAgent::Started {
            epoch,
            pids: vec![1],
            clock: None,
        }],
        ToAgent::End { epoch } => {
            sender.send(epoch).unwrap();
            vec![FromAgent::Ended { epoch }]
        }
        _ => Vec::new(),
    });
    let error = start(&host).err().expect("too few were started");
    assert_eq!(error.to_string(), "h2: started another number of processes");
    assert_eq!(told.recv(), Ok(7));
    assert!(host.is_there(), "its next incarnation may do better");
    assert!(host.0.state().run.is_none());
}

#[test]
fn a_host_that_does_not_end_its_processes_is_given_up() {
    let host = host(|message| match message {
        ToAgent::Start(Group { epoch, .. }) => vec![FromAgent::NotStarted {
            epoch,
            reason: "no memory".to_string(),
        }],
        _ => Vec::new(),
    });
    let error = start(&host).err().expect("none was started");
    assert_eq!(error.to_string(), "h2: no memory");
    // The thread that hears it gives it up.
    let begun = std::time::Instant::now();
    while host.is_there() && begun.elapsed().as_secs() < 60 {
        std::thread::yield_now();
    }
    assert!(!host.is_there());
}
