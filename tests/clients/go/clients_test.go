// The PostgreSQL door as Go's drivers meet it: pgx and lib/pq, and what Grafana asks through them.
package clients

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	_ "github.com/jackc/pgx/v5/stdlib"
	"github.com/lib/pq"
)

func address(options string) string {
	return fmt.Sprintf("postgres://ada@127.0.0.1:%s/slackwater?%s", os.Getenv("PGPORT"), options)
}

func secret(options string) string {
	const format = "postgres://ada:secret@127.0.0.1:%s/slackwater?sslmode=verify-full&sslrootcert=%s%s"
	return fmt.Sprintf(format, os.Getenv("TLS_PORT"), os.Getenv("TLS_CERTIFICATE"), options)
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func equal[T comparable](t *testing.T, found, expected T) {
	t.Helper()
	if found != expected {
		t.Fatalf("found %v, expected %v", found, expected)
	}
}

func connect(t *testing.T, options string) *pgx.Conn {
	t.Helper()
	client, err := pgx.Connect(context.Background(), address("sslmode=disable"+options))
	check(t, err)
	t.Cleanup(func() { client.Close(context.Background()) })
	return client
}

// Statements that are prepared, described each time, and sent as text.
var modes = []string{"", "&default_query_exec_mode=exec", "&default_query_exec_mode=simple_protocol"}

func TestPgxParameters(t *testing.T) {
	for _, mode := range modes {
		client := connect(t, mode)
		var n int64
		var name *string
		query := "SELECT n, name FROM numbers WHERE numbers.n = $1"
		check(t, client.QueryRow(context.Background(), query, int64(5)).Scan(&n, &name))
		equal(t, n, 5)
		equal(t, *name, "number 5")
	}
}

func TestPgxTypes(t *testing.T) {
	client := connect(t, "")
	rows, err := client.Query(context.Background(), "SELECT * FROM types ORDER BY a_bigint DESC")
	check(t, err)
	found, err := pgx.CollectRows(rows, pgx.RowToMap)
	check(t, err)
	equal(t, len(found), 2)
	row := found[0]
	equal(t, row["a_bigint"].(int64), math.MaxInt64)
	equal(t, row["a_tinyint"].(int16), -8)
	equal(t, row["a_double"].(float64), 1e300)
	equal(t, row["a_string"].(string), "größe, \"x\"")
	equal(t, row["a_zoned"].(time.Time).UTC(), time.Date(2024, 2, 29, 12, 34, 56, 789000000, time.UTC))
	equal(t, fmt.Sprint(row["an_array"]), "[1 <nil> 3]")
	equal(t, fmt.Sprint(row["strings"]), "[a b \"c\" NULL <nil>]")
	equal(t, fmt.Sprint(row["a_row"]), "map[x:7 y \"z\":q\n]")
	equal(t, row["a_boolean"].(bool), true)
	if found[1]["a_decimal"] != nil {
		t.Fatal("NULL is not nil")
	}
}

func TestPgxBatchesAndCopies(t *testing.T) {
	client := connect(t, "")
	batch := &pgx.Batch{}
	for n := range int64(20) {
		batch.Queue("SELECT n FROM numbers WHERE n = $1", n)
	}
	results := client.SendBatch(context.Background(), batch)
	for expected := range int64(20) {
		var n int64
		check(t, results.QueryRow().Scan(&n))
		equal(t, n, expected)
	}
	check(t, results.Close())
	var out bytes.Buffer
	copied := "COPY (SELECT * FROM numbers LIMIT 2) TO STDOUT (FORMAT csv, HEADER)"
	_, err := client.PgConn().CopyTo(context.Background(), &out, copied)
	check(t, err)
	equal(t, out.String(), "n,name\n0,\n1,number 1\n")
}

func TestPgxErrorsAndCancels(t *testing.T) {
	client := connect(t, "")
	_, err := client.Exec(context.Background(), "SELEC 1")
	var report *pgconn.PgError
	if !errors.As(err, &report) {
		t.Fatal(err)
	}
	equal(t, report.Code, "42601")
	equal(t, report.Position, 1)
	limit, stop := context.WithTimeout(context.Background(), 200*time.Millisecond)
	defer stop()
	rows, err := client.Query(limit, "SUBSCRIBE ticks")
	for err == nil && rows.Next() {
	}
	if err == nil {
		err = rows.Err()
	}
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Fatal(err)
	}
}

