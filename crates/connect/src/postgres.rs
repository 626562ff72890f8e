//! Tables of PostgreSQL.

#[cfg(feature = "postgres")]
mod client;
#[cfg(feature = "postgres")]
mod statements;

#[cfg(feature = "postgres")]
pub(crate) use client::table;

/// What a build without PostgreSQL says.
#[cfg(not(feature = "postgres"))]
pub(crate) fn not_built() -> crate::OptionError {
    crate::OptionError::new(
        "connector",
        "this program was built without postgres",
        "build it with: cargo build --release --features postgres",
    )
}
