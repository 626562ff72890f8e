//! Formats that a build adds: those of the example, in this process, and in worker processes of the example's
//! own program.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::process::{Command, Stdio};
use std::sync::Once;

use slackwater::functions::format::{Format, FormatError, Table};

use crate::functions::example;
use crate::process::{Folder, PATIENCE, Running, eventually};
use crate::support::run_text;

#[path = "../examples/custom_operators/nmea.rs"]
mod nmea;

/// Adds them to this process; the other tests are none the worse for it.
fn install() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let mut functions = slackwater::functions::Functions::default();
        nmea::add(&mut functions);
        functions.format("levels", &["unit"], levels);
        slackwater::functions::install(functions).unwrap();
    });
}

/// The example of `docs/connectors/formats.md`. `hall=21.5;cellar=12.25`: a row for each place.
fn levels(table: &Table<'_>) -> Result<Format, FormatError> {
    let (place, level) = (
        table.column::<&str>("place")?,
        table.column::<f64>("level")?,
    );
    let unit = table.option::<f64>("unit")?.unwrap_or(1.0);
    Ok(Format::new()
        .decoder(move |record, out| {
            let record = std::str::from_utf8(record).map_err(|error| error.to_string())?;
            for part in record.split(';') {
                let (name, value) = part.split_once('=').ok_or("there is no =")?;
                let value = value.parse::<f64>().map_err(|error| error.to_string())?;
                out.set(place, name);
                out.set(level, value * unit);
                out.emit();
            }
            Ok(())
        })
        .encoder(move |row, record| {
            let name = row.get(place).ok_or("the place is NULL")?;
            let value = row.get(level).ok_or("the level is NULL")?;
            record.extend_from_slice(format!("{name}={}", value / unit).as_bytes());
            Ok(())
        }))
}

#[test]
fn the_example_of_the_page_reads_and_writes() {
    install();
    let folder = Folder::with(&[("in", "hall=200;cellar=50\n\nattic=1\nattic=2;roof\n")]);
    let path = folder.path("").display().to_string();
    let columns = "(place STRING, level FLOAT)";
    let text = format!(
        "CREATE TABLE t {columns} WITH ('connector' = 'file', 'path' = '{path}/in', 'format' = 'levels',
           'levels.unit' = '0.01', 'dead_letter' = '{path}/dead.jsonl');
         CREATE TABLE o {columns} WITH ('connector' = 'file', 'path' = '{path}/out.txt', 'format' = 'levels');
         INSERT INTO o SELECT place, level FROM t;"
    );
    let report = run_text(&text, &[]).unwrap();
    assert_eq!((report.rows_in, report.rows_bad), (4, 1));
    assert_eq!(
        folder.sorted("out.txt"),
        ["attic=0.009999999776482582", "cellar=0.5", "hall=2"]
    );
}

/// Sentences of each of two files.
const SENTENCES: usize = 3_000;

fn sentence(body: &str) -> String {
    let checksum = body.bytes().fold(0, |sum, byte| sum ^ byte);
    format!("${body}*{checksum:02X}")
}

/// A fix as the example writes it.
fn fix(number: usize) -> String {
    let (h, m, s) = (number / 3_600 % 24, number / 60 % 60, number % 60);
    let latitude = format!("48{:02}.{:04}", number % 60, number * 7 % 10_000);
    let longitude = format!("{:03}{:02}.{:04}", number % 180, number % 59, number);
    let (north, east) = (["N", "S"][number % 2], ["E", "W"][number / 2 % 2]);
    sentence(&format!(
        "GPGGA,{h:02}{m:02}{s:02}.{:03},{latitude},{north},{longitude},{east},1,{:02},,{}.5,M,,M,,",
        number % 1000,
        number % 13,
        number % 400
    ))
}

/// Sentences of two files: fixes, satellites, and some with a wrong checksum.
fn sentences() -> [Vec<String>; 2] {
    let of = |number: usize| match number % 10 {
        3 if number % 100 == 3 => sentence(&format!("GPGSV,1,1,{number}")).replace('V', "W"),
        3 => {
            let satellites = (0..number / 10 % 5).map(|nth| format!(",{nth},40,083,{number}"));
            sentence(&format!("GPGSV,1,1,04{}", satellites.collect::<String>()))
        }
        _ => fix(number),
    };
    [0, SENTENCES].map(|first| (first..first + SENTENCES).map(of).collect())
}

fn folder() -> Folder {
    let [one, two] = sentences().map(|lines| lines.join("\r\n"));
    Folder::with(&[("in-1.nmea", &one), ("in-2.nmea", &two)])
}

