//! iceoryx2: publish and subscribe through shared memory, one service in each direction.
//!
//! Written as its users would: a sample is borrowed, written and sent, and the subscriber reads it in
//! place. The queue holds as many messages as our ring of the same bytes would. A publisher with a full
//! queue waits in the library's way (`RetryUntilDelivered`, its default), not in ours. By interrupt, each
//! push notifies a listener of the library's event service.

use std::time::Duration;

use iceoryx2::port::listener::Listener;
use iceoryx2::port::notifier::Notifier;
use iceoryx2::port::publisher::Publisher;
use iceoryx2::port::subscriber::Subscriber;
use iceoryx2::prelude::*;

use crate::measure::order::{Order, Waiting};
use crate::measure::side::{Aligned, Side, read_lines};
use crate::measure::{PATIENCE, RING_BYTES};

/// Messages that a queue holds at most.
const MESSAGES_MAX: usize = 1024;

pub struct Peer {
    /// The follower's process id; both sides build the names of their services with it.
    id: u32,
    leads: bool,
    orders: u32,
    node: Node<ipc::Service>,
    ports: Option<Ports>,
}

struct Ports {
    publisher: Publisher<ipc::Service, [u8], ()>,
    subscriber: Subscriber<ipc::Service, [u8], ()>,
    notifier: Notifier<ipc::Service>,
    listener: Listener<ipc::Service>,
    source: Aligned,
    notifies: bool,
}

fn failed(error: impl std::fmt::Debug) -> String {
    format!("iceoryx2: {error:?}")
}

impl Peer {
    pub fn new(id: u32, leads: bool) -> Result<Peer, String> {
        set_log_level(LogLevel::Error);
        let node = NodeBuilder::new();
        let node = node.signal_handling_mode(SignalHandlingMode::Disabled);
        Ok(Peer {
            id,
            leads,
            orders: 0,
            node: node.create::<ipc::Service>().map_err(failed)?,
            ports: None,
        })
    }

    fn name(&self, direction: &str) -> Result<ServiceName, String> {
        let name = format!("slackwater-peers/{}/{}/{direction}", self.id, self.orders);
        ServiceName::new(&name).map_err(failed)
    }

    fn ports(&self, order: &Order) -> Result<Ports, String> {
        let queue = (RING_BYTES / order.size_bytes).clamp(2, MESSAGES_MAX);
        let (out, home) = match self.leads {
            true => ("to", "fro"),
            false => ("fro", "to"),
        };
        let stream = |direction: &str| {
            let service = self.node.service_builder(&self.name(direction)?);
            let service = service.publish_subscribe::<[u8]>();
            let service = service.enable_safe_overflow(false).history_size(0);
            let service = service.max_publishers(1).max_subscribers(1);
            let service = service.subscriber_max_buffer_size(queue);
            service.open_or_create().map_err(failed)
        };
        let event = |direction: &str| {
            let service = self.node.service_builder(&self.name(direction)?);
            service.event().open_or_create().map_err(failed)
        };
        let publisher = stream(out)?;
        let publisher = publisher.publisher_builder();
        let publisher = publisher.initial_max_slice_len(order.size_bytes);
        let subscriber = stream(home)?;
        let subscriber = subscriber.subscriber_builder();
        let notifier = event(&format!("{out}-bell"))?;
        let listener = event(&format!("{home}-bell"))?;
        Ok(Ports {
            publisher: publisher.create().map_err(failed)?,
            subscriber: subscriber.create().map_err(failed)?,
            notifier: notifier.notifier_builder().create().map_err(failed)?,
            listener: listener.listener_builder().create().map_err(failed)?,
            source: Aligned::new(order.size_bytes),
            notifies: order.waiting == Waiting::Interrupt,
        })
    }

    #[inline]
    fn open(&mut self) -> Result<&mut Ports, String> {
        let ports = self.ports.as_mut();
        ports.ok_or_else(|| "it was not prepared".to_string())
    }
}

impl Side for Peer {
    fn supports(&self, _: &Order) -> Result<(), String> {
        Ok(())
    }

    fn prepare(&mut self, order: &Order) -> Result<(), String> {
        self.ports = None;
        self.orders += 1;
        self.ports = Some(self.ports(order)?);
        Ok(())
    }

    #[inline]
    fn send(&mut self, number: u64) -> Result<bool, String> {
        let ports = self.open()?;
        let sample = ports.publisher.loan_slice_uninit(ports.source.len());
        let mut sample = sample.map_err(failed)?.write_from_slice(&ports.source);
        sample.payload_mut()[..8].copy_from_slice(&number.to_le_bytes());
        sample.send().map_err(failed)?;
        Ok(true)
    }

    #[inline]
    fn push(&mut self) -> Result<(), String> {
        let ports = self.open()?;
        if ports.notifies {
            ports.notifier.notify().map_err(failed)?;
        }
        Ok(())
    }

    #[inline]
    fn receive(&mut self) -> Result<Option<u64>, String> {
        match self.open()?.subscriber.receive().map_err(failed)? {
            Some(sample) => read_lines(sample.payload()).map(Some),
            None => Ok(None),
        }
    }

    fn sleep(&mut self) -> Result<(), String> {
        let ports = self.open()?;
        let woken = ports
            .listener
            .timed_wait(|_| (), Duration::min(PATIENCE, Duration::from_secs(1)));
        woken.map(|_| ()).map_err(failed)
    }
}
