//! The file sink: one file, or a folder of part files.
//!
//! Rows are written under a hidden name, and the file gets its own name when the query ends without an error:
//! a reader never sees half a result. A failed query removes its hidden files. That is [`whole`]. If a query
//! takes checkpoints, [`parts`] get their names with each one, and a single file keeps [`growing`] until the
//! end.

mod growing;
mod output;
mod parts;
mod whole;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow_schema::SchemaRef;
use slackwater_engine::error::{Error, Result};
use slackwater_engine::sink::{
    Accepts, Delivery, Recovered, Sink, SinkCapabilities, SinkCheckpoints, SinkConnector,
    SinkDescription, SinkRequest,
};

use crate::file_encoder::FileEncoder;
use crate::file_format::FileFormat;
use crate::options::{OptionError, Options};
use crate::packing::Packing;
use crate::table::TableDefinition;
use growing::{Growing, GrowingSink};
use parts::{PartName, PartSink};
use whole::WholeSink;

/// The hint for a file that is in a checkpoint but not in the folder.
const HINT_GONE: &str = "put it back, or start over without the checkpoints";

/// The error for a checkpoint whose prepared files can't be read.
fn unreadable(place: &Path, prepared: &str) -> Error {
    let reason = format!("what the checkpoint says was prepared can't be read: {prepared}");
    Error::new(place.display().to_string(), reason).hint("restore from another checkpoint")
}

/// A table that is written to files.
#[derive(Debug)]
pub(crate) struct FileConnector {
    schema: SchemaRef,
    format: FileFormat,
    path: PathBuf,
    /// One file instead of a folder of parts, and the paths of its unfinished versions.
    one_file: Option<Growing>,
    overwrite: bool,
}

impl FileConnector {
    pub(crate) fn new(
        table: &TableDefinition,
        options: &Options<'_>,
        format: FileFormat,
    ) -> std::result::Result<FileConnector, OptionError> {
        let path = PathBuf::from(options.required("path", "out.csv")?);
        let overwrite = options.flag("overwrite", false)?;
        let is_one_file = path.extension().is_some();
        let shown = path.display();
        if path.file_name().is_none() {
            return Err(OptionError::new(
                "path",
                format!("{shown} has no name"),
                "name a file",
            ));
        }
        if is_one_file && path.is_dir() {
            let hint = "name a file, or a folder without an extension";
            return Err(OptionError::new(
                "path",
                format!("{shown} is a folder"),
                hint,
            ));
        }
        if !is_one_file && path.is_file() {
            let hint = "a path without an extension is a folder of part files; add .csv or .json";
            return Err(OptionError::new("path", format!("{shown} is a file"), hint));
        }
        if let (FileFormat::Columns(_), Some(_)) = (&format, Packing::of(&path)) {
            let reason = format!("{shown} is to be compressed as a whole");
            let extension = format.extension();
            let hint = format!(
                "a file of columns is compressed inside ('{extension}.compression'): leave the extension out"
            );
            return Err(OptionError::new("path", reason, hint));
        }
        Ok(FileConnector {
            schema: Arc::clone(&table.schema),
            format,
            one_file: is_one_file.then(|| Growing::new(&path)),
            path,
            overwrite,
        })
    }

    /// The sink of a query without checkpoints.
    fn whole_sink(&self, instance: usize, instances: usize) -> WholeSink {
        let is_part = self.one_file.is_none();
        let (place, temporary) = if is_part {
            let name = format!("part-{instance}.{}", self.format.extension());
            (
                self.path.join(&name),
                self.path.join(format!(".{name}.tmp")),
            )
        } else {
            let name = self.path.file_name().unwrap_or_default().to_string_lossy();
            let temporary = format!(".{name}.tmp-{}", std::process::id());
            let folder = output::folder_of(&self.path);
            (self.path.clone(), folder.join(temporary))
        };
        WholeSink {
            encoder: FileEncoder::new(&self.format, &self.schema),
            is_part,
            // The first instance removes the parts of an earlier run with more instances.
            clears: is_part && self.overwrite && instance == 0,
            instances,
            place,
            temporary,
            output: None,
        }
    }

