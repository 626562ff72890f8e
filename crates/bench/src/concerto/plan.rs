//! What is measured, in which order.

use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};

use super::batch::{self, Batch, Way};
use super::cost;
use super::cpufreq::{POLICIES, SlowCores};
use super::dilation::Dilation;
use super::effect;
use super::energy::{FAST_GHZ, SLOW_GHZ};
use super::figures::Figures;
use super::manager;
use super::mixes::{self, Case, Mixes};
use super::network::Network;
use super::reads::Reads;
use super::server::Kind;
use super::workload::Mix;
use crate::lab::folder::Folder;
use crate::lab::{self, Files};

/// Bytes of a value: the paper's costs are of 1 KB.
const VALUE_BYTES: usize = 1_024;

/// memtier's values in the paper.
const SIZES: [usize; 4] = [256, 512, 1_024, 2_048];

/// Writes per second of the part batch.
const BATCH_RATES: [f64; 4] = [1_000.0, 1_500.0, 3_000.0, 10_000.0];

/// Writes per second of the part lag.
const LAG_RATES: [f64; 2] = [1_000.0, 5_000.0];

/// Ways of the part lag: allowed lags of 5, 20 and 100 ms.
const LAG_WAYS: [Way; 4] = [Way::Default, Way::Beat(5), Way::Beat(20), Way::Beat(100)];

/// A part of the experiment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Part {
    /// Batches: CPU time per write and lag.
    Batch,
    /// CPU time per SET of masters and replicas.
    Cost,
    /// Energy of memtier and YCSB.
    Energy,
    /// Throughput of memtier and YCSB.
    Throughput,
    /// Lag by the lag that is allowed.
    Lag,
    /// GETs at a slow replica, with the read path split and without.
    Reads,
}

/// By what a server is slow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Slow {
    /// By cpufreq where it can be written, else by dilation.
    Auto,
    /// By the frequency of its core.
    Cpufreq,
    /// By a preloaded library.
    Dilate,
    /// Nothing is slow; what depends on it is computed or left out.
    None,
}

/// Arguments of the experiment.
#[derive(Args)]
pub struct Arguments {
    /// Parts of the experiment [default: all]
    #[arg(long = "part", value_name = "PART,PART", value_delimiter = ',')]
    parts: Vec<Part>,
    /// Servers: redis, valkey (which `make peers-valkey` installs in target/valkey)
    #[arg(
        long,
        value_name = "NAME,NAME",
        value_delimiter = ',',
        default_value = "redis"
    )]
    servers: Vec<String>,
    /// By what slow servers are slow
    #[arg(long, default_value = "auto")]
    slow: Slow,
    /// Rounds; the medians are printed
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=100))]
    rounds: u32,
    /// Seconds a point
    #[arg(long, default_value = "3", value_parser = crate::common::parse_seconds)]
    seconds: f64,
    /// Records of memtier and YCSB
    #[arg(
        long,
        default_value_t = 50_000,
        value_parser = clap::value_parser!(u64).range(100..=10_000_000)
    )]
    records: u64,
    /// The program of the power manager, `slackwater-power`: it is measured beside the part batch
    #[arg(long, value_name = "PROGRAM")]
    manager: Option<PathBuf>,
    /// One round of fewer and shorter points: it shows that everything runs
    #[arg(long)]
    quick: bool,
    #[command(flatten)]
    pub(super) files: Files,
}

/// The plan.
pub struct Plan {
    kinds: Vec<Kind>,
    parts: Vec<Part>,
    dilation: Option<Dilation>,
    rounds: u32,
    seconds: f64,
    records: u64,
    manager: Option<PathBuf>,
    quick: bool,
}

