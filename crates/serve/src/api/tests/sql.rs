//! `POST /v1/sql`.

use arrow_ipc::reader::StreamReader;
use serde_json::json;

use super::fake::rows;
use super::*;

#[test]
fn statements_answer_line_by_line() {
    let served = served();
    let answer = served
        .sql("CREATE VIEW v AS SELECT 1;\nSELECT * FROM v; NONE")
        .ok();
    assert_eq!(answer.headers["content-type"], "application/x-ndjson");
    let columns = json!({"columns": [
        {"name": "k", "type": "STRING"},
        {"name": "n", "type": "BIGINT"},
        {"name": "x", "type": "DOUBLE"},
        {"name": "at", "type": "TIMESTAMP(3)"},
    ]});
    let expected = [
        json!({"done": "CREATE VIEW", "notices": ["it takes a while"]}),
        columns.clone(),
        json!({"row": {"k": "a", "n": 1, "x": 0.5, "at": "1970-01-01 00:00:00"}}),
        json!({"row": {"k": "b\"\n,|", "n": null, "x": null, "at": "1970-01-01 00:00:01.500"}}),
        json!({"row": {"k": "ü", "n": i64::MAX, "x": -1e300, "at": "1969-12-31 23:59:59.999"}}),
        json!({"done": "SELECT 3", "notices": []}),
        columns,
        json!({"done": "SELECT 0", "notices": []}),
    ];
    assert_eq!(answer.lines(), expected);
    assert_eq!(served.sql(" \n").ok().text(), "");
}

#[test]
fn rows_come_in_the_form_that_is_wanted() {
    let served = served();
    let form = |form: &str, text: &str| {
        let request = format!("POST /v1/sql?format={form}");
        served.ask(&request, "", text).ok()
    };
    let csv = form("csv", "CREATE VIEW v; SELECT * FROM v");
    assert_eq!(
        csv.text(),
        "k,n,x,at\na,1,0.5,1970-01-01 00:00:00\n\"b\"\"\n,|\",,NaN,1970-01-01 00:00:01.500\n\
         ü,9223372036854775807,-1e300,1969-12-31 23:59:59.999\n"
    );
    assert_eq!(form("csv", "NONE").text(), "k,n,x,at\n");
    let table = form("text", "CREATE VIEW v; SELECT * FROM v; NONE");
    assert_eq!(
        table.text(),
        "NOTICE: it takes a while\nCREATE VIEW\n\
         \x20k      |                   n |      x | at\n\
         --------+---------------------+--------+-------------------------\n\
         \x20a      |                   1 |    0.5 | 1970-01-01 00:00:00\n\
         \x20b\"\\n,| |                     |    NaN | 1970-01-01 00:00:01.500\n\
         \x20ü      | 9223372036854775807 | -1e300 | 1969-12-31 23:59:59.999\n\
         (3 rows)\n k | n | x | at\n---+---+---+----\n(0 rows)\n"
    );
    let array = form("json", "SELECT 1").json();
    assert_eq!(array.as_array().unwrap().len(), 3);
    assert_eq!(array[2]["k"], "ü");
    assert_eq!(form("json", "NONE").json(), json!([]));
    let arrow = served.ask(
        "POST /v1/sql",
        "accept: application/vnd.apache.arrow.stream\r\n",
        "SELECT 1",
    );
    let arrow = arrow.ok();
    let reader = StreamReader::try_new(&*arrow.body, None).unwrap();
    let batches = reader.map(Result::unwrap).collect::<Vec<_>>();
    assert_eq!(batches, [rows()]);
    // What returns no rows is said in lines.
    for single in ["csv", "json", "arrow"] {
        let answer = form(single, "CREATE VIEW v");
        assert_eq!(answer.headers["content-type"], "application/x-ndjson");
        assert_eq!(answer.lines()[0]["done"], "CREATE VIEW");
        let request = format!("POST /v1/sql?format={single}");
        let two = served.ask(&request, "", "SELECT 1; SELECT 2");
        two.refused(400, "value", "only the last statement");
    }
}