const QUERY: &str = "
CREATE TABLE t (at TIMESTAMP(3), latitude DOUBLE, longitude DOUBLE, satellites SMALLINT, altitude FLOAT)
WITH ('connector' = 'file', 'path' = '${IN}/in-?.nmea', 'format' = 'nmea', 'nmea.date' = '2026-11-29',
  'dead_letter' = '${IN}/dead.jsonl', 'replay_rate' = '${RATE}');
CREATE TABLE o (altitude FLOAT, latitude DOUBLE, longitude DOUBLE, at TIMESTAMP(6), satellites INT)
WITH ('connector' = 'file', 'path' = '${IN}/out', 'format' = 'nmea', 'overwrite' = '${OVER}');
INSERT INTO o SELECT altitude, latitude, longitude, at, satellites FROM t;
CREATE TABLE s (satellite INT, signal BIGINT)
WITH ('connector' = 'file', 'path' = '${IN}/in-?.nmea', 'format' = 'nmea_satellites',
  'dead_letter' = '${IN}/other.jsonl');
CREATE TABLE p (satellite INT, signal BIGINT)
WITH ('connector' = 'file', 'path' = '${IN}/seen', 'overwrite' = '${OVER}');
INSERT INTO p SELECT satellite, signal FROM s;";

fn query(folder: &str, rate: &str, is_overwritten: bool) -> String {
    let text = QUERY.replace("${IN}", folder).replace("${RATE}", rate);
    text.replace("${OVER}", if is_overwritten { "true" } else { "false" })
}

/// The lines of all parts in a folder, sorted.
fn parts(folder: &Folder, name: &str) -> Vec<String> {
    let entries = folder.path(name).read_dir().unwrap();
    let files = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let shown = files.filter(|file| !file.starts_with('.'));
    let mut lines = shown
        .flat_map(|file| folder.sorted(&format!("{name}/{file}")))
        .collect::<Vec<String>>();
    lines.sort();
    lines
}

/// What the query writes: the fixes as they were read, and the satellites.
fn expected() -> (Vec<String>, Vec<String>) {
    let all = sentences().concat();
    let fixes = all.iter().filter(|line| line.starts_with("$GPGGA"));
    let mut fixes = fixes.cloned().collect::<Vec<String>>();
    let numbers = (0..2 * SENTENCES).filter(|number| number % 10 == 3 && number % 100 != 3);
    let satellites = numbers.flat_map(|number| {
        (0..number / 10 % 5).map(move |satellite| format!("{satellite},{number}"))
    });
    let mut satellites = satellites.collect::<Vec<String>>();
    fixes.sort();
    satellites.sort();
    (fixes, satellites)
}

const BAD: usize = 2 * SENTENCES / 100;

#[test]
fn files_are_read_and_written_alike_however_it_runs() {
    install();
    let folder = folder();
    let text = query(&folder.path("").display().to_string(), "1000000/s", true);
    let expected = expected();
    for settings in [
        [("parallelism", "1"), ("chunk_rows", "8192")],
        [("parallelism", "1"), ("chunk_rows", "1")],
        [("parallelism", "3"), ("chunk_rows", "3")],
        [("parallelism", "2"), ("chunk_rows", "100")],
    ] {
        let report = run_text(&text, &settings).unwrap_or_else(|error| panic!("{error}"));
        assert!(parts(&folder, "out") == expected.0, "{settings:?}");
        assert!(parts(&folder, "seen") == expected.1, "{settings:?}");
        assert_eq!(report.rows_bad, 2 * BAD as u64, "each file is read twice");
        let rows = expected.0.len() + expected.1.len() + 2 * BAD;
        assert_eq!(report.rows_in, rows as u64);
    }
    let letters = folder.json_lines("dead.jsonl");
    assert_eq!(letters.len(), 4 * BAD);
    let is_second = |letter: &&serde_json::Value| {
        let place = letter["place"].as_str().unwrap();
        place.ends_with("in-1.nmea:104")
    };
    let letter = letters.iter().find(is_second).unwrap();
    let record = sentence("GPGSV,1,1,103").replace('V', "W");
    assert_eq!(letter["record"], *record);
    let reason = letter["reason"].as_str().unwrap();
    assert!(reason.starts_with("the checksum is "), "{reason}");
}

