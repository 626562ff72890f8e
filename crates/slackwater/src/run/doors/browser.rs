//! Opens a page in the user's browser, where there is a display.

use std::process::{Command, Stdio};

/// Opens `url` with the desktop's own program. Nothing happens without a display: the address was printed.
pub fn open(url: &str) {
    let has_display = ["DISPLAY", "WAYLAND_DISPLAY"]
        .iter()
        .any(|name| std::env::var_os(name).is_some_and(|value| !value.is_empty()));
    if !has_display {
        return;
    }
    let started = Command::new("xdg-open")
        .arg(url)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
    if let Ok(mut opening) = started {
        // It ends as soon as the browser has the address; waited for, so that it leaves no process behind.
        let _ = std::thread::Builder::new()
            .name("browser".to_string())
            .spawn(move || opening.wait());
    }
}
