//! Input that is not SQL, nearly SQL, or unusual SQL: rejected, and never a panic.

use std::panic::{AssertUnwindSafe, catch_unwind};

use slackwater::catalog::BuiltIn;
use slackwater_sql::program::compile;

use crate::process::Folder;
use crate::support::Seeded;

/// Uses most of the language.
const TEXT: &str = "
SET 'parallelism' = '2' ;
CREATE TABLE v ( ts_ms BIGINT , page_id BIGINT , ip STRING , ad_revenue DOUBLE , duration INT ,
  ts AS TO_TIMESTAMP_LTZ ( ts_ms , 3 ) , half AS duration / 2 , WATERMARK FOR ts AS ts - INTERVAL '5' SECOND )
WITH ( 'connector' = 'datagen' , 'generator' = 'uservisits' , 'rows' = '10' ) ;
CREATE TABLE e ( event_type INT , bid ROW < auction BIGINT , price BIGINT , dateTime TIMESTAMP ( 3 ) > ,
  ts AS bid . dateTime , WATERMARK FOR ts AS ts )
WITH ( 'connector' = 'datagen' , 'generator' = 'nexmark' , 'rows' = '10' ) ;
CREATE TABLE o ( k STRING , n BIGINT , d DECIMAL ( 10 , 2 ) ) WITH ( 'connector' = 'blackhole' ) ;
CREATE VIEW w AS SELECT ip , CAST ( ad_revenue AS DECIMAL ( 10 , 2 ) ) AS revenue , ts FROM v WHERE \
duration > 1 + 2 * 3 ;
INSERT INTO o SELECT ip , COUNT ( * ) FILTER ( WHERE revenue > 1.5 ) , MAX ( revenue )
  FROM TUMBLE ( TABLE w , DESCRIPTOR ( ts ) , INTERVAL '10' SECOND ) GROUP BY window_start , window_end , ip
  HAVING COUNT ( * ) > 1 ;
INSERT INTO o ( k , n ) SELECT ip , COUNT ( DISTINCT page_id ) FROM v GROUP BY ip ;
EXPLAIN SELECT CASE WHEN a . duration IS NULL THEN - a . page_id ELSE b . page_id END , SUBSTR ( a . ip , 1 \
, 3 ) || 'x'
  FROM ( SELECT * FROM TUMBLE ( TABLE v , DESCRIPTOR ( ts ) , INTERVAL '1' MINUTE ) ) a
  LEFT JOIN ( SELECT * FROM TUMBLE ( TABLE v , DESCRIPTOR ( ts ) , INTERVAL '1' MINUTE ) ) b
  ON a . ip = b . ip AND a . window_start = b . window_start AND a . window_end = b . window_end ;
SELECT window_start , AVG ( t . bid . price ) FROM HOP ( TABLE e , DESCRIPTOR ( ts ) , INTERVAL '1' SECOND \
, INTERVAL '3' SECOND ) AS t
  WHERE event_type IN ( 1 , 2 ) GROUP BY window_start , window_end
  UNION ALL SELECT ts , 1.0 FROM v ;";

/// Words that do not stand in the text.
const STRANGE: &[&str] = &[
    "NULL",
    "''",
    "'",
    "\"",
    ";",
    "(",
    ")",
    "<",
    "/*",
    "--",
    "0",
    "-1",
    "1e400",
    "\u{0}",
    "é",
    "99999999999999999999",
    "'-5'",
    "TABLE",
    "OVER",
    "LATERAL",
    "UNNEST",
    "WITH",
    "ORDER BY",
    "LIMIT",
    "EXISTS",
    "INTERVAL",
    "DATE",
    "ARRAY",
    "MAP",
    "$1",
    "?",
    "::",
    "@@x",
    "[",
    "*",
    "DISTINCT",
    "GROUPING SETS",
    "CUBE",
    "ROLLUP",
    "TRUE",
    "window_start",
    "SESSION",
    "COUNT",
    "SUM",
    "LAG",
    "NOW",
    "TRY_CAST",
    "EXTRACT",
    "PARTITION",
    "VALUES",
    "EXCEPT",
    "JOIN",
    "NATURAL",
    "USING",
];

#[test]
fn no_text_makes_the_planner_panic() {
    compile(TEXT, &[], &BuiltIn)
        .map_err(|error| error.render("t", TEXT))
        .map(drop)
        .unwrap();
    let words = TEXT.split(' ').collect::<Vec<&str>>();
    let mut seeded = Seeded(20);
    let mut refused = 0;
    const PROGRAMS: usize = 1_500;
    for _ in 0..PROGRAMS {
        let mut changed = words.clone();
        for _ in 0..=seeded.below(2) {
            let at = seeded.below(changed.len() as u64) as usize;
            let other = seeded.below(words.len() as u64) as usize;
            match seeded.below(5) {
                0 => drop(changed.remove(at)),
                1 => changed.insert(at, words[other]),
                2 => changed[at] = words[other],
                3 => changed[at] = STRANGE[seeded.below(STRANGE.len() as u64) as usize],
                _ => changed.truncate(at + 1),
            }
        }
        let text = changed.join(" ");
        match catch_unwind(AssertUnwindSafe(|| compile(&text, &[], &BuiltIn).map(drop))) {
            Ok(Ok(())) => {}
            Ok(Err(error)) => {
                refused += 1;
                assert!(!error.message.is_empty(), "no message for:\n{text}");
                error.render("t.sql", &text);
            }
            Err(_) => panic!("a panic for:\n{text}"),
        }
    }
    assert!(
        (PROGRAMS / 2..PROGRAMS).contains(&refused),
        "{refused} of {PROGRAMS}"
    );
}

#[test]
fn a_text_that_would_overflow_the_stack_is_refused() {
    let folder = Folder::with(&[("in.csv", "1\n")]);
    let table = "CREATE TABLE t (a INT) WITH ('connector' = 'file', 'path' = 'in.csv');";
    let run = |query: &str| folder.run(&format!("{table}\n{query};"), &[]);
    let parts = [
        "query.sql:2:",
        "a chain of more than 1000 operators",
        "CREATE VIEW",
    ];
    run(&format!("SELECT {} FROM t", vec!["a"; 50_000].join(" + "))).fails(2, &parts);
    run(&format!("SELECT {} FROM t", vec!["a"; 1_000].join(" + "))).ok();
    run(&format!(
        "SELECT a FROM t WHERE {}",
        vec!["a = 1"; 500].join(" OR ")
    ))
    .ok();
    run(&vec!["SELECT a FROM t"; 250].join(" UNION ALL ")).ok();
    let deep = format!("SELECT {}a{} FROM t", "(".repeat(5_000), ")".repeat(5_000));
    run(&deep).fails(2, &["query.sql:2:", "more than 64 levels of parentheses"]);
}
