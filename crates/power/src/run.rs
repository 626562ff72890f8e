//! Both processes: the hand starts the head, and each undoes the other's death.
//!
//! ```text
//! slackwater-power …            the hand: journal, files, beats       INT and HUP are for the head
//!  └─ slackwater-power … head   the head: another user, network       INT, HUP and TERM end it
//! ```
//!
//! | what ends | what follows |
//! |---|---|
//! | the head, by a signal or an error | the hand restores, and exits with 1 |
//! | the head, because it was told to | the hand restores, and exits with 0 |
//! | the hand, by SIGTERM | it restores, tells the head, and both exit with 0 |
//! | the hand, by SIGKILL | the head restores through its descriptors, and exits with 1 |
//! | both, by SIGKILL | the journal stays: `slackwater-power restore`, or the next start, undoes it |

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};

use rustix::io::FdFlags;

use crate::config::{self, Settings};
use crate::cores::{self, Cores};
use crate::error::{Error, Result};
use crate::hand::{self, Hand};
use crate::head::{self, Grip, Head, Page};
use crate::host;
use crate::journal::Journal;
use crate::message::Channel;
use crate::status::Status;
use crate::system;
use crate::undo::{self, Undone};
use crate::user;

/// How long a role has to last for a plan.
const PLAN_SETTLE_NS: u64 = 500_000_000;

/// What both processes are told by the command line.
#[derive(Debug, Clone)]
pub struct Options {
    /// The journal.
    pub journal: PathBuf,
    /// The root of sysfs.
    pub sysfs: PathBuf,
    /// Whether nothing is changed.
    pub is_dry: bool,
    /// The user that the head becomes.
    pub user: Option<String>,
}

/// The socket of the page beside a journal.
pub fn page_path(journal: &Path) -> PathBuf {
    let mut name = journal.to_path_buf().into_os_string();
    name.push(".socket");
    name.into()
}

/// Locks the journal, and undoes what somebody has left there.
fn take_over(path: &Path) -> Result<Journal> {
    let (mut journal, left) = Journal::open(path)?;
    match left {
        Ok(left) if left.is_empty() => {}
        Ok(left) => {
            let undone = undo::undo(&mut journal, left);
            tell(&undone);
            undone.checked(path)?;
        }
        Err(unusable) => {
            let kept = journal.set_aside();
            let kept = kept.map_err(|error| Error::failed(path.display(), error))?;
            eprintln!(
                "slackwater-power: journal {} {unusable}; it is kept as {}",
                path.display(),
                kept.display()
            );
        }
    }
    Ok(journal)
}

/// Says what was restored.
fn tell(undone: &Undone) {
    for line in &undone.restored {
        eprintln!("slackwater-power: restored {line}");
    }
    for line in &undone.left {
        eprintln!("slackwater-power: left {line}");
    }
    for line in &undone.failed {
        eprintln!("slackwater-power: not restored: {line}");
    }
}

/// Undoes what a manager has left. Fails if one is running.
pub fn restore(path: &Path) -> Result<()> {
    take_over(path).map(|_| ())
}

/// The process that changes things, and that starts the other one with `arguments`.
pub fn run_hand(settings: &Settings, options: &Options, arguments: &[String]) -> Result<u8> {
    let failed = |error: std::io::Error| Error::failed("start", error);
    // First: whoever ends it while it undoes what was left has it end as always.
    let signals = system::signals(&[libc::SIGTERM]).map_err(failed)?;
    let journal = take_over(&options.journal)?;
    // A limit that was left there would be taken for one that somebody else has set.
    let cores = Cores::read(&options.sysfs);
    check_floor(settings, &cores)?;
    system::dispose(libc::SIGINT, true);
    system::dispose(libc::SIGHUP, true);
    let path = page_path(&options.journal);
    let _ = std::fs::remove_file(&path);
    let page = UnixListener::bind(&path).map_err(|error| Error::failed(path.display(), error))?;
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).map_err(failed)?;
    let (ours, theirs) = Channel::pair().map_err(failed)?;
    let mut child = start_head(arguments, &theirs, &page).map_err(failed)?;
    // After the head has started, which may well end earlier, and later.
    system::end_last();
    system::hurry();
    // Else the end of the head would not be seen.
    drop((theirs, page));
    let mut hand = Hand::new(hand::Parts {
        journal,
        sysfs: options.sysfs.clone(),
        cores,
        may_set: host::may_set,
        lists: settings.lists.clone(),
        named: named(settings),
        packages: cores::packages(&options.sysfs),
        channel: ours,
        signals,
        is_dry: options.is_dry,
    })
    .map_err(failed)?;
    let end = hand.run();
    let undone = hand.restore();
    let _ = std::fs::remove_file(&path);
    for line in &undone.failed {
        eprintln!("slackwater-power: not restored: {line}");
    }
    undone.checked(&options.journal)?;
    match end {
        hand::End::Signal => Ok(0),
        hand::End::Head => ended(&mut child),
    }
}

