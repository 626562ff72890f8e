//! The fuzz target of what clients send.

use super::request::Requests;

/// Splits bytes into commands, whole and in portions: the commands are the same, or the error.
pub fn fuzz_requests(bytes: &[u8]) {
    let all = |portion: usize| {
        let (mut requests, mut held, mut found) = (Requests::default(), Vec::new(), Vec::new());
        for portion in bytes.chunks(portion) {
            held.extend_from_slice(portion);
            let mut used = 0;
            loop {
                match requests.next(&held[used..]) {
                    Ok(Some((words, count))) => {
                        assert!(count > 0, "a command takes bytes");
                        found.push(words.iter().map(|word| word.to_vec()).collect::<Vec<_>>());
                        used += count;
                    }
                    Ok(None) => break,
                    Err(wrong) => return (found, Some(wrong.0)),
                }
            }
            held.drain(..used);
        }
        (found, None)
    };
    let whole = all(bytes.len().max(1));
    for portion in [1, 7] {
        assert_eq!(all(portion), whole, "in portions of {portion}");
    }
}
