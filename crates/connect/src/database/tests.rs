//! Tables of a database through the public entry points, with SQLite: everything that needs no server.

mod crashes;

use std::path::Path;
use std::sync::Arc;

use arrow_array::{ArrayRef, Int8Array, Int64Array, RecordBatch, StringViewArray};
use arrow_schema::{DataType, TimeUnit};
use rusqlite::Connection;
use slackwater_engine::chunk::{Chunk, RowKind};
use slackwater_engine::link::Waiter;
use slackwater_engine::operator::lookup_join::LookupRequest;
use slackwater_engine::sink::{Sink, SinkRequest};

use crate::source::tests::{drain, read_all, request, row_text};
use crate::table::TableDefinition;
use crate::table::tests::table;

/// A folder with a database that these statements create.
pub(super) fn database(statements: &str) -> (tempfile::TempDir, Connection) {
    let folder = tempfile::tempdir().unwrap();
    let connection = Connection::open(folder.path().join("shop.db")).unwrap();
    connection.execute_batch(statements).unwrap();
    (folder, connection)
}

/// Table `t` of that database.
pub(super) fn table_of(
    folder: &Path,
    columns: &[(&str, DataType)],
    options: &[(&str, &str)],
) -> TableDefinition {
    let path = folder.join("shop.db").display().to_string();
    let own = [("connector", "sqlite"), ("path", &path)];
    table(columns, &[&own, options].concat())
}

const NUMBER_AND_TEXT: [(&str, DataType); 2] =
    [("id", DataType::Int64), ("name", DataType::Utf8View)];

/// Rows of `id` and `name`, and the change that each makes.
pub(super) fn chunk(rows: &[(Option<i64>, &str, RowKind)]) -> Chunk {
    let ids: ArrayRef = Arc::new(rows.iter().map(|row| row.0).collect::<Int64Array>());
    let names = rows.iter().map(|row| Some(row.1));
    let names: ArrayRef = Arc::new(names.collect::<StringViewArray>());
    let batch = RecordBatch::try_from_iter([("id", ids), ("name", names)]).unwrap();
    let mut chunk = Chunk::new(batch, 0);
    chunk.kinds = Some(Int8Array::from_iter_values(
        rows.iter().map(|row| row.2 as i8),
    ));
    chunk
}

pub(super) fn rows_of(connection: &Connection, sql: &str) -> Vec<(i64, String)> {
    let mut statement = connection.prepare(sql).unwrap();
    let rows = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?)));
    rows.unwrap().map(Result::unwrap).collect()
}

fn open_sink(table: &TableDefinition) -> Box<dyn Sink> {
    let sink = crate::sink(table).unwrap();
    let mut sink = sink.sink(&SinkRequest::new(0, 1)).unwrap();
    sink.open(&mut Waiter::new().unwrap()).unwrap();
    sink
}