#[test]
fn worker_processes_have_formats_and_a_killed_query_resumes() {
    let Some(program) = example("custom_operators") else {
        return;
    };
    let folder = folder();
    let expected = expected();
    let command = |arguments: &[&str]| {
        let mut command = Command::new(&program);
        command.args(["run", "query.sql", "--quiet"]);
        command.args(arguments).current_dir(folder.path(""));
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        command.stderr(Stdio::piped());
        command
    };
    let run = |arguments: &[&str]| {
        Running::start(command(arguments)).finish(PATIENCE).ok();
        assert!(parts(&folder, "out") == expected.0, "{arguments:?}");
        assert!(parts(&folder, "seen") == expected.1, "{arguments:?}");
    };
    folder.write("query.sql", query(".", "1000000/s", true).as_bytes());
    run(&["--processes", "2", "--parallelism", "4", "--link", "shm"]);
    run(&[
        "--processes",
        "3",
        "--parallelism",
        "3",
        "--link",
        "tcp",
        "--set",
        "chunk_rows=2",
    ]);
    for name in ["out", "seen"] {
        std::fs::remove_dir_all(folder.path(name)).unwrap();
    }
    // So slow that it is killed before it has read everything.
    folder.write("query.sql", query(".", "4000/s", false).as_bytes());
    let often = [
        "--state",
        "state",
        "--set",
        "checkpoint_interval=10ms",
        "--set",
        "chunk_rows=20",
    ];
    let running = Running::start(command(&often));
    let committed = || {
        let parts = folder.path("out").read_dir().ok()?;
        let mut names = parts.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        names.find(|name| name.starts_with("part-") && name.ends_with(".records"))
    };
    eventually("part", committed);
    running.kill();
    let found = parts(&folder, "out").len();
    assert!(
        found < expected.0.len(),
        "{found} rows before it was killed"
    );
    folder.write("query.sql", query(".", "1000000/s", false).as_bytes());
    run(&often);
}

#[test]
fn sockets_are_read_and_written() {
    let Some(program) = example("custom_operators") else {
        return;
    };
    let [source, sink] = [(); 2].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
    let address = |listener: &TcpListener| listener.local_addr().unwrap();
    let folder = Folder::new();
    let text = format!(
        "CREATE TABLE t (latitude DOUBLE, longitude DOUBLE)
         WITH ('connector' = 'tcp', 'address' = '{}', 'format' = 'nmea', 'nmea.talker' = 'GN');
         CREATE TABLE o (latitude DOUBLE, longitude DOUBLE)
         WITH ('connector' = 'tcp', 'address' = '{}', 'format' = 'nmea', 'nmea.talker' = 'XX');
         INSERT INTO o SELECT latitude + 1, -longitude FROM t;",
        address(&source),
        address(&sink)
    );
    folder.write("query.sql", text.as_bytes());
    let mut command = Command::new(program);
    command
        .args(["run", "query.sql"])
        .current_dir(folder.path(""));
    command.stdin(Stdio::null()).stdout(Stdio::piped());
    let running = Running::start({
        command.stderr(Stdio::piped());
        command
    });
    let output = sink.accept().unwrap().0;
    let mut input = source.accept().unwrap().0;
    let fix = |talker: &str, place: &str| sentence(&format!("{talker}GGA,,{place},1,,,,M,,M,,"));
    let good = fix("GN", "4800.0000,N,01130.0000,E");
    let other = fix("GP", "4700.0000,N,01130.0000,E");
    let bad = fix("GN", "4800.0000,X,01130.0000,E");
    input
        .write_all(format!("{good}\r\n{other}\r\n{bad}\r\n").as_bytes())
        .unwrap();
    let last = fix("GN", "1000.0000,S,00000.6000,W");
    // In two pieces, and without a line end.
    input.write_all(&last.as_bytes()[..20]).unwrap();
    let mut lines = BufReader::new(output).lines().map(Result::unwrap);
    let written = fix("XX", "4900.0000,N,01130.0000,W");
    assert_eq!(lines.next().unwrap(), written);
    input.write_all(&last.as_bytes()[20..]).unwrap();
    drop(input);
    assert_eq!(lines.next().unwrap(), fix("XX", "0900.0000,S,00000.6000,E"));
    assert_eq!(lines.next(), None);
    let finished = running.finish(PATIENCE).ok();
    assert!(
        finished.err.contains("3 in, 2 out, 0 late, 1 bad"),
        "{}",
        finished.err
    );
    let letter = &folder.json_lines("slackwater-dead-letter/t.jsonl")[0];
    assert_eq!(letter["record"], *bad);
    assert_eq!(letter["reason"], "the direction 'X' is not N or S");
    let place = letter["place"].as_str().unwrap();
    assert!(
        place.starts_with("127.0.0.1:") && place.ends_with(":3"),
        "{place}"
    );
}

