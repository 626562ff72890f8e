//! Queries of PostgreSQL's catalog, in the words of the clients that send them.

use super::{client, rows};

/// `\d` of psql 15.
const LIST: &str = r#"SELECT n.nspname as "Schema",
  c.relname as "Name",
  CASE c.relkind WHEN 'r' THEN 'table' WHEN 'v' THEN 'view' WHEN 'm' THEN 'materialized view'
    WHEN 'i' THEN 'index' WHEN 'S' THEN 'sequence' WHEN 't' THEN 'TOAST table'
    WHEN 'f' THEN 'foreign table' WHEN 'p' THEN 'partitioned table'
    WHEN 'I' THEN 'partitioned index' END as "Type",
  pg_catalog.pg_get_userbyid(c.relowner) as "Owner"
FROM pg_catalog.pg_class c
     LEFT JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
     LEFT JOIN pg_catalog.pg_am am ON am.oid = c.relam
WHERE c.relkind IN ('r','p','v','m','S','f','')
      AND n.nspname <> 'pg_catalog'
      AND n.nspname !~ '^pg_toast'
      AND n.nspname <> 'information_schema'
  AND pg_catalog.pg_table_is_visible(c.oid)
ORDER BY 1,2;"#;

/// The first query of `\d numbers`.
const FIND: &str = "SELECT c.oid,
  n.nspname,
  c.relname
FROM pg_catalog.pg_class c
     LEFT JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE c.relname OPERATOR(pg_catalog.~) '^(numbers)$' COLLATE pg_catalog.default
  AND pg_catalog.pg_table_is_visible(c.oid)
ORDER BY 2, 3;";

#[test]
fn psql_lists_and_describes() {
    let (_door, mut client) = client();
    let list = rows(&mut client, LIST);
    let row = |name: &str, kind: &str| {
        ["public", name, kind, "slackwater"]
            .map(str::to_owned)
            .to_vec()
    };
    assert_eq!(
        list,
        [
            row("Odd name", "view"),
            row("numbers", "table"),
            row("types", "materialized view")
        ]
    );
    let found = rows(&mut client, FIND);
    assert_eq!(found[0][1..], ["public", "numbers"]);
    let columns = format!(
        "SELECT a.attname,
  pg_catalog.format_type(a.atttypid, a.atttypmod),
  (SELECT pg_catalog.pg_get_expr(d.adbin, d.adrelid, true)
   FROM pg_catalog.pg_attrdef d
   WHERE d.adrelid = a.attrelid AND d.adnum = a.attnum AND a.atthasdef),
  a.attnotnull,
  (SELECT c.collname FROM pg_catalog.pg_collation c, pg_catalog.pg_type t
   WHERE c.oid = a.attcollation AND t.oid = a.atttypid AND a.attcollation <> t.typcollation) AS attcollation,
  a.attidentity,
  a.attgenerated
FROM pg_catalog.pg_attribute a
WHERE a.attrelid = '{}' AND a.attnum > 0 AND NOT a.attisdropped
ORDER BY a.attnum;",
        found[0][0]
    );
    assert_eq!(
        rows(&mut client, &columns),
        [
            ["n", "bigint", "-", "f", "-", "", ""],
            ["name", "text", "-", "f", "-", "", ""]
        ]
    );
}

#[test]
fn the_catalog_has_types_in_the_extended_protocol() {
    let (_door, mut client) = client();
    let query = "SELECT c.oid, c.relname, c.relkind, c.reltuples, c.relhasindex, count(*) OVER () AS n \
                 FROM pg_catalog.pg_class c WHERE c.relname = ANY($1::text[]) AND c.oid > $2::int4 \
                 ORDER BY 2";
    let found = client
        .query(query, &[&vec!["types", "numbers"], &5_i32])
        .unwrap();
    assert_eq!(found.len(), 2);
    assert_eq!(
        (found[0].get::<_, &str>(1), found[0].get::<_, i64>(5)),
        ("numbers", 2)
    );
    assert!(found[0].get::<_, u32>(0) > 16_384);
    assert!(found[1].get::<_, bool>(4));
}

/// SQLite's own LIKE disregards case and has no escape, and its MATCH fails.
#[test]
fn like_regards_case_and_ilike_does_not() {
    let (_door, mut client) = client();
    let mut names = |condition: &str| {
        let query = format!("SELECT relname FROM pg_class WHERE relname {condition} ORDER BY 1");
        rows(&mut client, &query).concat()
    };
    assert_eq!(names("LIKE 'num%'"), ["numbers"]);
    assert!(names("LIKE 'NUM%'").is_empty());
    assert_eq!(names("ILIKE 'NUM%'"), ["numbers"]);
    assert_eq!(names("~~* 'NUM%'"), ["numbers"]);
    assert!(names("NOT ILIKE 'NUM%' AND relname = 'numbers'").is_empty());
    assert_eq!(names(r"LIKE 'types\_p%'"), ["types_pkey"]);
    assert!(names(r"LIKE 'num\_ers'").is_empty());
}