func TestPq(t *testing.T) {
	database, err := sql.Open("postgres", address("sslmode=disable"))
	check(t, err)
	defer database.Close()
	check(t, database.Ping())
	var n int64
	var name sql.NullString
	check(t, database.QueryRow("SELECT n, name FROM numbers WHERE n = $1", 5).Scan(&n, &name))
	equal(t, name.String, "number 5")
	statement, err := database.Prepare("SELECT n, name FROM numbers WHERE n = $1")
	check(t, err)
	check(t, statement.QueryRow("6").Scan(&n, &name))
	equal(t, n, 6)
	equal(t, name.Valid, false)
	_, err = database.Exec("SELEC 1")
	var report *pq.Error
	if !errors.As(err, &report) {
		t.Fatal(err)
	}
	equal(t, report.Code, "42601")
	limit, stop := context.WithTimeout(context.Background(), 200*time.Millisecond)
	defer stop()
	rows, err := database.QueryContext(limit, "SUBSCRIBE ticks")
	for err == nil && rows.Next() {
	}
	if err == nil {
		err = rows.Err()
	}
	if err == nil {
		t.Fatal("the query was not cancelled")
	}
	check(t, database.Ping())
}

// What Grafana's PostgreSQL source sends: to test the connection, for its editor, and for a panel.
var constraint = `
          quote_ident(table_schema) IN (
          SELECT
            CASE WHEN trim(s[i]) = '"$user"' THEN user ELSE trim(s[i]) END
          FROM
            generate_series(
              array_lower(string_to_array(current_setting('search_path'),','),1),
              array_upper(string_to_array(current_setting('search_path'),','),1)
            ) as i,
            string_to_array(current_setting('search_path'),',') s
          )`

var grafana = []struct {
	query    string
	expected []string
}{
	{"SELECT CAST(current_setting('server_version_num') AS INT)/100 as version", []string{"1500"}},
	{"SELECT current_setting('server_version_num')::int/100 as version", []string{"1500"}},
	{"SELECT extversion FROM pg_extension WHERE extname = 'timescaledb'", nil},
	{`SELECT schema_name AS "name" FROM information_schema.schemata
	  WHERE schema_name NOT IN ('information_schema', 'pg_catalog', 'pg_toast') ORDER BY schema_name`,
		[]string{"public"}},
	{`SELECT CASE WHEN ` + constraint + `
	    THEN quote_ident(table_name) ELSE quote_ident(table_schema) || '.' || quote_ident(table_name)
	  END AS "table" FROM information_schema.tables
	  WHERE quote_ident(table_schema) NOT IN ('information_schema', 'pg_catalog')
	    AND table_name IN ('numbers', 'types', 'Odd name')
	  ORDER BY CASE WHEN ` + constraint + ` THEN 0 ELSE 1 END, 1`,
		[]string{`"Odd name"`, "numbers", "types"}},
	{`SELECT quote_ident(column_name) AS "column", data_type AS "type" FROM information_schema.columns
	  WHERE CASE WHEN array_length(parse_ident('numbers'),1) = 2
	    THEN quote_ident(table_schema) = (parse_ident('numbers'))[1]
	      AND quote_ident(table_name) = (parse_ident('numbers'))[2]
	    ELSE quote_ident(table_name) = 'numbers' AND ` + constraint + ` END`,
		[]string{"n bigint", "name text"}},
}

func TestGrafana(t *testing.T) {
	for _, driver := range []string{"pgx", "postgres"} {
		database, err := sql.Open(driver, address("sslmode=disable"))
		check(t, err)
		defer database.Close()
		rows, err := database.Query("")
		check(t, err)
		equal(t, rows.Next(), false)
		check(t, rows.Err())
		for _, one := range grafana {
			found := strings(t, database, one.query)
			if !slices.Equal(found, one.expected) {
				t.Fatalf("%s: found %q, expected %q", one.query, found, one.expected)
			}
		}
		panel := "SELECT a_timestamp AS \"time\", a_double FROM types WHERE a_timestamp BETWEEN " +
			"'2024-01-01T00:00:00Z' AND '2024-12-31T00:00:00Z' ORDER BY 1 LIMIT 100"
		if found := strings(t, database, panel); len(found) == 0 {
			t.Fatal("the panel has no rows")
		}
	}
}

// The rows of a query as text, with blanks between the columns.
func strings(t *testing.T, database *sql.DB, query string) []string {
	t.Helper()
	rows, err := database.Query(query)
	check(t, err)
	defer rows.Close()
	columns, err := rows.Columns()
	check(t, err)
	var all []string
	for rows.Next() {
		values := make([]sql.NullString, len(columns))
		places := make([]any, len(columns))
		for at := range values {
			places[at] = &values[at]
		}
		check(t, rows.Scan(places...))
		line := values[0].String
		for _, value := range values[1:] {
			line += " " + value.String
		}
		all = append(all, line)
	}
	check(t, rows.Err())
	return all
}

func TestPasswordsAndTls(t *testing.T) {
	for _, driver := range []string{"pgx", "postgres"} {
		database, err := sql.Open(driver, secret(""))
		check(t, err)
		check(t, database.Ping())
		database.Close()
		database, err = sql.Open(driver, secret("&password=wrong"))
		check(t, err)
		if database.Ping() == nil {
			t.Fatal("a wrong password was accepted")
		}
		database.Close()
	}
}
