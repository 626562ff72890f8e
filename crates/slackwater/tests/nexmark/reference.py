"""Answers of DuckDB to Nexmark's queries over a file of events, in words of its own where it can.

usage: reference.py EVENTS.jsonl SIDE_INPUT.csv OUT

Writes OUT/qN.csv, without a header, columns apart by '|'. The file has one event a line, in the layout of
the built-in generator (event_type, person, auction, bid) or in that of the reference data (type, e).
"""

import json
import sys
from pathlib import Path

import duckdb

PERSON = [
    ("id", "BIGINT"), ("name", "VARCHAR"), ("emailAddress", "VARCHAR"), ("creditCard", "VARCHAR"),
    ("city", "VARCHAR"), ("state", "VARCHAR"), ("dateTime", "TIMESTAMP"), ("extra", "VARCHAR"),
]
AUCTION = [
    ("id", "BIGINT"), ("itemName", "VARCHAR"), ("description", "VARCHAR"), ("initialBid", "BIGINT"),
    ("reserve", "BIGINT"), ("dateTime", "TIMESTAMP"), ("expires", "TIMESTAMP"), ("seller", "BIGINT"),
    ("category", "BIGINT"), ("extra", "VARCHAR"),
]
BID = [
    ("auction", "BIGINT"), ("bidder", "BIGINT"), ("price", "BIGINT"), ("channel", "VARCHAR"),
    ("url", "VARCHAR"), ("dateTime", "TIMESTAMP"), ("extra", "VARCHAR"),
]
KINDS = {"person": PERSON, "auction": AUCTION, "bid": BID}

# A time as the engine writes TIMESTAMP(3).
TIME = "strftime({}, '%Y-%m-%d %H:%M:%S.%g')"
DAY = "strftime(dateTime, '%Y-%m-%d')"
# The start of a window that many milliseconds long.
START = "make_timestamp(epoch_ms({0}) // {1} * {1} * 1000)"


def ranks(what):
    """An aggregate over all bids, and over those of three levels of price."""
    return f"""{what}, {what} FILTER (price < 10000),
        {what} FILTER (price BETWEEN 10000 AND 999999), {what} FILTER (price > 999999)"""


LEVELS = ", ".join(map(ranks, ["COUNT(*)", "COUNT(DISTINCT bidder)", "COUNT(DISTINCT auction)"]))

