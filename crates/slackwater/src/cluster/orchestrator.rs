//! The orchestrator's side of a query on several hosts: waits for them, and describes them to the planner.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use slackwater_control::lease::Terms;
use slackwater_control::wanted::Limits;
use slackwater_engine::time::now_ns;
use slackwater_secure::Secret;
use slackwater_sql::settings::{Hosts, Settings};

use super::members::About;
use super::membership::Membership;
use super::wanted::{HostsKnown, HostsReading, Used, Wishes};
use crate::broadcast::distance_between_hosts;
use crate::hosts::{Facts, Host, LocalHost};
use crate::machine::Machine;
use crate::report::HostReport;
use crate::terminal::say;

/// How long a query that runs on fewer hosts than it could waits for more when it starts: agents that are
/// started together join within milliseconds.
const SETTLE: Duration = Duration::from_secs(1);

/// How often is said that it waits for hosts.
const TELL_AGAIN: Duration = Duration::from_secs(60);

/// How often a wait for hosts asks whether it is to end.
const LOOK: Duration = Duration::from_millis(100);

/// Which hosts a query is to run on.
#[derive(Debug, Clone)]
pub struct ClusterOptions {
    /// Where agents join.
    pub listen: SocketAddr,
    /// What agents have to know; `None` on loopback only.
    pub secret: Option<Secret>,
    /// The name of this host.
    pub name: String,
    /// The ports at which worker processes of this host may listen; `None` for any.
    pub ports: Option<(u16, u16)>,
    /// How many hosts there are to be.
    pub hosts: Hosts,
    /// Whether this host is one of them. If not, only what is bound to it runs here.
    pub here: bool,
    /// Where orchestrators agree who leads; `None` for one that leads alone.
    pub registry: Option<String>,
    /// Where agents join that are sent here; `None` if they join here themselves.
    pub lobby: Option<SocketAddr>,
}

/// By which right an orchestrator leads.
pub struct Led {
    /// The number of its term.
    pub term: Box<dyn Fn() -> u64 + Send + Sync>,
    /// Whether another orchestrator goes on when this one ends.
    pub hands_over: Box<dyn Fn() -> bool + Send + Sync>,
}

impl Led {
    /// It leads alone.
    pub fn alone() -> Led {
        Led {
            term: Box::new(|| 1),
            hands_over: Box::new(|| false),
        }
    }
}

/// Where hosts join a query.
pub struct Orchestrator {
    membership: Membership,
    options: ClusterOptions,
    /// How long it waits for hosts; `None` for ever.
    patience: Option<Duration>,
    has_gathered: Cell<bool>,
    /// The hosts that the query can't do without, each with a table that needs it.
    needed: RefCell<BTreeMap<String, String>>,
    /// The hosts that the query was started with.
    first: RefCell<BTreeSet<String>>,
    home: Arc<LocalHost>,
    wishes: RefCell<Wishes>,
}

/// Whether a query is to go on with other hosts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Judged {
    /// No.
    Same,
    /// A host that it uses is to leave.
    Leave,
    /// It could use more hosts.
    More,
}

/// The hosts of a query.
pub struct Gathered {
    /// The hosts; home is the first.
    pub hosts: Vec<Arc<dyn Host>>,
    /// Their names.
    pub names: Vec<String>,
    /// Whether each of them works. Home may only run what is bound to it.
    pub works: Vec<bool>,
    /// Those that have joined after the query was started.
    pub new: Vec<String>,
    /// All of them as one machine.
    pub machine: Machine,
}

impl Orchestrator {
    /// Listens for agents, for the query of this name. `program` is the executable that worker processes run
    /// on this host, and `led` says who else could go on.
    ///
    /// # Errors
    ///
    /// If the address can't be listened at.
    pub fn new(
        options: &ClusterOptions,
        query: &str,
        settings: &Settings,
        home: (&Machine, Option<&std::path::Path>),
        led: Led,
        told: impl Fn() + Send + Sync + 'static,
    ) -> Result<Orchestrator, String> {
        let (machine, program) = home;
        let secret = options.secret.clone();
        let terms = Terms {
            host_timeout_ns: settings.host_timeout_ns,
        };
        let about = About {
            name: options.name.clone(),
            term: led.term,
            query: query.to_string(),
            hosts: options.hosts,
            here: options.here,
            terms,
        };
        let membership = Membership::new(options.listen, secret, about, told, led.hands_over);
        let membership =
            membership.map_err(|error| format!("--listen {}: {error}", options.listen))?;
        let facts = Facts {
            ports: options.ports,
            ..Facts::here(&options.name, options.listen.ip(), machine)
        };
        Ok(Orchestrator {
            membership,
            options: options.clone(),
            patience: match options.registry {
                None => Some(Duration::from_nanos(settings.host_patience_ns)),
                // Somebody keeps it running, and whoever stops it is heard.
                Some(_) => None,
            },
            has_gathered: Cell::new(false),
            needed: RefCell::default(),
            first: RefCell::default(),
            home: Arc::new(LocalHost::new(facts, program).with_secret(options.secret.clone())),
            wishes: RefCell::new(Wishes::new(Limits {
                min: options.hosts.min,
                max: options.hosts.max,
                more_after_ns: settings.hosts_more_after_ns,
                fewer_after_ns: settings.hosts_fewer_after_ns,
            })),
        })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.membership.address()
    }

