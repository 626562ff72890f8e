//! Reading entries. A server may be behind the others: it is asked to catch up first.

use tokio::time::{Instant, timeout_at};
use zookeeper_client as zk;

use super::connection::{Connection, OPERATION_TIMEOUT, is_transient};
use super::layout;
use crate::Entry;
use crate::error::Result;
use crate::key::TERM;

/// The entry of a key.
pub async fn get(connection: &Connection, key: &str) -> Result<Option<Entry>> {
    let node = connection.key_node(key);
    let node = &node;
    let found = read(connection, key, |client| async move {
        client.sync("/").await?;
        look(&client, node).await
    });
    match found.await? {
        None => Ok(None),
        Some((data, _)) => entry(connection, key, &data).map(Some),
    }
}

/// The entries whose keys start with `prefix`.
pub async fn list(connection: &Connection, prefix: &str) -> Result<Vec<(String, Entry)>> {
    let (keys, writes) = (connection.node("keys"), connection.node("writes"));
    let (keys, writes) = (&keys, &writes);
    let found = read(connection, prefix, |client| async move {
        client.sync("/").await?;
        // Tried again if somebody has written meanwhile; the time for it is limited.
        loop {
            let before = client.get_data(writes).await?.1.version;
            let mut found = Vec::new();
            for name in client.list_children(keys).await? {
                let Some(key) = layout::key(&name).filter(|key| key.starts_with(prefix)) else {
                    continue;
                };
                if let Some((data, _)) = look(&client, &connection.key_node(&key)).await? {
                    found.push((key, data));
                }
            }
            if client.get_data(writes).await?.1.version == before {
                return Ok(found);
            }
        }
    });
    let mut entries = Vec::new();
    for (key, data) in found.await? {
        let entry = entry(connection, &key, &data)?;
        entries.push((key, entry));
    }
    entries.sort_by(|(one, _), (other, _)| one.cmp(other));
    Ok(entries)
}

/// What a node has, if it is there.
pub async fn look(
    client: &zk::Client,
    node: &str,
) -> Result<Option<(Vec<u8>, zk::Stat)>, zk::Error> {
    match client.get_data(node).await {
        Ok(found) => Ok(Some(found)),
        Err(zk::Error::NoNode) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Reads, again and again while the connection is lost, for a limited time.
async fn read<T, F>(connection: &Connection, key: &str, read: impl Fn(zk::Client) -> F) -> Result<T>
where
    F: Future<Output = Result<T, zk::Error>>,
{
    let deadline = Instant::now() + OPERATION_TIMEOUT;
    loop {
        let client = connection.client(deadline).await?;
        match timeout_at(deadline, read(client)).await {
            Ok(Err(error)) if is_transient(&error) => connection.pause(deadline).await?,
            Ok(found) => return found.map_err(|error| connection.error(key, &error)),
            Err(_) => return Err(connection.unreachable()),
        }
    }
}

fn entry(connection: &Connection, key: &str, data: &[u8]) -> Result<Entry> {
    let entry = layout::parse_entry(data);
    let mut entry =
        entry.ok_or_else(|| connection.damaged(&format!("keys/{}", layout::name(key))))?;
    if key == TERM {
        let number = layout::split_term(&entry.value).0.len();
        entry.value.truncate(number);
    }
    Ok(entry)
}
