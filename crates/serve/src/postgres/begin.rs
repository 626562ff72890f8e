//! How a connection begins: TLS, the start-up packet, the password; then its messages are answered until it
//! ends.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tokio::task::AbortHandle;
use tokio_rustls::TlsAcceptor;

use crate::lock::lock;

use super::Limits;
use super::catalog::Facts;
use super::conversation::{Conversation, Fault, Shared, Slot};
use super::message::{self, Frontend, Report};
use super::scram::{self, Exchange, MECHANISM, Passwords};
use super::settings::{self, Settings};
use super::wire::{Incoming, Stream, Wire};

/// How many requests for encryption a client may send before it starts.
const REQUESTS_MAX: usize = 3;
/// How long a client waits after a wrong password.
const WRONG_PASSWORD_PAUSE: Duration = Duration::from_millis(500);
/// A connection without a sign of life is asked for one after this time.
const KEEP_ALIVE: Duration = Duration::from_secs(60);

/// What is needed to let clients in.
pub struct Guests {
    pub shared: Arc<Shared>,
    pub passwords: Option<Passwords>,
    pub tls: Option<TlsAcceptor>,
    pub limits: Limits,
    /// A permit for each client that was let in.
    places: Semaphore,
    lobby: Mutex<Lobby>,
}

/// How far a client has come that was not let in yet. Those that come first here are the first to be sent
/// away.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Stage {
    /// Its password was wrong, and it waits to hear that.
    Refused,
    /// It has said nothing yet.
    Connected,
    /// It has said who it is.
    Started,
    /// It has begun to prove that it knows the password.
    Proves,
}

/// The clients that were not let in yet: by how far they have come, and in the order in which they came.
#[derive(Default)]
struct Lobby {
    next: u64,
    waiting: BTreeMap<(Stage, u64), AbortHandle>,
}

/// A client in the lobby. It is taken out of it, however it leaves.
struct Waiting<'a> {
    lobby: &'a Mutex<Lobby>,
    place: (Stage, u64),
}

impl Waiting<'_> {
    /// Notes how far it has come.
    fn is_at(&mut self, stage: Stage) {
        let mut lobby = lock(self.lobby);
        if let Some(task) = lobby.waiting.remove(&self.place) {
            self.place.0 = stage;
            lobby.waiting.insert(self.place, task);
        }
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        lock(self.lobby).waiting.remove(&self.place);
    }
}

/// Takes a client that ends out of the list of those that can cancel, and cancels what it does.
struct Listed<'a> {
    shared: &'a Shared,
    process: i32,
    slot: Slot,
}

impl Drop for Listed<'_> {
    fn drop(&mut self) {
        lock(&self.shared.running).all.remove(&self.process);
        let cancelled = lock(&self.slot).take();
        if let Some(cancelled) = cancelled {
            cancelled.cancel();
        }
    }
}

/// Who has come in.
struct Guest {
    wire: Wire,
    user: String,
    settings: Settings,
}

impl Guests {
    pub fn new(
        shared: Arc<Shared>,
        passwords: Option<Passwords>,
        tls: Option<TlsAcceptor>,
        limits: Limits,
    ) -> Guests {
        Guests {
            shared,
            passwords,
            tls,
            places: Semaphore::new(limits.connections),
            lobby: Mutex::default(),
            limits,
        }
    }

    /// Receives a client that has connected. If the lobby is full, the one that has come the least far is
    /// sent away, of these the one that has waited longest: an honest client says at once who it is, and is
    /// soon let in.
    pub fn receive(self: &Arc<Self>, socket: TcpStream) {
        let mut lobby = lock(&self.lobby);
        let place = (Stage::Connected, lobby.next);
        lobby.next += 1;
        let is_full = lobby.waiting.len() >= self.limits.waiting;
        let sent_away = is_full.then(|| lobby.waiting.pop_first()).flatten();
        let guests = Arc::clone(self);
        let task = tokio::spawn(async move { guests.serve(socket, place).await });
        lobby.waiting.insert(place, task.abort_handle());
        drop(lobby);
        if let Some((_, task)) = sent_away {
            task.abort();
        }
    }

    /// Serves a client until it leaves.
    async fn serve(&self, socket: TcpStream, place: (Stage, u64)) {
        let mut waiting = Waiting {
            lobby: &self.lobby,
            place,
        };
        // A client that breaks the rules is not answered, and one that has left can't be.
        let _ = socket.set_nodelay(true);
        let _ = rustix::net::sockopt::set_socket_keepalive(&socket, true);
        let _ = rustix::net::sockopt::set_tcp_keepidle(&socket, KEEP_ALIVE);
        let begun =
            tokio::time::timeout(self.limits.begin_time, self.begin(socket, &mut waiting)).await;
        drop(waiting);
        let Ok(Ok(Some(guest))) = begun else { return };
        let _ = match self.places.try_acquire() {
            Ok(_place) => self.converse(guest).await.map(drop),
            Err(_) => {
                let report = Report::fatal("53300", "sorry, too many clients already");
                refuse(guest.wire, &report)
                    .await
                    .map(drop)
                    .map_err(Fault::from)
            }
        };
    }