    /// Names the hosts that the query can't do without, each with a table that needs it. Once the query has
    /// been started, it waits for them.
    pub fn need(&self, mut needed: BTreeMap<String, String>) {
        needed.remove(&self.options.name);
        *self.needed.borrow_mut() = needed;
    }

    /// Whether all of `hosts` are there, and no other that could be used as well.
    pub fn are_there(&self, hosts: &[Arc<dyn Host>]) -> bool {
        let most = self.options.hosts.max - usize::from(self.options.here);
        let joined = self.membership.hosts().len().min(most);
        // Home is one of them.
        hosts.len() == joined + 1 && hosts.iter().all(|host| host.is_there())
    }

    /// What is to be done after a host has joined or was asked to leave. One that can't leave, or that
    /// nothing runs on, is told.
    pub fn judge(&self, hosts: &[Arc<dyn Host>], is_saved: bool) -> Judged {
        let Hosts { min, .. } = self.options.hosts;
        let needed = min - usize::from(self.options.here);
        let left = self.membership.hosts().len();
        let mut is_needed = false;
        for leaving in self.membership.leaving() {
            let name = leaving.name();
            if !hosts.iter().any(|host| host.facts().name == name) {
                leaving.dismiss();
            } else if !is_saved {
                leaving.keep("the query is run without --state, and can't go on elsewhere");
            } else if let Some(table) = self.needed.borrow().get(name) {
                leaving.keep(&format!("only it can read or write table '{table}'"));
            } else if left < needed {
                let hosts = self.options.hosts;
                leaving.keep(&format!(
                    "the query needs --hosts {hosts}, and no other host has joined"
                ));
            } else {
                is_needed = true;
            }
        }
        match is_needed {
            true => Judged::Leave,
            false if self.are_there(hosts) => Judged::Same,
            false => Judged::More,
        }
    }

    /// Waits until enough hosts have joined. Then all that are there are used, up to the most that were asked
    /// for; the first time, others get a moment to join.
    ///
    /// # Errors
    ///
    /// If that takes too long, or `is_stopped`.
    pub fn gather(&self, is_stopped: &dyn Fn() -> bool) -> Result<Gathered, String> {
        let ClusterOptions { hosts, here, .. } = self.options;
        let Hosts { min, max } = hosts;
        let [count, most] = [min, max].map(|hosts| hosts - usize::from(here));
        let until = self.patience.map(|patience| Instant::now() + patience);
        let needed = self.needed.borrow();
        let named = needed.keys().map(String::as_str);
        let named = named.filter(|_| self.has_gathered.get());
        let named = named.collect::<Vec<&str>>();
        let wait = |until| self.membership.wait_for(count, &named, until);
        if !wait(Instant::now()) {
            say(&self.waiting(count, &named));
        }
        let mut told = Instant::now();
        while !wait(Instant::now() + LOOK) {
            if is_stopped() {
                return Err("stopped while waiting for hosts".to_string());
            }
            if told.elapsed() >= TELL_AGAIN {
                told = Instant::now();
                say(&format!("still {}", self.waiting(count, &named)));
            }
            if until.is_some_and(|until| Instant::now() >= until) {
                return Err(self.too_few());
            }
        }
        let is_first = !self.has_gathered.replace(true);
        if is_first {
            self.membership.wait_for(most, &[], Instant::now() + SETTLE);
        }
        let mut joined = self.membership.hosts();
        // What others can't replace is not a spare.
        joined.sort_by_key(|host| !needed.contains_key(&host.facts().name));
        joined.truncate(most);
        joined.sort_by(|one, other| one.facts().name.cmp(&other.facts().name));
        let mut hosts: Vec<Arc<dyn Host>> = vec![Arc::clone(&self.home) as Arc<dyn Host>];
        hosts.append(&mut joined);
        let works = (0..hosts.len()).map(|number| number > 0 || here);
        let works = works.collect::<Vec<bool>>();
        let machines = hosts.iter().zip(&works);
        let machines = machines.map(|(host, works)| (host.facts().machine(), *works));
        let distance = distance_between_hosts(self.options.secret.is_some());
        let machine = Machine::of_hosts(&machines.collect::<Vec<_>>(), distance);
        // Those that were asked to leave are not among them.
        for leaving in self.membership.leaving() {
            leaving.dismiss();
        }
        let names = hosts.iter().map(|host| host.facts().name.clone());
        let names = names.collect::<Vec<String>>();
        let mut first = self.first.borrow_mut();
        let new = names.iter().filter(|name| !first.contains(*name));
        let new = new.filter(|_| !is_first).cloned().collect();
        // Each is new once.
        first.extend(names.iter().cloned());
        Ok(Gathered {
            names,
            works,
            new,
            machine,
            hosts,
        })
    }