#[test]
fn parameters_are_values_and_not_text() {
    let served = served();
    let json = |body: &str| {
        let headers = "content-type: application/json; charset=utf-8\r\n";
        served.ask("POST /v1/sql", headers, body)
    };
    let body = r#"{"query": "SELECT $1", "parameters": ["a'b", 7, true, null, 0.5]}"#;
    json(body).ok();
    let (text, parameters) = served.fake.run.lock().unwrap().pop().unwrap();
    assert_eq!(text, "SELECT $1");
    let parameters = parameters.iter().map(Option::as_deref);
    let expected = [Some("a'b"), Some("7"), Some("true"), None, Some("0.5")];
    assert_eq!(parameters.collect::<Vec<_>>(), expected);
    for (body, part) in [
        ("SELECT 1", "not valid JSON"),
        ("[]", "not an object"),
        (r#"{"sql": "SELECT 1"}"#, "no text 'query'"),
        (r#"{"query": 1}"#, "no text 'query'"),
        (r#"{"query": "SELECT 1", "parameters": 1}"#, "not an array"),
        (
            r#"{"query": "SELECT 1", "parameters": [[]]}"#,
            "an array or an object",
        ),
        (
            r#"{"query": "SELECT 1", "limit": 1}"#,
            "'limit' is not supported",
        ),
        (
            r#"{"query": "SELECT 1; SELECT 2", "parameters": [1]}"#,
            "2 statements",
        ),
    ] {
        let error = json(body).refused(400, "value", part);
        assert!(error["hint"].is_string(), "{error}");
    }
    assert!(
        served.fake.run.lock().unwrap().is_empty(),
        "nothing was run"
    );
}

#[test]
fn a_refusal_has_its_kind_its_place_and_its_hint() {
    let served = served();
    let error = served.sql("WHAT 1").refused(400, "syntax", "what is WHAT?");
    assert_eq!(
        (&error["hint"], &error["position"]),
        (&json!("use SELECT"), &json!(0))
    );
    let error = served
        .sql("  SELECT ü, oops")
        .refused(400, "undefined", "oops");
    assert_eq!(error["position"], 12, "in characters of the whole text");
    assert!(error["hint"].is_null());
    served.sql("PANIC").refused(503, "limit", "busy");
    let bytes = served.send("POST /v1/sql", "", b"SELECT \xff");
    let mut answer = Vec::new();
    let _ = (&bytes).read_to_end(&mut answer);
    answered(&answer).refused(400, "syntax", "not UTF-8 at byte 7");
    let form = served.ask("POST /v1/sql?format=xml", "", "SELECT 1");
    form.refused(400, "value", "'xml'");
    let other = served.ask("POST /v1/sql?formt=csv", "", "SELECT 1");
    other.refused(400, "value", "'formt'");
    let image = served.ask("POST /v1/sql", "accept: image/png\r\n", "SELECT 1");
    image.refused(406, "value", "accepts no form");
}

#[test]
fn what_was_done_before_a_refusal_stays_said() {
    let served = served();
    let answer = served.sql("CREATE VIEW v; SELECT oops; CREATE VIEW w");
    assert_eq!(answer.status, 400);
    let lines = answer.lines();
    assert_eq!(lines[0]["done"], "CREATE VIEW");
    assert_eq!(lines[1]["error"]["position"], 15 + 7);
    assert_eq!(lines.len(), 2, "the third was not run");
    // Rows that were sent are followed by the refusal.
    let soon = served.sql("SOON");
    assert_eq!((soon.status, soon.is_whole), (502, true));
    assert_eq!(soon.lines()[4]["error"]["kind"], "system");
    let late = served.sql("LATE");
    assert_eq!((late.status, late.is_whole), (200, true));
    let lines = late.lines();
    assert_eq!(lines.len(), 1 + 19 * 2_500 + 1);
    assert_eq!(
        lines.last().unwrap()["error"]["message"],
        "the job has ended"
    );
    let text = served.ask("POST /v1/sql?format=text", "", "LATE");
    assert!(text.text().ends_with("ERROR: the job has ended\n"));
    // Where there is no room for it, nobody takes a part for the whole.
    for form in ["csv", "json", "arrow"] {
        let request = format!("POST /v1/sql?format={form}");
        let late = served.ask(&request, "", "LATE");
        assert_eq!((late.status, late.is_whole), (200, false), "{form}");
        served
            .ask(&request, "", "SOON")
            .refused(502, "system", "the job has ended");
    }
}

#[test]
fn large_answers_come_piece_by_piece_and_whole() {
    let served = served();
    let answer = served.sql("BIG").ok();
    assert!(!answer.headers.contains_key("content-length"));
    assert_eq!(answer.lines().len(), 1 + 50_000 + 1);
    assert_eq!(answer.lines().last().unwrap()["done"], "SELECT 50000");
    let json = served
        .ask("POST /v1/sql?format=json", "", "BIG")
        .ok()
        .json();
    assert_eq!(json.as_array().unwrap().len(), 50_000);
    let arrow = served.ask("POST /v1/sql?format=arrow", "", "BIG").ok();
    let reader = StreamReader::try_new(&*arrow.body, None).unwrap();
    let rows = reader.map(|batch| batch.unwrap().num_rows());
    assert_eq!(rows.sum::<usize>(), 50_000);
    let csv = served.ask("POST /v1/sql?format=csv", "", "BIG").ok();
    assert_eq!(csv.text().lines().count(), 50_001);
    let table = served.ask("POST /v1/sql?format=text", "", "BIG").ok();
    assert!(table.text().ends_with("(50000 rows)\n"));
    assert_eq!(table.text().lines().count(), 50_003);
}