    /// Everything until the client is let in; `None` if it is not, or has only come to cancel.
    async fn begin(
        &self,
        socket: TcpStream,
        waiting: &mut Waiting<'_>,
    ) -> io::Result<Option<Guest>> {
        let mut wire = Wire::new(Stream::Plain(socket), self.limits.begin_time);
        for _ in 0..REQUESTS_MAX {
            let (code, body) = wire.packet().await?;
            match code {
                message::SSL => wire = self.encrypt(wire).await?,
                message::GSS => {
                    wire.out.extend_from_slice(b"N");
                    wire.send().await?;
                }
                message::CANCEL => {
                    self.cancel(&body);
                    return Ok(None);
                }
                code if code >> 16 == message::VERSION_MAJOR => {
                    waiting.is_at(Stage::Started);
                    return self.start(wire, code & 0xffff, &body, waiting).await;
                }
                _ => {
                    let message = "this version of the protocol is not supported: use version 3.0";
                    return refuse(wire, &Report::fatal("08P01", message)).await;
                }
            }
        }
        Ok(None)
    }

    async fn encrypt(&self, mut wire: Wire) -> io::Result<Wire> {
        let (Some(tls), Stream::Plain(_)) = (&self.tls, &wire.stream) else {
            wire.out.extend_from_slice(b"N");
            wire.send().await?;
            return Ok(wire);
        };
        // What came before the handshake came from somebody else, perhaps.
        if !wire.is_empty() {
            return Err(io::ErrorKind::InvalidData.into());
        }
        wire.out.extend_from_slice(b"S");
        wire.send().await?;
        match wire.stream {
            Stream::Plain(socket) => {
                let stream = Stream::Tls(Box::new(tls.accept(socket).await?));
                Ok(Wire::new(stream, self.limits.begin_time))
            }
            Stream::Tls(_) => Err(io::ErrorKind::InvalidData.into()),
        }
    }

    /// Cancels what the connection with this key does.
    fn cancel(&self, body: &[u8]) {
        let Some((process, secret)) = body.split_at_checked(4) else {
            return;
        };
        let number = |bytes: &[u8]| bytes.try_into().map(u32::from_be_bytes).ok();
        let (Some(process), Some(secret)) = (number(process), number(secret)) else {
            return;
        };
        let running = lock(&self.shared.running);
        let found = running.all.get(&process.cast_signed());
        let slot = found.filter(|(expected, _)| *expected == secret);
        let cancelled = slot.and_then(|(_, slot)| lock(slot).clone());
        drop(running);
        if let Some(cancelled) = cancelled {
            cancelled.cancel();
        }
    }

