//! The scripts that complete the command line.

use super::*;

#[test]
fn completions_are_scripts_that_shells_read() {
    let folder = Folder::new();
    for shell in ["bash", "zsh", "fish"] {
        let script = folder.slackwater(&["completions", shell]).ok().out;
        assert!(
            script.contains("completions") && script.contains("parallelism"),
            "{shell}"
        );
        folder.write(shell, script.as_bytes());
        if Path::new("/bin").join(shell).is_file() || Path::new("/usr/bin").join(shell).is_file() {
            let checked = Command::new(shell)
                .arg("-n")
                .arg(folder.path(shell))
                .output()
                .unwrap();
            assert!(
                checked.status.success(),
                "{shell}: {}",
                String::from_utf8_lossy(&checked.stderr)
            );
        }
    }
    folder
        .slackwater(&["completions", "csh"])
        .fails(2, &["csh"]);
}
