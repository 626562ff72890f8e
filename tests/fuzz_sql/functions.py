"""The functions of docs/functions.md that are not in `expressions`: a table of their SQL, by the type of
their result.

Each entry is (result type, families of its arguments, our text, DuckDB's text, largest magnitude or None).
Small integers and floating-point numbers are requested as `small int` and `small double`.
"""

SECONDS = "epoch_us(date_trunc('second', {0})) // 1000000"
FORMATTED = "strftime({0}, '%Y-%m-%d %H:%M:%S')"

FUNCTIONS = [
    ("STRING", ["string"], "REGEXP_EXTRACT({0}, '([a-z])(.*)', 1)", "CASE WHEN regexp_matches({0}, '([a-z])(.*)') THEN regexp_extract({0}, '([a-z])(.*)', 1) END", None),
    ("STRING", ["string"], "REGEXP_EXTRACT({0}, 'b+')", "CASE WHEN regexp_matches({0}, 'b+') THEN regexp_extract({0}, 'b+') END", None),
    ("STRING", ["string"], "REGEXP_REPLACE({0}, '[ab]', '#')", "regexp_replace({0}, '[ab]', '#')", None),
    ("STRING", ["string"], "REGEXP_REPLACE({0}, '[ab]', '#', 'g')", "regexp_replace({0}, '[ab]', '#', 'g')", None),
    ("STRING", ["string"], "MD5({0})", "md5({0})", None),
    ("STRING", ["string"], "SHA256({0})", "sha256({0})", None),
    ("STRING", ["string"], "TO_BASE64({0})", "to_base64(encode({0}))", None),
    ("STRING", ["string"], "FROM_BASE64(TO_BASE64({0}))", "{0}", None),
    ("STRING", ["string", "string"], "CONCAT_WS('-', {0}, {1})", "concat_ws('-', {0}, {1})", None),
    ("STRING", ["string"], "split_part({0}, 'b', 1)", "split_part({0}, 'b', 1)", None),
    ("STRING", ["string"], "TRANSLATE({0}, 'ab', 'xy')", "translate({0}, 'ab', 'xy')", None),
    ("STRING", ["string"], "REPEAT({0}, 2)", "repeat({0}, 2)", None),
    ("STRING", ["string"], "LTRIM({0})", "ltrim({0}, ' ')", None),
    ("STRING", ["small int"], "FROM_UNIXTIME({0})", "strftime(make_timestamp({0} * 1000000), '%Y-%m-%d %H:%M:%S')", None),
    ("STRING", ["time"], "DATE_FORMAT({0}, 'dd.MM.yyyy, HH')", "strftime({0}, '%d.%m.%Y, %H')", None),
    ("STRING", ["small int"], "BIN(ABS({0}))", "bin(abs({0}))", None),
    ("STRING", ["string"], "JSON_VALUE(CONCAT('{{\"a\": [\"', REPLACE({0}, '\"', ''), '\"]}}'), '$.a[0]')", "coalesce(replace({0}, '\"', ''), '')", None),
    ("STRING", ["string", "string"], "ARRAY_TO_STRING(ARRAY[{0}, {1}], ',')", "concat_ws(',', {0}, {1})", None),
    ("BIGINT", ["string"], "LOCATE('b', {0})", "strpos({0}, 'b')", 100),
    ("BIGINT", ["string"], "INSTR({0}, 'a')", "strpos({0}, 'a')", 100),
    ("BIGINT", ["string"], "OCTET_LENGTH({0})", "octet_length(encode({0}))", 100),
    ("BIGINT", ["string"], "ASCII(CONCAT({0}, 'x'))", "unicode(concat({0}, 'x'))", 2000),
    ("BIGINT", ["small int", "small int"], "MOD({0}, 7)", "({0} % 7)", 7),
    ("BIGINT", ["small int"], "CAST(SIGN({0}) AS BIGINT)", "sign({0})", 1),
    ("BIGINT", ["small int"], "CAST({0} AS DOUBLE)::BIGINT", "CAST({0} AS BIGINT)", 100_000),
    ("BIGINT", ["time"], "DAYOFWEEK({0})", "(dayofweek({0}) + 1)", 7),
    ("BIGINT", ["time"], "DAYOFYEAR({0})", "dayofyear({0})", 366),
    ("BIGINT", ["time"], "DAYOFMONTH({0})", "dayofmonth({0})", 31),
    ("BIGINT", ["date"], "YEAR({0})", "year({0})", 10_000),
    ("BIGINT", ["time"], "UNIX_TIMESTAMP(DATE_FORMAT({0}, 'yyyy-MM-dd HH:mm:ss'))", SECONDS, None),
    ("BIGINT", ["small int"], "JSON_VALUE(CONCAT('{{\"a\": ', CAST({0} AS STRING), '}}'), '$.a' RETURNING BIGINT)", "{0}", 100_000),
    ("BIGINT", ["small int", "small int"], "ARRAY[{0}, {1}][2]", "{1}", 100_000),
    ("BIGINT", ["string", "string"], "CARDINALITY(ARRAY[{0}, {1}])", "CAST(2 AS BIGINT)", 2),
    ("BOOLEAN", ["string"], "REGEXP({0}, '^a')", "regexp_matches({0}, '^a')", None),
    ("BOOLEAN", ["string"], "IS_DIGIT({0})", "regexp_full_match({0}, '[0-9]+')", None),
    ("BOOLEAN", ["string"], "starts_with({0}, 'a')", "starts_with({0}, 'a')", None),
    ("BOOLEAN", ["string"], "regexp_like({0}, 'a|b')", "regexp_matches({0}, 'a|b')", None),
    ("BOOLEAN", ["string"], "JSON_EXISTS(CONCAT('{{\"', REPLACE({0}, '\"', ''), '\": 1}}'), '$.a')", "(coalesce(replace({0}, '\"', ''), '') = 'a')", None),
    ("DOUBLE", ["small double"], "POWER({0}, 2)", "({0} * {0})", 1_000_000),
    ("DOUBLE", ["small double"], "SQRT({0} * {0})", "abs({0})", 2000),
    ("DOUBLE", ["small double"], "TRUNCATE({0}, 0)", "trunc({0})", 2000),
    ("TIMESTAMP(3)", ["time"], "TO_TIMESTAMP(DATE_FORMAT({0}, 'yyyy-MM-dd HH:mm:ss'), 'yyyy-MM-dd HH:mm:ss')", "make_timestamp(" + SECONDS + " * 1000000)", None),
    ("TIMESTAMP(3)", ["small int"], "TO_TIMESTAMP_LTZ({0}, 3)", "make_timestamp(CAST({0} AS BIGINT) * 1000)", None),
    ("TIMESTAMP(0)", ["small int"], "TO_TIMESTAMP_LTZ({0}, 0)", "make_timestamp(CAST({0} AS BIGINT) * 1000000)", None),
    ("DATE", ["time"], "TO_DATE(DATE_FORMAT({0}, 'yyyyMMdd'), 'yyyyMMdd')", "CAST({0} AS DATE)", None),
    ("DECIMAL(12, 3)", ["small int"], "CAST({0} AS DECIMAL(12, 3))", "CAST({0} AS DECIMAL(12, 3))", 100_000),
]

ADDED = [
    # The result has the type of the argument.
    ("TIMESTAMPADD(DAY, 2, {0})", "({0} + INTERVAL 2 DAY)"),
    ("TIMESTAMPADD(MONTH, 1, {0})", "({0} + INTERVAL 1 MONTH)"),
    ("({0} + INTERVAL '1' DAY)", "({0} + INTERVAL 1 DAY)"),
    ("({0} - INTERVAL '1' MONTH)", "({0} - INTERVAL 1 MONTH)"),
]