    async fn start(
        &self,
        mut wire: Wire,
        minor: u32,
        body: &[u8],
        waiting: &mut Waiting<'_>,
    ) -> io::Result<Option<Guest>> {
        let Ok(values) = message::read_startup(body) else {
            return refuse(
                wire,
                &Report::fatal("08P01", "the start-up packet is not valid"),
            )
            .await;
        };
        let unknown: Vec<&str> = values
            .iter()
            .map(|(name, _)| *name)
            .filter(|name| name.starts_with("_pq_."))
            .collect();
        if minor > 0 || !unknown.is_empty() {
            message::negotiate(&mut wire.out, &unknown);
        }
        let find = |wanted: &str| {
            values
                .iter()
                .find(|(name, _)| *name == wanted)
                .map(|(_, value)| *value)
        };
        let Some(user) = find("user").filter(|user| !user.is_empty()) else {
            return refuse(wire, &Report::fatal("28000", "no user name is given")).await;
        };
        if find("replication").is_some_and(|value| !matches!(value, "false" | "off" | "no" | "0")) {
            return refuse(
                wire,
                &Report::fatal("0A000", "replication is not supported"),
            )
            .await;
        }
        if let Some(passwords) = &self.passwords
            && !authenticate(&mut wire, passwords, user, waiting).await?
        {
            waiting.is_at(Stage::Refused);
            tokio::time::sleep(WRONG_PASSWORD_PAUSE).await;
            let message = format!("password authentication failed for user \"{user}\"");
            return refuse(wire, &Report::fatal("28P01", message)).await;
        }
        let mut settings = Settings::new(user);
        let options = find("options").map(options).unwrap_or_default();
        let options = options
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_str()));
        for (name, value) in values.iter().copied().chain(options) {
            // Settings that are not known may mean something elsewhere: they are not worth a refusal.
            let known = settings::is_known(name);
            if let Some(report) = known
                .then(|| settings.set(name, Some(value)).err())
                .flatten()
            {
                return refuse(wire, &Report::fatal(report.code, report.message)).await;
            }
        }
        settings.begin();
        let user = user.to_owned();
        Ok(Some(Guest {
            wire,
            user,
            settings,
        }))
    }

    async fn converse(&self, guest: Guest) -> Result<(), Fault> {
        let Guest {
            mut wire,
            user,
            settings,
        } = guest;
        wire.message_bytes_max = self.limits.message_bytes;
        wire.send_time_max = self.limits.send_time;
        let secret = scram::random().map_err(|refusal| Fault::Report(Report::of(refusal, 0)))?;
        let (secret, slot) = (u32::from_be_bytes(secret), Slot::new(Mutex::new(None)));
        let process = lock(&self.shared.running).add(secret, &slot);
        let _listed = Listed {
            shared: &self.shared,
            process,
            slot: Arc::clone(&slot),
        };
        message::authentication(&mut wire.out, 0, &[]);
        for (name, value) in settings.reported() {
            message::parameter_status(&mut wire.out, name, value);
        }
        message::key(&mut wire.out, process, secret);
        message::ready(&mut wire.out, message::Transaction::None);
        wire.send().await?;
        let facts = Facts::new(&user, process);
        let mut conversation = Conversation::new(Arc::clone(&self.shared), settings, facts, slot);
        loop {
            match wire.next().await? {
                Incoming::Message(kind, body) => match message::read(kind, &body) {
                    Ok(frontend) => {
                        if !conversation.answer(&mut wire, frontend).await? {
                            return Ok(());
                        }
                    }
                    Err(message::Malformed) => {
                        Report::fatal("08P01", "a message is not valid").write(&mut wire.out);
                        wire.send().await?;
                        return Ok(());
                    }
                },
                Incoming::TooLong(kind, bytes) => {
                    let max = self.limits.message_bytes;
                    let message =
                        format!("a message of {bytes} bytes is too long: {max} bytes are allowed");
                    conversation.fail(&mut wire, &Report::error("54000", message));
                    conversation.skips = kind != b'Q';
                    if kind == b'Q' {
                        message::ready(&mut wire.out, conversation.transaction);
                    }
                    wire.send().await?;
                }
            }
        }
    }
}

async fn refuse(mut wire: Wire, report: &Report) -> io::Result<Option<Guest>> {
    report.write(&mut wire.out);
    wire.send().await?;
    Ok(None)
}

/// The three messages of SCRAM-SHA-256.
async fn authenticate(
    wire: &mut Wire,
    passwords: &Passwords,
    user: &str,
    waiting: &mut Waiting<'_>,
) -> io::Result<bool> {
    let methods = format!("{MECHANISM}\0\0");
    message::authentication(&mut wire.out, 10, methods.as_bytes());
    wire.send().await?;
    let first = password(wire).await?;
    let Ok((MECHANISM, first)) = message::read_sasl(&first) else {
        return Ok(false);
    };
    let random = Exchange::random().map_err(|refusal| io::Error::other(refusal.message))?;
    let Some((exchange, answer)) = Exchange::begin(passwords, user, first, &random) else {
        return Ok(false);
    };
    waiting.is_at(Stage::Proves);
    message::authentication(&mut wire.out, 11, answer.as_bytes());
    wire.send().await?;
    let last = password(wire).await?;
    let Some(answer) = exchange.end(&last) else {
        return Ok(false);
    };
    message::authentication(&mut wire.out, 12, answer.as_bytes());
    Ok(true)
}

async fn password(wire: &mut Wire) -> io::Result<Vec<u8>> {
    match wire.next().await? {
        Incoming::Message(kind, body) => match message::read(kind, &body) {
            Ok(Frontend::Password(bytes)) => Ok(bytes.to_vec()),
            Ok(_) | Err(message::Malformed) => Err(io::ErrorKind::InvalidData.into()),
        },
        Incoming::TooLong(_, _) => Err(io::ErrorKind::InvalidData.into()),
    }
}

/// The settings of the option `options`: `-c name=value`, with backslashes before blanks.
pub fn options(text: &str) -> Vec<(String, String)> {
    let (mut words, mut word) = (Vec::new(), String::new());
    let mut characters = text.chars();
    while let Some(character) = characters.next() {
        match character {
            '\\' => word.extend(characters.next()),
            ' ' => words.push(std::mem::take(&mut word)),
            other => word.push(other),
        }
    }
    words.push(word);
    let setting = |word: &String| {
        let word = word
            .strip_prefix("--")
            .or_else(|| word.strip_prefix("-c"))
            .unwrap_or(word);
        let (name, value) = word.split_once('=')?;
        Some((name.replace('-', "_"), value.to_owned()))
    };
    words.iter().filter_map(setting).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_settings() {
        let setting = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        assert_eq!(
            options("-c statement_timeout=5s  --search-path=a\\ b -cgeqo=off x"),
            [
                setting("statement_timeout", "5s"),
                setting("search_path", "a b"),
                setting("geqo", "off"),
            ]
        );
    }
}