#[test]
fn every_type_is_written_and_read_back() {
    let types = [
        ("i", DataType::Int64),
        ("s", DataType::Int16),
        ("x", DataType::Float64),
        ("b", DataType::Boolean),
        ("d", DataType::Decimal128(20, 2)),
        ("day", DataType::Date32),
        ("at", DataType::Timestamp(TimeUnit::Millisecond, None)),
        ("t", DataType::Utf8View),
    ];
    let (folder, connection) = database(
        "CREATE TABLE t (i INTEGER PRIMARY KEY, s INT, x REAL, b BOOLEAN, d TEXT, day DATE, at TEXT, t TEXT);
         CREATE TABLE u AS SELECT * FROM t;
         INSERT INTO t VALUES
           (-9223372036854775808, -32768, 0.1, 1, '123456789012345678.90', '2024-02-29', '2024-02-29 \
           12:34:56.789', 'é''\"'),
           (1, 2, 3, 0, 5, NULL, NULL, ''), (2, NULL, NULL, NULL, NULL, '0001-01-01', '1969-12-31 \
           23:59:59.999', NULL),
           (3, 1, 1e300, 'true', '-0.01', NULL, NULL, 7);",
    );
    let source = table_of(folder.path(), &types, &[]);
    let columns = (0..types.len()).collect::<Vec<usize>>();
    let connector = crate::source(&source).unwrap();
    let mut reader = connector.source(request(&columns)).unwrap();
    let read = read_all(&mut *reader);
    let expected = [
        "0:1:-9223372036854775808|-32768|0.1|true|123456789012345678.90|2024-02-29|2024-02-29T12:34:56.789|é'\"",
        "0:2:1|2|3.0|false|5.00|NULL|NULL|",
        "0:3:2|NULL|NULL|NULL|NULL|0001-01-01|1969-12-31T23:59:59.999|NULL",
        "0:4:3|1|1e300|true|-0.01|NULL|NULL|7",
    ];
    assert_eq!(read.strings, expected);
    assert_eq!(read.ended, [0]);
    // Written values are the same, in SQLite's own types.
    let mut sink = open_sink(&table_of(folder.path(), &types, &[("table-name", "u")]));
    let mut reader = connector.source(request(&columns)).unwrap();
    let mut waiter = Waiter::new().unwrap();
    reader.open(&mut waiter).unwrap();
    loop {
        match reader.poll().unwrap() {
            slackwater_engine::source::SourcePoll::Rows(rows) => {
                sink.write(&Chunk::new(rows.batch, 0)).unwrap();
            }
            slackwater_engine::source::SourcePoll::End => break,
            _ => {}
        }
    }
    sink.finish(true).unwrap();
    let again = table_of(folder.path(), &types, &[("table-name", "u")]);
    let mut reader = crate::source(&again)
        .unwrap()
        .source(request(&columns))
        .unwrap();
    assert_eq!(read_all(&mut *reader).strings, expected);
    let sql = "SELECT count(*) FROM u WHERE typeof(i) = 'integer' AND typeof(x) IN ('real', 'null') \
               AND typeof(b) IN ('integer', 'null') AND typeof(at) IN ('text', 'null')";
    let count = connection.query_row(sql, [], |row| row.get::<_, i64>(0));
    assert_eq!(count.unwrap(), 4);
}

#[test]
fn only_bad_rows_are_rejected_and_chunks_have_their_length() {
    let (folder, _connection) = database(
        "CREATE TABLE t (id, name); INSERT INTO t
         WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 2500)
         SELECT CASE WHEN i % 1000 = 7 THEN 'seven' ELSE i END, 'name ' || i FROM n;
         INSERT INTO t VALUES (9000, x'ff00');",
    );
    let mut table = table_of(folder.path(), &NUMBER_AND_TEXT, &[]);
    table.primary_key = vec![0];
    let connector = crate::source(&table).unwrap();
    let description = connector.describe();
    assert!(description.bounded && description.replayable && description.max_instances == 1);
    let read = read_all(&mut *connector.source(request(&[0, 1])).unwrap());
    assert_eq!(read.strings.len(), 2497);
    assert_eq!(read.chunks, 3);
    let refused = read
        .rejected
        .iter()
        .map(|r| (r.position.unwrap(), &r.reason[..], &r.record[..]));
    // SQLite puts strings after numbers.
    let seven = "column 'id' (BIGINT): can't read 'seven'";
    assert_eq!(
        refused.collect::<Vec<_>>(),
        [
            (
                2498,
                "column 'name' (STRING): not valid UTF-8",
                "id=9000, name=\u{fffd}\0"
            ),
            (2499, seven, "id=seven, name=name 7"),
            (2500, seven, "id=seven, name=name 1007"),
            (2501, seven, "id=seven, name=name 2007"),
        ]
    );
    // No column at all, and one column.
    let mut counted = connector.source(request(&[])).unwrap();
    let mut waiter = Waiter::new().unwrap();
    counted.open(&mut waiter).unwrap();
    assert_eq!(drain(&mut *counted, &mut waiter).strings.len(), 2501);
    // A reader that is closed half-way.
    let mut closed = connector.source(request(&[1])).unwrap();
    closed.open(&mut waiter).unwrap();
    closed.close();
}

