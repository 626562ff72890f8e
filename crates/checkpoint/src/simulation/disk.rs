//! Objects in memory, behind requests that take time and fail.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

use async_trait::async_trait;
use futures_util::stream::BoxStream;
use futures_util::{FutureExt, StreamExt, TryStreamExt, stream};
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{
    CopyOptions, Error, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta,
    ObjectStore, PutMultipartOptions, PutOptions, PutPayload, PutResult, Result,
};

use super::ledger::Transaction;
use crate::manifest::Manifest;
use crate::manifest::record::Record;

/// The outcome of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    Done,
    /// Nothing was done.
    Failed,
    /// It was done, but the response was lost.
    Unanswered,
    /// A part of it was done, in thousandths.
    Torn(u64),
}

/// Requests that wait, and the outcomes of others.
#[derive(Debug, Default)]
pub struct Requests {
    next: u64,
    /// Requests since the last check.
    pub new: Vec<u64>,
    pub answered: HashMap<u64, Fate>,
    /// The pending transactions of valid manifests.
    pub durable: HashSet<Transaction>,
    /// Manifests that were stored since the last check.
    pub manifests: Vec<Manifest>,
    /// The number of the last claim.
    pub latest_claim: u64,
}

#[derive(Clone)]
pub struct Disk {
    objects: Arc<InMemory>,
    pub requests: Arc<Mutex<Requests>>,
}

struct Request {
    requests: Arc<Mutex<Requests>>,
    number: Option<u64>,
}

impl Future for Request {
    type Output = Fate;

    fn poll(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Fate> {
        let requests = Arc::clone(&self.requests);
        let mut requests = requests.lock().unwrap();
        match self.number {
            None => {
                let number = requests.next;
                requests.next += 1;
                requests.new.push(number);
                self.number = Some(number);
                Poll::Pending
            }
            Some(number) => match requests.answered.remove(&number) {
                Some(fate) => Poll::Ready(fate),
                None => Poll::Pending,
            },
        }
    }
}

fn failed() -> Error {
    Error::Generic {
        store: "simulated",
        source: "the request failed".into(),
    }
}

impl Disk {
    pub fn new() -> Disk {
        Disk {
            objects: Arc::new(InMemory::new()),
            requests: Arc::default(),
        }
    }

    /// The objects, without faults or time.
    pub fn objects(&self) -> Arc<InMemory> {
        Arc::clone(&self.objects)
    }

    fn request(&self) -> Request {
        Request {
            requests: Arc::clone(&self.requests),
            number: None,
        }
    }

    async fn done(&self) -> Result<()> {
        match self.request().await {
            Fate::Done | Fate::Unanswered => Ok(()),
            Fate::Failed | Fate::Torn(_) => Err(failed()),
        }
    }

    fn note(&self, bytes: &[u8]) {
        let mut requests = self.requests.lock().unwrap();
        match Record::decode(bytes) {
            Ok(Record::Checkpoint(manifest)) => {
                let pending = manifest.nodes.iter().flat_map(|node| &node.pending);
                let pending = pending.map(|pending| Transaction::of(&pending.commit));
                requests.durable.extend(pending);
                requests.manifests.push(manifest);
            }
            Ok(Record::Claim(claim)) => {
                requests.latest_claim = requests.latest_claim.max(claim.number);
            }
            Err(_) => {}
        }
    }
}

#[async_trait]
impl ObjectStore for Disk {
    async fn put_opts(
        &self,
        path: &Path,
        payload: PutPayload,
        options: PutOptions,
    ) -> Result<PutResult> {
        let fate = self.request().await;
        let mut bytes = payload.iter().flatten().copied().collect::<Vec<u8>>();
        match fate {
            Fate::Failed => return Err(failed()),
            Fate::Torn(permille) => bytes.truncate(bytes.len() * permille as usize / 1_000),
            Fate::Done | Fate::Unanswered => {}
        }
        let put = self
            .objects
            .put_opts(path, bytes.clone().into(), options)
            .await;
        if put.is_ok() {
            self.note(&bytes);
        }
        match fate {
            Fate::Done => put,
            _ => Err(failed()),
        }
    }

    async fn put_multipart_opts(
        &self,
        path: &Path,
        options: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        self.objects.put_multipart_opts(path, options).await
    }

    async fn get_opts(&self, path: &Path, options: GetOptions) -> Result<GetResult> {
        self.done().await?;
        self.objects.get_opts(path, options).await
    }

    fn delete_stream(
        &self,
        paths: BoxStream<'static, Result<Path>>,
    ) -> BoxStream<'static, Result<Path>> {
        let disk = self.clone();
        let each = paths.then(move |path| {
            let disk = disk.clone();
            async move {
                disk.done().await?;
                let one = stream::iter([path]).boxed();
                let removed = disk.objects.delete_stream(one).try_collect::<Vec<Path>>();
                removed
                    .await
                    .map(|mut paths| paths.pop().unwrap_or_default())
            }
        });
        each.boxed()
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        let (disk, prefix) = (self.clone(), prefix.cloned());
        let listed = async move {
            disk.done().await?;
            Ok::<_, Error>(disk.objects.list(prefix.as_ref()))
        };
        listed.into_stream().try_flatten().boxed()
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.objects.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.objects.copy_opts(from, to, options).await
    }
}

impl fmt::Debug for Disk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Disk")
    }
}

impl fmt::Display for Disk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Disk")
    }
}
