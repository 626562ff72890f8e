//! Which crates each crate may depend on: the table in ARCHITECTURE.md, checked against the manifests.

use crate::Finding;
use crate::tree::Tree;

const CHECK: &str = "dependencies";
const FIX: &str =
    "put the code into the crate that may; ARCHITECTURE.md, section Crates, says which";

/// What a crate may depend on, tests aside.
enum May {
    /// These and no others.
    Only(&'static [&'static str]),
    /// Any library, but of this workspace only those named here, and no library whose name starts with
    /// one of `never`.
    But {
        own: &'static [&'static str],
        never: &'static [&'static str],
    },
}

const SQL: [&str; 2] = ["datafusion", "sqlparser"];
const SQL_AND_ASYNC: &[&str] = &[SQL[0], SQL[1], "tokio", "futures"];

const RULES: [(&str, May); 15] = [
    (
        "crates/link",
        May::Only(&["rustix", "libc", "crc32fast", "loom"]),
    ),
    (
        "crates/secure",
        May::Only(&["base64", "ring", "rustix", "rustls", "slackwater-link"]),
    ),
    (
        "crates/registry",
        May::Only(&["rusqlite", "rustix", "tokio", "zookeeper-client"]),
    ),
    (
        "crates/engine",
        May::But {
            own: &["slackwater-link"],
            never: SQL_AND_ASYNC,
        },
    ),
    ("crates/control", May::Only(&[])),
    (
        "crates/checkpoint",
        May::But {
            own: &[],
            never: &SQL,
        },
    ),
    (
        "crates/connect",
        May::But {
            own: &["slackwater-link", "slackwater-engine"],
            never: SQL_AND_ASYNC,
        },
    ),
    (
        "crates/udf",
        May::But {
            own: &[],
            never: SQL_AND_ASYNC,
        },
    ),
    (
        "crates/sql",
        May::But {
            own: &["slackwater-engine", "slackwater-control"],
            never: &["tokio", "futures"],
        },
    ),
    (
        "crates/serve",
        May::But {
            own: &["slackwater-link"],
            never: &SQL,
        },
    ),
    // What has permissions links no more than it needs.
    (
        "crates/power",
        May::Only(&[
            "clap",
            "libc",
            "rustix",
            "serde",
            "serde_json",
            "slackwater-control",
            "toml",
        ]),
    ),
    // What is loaded into programs of others brings nothing along.
    ("crates/sockets", May::Only(&["libc"])),
    (
        "crates/slackwater",
        May::But {
            own: &[
                "slackwater-link",
                "slackwater-secure",
                "slackwater-registry",
                "slackwater-engine",
                "slackwater-control",
                "slackwater-checkpoint",
                "slackwater-connect",
                "slackwater-udf",
                "slackwater-sql",
                "slackwater-serve",
            ],
            never: &SQL,
        },
    ),
    (
        "crates/python",
        May::But {
            own: &["slackwater-engine", "slackwater"],
            never: SQL_AND_ASYNC,
        },
    ),
    (
        "crates/bench",
        May::But {
            own: &[
                "slackwater-link",
                "slackwater-secure",
                "slackwater-registry",
                "slackwater-engine",
                "slackwater-control",
                "slackwater-checkpoint",
                "slackwater-connect",
                "slackwater-sql",
                "slackwater-serve",
                "slackwater",
            ],
            never: &SQL,
        },
    ),
];

/// Dependencies that a crate may not have.
pub fn check(tree: &Tree) -> Vec<Finding> {
    let mut found = Vec::new();
    for (folder, may) in &RULES {
        let manifest = format!("{folder}/Cargo.toml");
        for (line, name) in dependencies(tree.get(&manifest).unwrap_or_default()) {
            let allowed = match may {
                May::Only(names) => names.contains(&name),
                May::But { own, never } => {
                    !never.iter().any(|start| name.starts_with(start))
                        && (!name.starts_with("slackwater") || own.contains(&name))
                }
            };
            if !allowed {
                let what = format!("{folder} depends on {name}");
                found.push(Finding::in_line(CHECK, &manifest, line, what, FIX));
            }
        }
    }
    found
}

/// The names and lines of a manifest's dependencies, without those of tests.
fn dependencies(manifest: &str) -> Vec<(usize, &str)> {
    let mut names = Vec::new();
    let mut section = "";
    for (at, line) in manifest.lines().enumerate() {
        if let Some(name) = line.strip_prefix('[') {
            section = name.trim_end().trim_end_matches(']');
            if let Some((_, name)) = section.rsplit_once("dependencies.") {
                names.push((at + 1, name));
            }
        } else if section == "dependencies" || section.ends_with(".dependencies") {
            let name = line.split(['=', '.', ' ']).next().unwrap_or_default();
            if !name.is_empty() && !name.starts_with('#') {
                names.push((at + 1, name));
            }
        }
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forbidden_dependencies_are_found() {
        let tree = Tree::of([
            (
                "crates/link/Cargo.toml",
                "[dependencies]\nrustix = \"1\"\nserde.workspace = true\n",
            ),
            (
                "crates/connect/Cargo.toml",
                "[dependencies]\n# tokio\nserde = { version = \"1\" }\ndatafusion-expr.workspace = true\n\
                 slackwater-sql.workspace = true\n[dev-dependencies]\ntokio = \"1\"\n",
            ),
        ]);
        let found: Vec<String> = check(&tree)
            .into_iter()
            .map(|finding| finding.what)
            .collect();
        assert_eq!(
            found,
            [
                "crates/link depends on serde",
                "crates/connect depends on datafusion-expr",
                "crates/connect depends on slackwater-sql",
            ]
        );
    }

    #[test]
    fn dependencies_of_a_target_count() {
        let manifest = "[target.'cfg(loom)'.dependencies]\nloom.workspace = true\n\n[lints]\nworkspace = true\n";
        assert_eq!(dependencies(manifest), [(2, "loom")]);
    }
}
