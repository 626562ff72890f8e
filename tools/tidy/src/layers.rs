//! Which module may import which: each crate's layers, from the bottom up.
//!
//! A module imports from the layers below its own, and from its own as long as there is no cycle. Every
//! module next to a crate's root is in one layer, so that a new one has to be placed.

use std::collections::{BTreeMap, BTreeSet};

use crate::Finding;
use crate::modules::Package;

const CHECK: &str = "layers";
const UP_FIX: &str = "hand it over as an argument, or move what both need into the lower layer";
const TABLE_FIX: &str = "bring tools/tidy/src/layers.rs up to date";
const TABLE: &str = "tools/tidy/src/layers.rs";

/// A layer: what it is for, and its modules.
type Layer = (&'static str, &'static str);

/// The layers of crates, from the bottom up.
pub const LAYERS: &[(&str, &[Layer])] = &[
    (
        "crates/control",
        &[
            ("query and machine", "query topology"),
            (
                "from a query to instances",
                "copies demand expand place split",
            ),
            ("while it runs", "balance latency"),
            ("broadcasts", "broadcast"),
            ("other hosts", "clock cluster lease wanted"),
            ("other people's servers", "power"),
        ],
    ),
    (
        "crates/checkpoint",
        &[
            (
                "what is stored",
                "chain clock compatible error location manifest part",
            ),
            ("decisions", "coordinator recovery"),
            ("the store", "runner store"),
            ("beside tests", "fuzz"),
        ],
    ),
    (
        "crates/sql",
        &[
            ("base", "error explain names rewording types walk"),
            ("parse", "check settings statement"),
            ("expressions", "expression functions simplify"),
            (
                "plan",
                "as_of broadcast common_types constants grouping_sets nulls operands operators outputs \
                 prune session subqueries table window",
            ),
            (
                "translate",
                "aggregates changelog connectors late_rows node order program read state warnings",
            ),
        ],
    ),
    (
        "crates/link",
        &[
            ("base", "affinity bell error memory sync"),
            ("doorbells", "doorbell numa"),
            ("waiting", "idle waiter"),
            ("inside a process", "spsc"),
            ("bytes", "lane frame"),
            ("beyond a process", "shm tcp"),
            ("any kind", "kinds"),
            ("beside tests", "fuzz"),
        ],
    ),
    (
        "crates/secure",
        &[
            (
                "the secret and what follows from it",
                "certificates keys secret",
            ),
            ("TLS without I/O", "connection"),
            ("as the seal of links", "tls"),
            ("sessions", "frames stream"),
            ("who is let in", "door"),
            ("beside tests", "fuzz"),
        ],
    ),
    (
        "crates/registry",
        &[
            ("base", "error key"),
            ("what writes ask, and threads", "thread write"),
            ("kinds", "sqlite zookeeper"),
            ("any kind", "url"),
        ],
    ),
    (
        "crates/engine",
        &[
            ("base", "budget error hash latency recorder time"),
            ("state and counters", "barrier counters state"),
            ("chunks and keys", "chunk key wire"),
            ("traits of ends", "expression format sink source"),
            ("operators", "accumulator operator"),
            ("late rows", "counted"),
            ("between instances", "balancer exchange ports"),
            ("checkpoints", "checkpoint"),
            ("instances", "instance intake sink_step"),
            ("workers", "deploy inline protocol runtime worker"),
        ],
    ),
    (
        "crates/connect",
        &[
            ("base", "block options packing time"),
            ("tables", "database_options table"),
            ("records", "encode format lines"),
            ("records by threads", "parsers"),
            ("clients", "datagen feed kafka mqtt pacer push tcp"),
            ("files", "columns file_format"),
            ("connectors", "connector dead_letters file_encoder"),
            ("sources and sinks", "custom sink source"),
            ("databases", "database postgres sqlite"),
            ("all connectors", "connectors elsewhere"),
            ("beside tests", "fuzz"),
        ],
    ),
    (
        "crates/udf",
        &[
            ("base", "definition memory message output spawner"),
            ("columns in memory", "layout"),
            ("one process", "process worker"),
            ("all of a function", "pool wasm"),
            ("its calls", "aggregate operator"),
        ],
    ),
    (
        "crates/serve",
        &[
            ("what doors need", "lock backend"),
            ("formats", "prometheus"),
            ("HTTP", "client http"),
            ("the page", "page"),
            ("doors", "api postgres redis"),
        ],
    ),
    (
        "crates/power",
        &[
            ("base", "error system units"),
            ("the host", "cores journal message process value"),
            ("undo", "undo"),
            ("servers", "client config facts resp seed"),
            ("who changes things, and what is shown", "hand status"),
            ("who decides", "head"),
            ("about the host", "host unit user"),
            ("both processes", "run"),
            ("other commands", "ask"),
            ("command line", "cli"),
        ],
    ),
    (
        "crates/sockets",
        &[
            (
                "the kernel, options and counters",
                "buffers options real statistics",
            ),
            ("memory", "lane lock segment"),
            ("connections", "connection rendezvous stream"),
            ("waiting", "ready wait"),
            ("calls", "epoll poll receive send"),
            ("in front of the C library", "symbols"),
        ],
    ),
    (
        "crates/bench",
        &[
            ("base", "common lab part_process programs usage"),
            ("processes", "fleet worker_processes"),
            (
                "experiments",
                "balance broadcast checkpoint chunking concerto hibench hosts line link nexmark \
                 placement serve standby target wait",
            ),
            ("all experiments", "experiments"),
        ],
    ),
    (
        "crates/slackwater",
        &[
            (
                "base",
                "address machine measure probe report script service signals slow split targets \
                 terminal traces",
            ),
            ("figures", "calibrate costs"),
            ("connectors and checkpoints", "catalog checkpoints notices"),
            (
                "plan",
                "bound broadcast copies messages parallel plan planner",
            ),
            ("hosts", "hosts"),
            ("other hosts", "cluster"),
            (
                "beside a run",
                "doctor explain live metrics progress rebalancer tally tuner",
            ),
            ("standbys", "standby"),
            ("recovery", "supervisor"),
            ("readers of a run", "reads redis views"),
            ("run", "check run"),
            ("programs that embed it", "embed"),
            ("server", "server"),
            ("command line and shell", "cli shell"),
        ],
    ),
];

