//! The file sink: one file, or a folder of part files.
//!
//! Rows are written under a temporary name, and the file gets its own name when the query has
//! ended well: a reader never sees half a result. A failed query removes its temporary files.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow_schema::SchemaRef;
use flate2::Compression;
use flate2::write::GzEncoder;
use slackwater_engine::chunk::Chunk;
use slackwater_engine::error::{Error, Result};
use slackwater_engine::link::Waiter;
use slackwater_engine::sink::{Sink, SinkConnector, SinkRequest};

use crate::encode::Encoder;
use crate::format::Format;
use crate::options::{OptionError, Options};
use crate::table::TableDefinition;

/// Options beside those of the format.
pub(crate) const OPTIONS: &[&str] = &["connector", "latency_target", "format", "path", "overwrite"];

/// Bytes collected before they are written: large enough that a system call costs nothing beside
/// making them.
const BUFFER_BYTES: usize = 256 * 1024;

/// A table that is written to files.
#[derive(Debug)]
pub(crate) struct FileConnector {
    schema: SchemaRef,
    format: Format,
    path: PathBuf,
    /// One file rather than a folder of parts.
    is_one_file: bool,
    overwrite: bool,
}

impl FileConnector {
    pub(crate) fn new(
        table: &TableDefinition,
        options: &Options<'_>,
        format: Format,
    ) -> std::result::Result<FileConnector, OptionError> {
        let path = PathBuf::from(options.required("path", "out.csv")?);
        let overwrite = options.flag("overwrite", false)?;
        let is_one_file = path.extension().is_some();
        let refuse = |reason: String| {
            let mend = "name another path, or add 'overwrite' = 'true'";
            Err(OptionError::new("path", reason, mend))
        };
        let shown = path.display();
        if path.file_name().is_none() {
            return Err(OptionError::new(
                "path",
                format!("{shown} has no name"),
                "name a file",
            ));
        }
        if is_one_file && path.is_dir() {
            let mend = "name a file, or a folder without an extension";
            return Err(OptionError::new(
                "path",
                format!("{shown} is a folder"),
                mend,
            ));
        }
        if !is_one_file && path.is_file() {
            let mend = "a path without an extension is a folder of part files; add .csv or .json";
            return Err(OptionError::new("path", format!("{shown} is a file"), mend));
        }
        if is_one_file && path.exists() && !overwrite {
            return refuse(format!("{shown} exists already"));
        }
        let mut parts = path.read_dir().into_iter().flatten();
        if !is_one_file && !overwrite && parts.next().is_some() {
            return refuse(format!("folder {shown} is not empty"));
        }
        Ok(FileConnector {
            schema: Arc::clone(&table.schema),
            format,
            path,
            is_one_file,
            overwrite,
        })
    }

    fn folder(&self) -> &Path {
        if !self.is_one_file {
            return &self.path;
        }
        match self.path.parent() {
            Some(folder) if !folder.as_os_str().is_empty() => folder,
            _ => Path::new("."),
        }
    }
}

impl SinkConnector for FileConnector {
    fn uses_waiter(&self) -> bool {
        false
    }

    fn max_instances(&self) -> usize {
        if self.is_one_file { 1 } else { usize::MAX }
    }

    fn describe(&self) -> String {
        format!("file {}", self.path.display())
    }

    fn sink(&self, request: &SinkRequest) -> Result<Box<dyn Sink>> {
        let SinkRequest {
            instance,
            instances,
            ..
        } = *request;
        assert!(instances <= self.max_instances(), "one file has one writer");
        let extension = if self.format == Format::Json {
            "json"
        } else {
            "csv"
        };
        let (place, temporary) = if self.is_one_file {
            let name = self.path.file_name().unwrap_or_default().to_string_lossy();
            let temporary = format!(".{name}.tmp-{}", std::process::id());
            (self.path.clone(), self.folder().join(temporary))
        } else {
            let name = format!("part-{instance}.{extension}");
            (
                self.path.join(&name),
                self.path.join(format!(".{name}.tmp")),
            )
        };
        Ok(Box::new(FileSink {
            encoder: Encoder::new(&self.format, &self.schema),
            is_folder: !self.is_one_file,
            // The first instance clears away the parts of an earlier run with more of them.
            clears: !self.is_one_file && self.overwrite && instance == 0,
            instances,
            place,
            temporary,
            buffer: Vec::with_capacity(BUFFER_BYTES * 2),
            output: None,
        }))
    }
}

