//! Options that are wrong or in the wrong place.

use crate::process::Folder;

use super::reading;

#[test]
fn options_that_are_wrong_are_told_what_is_right() {
    let folder = Folder::with(&[("in.csv", "1\n")]);
    let with =
        |options: &str| folder.run(&reading("n INT", options, "n INT", "SELECT n FROM t"), &[]);
    let place = ["query.sql:1:", "^"];
    let known = "the options are: connector, csv.comment, csv.delimiter, csv.header, \
                 csv.null, dead_letter, files, format, idle_timeout, on_error, path, replay_rate, \
                 unit_of_work";
    with(", 'colour' = 'red'")
        .fails(2, &place)
        .fails(2, &["'colour'", "is not an option of file sources", known]);
    with(", 'csv.delimeter' = ';'").fails(2, &["did you mean 'csv.delimiter'?", known]);
    with(", 'address' = 'a:1'").fails(
        2,
        &["is not an option of file sources with format csv", known],
    );
    with(", 'csv.delimiter' = ';;'").fails(2, &["';;' is not a single byte"]);
    with(", 'csv.header' = 'yes'").fails(2, &["'yes' is not a valid value", "'true' or 'false'"]);
    with(", 'format' = 'xml'").fails(2, &["'xml'", "csv", "json", "combined_log", "raw"]);
    with(", 'on_error' = 'stop'").fails(2, &["'stop' is not a valid value", "'skip' or 'fail'"]);
    with(", 'idle_timeout' = '5'").fails(2, &["'5' is not a duration", "'5 s'"]);
    let connector = |name: &str| {
        let text =
            format!("CREATE TABLE t (n INT) WITH ('connector' = '{name}'); SELECT n FROM t;");
        folder.run(&text, &[])
    };
    connector("fiel").fails(
        2,
        &[
            "'fiel' is not a connector",
            "did you mean 'file'?",
            "datagen",
        ],
    );
    connector("pulsar").fails(
        2,
        &[
            "'pulsar' is not supported",
            "the connectors are file, stdin, tcp, http, kafka",
            "datagen",
        ],
    );
    connector("print").fails(2, &["print can only be written", "read from file"]);
    folder
        .run("CREATE TABLE t (n INT); SELECT n FROM t;", &[])
        .fails(2, &["has no 'connector'"]);
}

#[test]
fn options_in_the_wrong_place_are_told_where_they_go() {
    let folder = Folder::with(&[("in.csv", "1\n")]);
    let text = reading("n INT", ", 'parallelism' = '2'", "n INT", "SELECT n FROM t");
    let parts = [
        "query.sql:1:",
        "'parallelism' is a setting of the query, not an option of a table",
        "SET 'parallelism' = '2'",
    ];
    folder.run(&text, &[]).fails(2, &parts);
    let text = format!(
        "SET 'on_error' = 'fail';\n{}",
        reading("n INT", "", "n INT", "SELECT n FROM t")
    );
    let parts = [
        "query.sql:1:",
        "there is no setting 'on_error'",
        "WITH ('on_error' = 'fail')",
    ];
    folder.run(&text, &[]).fails(2, &parts);
    let text = "SET 'emti' = 'every_row';";
    folder
        .run(text, &[])
        .fails(2, &["there is no setting 'emti'", "did you mean 'emit'?"]);
    let text = "SET 'colour' = 'red';";
    folder.run(text, &[]).fails(
        2,
        &["the settings are: allowed_lateness, balancer, broadcast, checkpoint_interval"],
    );
}
