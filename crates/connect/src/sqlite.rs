//! Tables of SQLite: a file, read and written in this process.

#[cfg(feature = "sqlite")]
mod client;

#[cfg(feature = "sqlite")]
pub(crate) use client::table;

/// What a build without SQLite says.
#[cfg(not(feature = "sqlite"))]
pub(crate) fn not_built() -> crate::OptionError {
    crate::OptionError::new(
        "connector",
        "this program was built without sqlite",
        "build it with: cargo build --release --features sqlite",
    )
}
