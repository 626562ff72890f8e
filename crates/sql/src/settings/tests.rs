//! Tests of setting values.

use super::*;

#[test]
fn the_error_for_an_option_of_tables_says_where_to_set_it() {
    let mut settings = Settings::default();
    let options = ["on_error".to_string()];
    let error = settings.set("on_error", "fail", &options).unwrap_err();
    assert!(
        error.hint.contains("WITH ('on_error' = 'fail')"),
        "{}",
        error.hint
    );
    let error = settings.set("parallelizm", "2", &options).unwrap_err();
    assert_eq!(error.hint, "did you mean 'parallelism'?");
}

#[test]
fn values_are_checked() {
    let mut settings = Settings::default();
    for (key, value) in [
        ("parallelism", "0"),
        ("parallelism", "many"),
        ("placement", "near"),
        ("processes", "cores"),
        ("chunk_rows", "1048577"),
        ("linger", "10"),
        ("latency_target", "0 ms"),
        ("emit", "sometimes"),
        ("broadcast", "tree"),
        ("message_bytes", "0"),
        ("message_bytes", "17 MiB"),
        ("message_bytes", "small"),
        ("wait", "sleep:0ms"),
        ("wait", "sleep"),
        ("wait", "doze"),
        ("wait_delay", "0 ms"),
        ("wait_delay", "11 s"),
        ("wait_delay", "soon"),
    ] {
        assert!(settings.set(key, value, &[]).is_err(), "{key} = {value}");
    }
    settings.set("parallelism", "auto", &[]).unwrap();
    assert_eq!(settings.parallelism, Some(Parallelism::Auto));
    settings.set("placement", "os", &[]).unwrap();
    assert_eq!(settings.placement, Some(Strategy::Os));
    settings.set("processes", "nodes", &[]).unwrap();
    assert_eq!(settings.processes, Processes::Nodes);
    settings.set("linger", "1.5 ms", &[]).unwrap();
    assert_eq!(settings.linger_ns, 1_500_000);
    settings.set("broadcast", "ring", &[]).unwrap();
    assert_eq!(settings.broadcast, Some(Algorithm::Ring));
    settings.set("broadcast", "auto", &[]).unwrap();
    assert_eq!(settings.broadcast, None);
    settings.set("message_bytes", "64 KiB", &[]).unwrap();
    assert_eq!(settings.message_bytes, MessageBytes::AtMost(65_536));
    settings.set("message_bytes", "none", &[]).unwrap();
    assert_eq!(settings.message_bytes, MessageBytes::Whole);
    settings.set("message_bytes", "auto", &[]).unwrap();
    assert_eq!(settings.message_bytes, MessageBytes::Auto);
    settings.set("balancer", "round_robin", &[]).unwrap();
    assert!(settings.check().is_err());
    settings.set("order", "none", &[]).unwrap();
    assert!(settings.check().is_ok());
}

#[test]
fn the_most_specific_target_of_a_sink_applies() {
    let mut settings = Settings::default();
    let ms = |ms: u64| Some(ms * 1_000_000);
    let views = |names: &[&str]| names.iter().map(|name| name.to_string()).collect();
    for (key, value) in [
        ("latency_target", "100 ms"),
        ("latency_target.out", "5 ms"),
        ("latency_target.view", "20 ms"),
        ("latency_target.slow", "none"),
    ] {
        settings.set(key, value, &[]).unwrap();
    }
    let target = |table, names: &[&str]| settings.target_of_sink(table, &views(names));
    assert_eq!(target(Some(("out", ms(7))), &["view"]), ms(5));
    assert_eq!(target(Some(("other", ms(7))), &["view"]), ms(7));
    assert_eq!(target(Some(("other", None)), &["view", "slow"]), ms(20));
    assert_eq!(target(None, &["slow"]), None);
    assert_eq!(target(None, &["unknown"]), ms(100));
    assert!(settings.set("latency_target.out", "soon", &[]).is_err());
}

#[test]
fn wait_delay_applies_to_auto_in_either_order() {
    let auto = |delay| WaitMode::Auto { delay };
    let mut settings = Settings::default();
    assert_eq!(settings.wait_mode(), auto(Duration::from_millis(1)));
    settings.set("wait_delay", "200 us", &[]).unwrap();
    assert_eq!(settings.wait_mode(), auto(Duration::from_micros(200)));
    settings.set("wait", "sleep:5ms", &[]).unwrap();
    let sleep = WaitMode::Sleep(Duration::from_millis(5));
    assert_eq!(settings.wait_mode(), sleep);
    settings.set("wait", "auto", &[]).unwrap();
    assert_eq!(settings.wait_mode(), auto(Duration::from_micros(200)));
    let error = settings.set("wait", "slep:1ms", &[]).unwrap_err();
    assert!(error.hint.contains("'sleep:200us'"), "{}", error.hint);
    let error = settings.set("wait_delay", "1h", &[]).unwrap_err();
    assert!(error.hint.contains("up to '10 s'"), "{}", error.hint);
}