QUERIES = {
    0: f"SELECT auction, bidder, price, {TIME.format('dateTime')}, extra FROM bid",
    1: f"SELECT auction, bidder, price::DECIMAL(20, 0) * 0.908, {TIME.format('dateTime')}, extra FROM bid",
    2: "SELECT auction, price FROM bid WHERE auction % 123 = 0",
    3: """SELECT name, city, state, auction.id FROM auction JOIN person ON seller = person.id
        WHERE category = 10 AND state IN ('or', 'id', 'ca')""",
    4: """WITH final AS (
          SELECT id, category, MAX(price) AS price FROM auction JOIN bid ON id = bid.auction
          WHERE bid.dateTime >= auction.dateTime AND bid.dateTime <= expires GROUP BY id, category)
        SELECT category, SUM(price) // COUNT(*) FROM final GROUP BY category""",
    5: f"""WITH counts AS (
          SELECT auction, {START.format('dateTime', 2000)} - to_milliseconds(2000 * back) AS start, COUNT(*) AS num
          FROM bid, range(5) AS slides(back) GROUP BY ALL)
        SELECT auction, num FROM counts QUALIFY num = MAX(num) OVER (PARTITION BY start)""",
    7: f"""SELECT auction, bidder, price, {TIME.format('dateTime')}, extra FROM bid
        QUALIFY price = MAX(price) OVER (PARTITION BY {START.format('dateTime', 10000)})""",
    8: f"""SELECT DISTINCT person.id, name, {TIME.format(START.format('person.dateTime', 10000))}
        FROM person JOIN auction ON person.id = seller
        AND {START.format('person.dateTime', 10000)} = {START.format('auction.dateTime', 10000)}""",
    9: f"""SELECT id, itemName, description, initialBid, reserve, {TIME.format('auction.dateTime')},
          {TIME.format('expires')}, seller, category, auction.extra,
          bid.auction, bidder, price, {TIME.format('bid.dateTime')}, bid.extra
        FROM auction JOIN bid ON id = bid.auction
        WHERE bid.dateTime >= auction.dateTime AND bid.dateTime <= expires
        QUALIFY ROW_NUMBER() OVER (PARTITION BY id ORDER BY price DESC, bid.dateTime) = 1""",
    10: f"""SELECT auction, bidder, price, {TIME.format('dateTime')}, extra, {DAY}, strftime(dateTime, '%H:%M')
        FROM bid""",
    11: f"""WITH breaks AS (
          SELECT bidder, dateTime, COALESCE(dateTime - LAG(dateTime) OVER earlier >= INTERVAL 10 SECOND, TRUE) AS is_new
          FROM bid WINDOW earlier AS (PARTITION BY bidder ORDER BY dateTime)),
        numbered AS (
          SELECT bidder, dateTime, COUNT(*) FILTER (is_new) OVER (PARTITION BY bidder ORDER BY dateTime) AS session
          FROM breaks)
        SELECT bidder, COUNT(*), {TIME.format('MIN(dateTime)')},
          {TIME.format('MAX(dateTime) + INTERVAL 10 SECOND')}
        FROM numbered GROUP BY bidder, session""",
    # Which windows of the clock, nobody can say: of all of them together.
    12: "SELECT bidder, COUNT(*) FROM bid GROUP BY bidder",
    13: f"""SELECT auction, bidder, price, {TIME.format('dateTime')}, value
        FROM bid JOIN side_input ON auction % 1000 = key""",
    14: f"""SELECT auction, bidder, price::DECIMAL(20, 0) * 0.908,
          CASE WHEN hour(dateTime) BETWEEN 8 AND 18 THEN 'dayTime'
               WHEN hour(dateTime) IN (7, 19) THEN 'otherTime' ELSE 'nightTime' END,
          {TIME.format('dateTime')}, extra, len(list_filter(string_split(extra, ''), letter -> letter = 'c'))
        FROM bid WHERE price * 908 > 1000000000 AND price * 908 < 50000000000""",
    15: f"SELECT {DAY}, {LEVELS} FROM bid GROUP BY {DAY}",
    16: f"""SELECT channel, {DAY}, MAX(strftime(dateTime, '%H:%M')), {LEVELS}
        FROM bid GROUP BY channel, {DAY}""",
    17: f"""SELECT auction, {DAY}, {ranks('COUNT(*)')}, MIN(price), MAX(price), SUM(price) // COUNT(*), SUM(price)
        FROM bid GROUP BY auction, {DAY}""",
    18: f"""SELECT auction, bidder, arg_max(price, dateTime), arg_max(channel, dateTime), arg_max(url, dateTime),
          {TIME.format('MAX(dateTime)')}, arg_max(extra, dateTime)
        FROM bid GROUP BY auction, bidder""",
    # Which of several equal prices comes first, nobody can say: without the rest of the bid.
    19: """SELECT auction, price, ROW_NUMBER() OVER (PARTITION BY auction ORDER BY price DESC) AS rank FROM bid
        QUALIFY rank <= 10""",
    20: f"""SELECT bid.auction, bidder, price, channel, url, {TIME.format('bid.dateTime')}, bid.extra,
          itemName, description, initialBid, reserve, {TIME.format('auction.dateTime')}, {TIME.format('expires')},
          seller, category, auction.extra
        FROM bid JOIN auction ON bid.auction = id WHERE category = 10""",
    21: r"""WITH numbered AS (
          SELECT *, list_position(['apple', 'google', 'facebook', 'baidu'], lower(channel)) - 1 AS listed,
            NULLIF(regexp_extract(url, '[&]channel_id=(.*)', 1), '') AS named
          FROM bid)
        SELECT auction, bidder, price, channel, COALESCE(listed::VARCHAR, named)
        FROM numbered WHERE listed IS NOT NULL OR named IS NOT NULL""",
    22: """SELECT auction, bidder, price, channel, split_part(url, '/', 4), split_part(url, '/', 5),
          split_part(url, '/', 6) FROM bid""",
}


def snake(name):
    """A name in the reference data's case: emailAddress is email_address there."""
    return "".join("_" + letter.lower() if letter.isupper() else letter for letter in name)


def load(database, events):
    """Makes the tables person, auction and bid."""
    with open(events, encoding="utf-8") as file:
        is_typed = "type" in json.loads(file.readline())
    for kind, (name, columns) in enumerate(KINDS.items()):
        if is_typed:
            types = {snake(column): "BIGINT" if of == "TIMESTAMP" else of for column, of in columns}
            picked = [
                f"make_timestamp(row.{snake(column)} * 1000) AS {column}" if of == "TIMESTAMP"
                else f"row.{snake(column)} AS {column}"
                for column, of in columns
            ]
            read, of_kind = {"type": "VARCHAR", "e": types}, f"type = '{name}'"
            row = "e"
        else:
            types = dict(columns)
            picked = [f"row.{column} AS {column}" for column, _ in columns]
            read, of_kind = {"event_type": "INTEGER", name: types}, f"event_type = {kind}"
            row = name
        fields = ", ".join(f"{field} {of}" for field, of in types.items())
        read = {column: f"STRUCT({fields})" if of is types else of for column, of in read.items()}
        database.execute(
            f"CREATE TABLE {name} AS SELECT {', '.join(picked)} FROM (SELECT {row} AS row"
            f" FROM read_json(?, format = 'newline_delimited', columns = {read}) WHERE {of_kind})",
            [str(events)],
        )


def main(events, side_input, out):
    database = duckdb.connect()
    database.execute("SET threads = 1")
    load(database, events)
    database.execute(
        "CREATE TABLE side_input AS SELECT * FROM read_csv(?, header = false,"
        " columns = {'key': 'BIGINT', 'value': 'VARCHAR'})",
        [side_input],
    )
    for number, query in QUERIES.items():
        with open(Path(out) / f"q{number}.csv", "w", encoding="utf-8") as file:
            for row in database.execute(query).fetchall():
                file.write("|".join(map(str, row)) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
