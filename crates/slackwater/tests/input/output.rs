//! Output that already exists, and queries that fail half-way.

use crate::process::Folder;

use super::reading;

#[test]
fn existing_output_is_not_overwritten_unasked() {
    let folder = Folder::with(&[("in.csv", "1\n"), ("out.csv", "mine\n")]);
    std::fs::create_dir(folder.path("parts")).unwrap();
    folder.write("parts/mine.txt", b"mine");
    let to = |path: &str, more: &str| {
        reading("n INT", "", "n INT", "SELECT n FROM t")
            .replace("'out.csv'", &format!("'{path}'{more}"))
    };
    let hint = "'overwrite' = 'true'";
    folder
        .run(&to("out.csv", ""), &[])
        .fails(2, &["query.sql:2:", "out.csv already exists", hint]);
    folder
        .run(&to("parts", ""), &[])
        .fails(2, &["folder parts is not empty", hint]);
    assert_eq!(
        (folder.read("out.csv"), folder.read("parts/mine.txt")),
        ("mine\n".into(), "mine".into())
    );
    folder
        .run(&to("out.csv", ", 'overwrite' = 'true'"), &[])
        .ok();
    assert_eq!(folder.read("out.csv"), "1\n");
    folder
        .run(
            &to("parts", ", 'overwrite' = 'true'"),
            &["--parallelism", "2"],
        )
        .ok();
    assert_eq!(
        (
            folder.read("parts/part-0.csv"),
            folder.read("parts/mine.txt")
        ),
        ("1\n".into(), "mine".into())
    );
    folder.run(&to("none/out.csv", ""), &[]).fails(
        1,
        &["none/out.csv: can't write in none", "create the folder"],
    );
    folder.run(&to("new", ""), &[]).ok();
    assert_eq!(folder.read("new/part-0.csv"), "1\n");
}

#[test]
fn a_query_that_fails_leaves_no_half_output() {
    let lines = (0..100_000).map(|n| format!("{n}\n")).collect::<String>() + "x\n";
    let folder = Folder::with(&[("in.csv", &lines), ("out.csv", "of yesterday\n")]);
    let fail = ", 'on_error' = 'fail'";
    let to = |path: &str| {
        let text = reading("n INT", fail, "n INT", "SELECT n FROM t");
        text.replace("'out.csv'", &format!("'{path}', 'overwrite' = 'true'"))
    };
    for parallelism in ["1", "2"] {
        let run = |path: &str| {
            let arguments = ["--parallelism", parallelism, "--set", "chunk_rows=100"];
            folder
                .run(&to(path), &arguments)
                .fails(1, &["in.csv:100001: "]);
        };
        run("out.csv");
        assert_eq!(folder.read("out.csv"), "of yesterday\n");
        run("new.csv");
        run("packed.csv.gz");
        assert_eq!(
            folder.names(),
            ["in.csv", "out.csv", "query.sql", "report.json"]
        );
        run("parts");
        assert_eq!(std::fs::read_dir(folder.path("parts")).unwrap().count(), 0);
        std::fs::remove_dir(folder.path("parts")).unwrap();
    }
}

#[test]
fn two_queries_do_not_write_to_the_same_file() {
    let folder = Folder::with(&[("in.csv", "1\n2\n")]);
    std::fs::create_dir(folder.path("sub")).unwrap();
    let first = reading("n INT", "", "n INT", "SELECT n FROM t WHERE n > 1");
    let parts = [
        "query.sql:2:",
        "two queries write to table 'o', which is out.csv",
        "UNION ALL",
    ];
    let twice = format!("{first} INSERT INTO o SELECT -n FROM t;");
    folder.run(&twice, &[]).fails(2, &parts);
    for (one, other) in [
        ("out.csv", "sub/../out.csv"),
        ("out", "./out"),
        ("out", "out/"),
    ] {
        let text = format!(
            "{} CREATE TABLE p (n INT) WITH ('connector' = 'file', 'path' = '{other}');
             INSERT INTO p SELECT n FROM t;",
            first.replace("out.csv", one)
        );
        let parts = ["query.sql:3:", "tables 'o' and 'p' write to the same "];
        folder.run(&text, &[]).fails(2, &parts);
    }
    assert_eq!(folder.names(), ["in.csv", "query.sql", "sub"]);
    // What goes nowhere or to the terminal can be shared.
    let text = format!(
        "{first} CREATE TABLE p (n INT) WITH ('connector' = 'blackhole');
         INSERT INTO p SELECT n FROM t; INSERT INTO p SELECT n FROM t; SELECT n FROM t; SELECT n FROM t;"
    );
    folder.run(&text, &[]).ok();
    assert_eq!(folder.json("report.json")["rows_out"], 1 + 2 * 4);
}
