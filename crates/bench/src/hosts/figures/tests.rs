use super::*;

fn run(way: Way, rows: u64, cpu_s: f64) -> Run {
    let of_engine = |value: u64| (way != Way::Flink).then_some(value);
    Run {
        workload: "fixwindow",
        way,
        rows,
        cpu_s,
        wake_ups: 1_200,
        beside_workers_s: of_engine(1).map(|_| 0.05),
        agents_s: (way == Way::Hosts).then_some(0.02),
        rows_per_s: of_engine(1).map(|_| 2e6),
        rows_out: of_engine(500),
        wire_rows: of_engine(600_000),
        wire_bytes: of_engine(24_000_000),
    }
}

fn figures() -> Figures {
    let input = Input::of(1_000_000, 200_000_000);
    let cpu_s = [
        (Way::OneHost, 1.0),
        (Way::Hosts, 1.1),
        (Way::HostsTls, 1.3),
        (Way::Flink, 28.0),
    ];
    let all = cpu_s.map(|(way, cpu_s)| run(way, 1_000_000, cpu_s));
    let starts = cpu_s.map(|(way, cpu_s)| run(way, 3_000, cpu_s / 2.0));
    let idle = Idle {
        way: Way::HostsTls,
        hosts: 3,
        processes: 6,
        seconds: 60,
        wake_ups: 2,
        cpu_ms: 0.3,
    };
    Figures::of(&input, 1, all.to_vec(), starts.to_vec(), vec![idle])
}

#[test]
fn ways_are_compared_with_one_host_and_flink_with_hosts() {
    let figures = figures();
    let of = |way: Way| {
        let mut measured = figures.measured.iter();
        measured.find(|measured| measured.way == way).unwrap()
    };
    let near = |value: Option<&Spread>, expected: f64| {
        let value = value.unwrap().median;
        assert!((value - expected).abs() < 1e-9, "{value}, not {expected}");
    };
    assert!(of(Way::OneHost).ratio.is_none() && of(Way::Hosts).flink_ratio.is_none());
    near(of(Way::Hosts).ratio.as_ref(), 1.1);
    near(of(Way::HostsTls).ratio_excluding_start.as_ref(), 1.3);
    near(of(Way::Flink).flink_ratio.as_ref(), 14.0 / 1.1);
    near(of(Way::Flink).flink_ratio_with_start.as_ref(), 28.0 / 1.1);
    assert!(of(Way::Flink).ratio.is_none());
    assert_eq!(of(Way::Hosts).wire_bytes_per_row, Some(24.0));
    assert_eq!(of(Way::Flink).wire_bytes_per_row, None);
}

#[test]
fn goals_say_what_was_missed() {
    let lines = figures()
        .verdicts()
        .iter()
        .map(Verdict::line)
        .collect::<Vec<_>>();
    let expected = [
        "MISSED by 0.05: fixwindow: CPU time in clear, compared with one host: 1.10 (1.10 to 1.10), at most \
         1.05",
        "met: fixwindow: CPU time with TLS, compared with one host: 1.30 (1.30 to 1.30), at most 1.35",
        "met: fixwindow: rows per CPU second of three hosts, compared with Flink excluding start-up: 12.73 \
         (12.73 to 12.73), at least 8; 25.5 with Flink's start-up",
        "MISSED by 2: wake-ups of idle hosts-tls in 60 s: 2, at most 0",
    ];
    assert_eq!(lines, expected);
    let text = figures().text();
    for part in [
        "hosts-tls",
        "200 bytes",
        "24.0",
        "0.60",
        "2,000,000",
        "2 wake-ups",
    ] {
        assert!(text.contains(part), "{part} is not in:\n{text}");
    }
}

#[test]
fn runs_of_a_query_must_give_the_same_number_of_rows() {
    let one = run(Way::OneHost, 10, 1.0);
    let mut other = run(Way::Hosts, 10, 1.0);
    assert_eq!(check(&[one.clone(), other.clone()]), Ok(()));
    other.rows_out = Some(499);
    let error = check(&[one, other]).unwrap_err();
    assert!(
        error.contains("500 rows in one run (one-host), 499 in another (hosts)"),
        "{error}"
    );
}
