use super::*;

const S: u64 = 1_000_000_000;
const HIGH: u32 = 2_200_000;

fn is_near(left: f64, right: f64) -> bool {
    (left - right).abs() <= 0.02 * right.abs().max(1e-9)
}

#[test]
fn a_cost_at_one_frequency_is_all_cycles() {
    let mut fit = Fit::default();
    assert_eq!(fit.law(), None);
    fit.add(HIGH, 10.0);
    let law = fit.law().expect("a law");
    assert!(is_near(law.at(HIGH / 2), 20.0) && law.fixed_ns == 0.0);
}

/// The paper's replica: 10.98 µs a write at 2.2 GHz and 22.28 at 1.0 GHz, so 1.56 µs of it wait for memory.
#[test]
fn two_frequencies_give_both_parts() {
    let mut fit = Fit::default();
    for _ in 0..10 {
        fit.add(HIGH, 10_980.0);
        fit.add(1_000_000, 22_280.0);
    }
    let law = fit.law().expect("a law");
    assert!(is_near(law.fixed_ns, 1_563.3) && is_near(law.cycles, 20_716.7));
    assert!(is_near(law.at(1_400_000), 16_361.0));
}

#[test]
fn neither_part_is_below_zero_and_nonsense_is_left_out() {
    let mut fit = Fit::default();
    fit.add(HIGH, 20.0);
    fit.add(HIGH / 2, 10.0);
    fit.add(HIGH, f64::NAN);
    fit.add(0, -1.0);
    let law = fit.law().expect("a law");
    assert!(law.fixed_ns >= 0.0 && law.cycles == 0.0, "{law:?}");
    let mut steep = Fit::default();
    steep.add(HIGH, 10.0);
    steep.add(HIGH / 2, 90.0);
    let law = steep.law().expect("a law");
    assert!(law.fixed_ns == 0.0 && law.at(HIGH / 2) > 0.0, "{law:?}");
}

/// A server that uses 1 ms a second, 10 ns a byte and 20 µs a read.
struct Server {
    costs: Costs,
    now_ns: u64,
    counters: Counters,
}

impl Server {
    fn run(&mut self, seconds: u64, bytes: u64, reads: u64, is_beaten: bool) {
        for _ in 0..seconds {
            self.now_ns += S;
            self.counters.cpu_ns += 1_000_000 + bytes * 10 + reads * 20_000;
            self.counters.bytes += bytes;
            self.counters.arrived += bytes;
            self.counters.reads += reads;
            let under = Under {
                khz: HIGH,
                is_beaten,
            };
            self.costs.take(self.now_ns, self.counters, under);
        }
    }
}

fn server() -> Server {
    let counters = Counters {
        cpu_ns: 0,
        bytes: 0,
        reads: 0,
        arrived: 0,
    };
    Server {
        costs: Costs::default(),
        now_ns: 0,
        counters,
    }
}

#[test]
fn idle_time_reads_and_bytes_are_told_apart() {
    let mut server = server();
    server.run(60, 0, 0, false);
    assert!(is_near(server.costs.idle().at(HIGH), 0.001));
    assert_eq!(server.costs.per_byte(false), None);
    server.run(10, 1_000_000, 0, false);
    let per_byte = server.costs.per_byte(false).expect("a cost");
    assert!(is_near(per_byte.at(HIGH), 10.0), "{per_byte:?}");
    server.run(10, 0, 1_000, false);
    assert!(is_near(server.costs.per_read().at(HIGH), 20_000.0));
    // Both together change neither.
    server.run(30, 1_000_000, 1_000, false);
    assert!(is_near(server.costs.per_read().at(HIGH), 20_000.0));
    let per_byte = server.costs.per_byte(true).expect("a cost");
    assert!(is_near(per_byte.at(HIGH), 10.0), "{per_byte:?}");
}

#[test]
fn what_is_not_told_apart_is_put_down_to_both() {
    let mut server = server();
    server.run(10, 1_000_000, 1_000, false);
    let per_byte = server.costs.per_byte(false).expect("a cost");
    assert!(per_byte.at(HIGH) >= 10.0 && server.costs.per_read().at(HIGH) >= 20_000.0);
}

#[test]
fn the_most_of_the_last_minute_is_known_for_a_minute() {
    let mut server = server();
    server.run(1, 1_000_000, 0, false);
    server.run(3, 9_000_000, 5_000, false);
    server.run(50, 1_000_000, 0, false);
    assert!(is_near(server.costs.most_bytes(), 0.009));
    assert!(is_near(server.costs.most_reads(), 5e-6));
    server.run(20, 1_000_000, 0, false);
    assert!(is_near(server.costs.most_bytes(), 0.001));
    server.now_ns += 1_000 * S;
    server.run(2, 100_000, 0, false);
    assert!(is_near(server.costs.most_bytes(), 0.0001));
}

#[test]
fn counters_and_times_that_go_back_teach_nothing() {
    let mut server = server();
    server.run(60, 0, 0, false);
    server.run(20, 1_000_000, 0, false);
    let before = server.costs.per_byte(false);
    server.counters.cpu_ns = 5;
    server.counters.bytes = 0;
    server.costs.take(
        server.now_ns,
        server.counters,
        Under {
            khz: HIGH,
            is_beaten: false,
        },
    );
    assert_eq!(server.costs.per_byte(false), before);
    server.now_ns = 3;
    server.run(20, 1_000_000, 0, false);
    let per_byte = server.costs.per_byte(false).expect("a cost");
    assert!(is_near(per_byte.at(HIGH), 10.0), "{per_byte:?}");
}

#[test]
fn beats_have_a_cost_of_their_own() {
    let mut server = server();
    server.run(60, 0, 0, false);
    server.run(20, 1_000_000, 0, false);
    for _ in 0..20 {
        server.counters.cpu_ns -= 9_000_000;
        server.run(1, 1_000_000, 0, true);
    }
    let in_beats = server.costs.per_byte(true).expect("a cost");
    let at_once = server.costs.per_byte(false).expect("a cost");
    assert!(in_beats.at(HIGH) < 3.0 && is_near(at_once.at(HIGH), 10.0));
}

#[test]
fn a_trickle_has_a_cost_too() {
    let mut server = server();
    server.run(60, 0, 0, false);
    for _ in 0..100 {
        server.run(1, 1_000, 0, false);
        server.run(9, 0, 0, false);
    }
    let per_byte = server.costs.per_byte(false).expect("a cost");
    assert!(is_near(per_byte.at(HIGH), 10.0), "{per_byte:?}");
}
