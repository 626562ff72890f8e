//! A file that gets its name when the query ends without an error, for queries without checkpoints.

use std::fs::OpenOptions;
use std::path::PathBuf;

use slackwater_engine::chunk::Chunk;
use slackwater_engine::error::{Error, Result};
use slackwater_engine::link::Waiter;
use slackwater_engine::sink::Sink;

use super::output::{Output, failed, folder_of};
use super::parts::{self, is_part};
use crate::file_encoder::FileEncoder;
use crate::packing::Packing;

/// Writes one file under a temporary name.
pub(super) struct WholeSink {
    pub(super) encoder: FileEncoder,
    /// Whether the file belongs to a folder of parts.
    pub(super) is_part: bool,
    /// Whether this sink removes the parts of an earlier run with more instances.
    pub(super) clears: bool,
    pub(super) instances: usize,
    pub(super) place: PathBuf,
    pub(super) temporary: PathBuf,
    pub(super) output: Option<Output>,
}

impl WholeSink {
    /// Removes the parts of an earlier run that this one does not replace.
    fn clear_parts(&self) -> Result<()> {
        parts::remove_where(folder_of(&self.place), |path, name| {
            let number = parts::plain_part(name);
            let is_replaced = self.place.extension() == path.extension();
            is_part(name) || number.is_some_and(|number| number >= self.instances || !is_replaced)
        })
    }
}

impl Sink for WholeSink {
    fn open(&mut self, _waiter: &mut Waiter) -> Result<()> {
        let folder = folder_of(&self.place);
        if self.is_part {
            std::fs::create_dir_all(folder)
                .map_err(|error| failed(&self.place, "create the folder", &error))?;
        }
        let file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .open(&self.temporary)
            .map_err(|error| {
                let reason = format!("can't write in {}: {error}", folder.display());
                Error::new(self.place.display().to_string(), reason)
                    .hint("create the folder, or check its permissions")
            })?;
        let packing = Packing::of(&self.place);
        self.output = Some(Output::new(file, 0, &self.place, packing));
        Ok(())
    }

    fn write(&mut self, chunk: &Chunk) -> Result<()> {
        let Some(output) = &mut self.output else {
            return Ok(());
        };
        self.encoder
            .encode(chunk, &mut output.buffer)
            .map_err(|error| error.at(&self.place.display().to_string()))?;
        output.write_full()
    }

    fn flush(&mut self) -> Result<()> {
        // Nobody reads a temporary file, but rows must not be lost with the process.
        self.output.as_mut().map_or(Ok(()), Output::write_out)
    }

    fn finish(&mut self, complete: bool) -> Result<()> {
        let output = self.output.take();
        if !complete {
            // The file may never have been opened.
            let _ = std::fs::remove_file(&self.temporary);
            return Ok(());
        }
        let Some(mut output) = output else {
            return Ok(());
        };
        self.encoder
            .finish(&mut output.buffer)
            .map_err(|error| error.at(&self.place.display().to_string()))?;
        output.end()?;
        std::fs::rename(&self.temporary, &self.place)
            .map_err(|error| failed(&self.place, "give the file its name", &error))?;
        if self.clears {
            self.clear_parts()?;
        }
        Ok(())
    }
}
