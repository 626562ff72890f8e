//! Chooses the kind of join for a JOIN, an IN or an EXISTS.

use datafusion_common::NullEquality;
use datafusion_expr::LogicalPlan;
use datafusion_expr::logical_plan::Join;
use slackwater_engine::operator::interval_join::IntervalJoinSpec;

use super::stream::Stream;
use super::translator::{Needs, Translation, Translator};
use super::{interval_join, semi_join, table_join};
use crate::error::{Result, SqlError};
use crate::{as_of, broadcast};

/// Joins.
pub const TRANSLATION: Translation = Translation {
    needs: |plan| Needs {
        late_at_watermark: match plan {
            LogicalPlan::Join(join) => interval_join::compares_times(join),
            _ => false,
        },
        ..Needs::NOTHING
    },
    translate: |translator, plan| match plan {
        LogicalPlan::Join(join) => translator.join(join).map(Some),
        _ => Ok(None),
    },
};

impl Translator<'_> {
    fn join(&mut self, join: &Join) -> Result<Stream> {
        if let Some(join) = semi_join::in_order(join) {
            return self.join(&join);
        }
        let kind = semi_join::kind(join)?;
        let (join, hint) = &broadcast::take(join)?;
        if join.null_equality == NullEquality::NullEqualsNull && !join.on.is_empty() {
            return Err(SqlError::new(
                "a join in which NULL equals NULL is not supported",
            ));
        }
        if let Some((times, filter)) = as_of::split(join.filter.as_ref()) {
            if let Some(hint) = hint {
                hint.check(1, "the table with FOR SYSTEM_TIME AS OF")?;
            }
            return self.temporal_join(join, kind, times.each_ref(), filter.as_ref());
        }
        if let Some((time, filter)) = as_of::now::split(join.filter.as_ref()) {
            if let Some(hint) = hint {
                return Err(
                    hint.refused("a table that is looked up is not read, so none of it is sent")
                );
            }
            return self.lookup_join(join, kind, time.as_ref(), filter);
        }
        let reasons = [self.no_table(&join.left)?, self.no_table(&join.right)?];
        let may_be_table = reasons.map(|reason| reason.is_none());
        if let Some(table_side) = table_join::table_side(kind, may_be_table) {
            if let Some(hint) = hint {
                hint.check(table_side, "a table that ends")?;
            }
            return self.table_join(join, kind, table_side);
        }
        semi_join::check_not_in(join)?;
        let streams = [self.translate(&join.left)?, self.translate(&join.right)?];
        if !streams.iter().any(|stream| stream.updates) {
            let windowed = self.window_join(join, kind, &streams)?;
            if let Some(joined) = windowed {
                return match hint {
                    None => Ok(joined),
                    Some(hint) => {
                        Err(hint.refused("rows of one window are joined where that window is"))
                    }
                };
            }
            let side = hint.as_ref().map(|hint| hint.side);
            if let Some(hint) = hint
                && !IntervalJoinSpec::may_broadcast(kind, hint.side)
            {
                return Err(hint.refused(
                    "the join depends on which of its rows have no partner, and no instance knows of \
                     partners in others",
                ));
            }
            if let Some(joined) = self.interval_join(join, kind, &streams, side)? {
                return Ok(joined);
            }
        }
        if let Some(hint) = hint {
            return Err(
                hint.refused("no condition bounds the distance of the event times of both sides")
            );
        }
        self.changelog_join(join, kind, streams)
    }
}
