//! State that is there already, in operators: what a standby holds when it goes on.

use std::collections::{BTreeMap, HashMap};
use std::sync::Mutex;

use slackwater_engine::Result;
use slackwater_engine::checkpoint::Chain;
use slackwater_engine::deploy::Adopted;
use slackwater_engine::operator::Stateful;
use slackwater_engine::state::{BucketSet, Mark};
use slackwater_engine::time::EventTime;

/// An operator with the state of one instance of its node.
pub struct HeldInstance {
    /// The operator.
    pub operator: Box<dyn Stateful>,
    /// Its instance's watermark.
    pub watermark: Option<EventTime>,
    /// How many instances the node had.
    pub instances: u32,
    /// Whether it has exactly the buckets that an instance of its number begins with.
    pub is_alone: bool,
}

/// The operators by node of the query graph and number of the instance. Each is given away once.
pub struct Held {
    /// For each node the number of instances that can have these operators as they are, if any can.
    fitting: HashMap<usize, Option<u32>>,
    operators: Mutex<BTreeMap<(usize, u32), HeldInstance>>,
    /// The state of nodes with another number of instances than they had, or with other buckets.
    chains: Mutex<HashMap<usize, Vec<Chain>>>,
}

impl Held {
    /// Holds these operators.
    pub fn new(operators: BTreeMap<(usize, u32), HeldInstance>) -> Held {
        let mut fitting = HashMap::<usize, Option<u32>>::new();
        for &(node, _) in operators.keys() {
            fitting.entry(node).or_insert_with(|| {
                let of_node = operators.range((node, 0)..=(node, u32::MAX));
                let count = of_node.clone().count() as u32;
                let mut of_node = of_node.map(|(_, held)| held);
                let fits = of_node.all(|held| held.is_alone && held.instances == count);
                fits.then_some(count)
            });
        }
        Held {
            fitting,
            operators: Mutex::new(operators),
            chains: Mutex::default(),
        }
    }

    /// Whether it has state of a node.
    pub(super) fn has(&self, node: usize) -> bool {
        self.fitting.contains_key(&node)
    }

    /// The operator for instance `instance` of `instances`, if one has just its state.
    pub(super) fn take(&self, node: usize, instance: usize, instances: usize) -> Option<Adopted> {
        let fitting = self.fitting.get(&node).copied().flatten();
        fitting.filter(|&fitting| fitting as usize == instances)?;
        let mut operators = self.operators.lock().expect("no thread panics under it");
        let held = operators.remove(&(node, instance as u32))?;
        Some(Adopted {
            operator: held.operator,
            watermark: held.watermark,
        })
    }

    /// All that is held of a node, as it would be read from a checkpoint.
    pub(super) fn chains_of(&self, node: usize) -> Result<Vec<Chain>> {
        let mut operators = self.operators.lock().expect("no thread panics under it");
        let of_node = operators.extract_if((node, 0)..=(node, u32::MAX), |_, _| true);
        let taken = of_node.map(|(_, mut held)| {
            let snapshots = match held.operator.state() {
                Some(state) => vec![state.snapshot(&BucketSet::all(), Mark::default())?],
                None => Vec::new(),
            };
            Ok(Chain {
                snapshots,
                watermark: held.watermark,
                is_shared: true,
            })
        });
        let taken = taken.collect::<Result<Vec<Chain>>>()?;
        let mut chains = self.chains();
        let known = chains.entry(node).or_default();
        known.extend(taken);
        Ok(known.clone())
    }

    fn chains(&self) -> std::sync::MutexGuard<'_, HashMap<usize, Vec<Chain>>> {
        self.chains.lock().expect("no thread panics under it")
    }
}
