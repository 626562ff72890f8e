//! The command line, as users see it.

use crate::support::Folder;

#[test]
fn help_names_the_command_that_users_type() {
    let folder = Folder::new();
    let help = folder.bench(&["--help"]).ok().out;
    for part in [
        "Usage: slackwater bench <COMMAND>",
        "balance",
        "hibench",
        "wait",
    ] {
        assert!(help.contains(part), "no '{part}' in:\n{help}");
    }
    assert!(!help.contains("-part"), "{help}");
    let usage = "Usage: slackwater bench link [OPTIONS]";
    let help = folder.bench(&["link", "--help"]).ok().out;
    assert!(help.contains(usage), "{help}");
    folder
        .bench(&["hibenhc"])
        .fails(2, &["'hibench'", "slackwater bench"]);
    let script = folder.bench(&["completions", "bash"]).ok().out;
    assert!(script.contains("slackwater-bench"), "{script}");
}
