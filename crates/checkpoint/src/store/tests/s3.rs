//! The same over S3's protocol, if there is a server for it.

use super::*;

/// `SLACKWATER_TEST_S3=s3://bucket/folder`, with `AWS_…` variables for the keys and the endpoint; the folder
/// must be empty.
#[test]
fn an_object_store_fences_and_sweeps_like_a_directory() {
    let Ok(location) = std::env::var("SLACKWATER_TEST_S3") else {
        println!("note: SLACKWATER_TEST_S3 is not set: skipped");
        return;
    };
    let runner = Runner::new().unwrap();
    let store = Store::open(&location).unwrap();
    let checkpoint = |incarnation: &mut CheckpointWriter, barrier| {
        runner.run(async {
            let mut manifest = manifest(barrier);
            let (parts, request) = (incarnation.parts(), request(barrier));
            let part = parts.put(&request, &[state(2)]).await?;
            assert_eq!(parts.put(&request, &[state(2)]).await?, part, "again");
            manifest.nodes[0].parts.push(part);
            incarnation.put_manifest(manifest).await
        })
    };
    let (mut old, found) = runner.run(store.begin(None)).unwrap();
    assert!(found.manifest.is_none(), "the folder is not empty");
    assert_eq!(checkpoint(&mut old, 1), Ok(2));
    let (mut new, found) = runner.run(store.begin(None)).unwrap();
    let found = found.manifest.unwrap();
    let part = &found.nodes[0].parts[0];
    assert_eq!(runner.run(store.read_part(part)).unwrap(), [state(2)]);
    for barrier in 2..6 {
        let error = checkpoint(&mut old, barrier).unwrap_err();
        assert_eq!(error.kind, Kind::Fenced, "{error}");
        checkpoint(&mut new, barrier).unwrap();
        let swept = runner.run(new.sweep(1)).unwrap();
        assert!(swept.records > 0 && swept.parts > 0, "{swept:?}");
    }
    assert_eq!(runner.run(store.numbers()).unwrap().len(), 1);
    assert_eq!(runner.run(store.lengths()).unwrap().len(), 1);
    let newest = runner.run(store.newest(None)).unwrap();
    assert_eq!(newest.manifest.unwrap().epoch, new.epoch());
    let wrong = Part {
        object: "parts/gone.arrow".to_string(),
        ..part.clone()
    };
    let error = runner.run(store.read_part(&wrong)).unwrap_err();
    assert_eq!(error.kind, Kind::Missing, "{error}");
}