/// Addresses of servers whose process the configuration names. They are numbers, so nothing is looked up.
fn named(settings: &Settings) -> BTreeSet<SocketAddr> {
    let servers = settings.servers.iter();
    let named = servers.filter(|server| server.process.is_some());
    named
        .filter_map(|server| server.seed.address().ok())
        .collect()
}

/// Starts this program again as the head.
fn start_head(
    arguments: &[String],
    channel: &Channel,
    page: &UnixListener,
) -> std::io::Result<Child> {
    let inherited = [channel.as_fd(), page.as_fd()];
    for descriptor in inherited {
        rustix::io::fcntl_setfd(descriptor, FdFlags::empty())?;
    }
    let mut command = Command::new("/proc/self/exe");
    command.args(arguments).arg("head");
    for descriptor in inherited {
        command.arg(descriptor.as_raw_fd().to_string());
    }
    command.spawn()
}

/// How the head has ended.
fn ended(child: &mut Child) -> Result<u8> {
    let status = child.wait().map_err(|error| Error::failed("head", error))?;
    match (status.code(), status.signal()) {
        // It has said why.
        (Some(code), _) => Ok(u8::try_from(code).unwrap_or(1)),
        (None, signal) => {
            let what = format!(
                "was ended by signal {}; everything was restored",
                signal.unwrap_or_default()
            );
            Err(Error::failed("head", what))
        }
    }
}

fn check_floor(settings: &Settings, cores: &Cores) -> Result<()> {
    let Some(floor) = settings.limits.floor_khz else {
        return Ok(());
    };
    let ranges = cores
        .cores
        .iter()
        .filter_map(|described| described.core.khz);
    let ranges = ranges.collect::<Vec<(u32, u32)>>();
    let fits = ranges.is_empty()
        || ranges
            .iter()
            .any(|(low, high)| (low..=high).contains(&&floor));
    match fits {
        true => Ok(()),
        false => {
            let (low, high) = ranges[0];
            let what = format!(
                "floor {} is out of range",
                crate::units::frequency_text(floor)
            );
            Err(Error::usage("[slow]", what).hint(format!(
                "write {} to {}",
                crate::units::frequency_text(low),
                crate::units::frequency_text(high)
            )))
        }
    }
}

/// A descriptor that was inherited.
fn inherited(number: RawFd) -> Result<OwnedFd> {
    if number <= 2 || rustix::io::fcntl_getfd(borrowed(number)).is_err() {
        return Err(Error::usage("head", "is started by slackwater-power only"));
    }
    let _ = rustix::io::fcntl_setfd(borrowed(number), FdFlags::CLOEXEC);
    // SAFETY: it is open, and the hand has left it to this process, where nothing else uses it.
    Ok(unsafe { OwnedFd::from_raw_fd(number) })
}

fn borrowed(number: RawFd) -> std::os::fd::BorrowedFd<'static> {
    // SAFETY: used for one call, which checks that the descriptor is open.
    unsafe { std::os::fd::BorrowedFd::borrow_raw(number) }
}

