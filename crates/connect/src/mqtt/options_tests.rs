//! Options of tables: what is wrong with them is said before anything runs.

use crate::table::tests::table;

const V3: (&str, &str) = ("protocol_version", "3.1.1");

#[test]
fn options_of_tables() {
    let n = [("n", arrow_schema::DataType::Int64)];
    let error = |is_source: bool, options: &[(&str, &str)]| {
        let own = [("connector", "mqtt"), ("address", "h"), ("format", "json")];
        let own = own
            .into_iter()
            .filter(|(name, _)| !options.iter().any(|(other, _)| other == name));
        let all = own.chain(options.iter().copied()).collect::<Vec<_>>();
        let table = table(&n, &all);
        let made = match is_source {
            true => crate::source(&table).err(),
            false => crate::sink(&table).err(),
        };
        made.unwrap().to_string()
    };
    for (is_source, options, parts) in [
        (true, &[][..], &["'topic'", "is missing"][..]),
        (
            true,
            &[("topic", "a/#/b")],
            &["'a/#/b' is not a valid topic filter", "at the end"],
        ),
        (
            true,
            &[("topic", "a;b+")],
            &["'b+' is not a valid topic filter"],
        ),
        (
            true,
            &[("topic", "a"), ("protocol_version", "3.1")],
            &["'3.1' is not a valid value", "'5' or '3.1.1'"],
        ),
        (
            true,
            &[V3, ("topic", "a;$share/group/b")],
            &[
                "'$share/group/b'",
                "no shared subscriptions",
                "'protocol_version' = '5'",
            ],
        ),
        (
            true,
            &[
                V3,
                ("topic", "a"),
                ("client_id", "x"),
                ("session_expiry", "1 h"),
            ],
            &[
                "MQTT 3.1.1 has no such time",
                "persistent_client_expiration",
            ],
        ),
        (
            false,
            &[V3, ("topic", "a"), ("qos", "2")],
            &["MQTT 3.1.1", "'qos' = '1'", "'protocol_version' = '5'"],
        ),
        (true, &[("topic", "a;a")], &["is listed twice"]),
        (true, &[("topic", "a;")], &["it is empty"]),
        (
            true,
            &[("topic", "a"), ("address", "h:x")],
            &["not a host and port", "localhost:1883"],
        ),
        (
            true,
            &[("topic", "a"), ("qos", "3")],
            &["'3' is not a valid value"],
        ),
        (
            true,
            &[("topic", "a"), ("session", "persistent")],
            &["add 'client_id'"],
        ),
        (
            true,
            &[("topic", "a"), ("session_expiry", "1 h")],
            &["a clean session ends"],
        ),
        (
            true,
            &[("topic", "a"), ("password", "secret")],
            &["add 'username'"],
        ),
        (
            true,
            &[("topic", "a"), ("retain", "true")],
            &["is not an option of mqtt sources"],
        ),
        (
            true,
            &[("topic", "a"), ("usernme", "x")],
            &["did you mean 'username'"],
        ),
        (
            true,
            &[("topic", "a"), ("unit_of_work", "file")],
            &["needs a source of files"],
        ),
        (
            false,
            &[("topic", "a/+")],
            &["nothing can be written to 'a/+'"],
        ),
        (
            false,
            &[("topic_column", "n")],
            &["column 'n' is not a STRING"],
        ),
        (false, &[("topic_column", "m")], &["has no column 'm'"]),
        (
            false,
            &[("topic_column", "n"), ("topic", "x")],
            &["can't be combined with 'topic'"],
        ),
        (
            false,
            &[("topic", "a"), ("format", "parquet")],
            &["'parquet' is a format of files"],
        ),
    ] {
        let error = error(is_source, options);
        for part in parts {
            assert!(error.contains(part), "{part:?} is not in: {error}");
        }
        assert!(!error.contains("secret"), "{error}");
    }
}