#[test]
fn the_last_row_of_a_key_counts() {
    use RowKind::{Delete, Insert, Update, UpdateBefore};
    let (folder, connection) =
        database("CREATE TABLE t (id INTEGER PRIMARY KEY, name TEXT, other INT DEFAULT 5)");
    let mut table = table_of(folder.path(), &NUMBER_AND_TEXT, &[]);
    table.primary_key = vec![0];
    assert_eq!(crate::sink(&table).unwrap().capabilities().max_instances, 1);
    let mut sink = open_sink(&table);
    let first = [
        (Some(1), "a", Insert),
        (Some(2), "b", Insert),
        (Some(3), "c", Insert),
    ];
    sink.write(&chunk(&first)).unwrap();
    sink.flush().unwrap();
    let all = "SELECT id, name || other FROM t ORDER BY id";
    let expected = [(1, "a5"), (2, "b5"), (3, "c5")].map(|(id, name)| (id, name.to_string()));
    assert_eq!(rows_of(&connection, all), expected);
    let second = [
        (Some(1), "a", UpdateBefore),
        (Some(1), "A", Update),
        (Some(2), "b", Delete),
        (Some(3), "c", Delete),
        (Some(3), "C", Insert),
        (Some(4), "d", Insert),
        (Some(4), "d", Delete),
        (Some(5), "gone", Delete),
    ];
    sink.write(&chunk(&second)).unwrap();
    sink.finish(true).unwrap();
    let expected = [(1, "A5"), (3, "C5")].map(|(id, name)| (id, name.to_string()));
    assert_eq!(rows_of(&connection, all), expected);
    let mut sink = open_sink(&table);
    let error = sink.write(&chunk(&[(None, "x", Insert)])).unwrap_err();
    assert!(error.to_string().ends_with(
        "table t: column 'id' of the primary key is NULL (leave such rows out: WHERE id IS NOT NULL)"
    ), "{error}");
    // Without a key nothing can be retracted.
    table.primary_key.clear();
    let mut sink = open_sink(&table);
    let error = sink.write(&chunk(&[(Some(1), "x", Delete)])).unwrap_err();
    assert!(
        error.to_string().contains("PRIMARY KEY (id) NOT ENFORCED"),
        "{error}"
    );
}

#[test]
fn rows_by_their_keys() {
    let (folder, connection) = database(
        "CREATE TABLE t (id INT, name TEXT); CREATE INDEX i ON t (id);
         INSERT INTO t VALUES (1, 'one'), (2, 'two'), (2, 'zwei'), (NULL, 'none'), (4, x'ff');",
    );
    let table = table_of(
        folder.path(),
        &NUMBER_AND_TEXT,
        &[("lookup.cache.ttl", "1 s")],
    );
    let connector = crate::lookup(&table).unwrap().unwrap();
    assert_eq!(connector.cache().rows_max, 10_000);
    let by = LookupRequest {
        keys: vec![0],
        columns: vec![1],
    };
    let mut lookup = connector.lookup(&by).unwrap();
    lookup.open().unwrap();
    let keys: ArrayRef = Arc::new(Int64Array::from(vec![4, 2, 3, 1]));
    let found = lookup.look_up(&[Arc::clone(&keys)]).unwrap();
    let strings = |batch: &RecordBatch| {
        (0..batch.num_rows())
            .map(|row| row_text(batch, row))
            .collect::<Vec<_>>()
    };
    assert_eq!(strings(&found.rows), ["two", "zwei", "one"]);
    assert_eq!(found.keys, [1, 1, 3]);
    assert_eq!(found.failed.len(), 1);
    assert_eq!(found.failed[0].0, 0);
    assert!(
        found.failed[0]
            .1
            .contains("table t: column 'name' (STRING): not valid UTF-8")
    );
    // Another program can write meanwhile, and what it writes is seen.
    connection
        .execute_batch("UPDATE t SET name = 'uno' WHERE id = 1")
        .unwrap();
    let found = lookup.look_up(&[keys]).unwrap();
    assert_eq!(strings(&found.rows), ["two", "zwei", "uno"]);
    // Two keys, one of them a string.
    let by = LookupRequest {
        keys: vec![1, 0],
        columns: vec![0],
    };
    let mut lookup = connector.lookup(&by).unwrap();
    let names: ArrayRef = Arc::new(StringViewArray::from(vec!["zwei", "two", "one"]));
    let ids: ArrayRef = Arc::new(Int64Array::from(vec![2, 1, 2]));
    let found = lookup.look_up(&[names, ids]).unwrap();
    assert_eq!(
        (strings(&found.rows), found.keys),
        (vec!["2".to_string()], vec![0])
    );
}

