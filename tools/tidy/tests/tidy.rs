//! The source tree is tidy: see the crate's page and `tools/tidy/README.md`.

#[test]
fn tidy() {
    if let Err(messages) = tidy::check(&tidy::tree::root()) {
        panic!("\n{messages}");
    }
}
