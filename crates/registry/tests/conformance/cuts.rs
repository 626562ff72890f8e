//! A connection that breaks in the middle of writes: each happens once, and whoever asked learns of it.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use slackwater_registry::LEADER;

use super::servers::{Servers, jars};
use super::{Candidate, child, get, registry};

/// Forwards connections to a server, and cuts them when told to.
struct Relay {
    port: u16,
    open: Arc<Mutex<Vec<TcpStream>>>,
}

impl Relay {
    /// The thread ends with the process, as the test does.
    fn start(server: u16) -> Relay {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = listener.local_addr().expect("a port").port();
        let open = Arc::new(Mutex::new(Vec::new()));
        let held = Arc::clone(&open);
        std::thread::spawn(move || {
            for near in listener.incoming().map_while(Result::ok) {
                let Ok(far) = TcpStream::connect(("127.0.0.1", server)) else {
                    continue;
                };
                for (from, to) in [(&near, &far), (&far, &near)] {
                    let (from, to) = (
                        from.try_clone().expect("a socket"),
                        to.try_clone().expect("a socket"),
                    );
                    std::thread::spawn(move || pump(from, to));
                }
                held.lock().expect("no panic").extend([near, far]);
            }
        });
        Relay { port, open }
    }

    /// Cuts all connections, in the middle of whatever they carry.
    fn cut(&self) {
        for socket in self.open.lock().expect("no panic").drain(..) {
            let _ = socket.shutdown(Shutdown::Both);
        }
    }
}

fn pump(mut from: TcpStream, mut to: TcpStream) {
    let mut bytes = [0; 4096];
    while let Ok(read @ 1..) = from.read(&mut bytes) {
        if to.write_all(&bytes[..read]).is_err() {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Both);
}

#[test]
fn writes_happen_once_when_zookeeper_s_connections_break() {
    let Some(jars) = jars() else {
        return;
    };
    let servers = Servers::start(&jars, 1, 2_000);
    let relay = Relay::start(servers.ports[0]);
    let url = format!("zk://127.0.0.1:{}/slackwater/cuts", relay.port);
    let direct = registry(&servers.url("cuts"));
    let ours = registry(&url);
    let leader = Candidate::stand(&*ours, "leader");
    leader.elected();
    let mut random = fastrand::Rng::with_seed(5);
    let mut cuts = 0;
    std::thread::scope(|scope| {
        let counts = scope.spawn(|| child::count(&*ours, "count", 300));
        // Another writes too, so that some find that others were faster.
        let others = scope.spawn(|| child::count(&*direct, "other", 300));
        while !(counts.is_finished() && others.is_finished()) && cuts < 1_000 {
            // About as long as some writes, so that some are cut between what was asked and the answer.
            std::thread::sleep(Duration::from_millis(random.u64(20..200)));
            relay.cut();
            cuts += 1;
        }
    });
    assert!(cuts > 3, "nothing was cut");
    assert_eq!(get(&*direct, "count").as_deref(), Some("300"));
    assert_eq!(get(&*direct, "other").as_deref(), Some("300"));
    // The session has survived all of it.
    assert!(leader.is_told_nothing());
    assert_eq!(get(&*direct, LEADER).as_deref(), Some("leader"));
}