/// A client that reads only what it knows works without the rest; it must not fail.
#[test]
fn what_sqlite_does_not_understand_has_no_rows_and_a_notice() {
    let (_door, mut client) = client();
    let text = "SELECT a.x, count(*) FROM pg_catalog.pg_class a CROSS JOIN LATERAL foo(a.oid) \
                GROUP BY CUBE (1)";
    assert!(rows(&mut client, text).is_empty());
    let prepared = client.prepare(text).unwrap();
    let names: Vec<&str> = prepared
        .columns()
        .iter()
        .map(|column| column.name())
        .collect();
    assert_eq!(names, ["x", "count"]);
}

#[test]
fn the_catalog_changes_with_what_is_created() {
    let (_door, mut client) = client();
    let query = "SELECT count(*) FROM information_schema.tables WHERE table_name = 'made'";
    assert_eq!(rows(&mut client, query), [["0"]]);
    client.batch_execute("CREATE TABLE made").unwrap();
    assert_eq!(rows(&mut client, query), [["1"]]);
    assert_eq!(
        rows(
            &mut client,
            "SELECT to_regclass('made') IS NOT NULL FROM pg_am LIMIT 1"
        ),
        [["t"]]
    );
}

/// A query may take a bounded time and a bounded memory, however it is written.
#[test]
fn queries_without_an_end_are_refused() {
    let (_door, mut client) = client();
    let forever = "WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r) \
                   SELECT max(n) FROM r, pg_catalog.pg_am";
    assert_eq!(super::code(client.batch_execute(forever)), "57014");
    let long = "WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r), pg_am AS (SELECT 1) \
                SELECT printf('%.*c', 1000000, 'x') FROM r";
    assert_eq!(super::code(client.batch_execute(long)), "54000");
    let many = format!("SELECT {} FROM pg_catalog.pg_am", "1,".repeat(40_000));
    assert_eq!(super::code(client.batch_execute(&many)), "54000");
    let deep = format!(
        "SELECT {}1{} FROM pg_catalog.pg_am",
        "(SELECT ".repeat(7_000),
        ")".repeat(7_000)
    );
    assert!(rows(&mut client, &deep).is_empty());
}

/// The tables that Grafana offers: those of the schemas in the search path without a schema.
const TABLES: &str = r#"SELECT
    CASE WHEN
          quote_ident(table_schema) IN (
          SELECT
            CASE WHEN trim(s[i]) = '"$user"' THEN user ELSE trim(s[i]) END
          FROM
            generate_series(
              array_lower(string_to_array(current_setting('search_path'),','),1),
              array_upper(string_to_array(current_setting('search_path'),','),1)
            ) as i,
            string_to_array(current_setting('search_path'),',') s
          )
      THEN quote_ident(table_name)
      ELSE quote_ident(table_schema) || '.' || quote_ident(table_name)
    END AS "table"
    FROM information_schema.tables
    WHERE quote_ident(table_schema) NOT IN ('information_schema', 'pg_catalog')
    ORDER BY 1"#;

/// The columns that Grafana offers of a table.
const COLUMNS: &str = r#"SELECT quote_ident(column_name) AS "column", data_type AS "type"
    FROM information_schema.columns
    WHERE
      CASE WHEN array_length(parse_ident('numbers'),1) = 2
        THEN quote_ident(table_schema) = (parse_ident('numbers'))[1]
          AND quote_ident(table_name) = (parse_ident('numbers'))[2]
        ELSE quote_ident(table_name) = 'numbers'
      END"#;

#[test]
fn grafana_finds_tables_and_columns() {
    let (_door, mut client) = client();
    let version = "SELECT current_setting('server_version_num')::int/100 as version";
    assert_eq!(rows(&mut client, version), [["1500"]]);
    assert_eq!(
        rows(&mut client, TABLES),
        [["\"Odd name\""], ["numbers"], ["types"]]
    );
    assert_eq!(
        rows(&mut client, COLUMNS),
        [["n", "bigint"], ["name", "text"]]
    );
}

/// Rows for the elements of arrays: the key of a view, as SQLAlchemy asks for it.
#[test]
fn arrays_are_taken_apart_and_built() {
    let (_door, mut client) = client();
    let query = "SELECT k.conname, array_agg(CAST(k.attname AS TEXT) ORDER BY k.ord) AS cols, \
                 min(k.count) AS n \
                 FROM (SELECT c.conname AS conname, c.ord AS ord, c.count AS count, a.attname AS attname \
                 FROM pg_catalog.pg_attribute AS a JOIN (SELECT con.conrelid AS conrelid, \
                 con.conname AS conname, \
                 unnest(con.conkey) AS attnum, generate_subscripts(con.conkey, 1) AS ord, \
                 i.indnkeyatts AS count \
                 FROM pg_catalog.pg_constraint con JOIN pg_catalog.pg_index i ON i.indexrelid = con.conindid \
                 WHERE con.contype = 'p') AS c ON a.attnum = c.attnum AND a.attrelid = c.conrelid) AS k \
                 GROUP BY k.conname";
    let found = client.query(query, &[]).unwrap();
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].get::<_, &str>(0), "types_pkey");
    assert_eq!(found[0].get::<_, Vec<String>>(1), ["a_bigint"]);
    let numbered = "SELECT x.v, x.at FROM unnest('{a,b}'::text[]) WITH ORDINALITY AS x(v, at), pg_am \
                    WHERE oid = 2";
    assert_eq!(rows(&mut client, numbered), [["a", "1"], ["b", "2"]]);
}