#[test]
fn what_is_wrong_is_named() {
    let (folder, connection) = database("CREATE TABLE orders (id INT, name TEXT)");
    let open = |options: &[(&str, &str)], columns: &[(&str, DataType)], path: Option<&str>| {
        let mut table = table_of(folder.path(), columns, options);
        table.primary_key = vec![0];
        if let Some(path) = path {
            table.options.insert(
                "path".into(),
                folder.path().join(path).display().to_string(),
            );
        }
        let connector = crate::lookup(&table).unwrap().unwrap();
        let by = LookupRequest {
            keys: vec![0],
            columns: vec![0],
        };
        let opened = connector.lookup(&by).unwrap().open();
        let folder = folder.path().display().to_string();
        opened.unwrap_err().to_string().replace(&folder, "")
    };
    assert_eq!(
        open(&[("table-name", "order")], &NUMBER_AND_TEXT, None),
        "sqlite /shop.db, table order: there is no table 'order' (did you mean 'orders'? 'table-name' says \
         which one it is)"
    );
    let options = [("table-name", "orders")];
    assert_eq!(
        open(&options, &[("nam", DataType::Utf8View)], None),
        "sqlite /shop.db, table orders: it has no column 'nam' (its columns are: id, name)"
    );
    assert_eq!(
        open(&options, &NUMBER_AND_TEXT, Some("none.db")),
        "sqlite /none.db, table orders: there is no such file (the database and the table must exist \
         before the query starts)"
    );
    std::fs::write(folder.path().join("text.db"), "no database, but a text").unwrap();
    let error = open(&options, &NUMBER_AND_TEXT, Some("text.db"));
    assert!(error.contains("file is not a database"), "{error}");
    // A key that the database does not know, a value that it rejects, and a lock.
    let mut table = table_of(
        folder.path(),
        &NUMBER_AND_TEXT,
        &[("table-name", "orders"), ("max-retries", "0")],
    );
    table.primary_key = vec![0];
    let rows = chunk(&[(Some(1), "a", RowKind::Insert)]);
    let mut sink = open_sink(&table);
    sink.write(&rows).unwrap();
    let error = sink.flush().unwrap_err().to_string();
    assert!(
        error.contains("ON CONFLICT clause does not match"),
        "{error}"
    );
    connection
        .execute_batch("CREATE UNIQUE INDEX i ON orders (id); BEGIN IMMEDIATE")
        .unwrap();
    let mut sink = open_sink(&table);
    sink.write(&rows).unwrap();
    let error = sink.flush().unwrap_err().to_string();
    assert!(
        error.contains("locked") && error.contains("journal_mode = WAL"),
        "{error}"
    );
    connection.execute_batch("COMMIT").unwrap();
}

#[test]
fn options_are_checked() {
    let error = |options: &[(&str, &str)]| {
        let table = table_of(Path::new("/x"), &NUMBER_AND_TEXT, options);
        let error = crate::lookup(&table).err().unwrap();
        assert_eq!(
            crate::sink(&table).err().unwrap(),
            error,
            "the same in each use"
        );
        assert_eq!(crate::source(&table).err().unwrap(), error);
        error.to_string()
    };
    assert!(error(&[("tablename", "x")]).contains("did you mean 'table-name'?"));
    assert!(error(&[("url", "x")]).contains("is not an option of tables of sqlite"));
    assert!(error(&[("lookup.cache", "full")]).contains("leave FOR SYSTEM_TIME AS OF out"));
    let both = [
        ("lookup.cache.max_rows", "5"),
        ("lookup.partial-cache.max-rows", "5"),
    ];
    assert!(error(&both).contains("means the same as 'lookup.cache.max_rows'"));
    assert!(
        error(&[("lookup.cache", "none"), ("lookup.cache.ttl", "1 s")]).contains("contradicts")
    );
    assert!(error(&[("sink.name", "")]).contains("is empty"));
    let rows = [("r", DataType::Struct(Default::default()))];
    let refused = crate::sink(&table_of(Path::new("/x"), &rows, &[]))
        .err()
        .unwrap();
    assert_eq!(
        refused.to_string(),
        "column 'r' is ROW, which sqlite does not have (declare it as STRING and cast it in the query)"
    );
    let flink = [
        ("lookup.cache", "PARTIAL"),
        ("lookup.partial-cache.max-rows", "50"),
        ("lookup.partial-cache.expire-after-write", "2 s"),
        ("lookup.max-retries", "3"),
    ];
    let table = table_of(Path::new("/x"), &NUMBER_AND_TEXT, &flink);
    let cache = crate::lookup(&table).unwrap().unwrap().cache();
    assert_eq!((cache.rows_max, cache.ttl_ns), (50, Some(2_000_000_000)));
    let plain = table_of(Path::new("/x"), &NUMBER_AND_TEXT, &[]);
    assert_eq!(crate::lookup(&plain).unwrap().unwrap().cache().rows_max, 0);
}