/// Imports of a higher layer by a lower one, and modules that are missing in the table or left in it.
pub fn check(packages: &[Package], table: &[(&str, &[Layer])]) -> Vec<Finding> {
    let mut found = Vec::new();
    for (folder, layers) in table {
        let package = packages.iter().find(|package| package.folder == *folder);
        let Some(product) = package.and_then(|package| package.product.as_ref()) else {
            found.push(of_table(format!("there is no crate {folder}")));
            continue;
        };
        let modules: BTreeSet<&str> = product.modules[0]
            .children
            .keys()
            .map(String::as_str)
            .collect();
        let mut heights = BTreeMap::new();
        for (height, (layer, members)) in layers.iter().enumerate() {
            for member in members.split_whitespace() {
                if heights.insert(member, (height, *layer)).is_some() {
                    found.push(of_table(format!("{folder}: {member} is in two layers")));
                }
                if !modules.contains(member) {
                    found.push(of_table(format!("{folder} has no module {member}")));
                }
            }
        }
        for module in modules
            .iter()
            .filter(|module| !heights.contains_key(**module))
        {
            found.push(of_table(format!("{folder}: {module} is in no layer")));
        }
        for ((from, to), imports) in product.imports(0) {
            let (Some((low, lower)), Some((high, upper))) = (heights.get(from), heights.get(to))
            else {
                continue;
            };
            for import in imports.iter().filter(|_| low < high) {
                let what = format!(
                    "{from} ({lower}) imports {} ({upper}), which is above it",
                    import.path
                );
                found.push(Finding::in_line(
                    CHECK,
                    &import.file,
                    import.line,
                    what,
                    UP_FIX,
                ));
            }
        }
    }
    found
}

fn of_table(what: String) -> Finding {
    Finding {
        check: CHECK,
        place: TABLE.to_owned(),
        at: TABLE.to_owned(),
        what,
        fix: TABLE_FIX,
        amount: 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::Tree;

    const FILES: [(&str, &str); 5] = [
        ("x/Cargo.toml", "[package]"),
        ("x/src/lib.rs", "mod base; mod plan; mod run;"),
        ("x/src/base.rs", "\nuse crate::run::Run;"),
        ("x/src/plan.rs", "use crate::base::Base;"),
        ("x/src/run.rs", "use crate::{base, plan};"),
    ];

    fn found(layers: &[Layer]) -> Vec<(String, String)> {
        let packages = Package::all(&Tree::of(FILES)).unwrap();
        let found = check(&packages, &[("x", layers)]);
        found
            .into_iter()
            .map(|finding| (finding.at, finding.what))
            .collect()
    }

    #[test]
    fn imports_of_higher_layers_are_found() {
        let what = "base (bottom) imports crate::run::Run (top), which is above it".to_owned();
        let layers: [Layer; 2] = [("bottom", "base plan"), ("top", "run")];
        assert_eq!(found(&layers), [("x/src/base.rs:2".to_owned(), what)]);
    }

    #[test]
    fn the_table_names_every_module_once() {
        let layers: [Layer; 2] = [("bottom", "base gone"), ("top", "run base")];
        let what: Vec<String> = found(&layers).into_iter().map(|(_, what)| what).collect();
        assert_eq!(
            what,
            [
                "x has no module gone",
                "x: base is in two layers",
                "x: plan is in no layer"
            ]
        );
    }
}