    /// What is waited for.
    fn waiting(&self, count: usize, named: &[&str]) -> String {
        let there = self.names();
        let address = self.options.lobby.unwrap_or_else(|| self.address());
        let missing = count.saturating_sub(there.len());
        let named = named
            .iter()
            .filter(|name| !there.iter().any(|there| there == **name));
        let named = named.copied().collect::<Vec<&str>>();
        let joined = match there.is_empty() {
            true => String::new(),
            false => format!(" ({} joined)", there.join(", ")),
        };
        let s = if missing == 1 { "" } else { "s" };
        match named.is_empty() {
            true => format!("waiting for {missing} host{s} at {address}{joined}\n"),
            false => format!("waiting for {} at {address}{joined}\n", named.join(", ")),
        }
    }

    /// The error if hosts have not joined in time.
    fn too_few(&self) -> String {
        let there = self.names();
        let hosts = self.options.hosts;
        let address = self.options.lobby.unwrap_or_else(|| self.address());
        let patience = self.patience.unwrap_or_default().as_secs_f64();
        let secret = self.options.secret.as_ref();
        let secret = secret.map_or("", |_| " --secret FILE");
        let needed = self.needed.borrow();
        let lacks = needed.iter().find(|(name, _)| !there.contains(name));
        if let Some((name, table)) = lacks.filter(|_| self.has_gathered.get()) {
            return format!(
                "table '{table}' can't do without host {name}, which has not joined again within \
                 {patience} s\n  \
                 = on that host: slackwater worker --join {address}{secret} --name {name}; or wait longer: \
                 SET 'host_patience'"
            );
        }
        let joined = match there.is_empty() {
            true => "none has joined".to_string(),
            false => format!("only {} joined", there.join(", ")),
        };
        format!(
            "--hosts {hosts}: {joined} within {patience} s\n  \
             = on each of the others: slackwater worker --join {address}{secret}; or use fewer --hosts, or \
             wait longer: SET 'host_patience'"
        )
    }

    /// The hosts of an incarnation, whose processes run on `host_of`.
    pub fn report(&self, hosts: &[Arc<dyn Host>], host_of: &[usize]) -> Vec<HostReport> {
        let reports = hosts.iter().enumerate().map(|(number, host)| {
            let processes = host_of.iter().enumerate();
            let own = processes.filter(|(_, host)| **host == number);
            let facts = host.facts();
            let clock = self.membership.clock(&facts.name);
            let traffic = self.membership.traffic(&facts.name);
            HostReport {
                name: facts.name.clone(),
                address: facts.address.to_string(),
                processes: own.map(|(process, _)| process).collect(),
                clock_offset_ms: clock.map_or(0.0, |clock| clock.offset_ns as f64 / 1e6),
                clock_error_ms: clock.map_or(0.0, |clock| clock.error_ns as f64 / 1e6),
                control_bytes_sent: traffic.sent,
                control_bytes_received: traffic.received,
            }
        });
        reports.collect()
    }

    /// Whether processes on a host count: home only works if it was asked to.
    pub fn counts(&self, host: usize) -> bool {
        host > 0 || self.options.here
    }

    /// The most hosts that the query may use.
    pub fn hosts_max(&self) -> usize {
        self.options.hosts.max
    }

    /// Counts the hosts that are there and may be used, home among them if it is one.
    pub fn counter(&self) -> impl Fn() -> usize + Send + Sync + 'static {
        let (joined, here) = (self.membership.counter(), usize::from(self.options.here));
        move || joined() + here
    }

    /// An incarnation begins.
    pub fn begin(&self, used: Used) {
        self.wishes.borrow_mut().begin(now_ns(), used);
    }

    /// Somebody looks at what it has counted.
    pub fn look(&self, reading: HostsReading) -> HostsKnown {
        let mut wishes = self.wishes.borrow_mut();
        wishes.look(now_ns(), reading);
        wishes.known(self.counter()())
    }

    /// The incarnation has ended; returns how many hosts the query wants, as far as it is known.
    pub fn end(&self, reading: HostsReading) -> Option<usize> {
        self.wishes.borrow_mut().end(now_ns(), reading)
    }

    /// Messages of earlier incarnations that were dropped, and connections of strangers.
    pub fn refused(&self) -> (u64, u64) {
        (self.membership.fenced(), self.membership.refused())
    }

    /// The names of the hosts that have joined.
    fn names(&self) -> Vec<String> {
        let hosts = self.membership.hosts();
        let names = hosts.iter().map(|host| host.facts().name.clone());
        names.collect::<BTreeSet<String>>().into_iter().collect()
    }
}