#[test]
fn the_example_runs() {
    install();
    let example = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/custom_operators");
    let folder = Folder::new();
    std::fs::copy(format!("{example}/fixes.nmea"), folder.path("fixes.nmea")).unwrap();
    let path = |name: &str| folder.path(name).display().to_string();
    let text = std::fs::read_to_string(format!("{example}/nmea.sql")).unwrap();
    let text = text.replace(
        "'path' = 'fixes.nmea'",
        &format!(
            "'path' = '{}', 'dead_letter' = '{}'",
            path("fixes.nmea"),
            path("dead.jsonl")
        ),
    );
    let sink = format!(
        "CREATE TABLE o (at TIMESTAMP(3), latitude DOUBLE, longitude DOUBLE, altitude DOUBLE)
         WITH ('connector' = 'file', 'path' = '{}');\nINSERT INTO o SELECT at,",
        path("out.csv")
    );
    let report = run_text(&text.replace("SELECT at,", &sink), &[]).unwrap();
    assert_eq!((report.rows_in, report.rows_bad), (4, 1));
    assert_eq!(
        folder.sorted("out.csv"),
        [
            "2026-11-29 12:35:19.000,48.1173,11.5167,545.4",
            "2026-11-29 12:35:20.500,48.1173,11.5167,545.6",
            "2026-11-29 12:35:22.000,-33.8585,151.2113,19.0",
        ]
    );
}

/// The message and hint of a wrong query.
fn error(text: &str) -> String {
    install();
    let folder = Folder::with(&[("in.nmea", "")]);
    let text = text.replace("${IN}", &folder.path("in.nmea").display().to_string());
    run_text(&text, &[]).unwrap_err()
}

#[test]
fn what_tables_get_wrong_is_said() {
    let reads = |columns: &str, options: &str| {
        error(&format!(
            "CREATE TABLE t ({columns})\nWITH ('connector' = 'file', 'path' = '${{IN}}', 'format' = 'nmea'\n\
             {options});\nSELECT * FROM t;"
        ))
    };
    let usual = "latitude DOUBLE, longitude DOUBLE";
    for (shown, wanted) in [
        (
            reads(usual, ", 'nmea.dat' = '2026-11-29'"),
            "test.sql:3:3: table 't', option 'nmea.dat': is not an option of file sources with format nmea\n",
        ),
        (
            reads(usual, ", 'nmea.dat' = '2026-11-29'"),
            "did you mean 'nmea.date'?",
        ),
        (
            reads(usual, ", 'nmea.date' = 'today'"),
            "test.sql:3:3: table 't', option 'nmea.date': 'today': is not a date such as 2026-11-29",
        ),
        (
            reads("latitude STRING, longitude DOUBLE", ""),
            "test.sql:1:14: table 't': format nmea needs a column 'latitude' of type \
             DOUBLE, and it is STRING\n",
        ),
        (
            reads("latitude STRING, longitude DOUBLE", ""),
            "declare latitude DOUBLE",
        ),
        (
            reads("latitude DOUBLE", ""),
            "test.sql:1:14: table 't': format nmea needs a column 'longitude', and the table has latitude",
        ),
        (
            reads(&format!("{usual}, altitud DOUBLE"), ""),
            "test.sql:1:14: table 't': format nmea has no column 'altitud'\n",
        ),
        (
            reads(&format!("{usual}, altitud DOUBLE"), ""),
            "did you mean 'altitude'?",
        ),
        (
            reads(&format!("{usual}, at TIMESTAMP(3)"), ""),
            "test.sql:1:14: table 't', option 'nmea.date': is missing: sentences have the time of day only",
        ),
        (
            error(&format!(
                "CREATE TABLE t ({usual}) WITH ('connector' = 'file', 'path' = '${{IN}}',\n\
                 'format' = 'nmae');\n\
                 SELECT * FROM t;"
            )),
            "did you mean 'nmea'? write 'csv', 'json', 'combined_log'",
        ),
        (
            error(
                "CREATE TABLE t (duration INT) WITH ('connector' = 'datagen', 'generator' = 'uservisits');\n\
                 CREATE TABLE o (satellite INT)\nWITH ('connector' = 'file', 'path' = '${IN}',\n\
                 'format' = 'nmea_satellites');\nINSERT INTO o SELECT 1 FROM t;",
            ),
            "test.sql:4:1: table 'o', option 'format': 'nmea_satellites' can only be read",
        ),
    ] {
        assert!(shown.contains(wanted), "{shown}\nand not: {wanted}");
    }
}

#[test]
fn a_row_that_can_not_be_written_ends_the_query() {
    install();
    let folder = Folder::with(&[("in.csv", "1,1\n2,\n")]);
    let path = folder.path("").display().to_string();
    let text = format!(
        "CREATE TABLE t (a DOUBLE, b DOUBLE) WITH ('connector' = 'file', 'path' = '{path}/in.csv');
         CREATE TABLE o (latitude DOUBLE, longitude DOUBLE)
         WITH ('connector' = 'file', 'path' = '{path}/out.nmea', 'format' = 'nmea');
         INSERT INTO o SELECT a, b FROM t;"
    );
    let shown = run_text(&text, &[]).unwrap_err();
    let reason = "format nmea can't write a row: the latitude or longitude is NULL";
    assert!(shown.contains(reason), "{shown}");
    assert!(shown.contains("leave such rows out with WHERE"), "{shown}");
    assert!(shown.contains("out.nmea"), "{shown}");
}