/// The process that has the network.
pub fn run_head(settings: Settings, options: &Options, channel: RawFd, page: RawFd) -> Result<u8> {
    let failed = |error: std::io::Error| Error::failed("head", error);
    system::dispose(libc::SIGINT, false);
    system::dispose(libc::SIGHUP, false);
    let signals = system::signals(&[libc::SIGINT, libc::SIGHUP, libc::SIGTERM]).map_err(failed)?;
    let channel = Channel::of(inherited(channel)?);
    let private = UnixListener::from(inherited(page)?);
    for warning in &settings.warnings {
        eprintln!("warning: {warning}");
    }
    let public = match settings.metrics {
        Some(address) => Some(std::net::TcpListener::bind(address).map_err(|error| {
            Error::failed(format!("--metrics {address}"), error)
                .hint("choose a free port of 127.0.0.1")
        })?),
        None => None,
    };
    let page = Page::new(public, Some(private)).map_err(failed)?;
    // Everything that takes permissions is open now.
    let mut head = make_head(settings, options, channel, page, signals, None)?;
    match head.run() {
        head::End::Signal | head::End::Rounds => Ok(0),
        head::End::Hand => {
            let grip = head.into_grip();
            if grip.has_ended() {
                return Ok(0);
            }
            let failed = grip.undo();
            for line in &failed {
                eprintln!("slackwater-power: not restored: {line}");
            }
            Err(
                Error::failed("hand", "is gone; frequencies and marks were restored")
                    .hint("slackwater-power restore lets threads go that are still pinned"),
            )
        }
    }
}

fn make_head(
    settings: Settings,
    options: &Options,
    channel: Channel,
    page: Page,
    signals: OwnedFd,
    rounds: Option<u32>,
) -> Result<Head> {
    let logins = settings.servers.iter().map(config::Server::logins);
    let logins = logins.collect::<Result<Vec<config::Logins>>>()?;
    if rustix::process::geteuid().is_root() {
        match user::find(options.user.as_deref())? {
            Some(user) => system::become_user(user.uid, user.gid).map_err(|error| {
                Error::failed("--user", error).hint("it takes CAP_SETUID and CAP_SETGID")
            })?,
            None => eprintln!(
                "warning: there is no user slackwater-power or nobody: the network has root"
            ),
        }
    }
    let grip = Grip::new(channel).map_err(|_| Error::failed("hand", "does not answer"))?;
    Head::new(head::Parts {
        grip,
        settings,
        logins,
        cores: Cores::read(&options.sysfs),
        sysfs: options.sysfs.clone(),
        page,
        signals,
        is_dry: options.is_dry,
        rounds,
    })
}

/// Looks around for `rounds` seconds without changing anything, and says what is there and what would be
/// done.
pub fn plan(mut settings: Settings, options: &Options, rounds: u32) -> Result<Status> {
    // Nothing is changed, so no role has to be certain.
    settings.limits.settle_ns = settings.limits.settle_ns.min(PLAN_SETTLE_NS);
    let failed = |error: std::io::Error| Error::failed("plan", error);
    let folder = std::env::temp_dir().join(format!("slackwater-power-plan-{}", std::process::id()));
    let cores = Cores::read(&options.sysfs);
    check_floor(&settings, &cores)?;
    let (journal, _) = Journal::open(&folder.join("journal"))?;
    let (ours, theirs) = Channel::pair().map_err(failed)?;
    let signals = || system::signals(&[libc::SIGINT, libc::SIGTERM]).map_err(failed);
    let mut hand = Hand::new(hand::Parts {
        journal,
        sysfs: options.sysfs.clone(),
        cores,
        may_set: host::may_set,
        lists: settings.lists.clone(),
        named: named(&settings),
        packages: Vec::new(),
        channel: ours,
        signals: signals()?,
        is_dry: true,
    })
    .map_err(failed)?;
    let signals = signals()?;
    let options = Options {
        is_dry: true,
        ..options.clone()
    };
    // One process: nothing is changed, so nothing has to be undone.
    let status = std::thread::scope(|scope| {
        scope.spawn(move || hand.run());
        // Not as another user: that is of the whole process.
        let logins = settings.servers.iter().map(config::Server::logins);
        let logins = logins.collect::<Result<Vec<config::Logins>>>()?;
        let grip = Grip::new(theirs).map_err(|_| Error::failed("hand", "does not answer"))?;
        let mut head = Head::new(head::Parts {
            grip,
            settings,
            logins,
            cores: Cores::read(&options.sysfs),
            sysfs: options.sysfs.clone(),
            page: Page::none(),
            signals,
            is_dry: true,
            rounds: Some(rounds),
        })?;
        head.run();
        Ok(head.status())
    });
    let _ = std::fs::remove_dir_all(&folder);
    status
}
