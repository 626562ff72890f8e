//! `slackwater bench placement`: what placement is predicted to gain on UPM-CEP's machine, and how rows
//! per CPU second scale here with more than one instance.
//!
//! ```text
//! HiBench's queries ─► planner (as run) on the Bullion S16's distances ─► model.rs ─► predictions
//!                   └─► runs at parallelism 1, 2, 4, 8 over 8 files here ─► scaling.rs ─► ratios
//! ```
//!
//! The first half is a prediction and not a reproduction, because no such machine is available. Its
//! parameters are printed, together with which of them UPM-CEP's paper gives (`papers.md` P5).

mod deployments;
mod figures;
mod model;
mod scaling;
mod terms;

use std::path::PathBuf;

use clap::Args;

use figures::Figures;

use crate::lab::{self, Experiment, Files, Verdict};

/// Arguments of the experiment.
#[derive(Args)]
pub struct Arguments {
    /// Number of NUMA nodes of the machine for which the prediction is made, from 1 to 16
    #[arg(
        long,
        value_name = "N,N",
        value_delimiter = ',',
        default_value = "1,2,4,8"
    )]
    nodes: Vec<usize>,
    /// Skip the measurements on this machine
    #[arg(long)]
    predict_only: bool,
    /// Records in all generated files together
    #[arg(long, default_value_t = 4_000_000, value_parser = clap::value_parser!(u64).range(scaling::FILES..))]
    rows: u64,
    /// Instances of each parallelizable subquery; the others are compared with the first number
    #[arg(
        long,
        value_name = "N,N",
        value_delimiter = ',',
        default_value = "1,2,4,8"
    )]
    parallelism: Vec<usize>,
    /// Rounds; the medians are printed
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    runs: u32,
    #[command(flatten)]
    files: Files,
    /// The folder of the generated files during the experiment [default: /dev/shm if it exists, else the
    /// folder for temporary files]
    #[arg(long, value_name = "DIR")]
    folder: Option<PathBuf>,
}

/// Runs the experiment.
pub fn run(arguments: &Arguments) -> Result<(), String> {
    if let Some(&wrong) = arguments.nodes.iter().find(|n| !(1..=16).contains(*n)) {
        return Err(format!("--nodes {wrong}: the machine has 1 to 16"));
    }
    if arguments.parallelism.is_empty() || arguments.parallelism.contains(&0) {
        return Err("--parallelism: expected numbers from 1, such as 1,2,4,8".to_string());
    }
    lab::conduct(arguments, &arguments.files, None)
}

impl Experiment for Arguments {
    type Figures = Figures;

    fn announcement(&self) -> String {
        match self.predict_only {
            true => "predictions only".to_string(),
            false => format!("predictions, and {} round(s) of measurements", self.runs),
        }
    }

    fn measure(&self) -> Result<Figures, String> {
        let (parameters, predictions) = model::predict(&self.nodes)?;
        let deployed = deployments::predict(&self.nodes)?;
        let folder = self.folder.as_deref();
        let measure = || scaling::measure(self.rows, &self.parallelism, self.runs, folder);
        Ok(Figures {
            parameters,
            predictions,
            deployed,
            scaling: (!self.predict_only).then(measure).transpose()?,
        })
    }

    fn verdicts(&self, figures: &Figures) -> Vec<Verdict> {
        let mut all = figures::verdicts(&figures.predictions, figures.scaling.as_ref());
        all.extend(figures.deployed.verdicts());
        all
    }

    fn text(&self, figures: &Figures) -> String {
        figures.text()
    }
}
