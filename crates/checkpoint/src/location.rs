//! Where checkpoints are stored: a directory, or a URL of an object store.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use object_store::ObjectStore;
use object_store::local::LocalFileSystem;

use crate::error::{Error, Kind, Result};

/// The objects, and their location.
pub(crate) struct Location {
    pub objects: Arc<dyn ObjectStore>,
    /// The directory, if it is one.
    pub directory: Option<PathBuf>,
}

/// Opens a directory, which is created if it doesn't exist, or a URL.
pub(crate) fn open(location: &str) -> Result<Location> {
    let Some((scheme, rest)) = location.split_once("://") else {
        return directory(location, Path::new(location));
    };
    match scheme {
        "file" if rest.starts_with('/') && !rest.contains(['%', '?', '#']) => {
            directory(location, Path::new(rest))
        }
        "file" => Err(Error::new(
            Kind::Invalid,
            location,
            "a file URL must have three slashes, and no escapes",
        )
        .hint("write the path itself")),
        "s3" | "s3a" => s3(location),
        _ => Err(Error::new(
            Kind::Invalid,
            location,
            format!("checkpoints can't be stored in '{scheme}://'"),
        )
        .hint("write a path, file:///path or s3://bucket/folder")),
    }
}

fn directory(location: &str, path: &Path) -> Result<Location> {
    if location.is_empty() {
        return Err(Error::new(
            Kind::Invalid,
            "",
            "there is no path for checkpoints",
        ));
    }
    let failed = |reason: String, hint: &str| {
        Err(Error::new(Kind::Unavailable, location, reason).hint(hint))
    };
    match std::fs::create_dir_all(path) {
        Ok(()) => {}
        Err(error) if path.exists() && !path.is_dir() => {
            return failed(error.to_string(), "it must be a directory");
        }
        Err(error) => return failed(error.to_string(), hint(error.kind())),
    }
    let path = match path.canonicalize() {
        Ok(path) => path,
        Err(error) => return failed(error.to_string(), hint(error.kind())),
    };
    match LocalFileSystem::new_with_prefix(&path) {
        Ok(objects) => Ok(Location {
            objects: Arc::new(objects),
            directory: Some(path),
        }),
        Err(error) => failed(error.to_string(), ""),
    }
}

/// What the user can do about an error of the file system.
pub(crate) fn hint(kind: ErrorKind) -> &'static str {
    match kind {
        ErrorKind::PermissionDenied => {
            "give the user that runs this permission to write there, or name another place"
        }
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => "make room there",
        ErrorKind::ReadOnlyFilesystem => "name a place that can be written",
        ErrorKind::NotFound => "the directory was removed: create it again, or name another place",
        ErrorKind::NotADirectory | ErrorKind::AlreadyExists => "it must be a directory",
        _ => "",
    }
}

#[cfg(feature = "s3")]
fn s3(location: &str) -> Result<Location> {
    use object_store::aws::{AmazonS3Builder, S3ConditionalPut};
    use object_store::prefix::PrefixStore;

    let invalid = |reason: String| Error::new(Kind::Invalid, location, reason);
    let rest = location.split_once("://").map_or("", |(_, rest)| rest);
    let (bucket, folder) = rest.split_once('/').unwrap_or((rest, ""));
    if bucket.is_empty() {
        return Err(invalid("it names no bucket".to_string()).hint("s3://bucket/folder"));
    }
    // A record is put only if none exists; this fences earlier incarnations.
    let objects = AmazonS3Builder::from_env()
        .with_bucket_name(bucket)
        .with_conditional_put(S3ConditionalPut::ETagMatch)
        .build()
        .map_err(|error| {
            invalid(error.to_string()).hint(
                "set AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_REGION and, if it is not AWS, \
                 AWS_ENDPOINT",
            )
        })?;
    let folder = object_store::path::Path::parse(folder.trim_end_matches('/'))
        .map_err(|error| invalid(error.to_string()))?;
    Ok(Location {
        objects: Arc::new(PrefixStore::new(objects, folder)),
        directory: None,
    })
}

#[cfg(not(feature = "s3"))]
fn s3(location: &str) -> Result<Location> {
    let reason = "this build can't reach object stores";
    Err(Error::new(Kind::Invalid, location, reason).hint("build it with the feature 's3'"))
}