impl Plan {
    /// Checks the arguments.
    ///
    /// # Errors
    ///
    /// If a server is not installed, or what makes it slow is missing.
    pub fn of(arguments: &Arguments) -> Result<Plan, String> {
        // First: it needs nothing but the arguments.
        let kinds = arguments.servers.iter().map(|name| Kind::find(name));
        let kinds = kinds.collect::<Result<Vec<Kind>, String>>()?;
        let all = Part::value_variants();
        let parts = match arguments.parts.is_empty() {
            true => all.to_vec(),
            false => arguments.parts.clone(),
        };
        let library = || Dilation::of(FAST_GHZ / SLOW_GHZ);
        let cores = || SlowCores::cap(Path::new(POLICIES)).and_then(Dilation::by);
        let dilation = match arguments.slow {
            Slow::None => None,
            Slow::Dilate => Some(library()?),
            Slow::Cpufreq => Some(cores()?),
            Slow::Auto => Some(cores().or_else(|_| library())?),
        };
        let quick = arguments.quick;
        Ok(Plan {
            kinds,
            parts,
            dilation,
            rounds: if quick { 1 } else { arguments.rounds },
            seconds: if quick { 1.0 } else { arguments.seconds },
            records: if quick { 2_000 } else { arguments.records },
            manager: arguments.manager.clone(),
            quick,
        })
    }

    /// The announcement.
    pub fn describe(&self) -> String {
        format!(
            "{} part(s) of {} server(s), {} round(s) of {} s a point; slow: {}",
            self.parts.len(),
            self.kinds.len(),
            self.rounds,
            self.seconds,
            self.slow()
        )
    }

    fn slow(&self) -> String {
        match &self.dilation {
            Some(dilation) => dilation.describe(),
            None => "nothing; costs of slow servers are computed".to_string(),
        }
    }

    fn has(&self, part: Part) -> bool {
        self.parts.contains(&part)
    }

    fn cases(&self) -> Vec<Case> {
        let letters: &[char] = if self.quick {
            &['A']
        } else {
            &['A', 'B', 'C', 'D', 'E', 'F']
        };
        let sizes: &[usize] = if self.quick { &[1_024] } else { &SIZES };
        let memtier = sizes.iter().map(|&value_bytes| (Mix::Memtier, value_bytes));
        let ycsb = letters.iter().map(|&letter| (Mix::Ycsb(letter), 100));
        let mixes = [(Mix::Set, VALUE_BYTES)]
            .into_iter()
            .chain(memtier)
            .chain(ycsb);
        let cases = mixes.flat_map(|(mix, value_bytes)| {
            [1, 2].map(|replicas| Case {
                mix,
                value_bytes,
                replicas,
            })
        });
        cases.collect()
    }

    /// Measures all parts.
    ///
    /// # Errors
    ///
    /// If a server fails.
    pub fn measure_all(&self) -> Result<Figures, String> {
        let folder = Folder::make(&std::env::temp_dir())?;
        let mut figures = Figures {
            servers: self.kinds.clone(),
            slow: self.slow(),
            rounds: self.rounds,
            value_bytes: VALUE_BYTES,
            cost_rate_per_s: if self.quick { 3_000.0 } else { 10_000.0 },
            is_energy: self.has(Part::Energy),
            is_throughput: self.has(Part::Throughput),
            ..Figures::default()
        };
        let network = match self.has(Part::Batch) {
            true => match Network::create() {
                Ok(network) => Some(network),
                Err(error) => {
                    figures
                        .notes
                        .push(format!("an MTU of 1,500 (needs root): {error}"));
                    None
                }
            },
            false => None,
        };
        for round in lab::rounds(self.rounds) {
            for kind in round.order(&self.kinds) {
                let measuring = Measuring {
                    plan: self,
                    kind,
                    folder: &folder,
                    network: network.as_ref(),
                    round,
                };
                measuring.measure(&mut figures)?;
            }
        }
        figures.batch = batch::summarize(&figures.batch_points);
        figures.mixes = mixes::summarize(&figures.mix_points);
        let slow = figures
            .lag_points
            .iter()
            .filter(|point| point.slow > 1.0)
            .cloned();
        figures.lag_slow = batch::summarize(&slow.collect::<Vec<batch::Point>>());
        let fast = figures
            .lag_points
            .iter()
            .filter(|point| point.slow == 1.0)
            .cloned();
        figures.lag = batch::summarize(&fast.collect::<Vec<batch::Point>>());
        Ok(figures)
    }
}

