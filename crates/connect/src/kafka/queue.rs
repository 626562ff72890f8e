//! Parts of librdkafka's queues that the Rust bindings do not expose.

use std::ffi::{CString, c_void};
use std::ptr::NonNull;

use rdkafka::bindings;
use rdkafka::types::RDKafka;
use slackwater_engine::link::Waker;

/// A queue of a client: its length, and the waker that it wakes when something is added.
pub(crate) struct EventQueue {
    queue: NonNull<bindings::rd_kafka_queue_t>,
    /// The argument of the callback; it lives as long as the callback is set.
    waker: Option<Box<Waker>>,
}

// SAFETY: librdkafka's queues are thread-safe, and the waker may be used from anywhere.
unsafe impl Send for EventQueue {}
// SAFETY: a shared queue can only be asked for its length, under the queue's own lock.
unsafe impl Sync for EventQueue {}

impl EventQueue {
    /// The queue with a producer's delivery reports and errors.
    ///
    /// # Safety
    ///
    /// The client must outlive the queue.
    pub(crate) unsafe fn main(client: *mut RDKafka) -> EventQueue {
        // SAFETY: the caller's client is alive.
        EventQueue::new(unsafe { bindings::rd_kafka_queue_get_main(client) })
    }

    /// The queue with a consumer's events.
    ///
    /// # Safety
    ///
    /// The client must be a consumer with a group's name, and outlive the queue.
    pub(crate) unsafe fn consumer(client: *mut RDKafka) -> EventQueue {
        // SAFETY: the caller's client is alive.
        EventQueue::new(unsafe { bindings::rd_kafka_queue_get_consumer(client) })
    }

    /// The queue with a partition's messages.
    ///
    /// # Safety
    ///
    /// The client must be a consumer, and outlive the queue.
    pub(crate) unsafe fn partition(
        client: *mut RDKafka,
        topic: &str,
        partition: i32,
    ) -> EventQueue {
        let topic = CString::new(topic).expect("a topic's name has letters, digits and '._-'");
        // SAFETY: the caller's client is alive, and the name is copied.
        let queue =
            unsafe { bindings::rd_kafka_queue_get_partition(client, topic.as_ptr(), partition) };
        EventQueue::new(queue)
    }

    fn new(queue: *mut bindings::rd_kafka_queue_t) -> EventQueue {
        EventQueue {
            queue: NonNull::new(queue).expect("the client has the queue"),
            waker: None,
        }
    }

    /// The number of waiting events.
    pub(crate) fn length(&self) -> usize {
        // SAFETY: this holds a reference to the queue.
        unsafe { bindings::rd_kafka_queue_length(self.queue.as_ptr()) }
    }

    /// Wakes the waker when the queue is no longer empty.
    pub(crate) fn ring(&mut self, waker: Waker) {
        let waker = Box::new(waker);
        // SAFETY: the box neither moves nor is freed before the callback is removed, in `drop`.
        unsafe {
            bindings::rd_kafka_queue_cb_event_enable(
                self.queue.as_ptr(),
                Some(woken),
                std::ptr::from_ref::<Waker>(&waker).cast_mut().cast(),
            );
        }
        self.waker = Some(waker);
    }
}

/// Called on a thread of librdkafka.
unsafe extern "C" fn woken(_: *mut RDKafka, waker: *mut c_void) {
    // SAFETY: `ring` has passed a waker, which lives until the callback is removed.
    unsafe { &*waker.cast::<Waker>() }.wake();
}

impl Drop for EventQueue {
    fn drop(&mut self) {
        // SAFETY: this holds a reference to the queue, and releases it here. Removing the callback takes the
        // queue's lock, under which it is called: so it is not running afterwards.
        unsafe {
            if self.waker.is_some() {
                let queue = self.queue.as_ptr();
                bindings::rd_kafka_queue_cb_event_enable(queue, None, std::ptr::null_mut());
            }
            bindings::rd_kafka_queue_destroy(self.queue.as_ptr());
        }
    }
}
