//! `libslackwater_sockets.so`: TCP connections within a host go through shared memory.
//!
//! The dynamic linker loads it before a program's own libraries (`slackwater sockets` asks for that), so
//! that its symbols stand in front of the C library's. A connection stays a real TCP connection, and its
//! descriptor the program's: what is not intercepted keeps working, and the kernel tells the death of the
//! peer. docs/internals/sockets.md has the protocol.

// Without the symbols nobody calls most of it.
#![cfg_attr(test, allow(dead_code, unused_imports))]

// Reading order: options and what the kernel does; memory; connections; bytes; readiness; symbols.
mod buffers;
mod connection;
mod epoll;
mod lane;
mod lock;
mod options;
mod poll;
mod ready;
mod real;
mod receive;
mod rendezvous;
mod segment;
mod send;
mod statistics;
mod stream;
// The tests of this crate are not to be intercepted themselves.
#[cfg(not(test))]
mod symbols;
mod wait;

/// Writes a message of this library to standard error.
fn report(text: &str) {
    let text = format!("slackwater sockets: {text}\n");
    real::write(libc::STDERR_FILENO, text.as_ptr().cast(), text.len());
}

/// Before the program's `main`.
#[cfg(not(test))]
extern "C" fn start() {
    let _ = std::panic::catch_unwind(|| {
        connection::own_process();
        // SAFETY: the functions are there as long as the process.
        unsafe {
            libc::pthread_atfork(
                Some(before_fork),
                Some(after_fork),
                Some(after_fork_in_child),
            )
        };
        options::options();
        rendezvous::adopt_inherited();
    });
}

#[cfg(not(test))]
unsafe extern "C" fn before_fork() {
    connection::hold_for_fork();
    epoll::hold_for_fork();
}

#[cfg(not(test))]
unsafe extern "C" fn after_fork() {
    epoll::release_after_fork();
    connection::release_after_fork();
}

#[cfg(not(test))]
unsafe extern "C" fn after_fork_in_child() {
    lock::forget_thread();
    connection::own_process();
    // SAFETY: as in the parent.
    unsafe { after_fork() };
}

/// When the program returns from `main` or calls `exit`.
#[cfg(not(test))]
extern "C" fn end() {
    let _ = std::panic::catch_unwind(|| {
        connection::for_each(|fd, user| {
            if let Some(stream) = stream::Stream::known(fd, user) {
                stream.take_bells();
            }
        });
        statistics::write();
    });
}

#[cfg(not(test))]
#[used]
#[unsafe(link_section = ".init_array")]
static START: extern "C" fn() = start;

#[cfg(not(test))]
#[used]
#[unsafe(link_section = ".fini_array")]
static END: extern "C" fn() = end;
