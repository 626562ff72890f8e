//! Window functions in FROM: TUMBLE, HOP, CUMULATE, SESSION and COUNT_WINDOW; and where lateness is decided.

use datafusion_expr::LogicalPlan;
use slackwater_engine::operator::late_rows::Lateness;
use slackwater_engine::operator::window::{WindowKind, Windows};

use super::stream::Stream;
use super::translator::{Needs, Translation, Translator};
use crate::error::{Result, SqlError};
use crate::window::WindowNode;

/// Window functions in FROM.
pub const TRANSLATION: Translation = Translation {
    needs: |plan| Needs {
        // An aggregation that merges sessions needs the event time of rows.
        event_time: of(plan).is_some_and(|window| window.windows.kind == WindowKind::Session),
        ..Needs::NOTHING
    },
    translate: |translator, plan| match of(plan) {
        Some(window) => translator.window(window).map(Some),
        None => Ok(None),
    },
};

fn of(plan: &LogicalPlan) -> Option<&WindowNode> {
    match plan {
        LogicalPlan::Extension(extension) => extension.node.as_any().downcast_ref(),
        _ => None,
    }
}

impl Translator<'_> {
    fn window(&mut self, window: &WindowNode) -> Result<Stream> {
        // The flag applies to this window function, not to those below it.
        let merges = std::mem::take(&mut self.merges_sessions);
        let ready = self.window_input(window)?;
        let windows = &window.windows;
        let lateness = match windows.kind {
            WindowKind::Count => Lateness::Time,
            _ => Lateness::Windows(*windows, self.lateness_us(windows)?),
        };
        if let Some(late) = &window.late {
            self.keep_late(window, &ready.stream, ready.time_column, late, lateness)?;
        }
        match windows.kind {
            WindowKind::Aligned | WindowKind::Cumulating => {
                let lateness_us = self.lateness_us(windows)?;
                self.assign_windows(window, ready, lateness_us)
            }
            WindowKind::Session => self.sessions(window, ready, merges),
            WindowKind::Count => self.count_windows(window, ready),
        }
    }

    /// How long after its end a window accepts rows.
    fn lateness_us(&self, windows: &Windows) -> Result<i64> {
        let lateness_us = self.session.settings.allowed_lateness_us;
        if lateness_us > 0 && !windows.is_fixed() {
            let function = match windows.kind {
                WindowKind::Session => "SESSION",
                _ => "COUNT_WINDOW",
            };
            return Err(SqlError::new(format!(
                "'allowed_lateness' is only supported for windows with fixed edges, and late rows would \
                change \
                the edges of a {function}"
            ))
            .near(function)
            .hint("remove the setting, or make the delay of WATERMARK FOR longer"));
        }
        Ok(lateness_us)
    }
}