enum Output {
    Plain(File),
    Gzip(GzEncoder<File>),
}

impl Output {
    fn write_all(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        match self {
            Output::Plain(file) => file.write_all(bytes),
            Output::Gzip(encoder) => encoder.write_all(bytes),
        }
    }

    fn finish(self) -> std::io::Result<()> {
        match self {
            Output::Plain(_) => Ok(()),
            Output::Gzip(encoder) => encoder.finish().map(drop),
        }
    }
}

struct FileSink {
    encoder: Encoder,
    is_folder: bool,
    clears: bool,
    instances: usize,
    place: PathBuf,
    temporary: PathBuf,
    buffer: Vec<u8>,
    output: Option<Output>,
}

impl FileSink {
    fn error(&self, what: &str, error: &std::io::Error) -> Error {
        Error::new(
            self.place.display().to_string(),
            format!("can't {what}: {error}"),
        )
    }

    fn write_out(&mut self) -> Result<()> {
        let Some(output) = &mut self.output else {
            return Ok(());
        };
        let written = output.write_all(&self.buffer);
        self.buffer.clear();
        written.map_err(|error| self.error("write", &error).mend("is the disk full?"))
    }

    /// Removes the parts of an earlier run that this one does not replace.
    fn clear_parts(&self) -> std::io::Result<()> {
        let Some(folder) = self.place.parent() else {
            return Ok(());
        };
        for entry in folder.read_dir()? {
            let path = entry?.path();
            let name = path
                .file_name()
                .unwrap_or_default()
                .to_string_lossy()
                .into_owned();
            let number = name.strip_prefix("part-").and_then(|rest| {
                let (number, extension) = rest.split_once('.')?;
                matches!(extension, "csv" | "json").then(|| number.parse::<usize>().ok())?
            });
            let replaced = self.place.extension() == path.extension();
            if number.is_some_and(|number| number >= self.instances || !replaced) {
                std::fs::remove_file(&path)?;
            }
        }
        Ok(())
    }
}

impl Sink for FileSink {
    fn open(&mut self, _waiter: &mut Waiter) -> Result<()> {
        let folder = self
            .temporary
            .parent()
            .map(Path::to_path_buf)
            .unwrap_or_default();
        if self.is_folder {
            std::fs::create_dir_all(&folder)
                .map_err(|error| self.error("make the folder", &error))?;
        }
        let file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .open(&self.temporary)
            .map_err(|error| {
                let reason = format!("can't write in {}: {error}", folder.display());
                Error::new(self.place.display().to_string(), reason)
                    .mend("make the folder, or check its permissions")
            })?;
        let is_gzip = self.place.extension().is_some_and(|ending| ending == "gz");
        self.output = Some(if is_gzip {
            Output::Gzip(GzEncoder::new(file, Compression::default()))
        } else {
            Output::Plain(file)
        });
        Ok(())
    }

    fn write(&mut self, chunk: &Chunk) -> Result<()> {
        let place = self.place.display().to_string();
        self.encoder
            .encode(chunk, &mut self.buffer)
            .map_err(|error| error.at(&place))?;
        if self.buffer.len() >= BUFFER_BYTES {
            self.write_out()
        } else {
            Ok(())
        }
    }

    fn flush(&mut self) -> Result<()> {
        // Nobody looks at a temporary file, but the rows shall not be lost with the process.
        self.write_out()
    }

    fn finish(&mut self, complete: bool) -> Result<()> {
        if !complete {
            self.output = None;
            // It may never have been opened.
            let _ = std::fs::remove_file(&self.temporary);
            return Ok(());
        }
        self.encoder.finish(&mut self.buffer);
        self.write_out()?;
        let Some(output) = self.output.take() else {
            return Ok(());
        };
        output
            .finish()
            .map_err(|error| self.error("write", &error))?;
        std::fs::rename(&self.temporary, &self.place)
            .map_err(|error| self.error("give the file its name", &error))?;
        if self.clears {
            self.clear_parts()
                .map_err(|error| self.error("remove old parts", &error))?;
        }
        Ok(())
    }
}
