//! A run that a standby follows.

use std::sync::Arc;
use std::time::Instant;

use slackwater_checkpoint::Runner;

use super::Supervisor;
use super::watch::Watch;
use crate::hosts::HostCommand;
use crate::standby::Door;
use crate::terminal::say;

impl Watch<'_> {
    /// A standby has come or gone, or is to go on. While one follows, checkpoints are taken twice within the
    /// lag that it may have, and it stores them.
    pub(super) fn look_at_standby(&mut self, now: Instant) {
        let Some(door) = self.door else {
            return;
        };
        let wish = door.wish();
        if wish.standby != self.standby
            && let Some(coordinator) = &mut self.coordinator
        {
            let settings = &self.program.settings;
            let (interval_ns, said) = match (wish.standby, self.standby) {
                (Some(pid), _) => (
                    settings
                        .checkpoint_interval_ns
                        .min(settings.standby_lag_ns / 2),
                    format!("a standby follows: process {pid}\n"),
                ),
                (None, pid) => (
                    settings.checkpoint_interval_ns,
                    format!(
                        "the standby has gone: process {}\n",
                        pid.unwrap_or_default()
                    ),
                ),
            };
            say(&said);
            self.standby = wish.standby;
            let folder = self.folder.filter(|_| wish.stores);
            let folder = folder.and_then(|folder| std::path::absolute(folder).ok());
            self.host.tell(HostCommand::Follow { folder });
            coordinator.set_standby(interval_ns, wish.stores, self.host);
        }
        if wish.hands_over && self.stop_by.is_none() {
            self.hands_over = true;
            self.stop(now);
        }
    }
}

impl Supervisor<'_, '_, '_> {
    /// Lets a standby follow.
    pub(super) fn open_door(&mut self, number: Option<u64>) {
        let (folder, remote) = (
            self.query.folder.as_deref(),
            self.query.followed_at.as_ref(),
        );
        if folder.is_none() && remote.is_none() {
            return;
        }
        let signals = Arc::clone(&self.query.signals);
        let store = self.store.clone();
        let stamp = move || {
            let runner = Runner::new().ok()?;
            runner.run(store.newest_stamp()).ok().flatten()
        };
        let serving = Arc::clone(&self.query.serving);
        serving.note(|known| known.number = Some(number.unwrap_or_default()));
        match Door::open(
            folder,
            remote,
            number,
            move || signals.door(),
            stamp,
            serving,
        ) {
            Ok(door) => self.query.door = Some(door),
            Err(error) => eprintln!("warning: no standby can follow this run: {error}"),
        }
    }
}