    fn max_instances(&self) -> usize {
        match self.one_file {
            Some(_) => 1,
            None => usize::MAX,
        }
    }

    /// A file of columns ends once, but each checkpoint needs everything before it to be complete.
    fn refuse_growing(&self) -> Error {
        let extension = self.format.extension();
        let reason = format!("format {extension} can't grow from checkpoint to checkpoint");
        Error::new(self.path.display().to_string(), reason)
            .hint(
                "write a path without an extension: a folder that gets a part with each checkpoint",
            )
            .final_one()
    }

    /// Rejects an output that already exists.
    fn refuse_existing(&self) -> Result<()> {
        let mut entries = self.path.read_dir().into_iter().flatten();
        let shown = self.path.display();
        let reason = match &self.one_file {
            Some(_) if self.path.exists() => format!("{shown} already exists"),
            Some(file) => match file.unfinished()?.pop() {
                Some(left) => format!("an earlier query left {}", left.display()),
                None => return Ok(()),
            },
            None if entries.next().is_some() => format!("folder {shown} is not empty"),
            _ => return Ok(()),
        };
        Err(Error::new(self.path.display().to_string(), reason)
            .hint("name another path, or add 'overwrite' = 'true'"))
    }
}

impl SinkConnector for FileConnector {
    fn describe(&self) -> SinkDescription {
        SinkDescription::new("file", self.path.display().to_string())
    }

    fn capabilities(&self) -> SinkCapabilities {
        let max_instances = self.max_instances();
        SinkCapabilities {
            max_instances,
            max_instances_saved: max_instances,
            uses_waiter: false,
            accepts: Accepts::Rows,
            delivery: Delivery::ExactlyOnce,
            may_lose_prepared: false,
            client_waits_ms: &[],
        }
    }

    fn sink(&self, request: &SinkRequest) -> Result<Box<dyn Sink>> {
        let SinkRequest {
            instance,
            instances,
            epoch,
        } = *request;
        assert!(instances <= self.max_instances(), "one file has one writer");
        let Some(epoch) = epoch else {
            return Ok(Box::new(self.whole_sink(instance, instances)));
        };
        let (format, schema) = (&self.format, &self.schema);
        if let Some(file) = &self.one_file {
            let FileFormat::Lines(format) = format else {
                return Err(self.refuse_growing());
            };
            return Ok(Box::new(GrowingSink::new(format, schema, file, epoch)));
        }
        let first = PartName {
            instance,
            epoch,
            number: 0,
            extension: self.format.extension(),
        };
        let clears = self.overwrite && instance == 0;
        Ok(Box::new(PartSink::new(
            format, schema, &self.path, first, clears,
        )))
    }

    fn begin(&self, _saved: bool) -> Result<()> {
        if !self.overwrite {
            return self.refuse_existing();
        }
        match &self.one_file {
            Some(file) => file.begin(),
            None => parts::remove_where(&self.path, |_, name| {
                parts::is_part(name) || parts::is_hidden_part(name)
            }),
        }
    }

    fn checkpoints(&self) -> Option<&dyn SinkCheckpoints> {
        Some(self)
    }
}

impl SinkCheckpoints for FileConnector {
    fn secure(&self, prepared: &str) -> Result<()> {
        match &self.one_file {
            Some(file) => file.secure(prepared),
            None => parts::secure(&self.path, prepared),
        }
    }

    fn commit(&self, prepared: &str) -> Result<()> {
        match &self.one_file {
            Some(file) => file.commit(prepared),
            None => parts::commit(&self.path, prepared),
        }
    }

    fn recover(&self, epoch: u64, prepared: Option<&[String]>) -> Result<Recovered> {
        match &self.one_file {
            Some(file) => file.recover(epoch, prepared)?,
            None => parts::recover(&self.path, epoch, prepared, self.overwrite)?,
        }
        Ok(Recovered::Committed)
    }
}

#[cfg(test)]
mod tests;