/// One server in one round.
struct Measuring<'a> {
    plan: &'a Plan,
    kind: &'a Kind,
    folder: &'a Folder,
    network: Option<&'a Network>,
    round: lab::Round,
}

impl Measuring<'_> {
    fn measure(&self, figures: &mut Figures) -> Result<(), String> {
        let is_backwards = self.round.number.is_multiple_of(2);
        let (kind, folder, plan) = (self.kind, self.folder.path(), self.plan);
        let seed = u64::from(self.round.number);
        let (network, seconds) = (self.network, plan.seconds);
        let over = |network| batch::Round {
            network,
            is_backwards,
            seed,
        };
        if plan.has(Part::Batch) {
            self.note("batch");
            let rates = if plan.quick {
                &BATCH_RATES[..1]
            } else {
                &BATCH_RATES
            };
            let batch = self.batch(rates, &Way::ALL, None);
            figures.batch_points.extend(batch.measure(&over(None))?);
            if network.is_some() {
                figures.batch_points.extend(batch.measure(&over(network))?);
            }
            let effect = effect::measure(kind, folder, seconds, VALUE_BYTES, is_backwards)?;
            figures.effect.extend(effect);
            if let Some(program) = &plan.manager {
                self.note("manager");
                let measured = manager::measure(program, kind, folder, rates, seconds, seed)?;
                figures.manager.extend(measured);
            }
        }
        if plan.has(Part::Cost) {
            self.note("cost");
            let rates = [figures.cost_rate_per_s];
            let batch = self.batch(&rates, &Way::ALL[..1], None);
            figures
                .cost
                .extend(cost::measure(&batch, plan.dilation.as_ref(), seed)?);
        }
        if plan.has(Part::Energy) || plan.has(Part::Throughput) {
            let mixes = Mixes {
                kind,
                folder,
                slow: plan.dilation.as_ref(),
                seconds,
                records: plan.records,
            };
            for case in self.round.order(&plan.cases()) {
                self.note(&format!(
                    "{}, {} replica(s)",
                    case.mix.name(),
                    case.replicas
                ));
                figures
                    .mix_points
                    .extend(mixes.measure(*case, is_backwards)?);
            }
        }
        if plan.has(Part::Lag) {
            let rates = if plan.quick {
                &LAG_RATES[..1]
            } else {
                &LAG_RATES
            };
            for dilation in [None].into_iter().chain(plan.dilation.as_ref().map(Some)) {
                self.note("lag");
                let batch = self.batch(rates, &LAG_WAYS, dilation);
                figures.lag_points.extend(batch.measure(&over(None))?);
            }
        }
        if plan.has(Part::Reads) {
            self.note("reads");
            let reads = Reads {
                kind,
                folder,
                slow: plan.dilation.as_ref(),
                seconds,
                value_bytes: VALUE_BYTES,
            };
            figures.reads.extend(reads.measure(is_backwards)?);
        }
        Ok(())
    }

    fn batch<'b>(
        &'b self,
        rates: &'b [f64],
        ways: &'b [Way],
        dilation: Option<&'b Dilation>,
    ) -> Batch<'b> {
        Batch {
            kind: self.kind,
            folder: self.folder.path(),
            core: None,
            dilation,
            rates,
            ways,
            seconds: self.plan.seconds,
            value_bytes: VALUE_BYTES,
        }
    }

    fn note(&self, what: &str) {
        self.round.note(format!("{}: {what}", self.kind.name));
    }
}
