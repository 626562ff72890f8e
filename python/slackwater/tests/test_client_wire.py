"""A server's client against servers that answer badly, over TLS, and statements without a server."""

import json
import os
import shutil
import socket
import ssl
import subprocess
import sys
import tempfile
import threading
import time
import unittest
from unittest import mock

import slackwater
from engine import wait_until
from served import Served, needs_program
from slackwater.client import forms, statements, wire
from slackwater.client.batch import of_json

ARROW = "application/vnd.apache.arrow.stream"
LINES = "application/x-ndjson"
DONE = {"done": "SELECT 0", "notices": []}
N = {"columns": [{"name": "n", "type": "BIGINT"}]}


def lines(*objects):
    return "".join(json.dumps(one) + "\n" for one in objects).encode()


def http(body, kind=LINES, status="200 OK", *headers, length=None):
    head = [f"HTTP/1.1 {status}", f"content-type: {kind}", f"content-length: {length or len(body)}", *headers]
    return "\r\n".join([*head, "", ""]).encode() + body


def chunked(*pieces, kind=LINES):
    head = f"HTTP/1.1 200 OK\r\ncontent-type: {kind}\r\ntransfer-encoding: chunked\r\n\r\n"
    return head.encode() + b"".join(f"{len(one):x}\r\n".encode() + one + b"\r\n" for one in pieces)


class Fake:
    """A server that answers a greeting, and then each request with what it was told to. If it `closes`, it
    closes the connection then."""

    def __init__(self, answer=b"", closes=False, context=None):
        self.answer, self.closes, self.context = answer, closes, context
        self.requests, self.connections, self.threads = [], 0, []
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self.accepting = threading.Thread(target=self.accept, daemon=True)
        self.accepting.start()

    def accept(self):
        while True:
            try:
                connection, _ = self.listener.accept()
            except OSError:
                return
            self.connections += 1
            thread = threading.Thread(target=self.converse, args=(connection,), daemon=True)
            self.threads.append(thread)
            thread.start()

    def converse(self, connection):
        with connection, connection.makefile("rb") as stream:
            while head := self.head(stream) if self.is_open(connection) else None:
                length = int(head.get("content-length", 0))
                body = stream.read(length).decode()
                self.requests.append((head[""], body, head))
                if "SHOW JOBS" in body:
                    connection.sendall(http(lines(N, DONE)))
                    continue
                answer = self.answer(head[""], body) if callable(self.answer) else self.answer
                try:
                    connection.sendall(answer)
                except OSError:
                    return
                if self.closes:
                    return

    @staticmethod
    def is_open(connection):
        """Whether the client asks for more, and has not closed the connection with bytes in it."""
        try:
            return bool(connection.recv(1, socket.MSG_PEEK))
        except OSError:
            return False

    @staticmethod
    def head(stream):
        first = stream.readline().decode().strip()
        if not first:
            return None
        head = {"": first}
        while line := stream.readline().decode().strip():
            name, _, value = line.partition(":")
            head[name.lower()] = value.strip()
        return head

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        self.accepting.join(10)
        for thread in self.threads:
            thread.join(10)


class Answers(unittest.TestCase):
    def failing(self, answer, said, closes=False, error=slackwater.ServerError, read=None):
        """Reads a query whose answer is bad, in both forms."""
        read = read or (lambda session: session.sql("SHOW TABLES").to_pylist())
        for has_pyarrow in (True, False):
            with Fake(answer, closes) as fake, mock.patch.object(forms, "has_pyarrow", lambda: has_pyarrow):
                with slackwater.connect(fake.url, timeout=5) as session:
                    with self.assertRaisesRegex(error, f"(?s){said}") as caught:
                        read(session)
                if error is slackwater.ServerError:
                    self.assertIn(fake.url, str(caught.exception))
                    self.assertTrue(caught.exception.hint)

    def test_answers_that_are_not_a_server_s(self):
        page = b"<html>welcome</html>"
        for answer, said in (
            (http(page, "text/html"), "content type is 'text/html'.*--http"),
            (http(page, "text/html", "404 Not Found"), "status 404, <html>welcome"),
            (http(b'{"error": 7}', "application/json", "400 Bad Request"), "status 400"),
            (http(b'{"error": {"message": 7}}', "application/json", "400 Bad Request"), "without a message"),
            (http(lines(N, {"row": {"m": 1}}, DONE)), "a line of it is"),
            (http(lines(N, [1])), "a line of it is"),
            (http(lines(N) + b'{"row": {"n": \n'), "a line of it is"),
            (http(lines(N) + b"\xff\xfe\n"), "a line of it is"),
            (http(lines({"columns": 5})), "a line of it is"),
            (http(lines({"error": "no"})), "a line of it is"),
            (b"HTTP/1.1 200 OK\r\ncontent-type: application/x-ndjson\r\n\r\n", "no length"),
            (b"SSH-2.0-OpenSSH_9.2\r\n", "not HTTP"),
            (b"HTTP/1.1 200 OK\r\n" + b"x: y\r\n" * 200 + b"\r\n", "not HTTP"),
            (b"HTTP/1.1 200 OK\r\nx: " + b"y" * 100_000 + b"\r\n\r\n", "not HTTP"),
        ):
            with self.subTest(said=said, answer=answer[:60]):
                self.failing(answer, said, closes=True)

    def test_answers_that_break_off(self):
        rows = lines(N, {"row": {"n": 1}})
        for answer, said in (
            (http(rows), "last line is missing"),
            (http(rows, length=10_000), "broke off"),
            (chunked(rows), "broke off"),
            (chunked(rows)[:-4], "broke off"),
            (chunked(rows) + b"zz\r\n", "broke off"),
            (b"", "closed before an answer"),
            (b"HTTP/1.1 200 OK\r\ncontent-", "closed before an answer|length"),
        ):
            with self.subTest(said=said, answer=answer[-20:]):
                self.failing(answer, said, closes=True)

    def test_an_arrow_stream_that_is_damaged(self):
        if not forms.has_pyarrow():
            self.skipTest("not installed: pyarrow")
        import pyarrow

        sink = pyarrow.BufferOutputStream()
        table = pyarrow.table({"n": list(range(1000))})
        with pyarrow.ipc.new_stream(sink, table.schema) as writer:
            writer.write_table(table)
        whole = sink.getvalue().to_pybytes()
        read = lambda session: session.sql("SHOW TABLES").to_pylist()  # noqa: E731
        with Fake(http(whole, ARROW)) as fake, slackwater.connect(fake.url) as session:
            self.assertEqual(len(read(session)), 1000)
        for answer, said in (
            (http(b"\x00" * 100, ARROW), "not a stream of Arrow"),
            (http(b"garbage!" * 100, ARROW), "not a stream of Arrow"),
            (http(whole[:200], ARROW), "not a stream of Arrow"),
            (http(whole[:4000], ARROW, length=len(whole)), "broke off"),
            (chunked(whole[:4000], kind=ARROW), "broke off"),
        ):
            with self.subTest(said=said), Fake(answer, closes=True) as fake:
                with slackwater.connect(fake.url, timeout=5) as session:
                    with self.assertRaisesRegex(slackwater.ServerError, said):
                        read(session)

    def test_a_line_without_an_end(self):
        with mock.patch.object(wire, "LINE_BYTES_MAX", 1 << 20):
            endless = chunked(lines(N), *[b"x" * 65536] * 64)
            self.failing(endless, "a line is longer than 1048576 bytes", closes=True)
        with mock.patch.object(wire, "BODY_BYTES_MAX", 1 << 20):
            listed = http(b"[" + b" " * (2 << 20) + b"]", "application/json")
            with mock.patch.object(wire.Answer.read_all, "__defaults__", (1 << 20,)):
                self.failing(listed, "longer than 1048576 bytes", read=lambda session: session.jobs())

    def test_lists_that_are_not_lists(self):
        for body in (b"{}", b"[1]", b'[{"name": "x"}]', b"nothing", b"\xff"):
            for read in (lambda one: one.jobs(), lambda one: one.tables()):
                self.failing(http(body, "application/json"), "not one of a Slackwater server", read=read)

    def test_redirects_are_not_followed(self):
        with Fake() as other:
            answer = http(b"", "text/plain", "302 Found", f"location: {other.url}/v1/sql")
            self.failing(answer, f"redirects to {other.url}.*token")
            self.assertEqual(other.requests, [], "it would have got the token")

    def test_errors_after_rows(self):
        error = {"error": {"kind": "system", "message": "the disk is full", "hint": "make room"}}
        read = lambda session: session.sql("SHOW TABLES").to_pylist()  # noqa: E731
        self.failing(http(lines(N, {"row": {"n": 1}}, error)), "disk is full.*make room",
                     error=slackwater.QueryError, read=read)  # fmt: skip
        busy = http(lines({"error": {"kind": "limit", "message": "no room"}}), "application/json",
                    "503 Service Unavailable")  # fmt: skip
        self.failing(busy, "no room.*try again later")

    def test_a_server_that_says_nothing(self):
        quiet = threading.Event()

        def answer(*_):
            quiet.wait(20)
            return b""

        try:
            with Fake(answer, closes=True) as fake, slackwater.connect(fake.url, timeout=0.3) as session:
                started = time.monotonic()
                with self.assertRaisesRegex(slackwater.ServerError, "(?s)no answer in time.*timeout="):
                    session.jobs()
                self.assertLess(time.monotonic() - started, 10)
                quiet.set()
        finally:
            quiet.set()

    def test_a_connection_that_was_closed_meanwhile_is_opened_again(self):
        with Fake(http(b"[]", "application/json"), closes=True) as fake:
            with slackwater.connect(fake.url) as session:
                for _ in range(3):
                    self.assertEqual(session.jobs(), [])
                self.assertEqual(fake.connections, 3)

    def test_a_push_without_an_answer_is_sent_again_under_its_number(self):
        definition = "CREATE TABLE t (n BIGINT) WITH ('format'='json')"
        known = [{"name": "t", "kind": "table", "definition": definition, "columns": [{"name": "n"}]}]
        answers = [
            b"",
            http(lines({"error": {"kind": "unconfirmed", "message": "?"}}), "application/json", "503 Busy"),
            http(lines({"error": {"kind": "not_running", "message": "?"}}), "application/json", "503 Busy"),
            http(b'{"rows": 2, "repeated": true}', "application/json"),
            http(b'{"rows": 1}', "application/json"),
        ]

        def answer(request, _):
            if request.startswith("POST"):
                return answers.pop(0)
            kind = "tables" in request
            return http(json.dumps(known if kind else []).encode(), "application/json")

        with Fake(answer, closes=True) as fake, slackwater.connect(fake.url) as session:
            table = session.table("t")
            self.assertEqual(table.push([{"n": 1}, {"n": 2}]), 2)
            self.assertEqual(table.push([{"n": 3}]), 1)
            pushes = [(first, body) for first, body, _ in fake.requests if "/v1/tables/t?" in first]
        self.assertEqual(len(pushes), 5)
        self.assertEqual(len({path for path, _ in pushes[:4]}), 1, "the same producer and sequence")
        self.assertEqual({body for _, body in pushes[:4]}, {'{"n": 1}\n{"n": 2}\n'})
        self.assertIn("sequence=1", pushes[0][0])
        self.assertIn("sequence=2", pushes[4][0])

    def test_an_insert_is_never_sent_twice(self):
        with Fake(b"", closes=True) as fake, slackwater.connect(fake.url) as session:
            with self.assertRaises(slackwater.ServerError):
                session.sql("CREATE VIEW v AS SELECT n FROM t")
            self.assertEqual(sum("CREATE VIEW" in body for _, body, _ in fake.requests), 1)

    def test_addresses(self):
        for url, said in (
            ("ftp://127.0.0.1", "'ftp' is neither"),
            ("http://", "no host"),
            ("http://127.0.0.1:x", "address"),
            ("http://me:secret@127.0.0.1", "token="),
            ("http://127.0.0.1/?a=b", "more than a path"),
            ("http://no-such-host.invalid", "can't be resolved"),
        ):
            with self.assertRaisesRegex(slackwater.ServerError, said):
                slackwater.connect(url, timeout=5)
        with socket.create_server(("127.0.0.1", 0)) as listener:
            port = listener.getsockname()[1]
        with self.assertRaisesRegex(slackwater.ServerError, f"(?s)nobody listens.*--http 127.0.0.1:{port}"):
            slackwater.connect(f"127.0.0.1:{port}")
        with self.assertRaisesRegex(slackwater.ServerError, "no-such-file.pem"):
            slackwater.connect("https://127.0.0.1", ca="no-such-file.pem")

    def test_a_path_before_the_api(self):
        with Fake(http(b"[]", "application/json")) as fake:
            with slackwater.connect(f"{fake.url}/flows/", token="secret") as session:
                self.assertEqual(session.jobs(), [])
            paths = [first.split()[1] for first, _, _ in fake.requests]
            self.assertEqual(paths, ["/flows/v1/sql", "/flows/v1/jobs"])
            self.assertEqual({head["authorization"] for _, _, head in fake.requests}, {"Bearer secret"})

    def test_it_needs_no_engine_and_no_pyarrow(self):
        program = (
            "import sys\n"
            "for name in ('slackwater._slackwater', 'pyarrow', 'numpy', 'pandas'): sys.modules[name] = None\n"
            "import slackwater\n"
            "session = slackwater.connect(sys.argv[1])\n"
            "print(session.sql('SHOW TABLES').to_pylist())\n"
            "try: session.table('t', object())\n"
            "except slackwater.SqlError: pass\n"
            "try: slackwater.Session()\n"
            "except ImportError as error: print(str(error).splitlines()[0])\n"
        )
        here = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
        with Fake(http(lines(N, {"row": {"n": 7}}, DONE))) as fake:
            done = subprocess.run(
                [sys.executable, "-c", program, fake.url], capture_output=True, text=True, timeout=60,
                env={**os.environ, "PYTHONPATH": here}, check=False,
            )  # fmt: skip
        said = "[{'n': 7}]\nthe engine is not part of this installation of slackwater\n"
        self.assertEqual((done.returncode, done.stdout), (0, said), done.stderr)


@needs_program
class Tls(unittest.TestCase):
    """A server behind something that speaks TLS."""

    @classmethod
    def setUpClass(cls):
        if shutil.which("openssl") is None:
            raise unittest.SkipTest("not installed: openssl")
        cls.folder = tempfile.mkdtemp(prefix="slackwater-test-")
        cls.addClassCleanup(shutil.rmtree, cls.folder)
        for name in ("one", "other"):
            subprocess.run(
                ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2",
                 "-subj", "/CN=test", "-addext", "subjectAltName=IP:127.0.0.1",
                 "-keyout", f"{cls.folder}/{name}.key", "-out", f"{cls.folder}/{name}.pem"],
                check=True, capture_output=True,
            )  # fmt: skip
        cls.served = cls.enterClassContext(Served()) if hasattr(cls, "enterClassContext") else Served()
        if not hasattr(cls, "enterClassContext"):
            cls.addClassCleanup(cls.served.stop)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(f"{cls.folder}/one.pem", f"{cls.folder}/one.key")
        cls.listener = socket.create_server(("127.0.0.1", 0))
        cls.addClassCleanup(cls.listener.close)
        cls.url = f"https://127.0.0.1:{cls.listener.getsockname()[1]}"
        threading.Thread(target=cls.accept, args=(context,), daemon=True).start()

    @classmethod
    def accept(cls, context):
        while True:
            try:
                plain, _ = cls.listener.accept()
                threading.Thread(target=cls.forward, args=(context, plain), daemon=True).start()
            except OSError:
                return

    @classmethod
    def forward(cls, context, plain):
        try:
            with context.wrap_socket(plain, server_side=True) as front:
                with socket.create_connection(("127.0.0.1", cls.served.port)) as back:
                    threading.Thread(target=cls.copy, args=(back, front), daemon=True).start()
                    cls.copy(front, back)
        except OSError:
            pass

    @staticmethod
    def copy(one, other):
        try:
            while piece := one.recv(1 << 16):
                other.sendall(piece)
            other.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass

    def test_a_certificate_is_checked(self):
        with slackwater.connect(self.url, ca=f"{self.folder}/one.pem") as session:
            self.assertEqual(session.sql("SELECT 1 AS n").to_pylist(), [{"n": 1}])
            table = session.table("t", {"k": "STRING"})
            session.sql("CREATE MATERIALIZED VIEW v AS SELECT k, COUNT(*) AS n FROM t GROUP BY k")
            run = session.changes("v").start()
            batches = iter(run)
            table.push([("a",)])
            self.assertEqual(next(batches).to_pylist(), [{"op": "+I", "k": "a", "n": 1}])
            rest = []
            reader = threading.Thread(target=lambda: rest.extend(batches))
            reader.start()
            self.assertTrue(wait_until(reader.is_alive))
            run.stop()
            reader.join(10)
            self.assertFalse(reader.is_alive())
        for ca in (None, f"{self.folder}/other.pem"):
            with self.assertRaisesRegex(slackwater.ServerError, "(?s)certificate.*ca="):
                slackwater.connect(self.url, ca=ca)
        with self.assertRaisesRegex(slackwater.ServerError, "(?s).*http://"):
            slackwater.connect(self.served.url.replace("http", "https"), timeout=5)


class Statements(unittest.TestCase):
    def test_statements_are_told_apart(self):
        text = "-- a; b\nSET 'a;b' = 'it''s;'; /* ; */ create view `v;` as select \";\" ;;\n"
        text += " (SELECT 1 - 2 / 3)"
        found = statements.split(text)
        self.assertEqual([one.word for one in found], ["SET", "CREATE", "SELECT"])
        self.assertEqual([text[one.begin:][:4] for one in found], ["SET ", "crea", "(SEL"])
        self.assertEqual(statements.split(" ; -- nothing\n;/* at all"), [])
        sets = "SET a = 1; BEGIN STATEMENT SET; INSERT INTO t SELECT 1; INSERT INTO t SELECT 2; END;"
        before, query = statements.parted(sets)
        self.assertEqual(([one.word for one in before], query.text), (["SET"], sets[11:-1]))
        self.assertEqual(statements.split("SELECT 'never closed; SELECT 2")[0].word, "SELECT")

    def test_settings_are_read(self):
        kept = {}
        written = "SET 'a.b' = 'it''s'", "set linger to 5", "SET `x` = 1", "SET \"c\"='d' ", "RESET 'linger'"
        for text in written:
            one = statements.split(text)[0]
            if "`" in text:
                with self.assertRaisesRegex(slackwater.SqlError, "write SET 'key'"):
                    statements.set_by(one, kept)
            else:
                statements.set_by(one, kept)
        self.assertEqual(kept, {"a.b": "it's", "c": "d"})

    def test_names_of_jobs_are_read(self):
        for name in ("x", "a b", "it's", "x' runs; STOP JOB x"):
            self.assertEqual(forms.job_of(f"job '{name}' runs; STOP JOB {name} stops it"), name)
        for other in ("GROUP BY keeps every key", "job 'a' runs; STOP JOB b stops it", "job '' runs", ""):
            self.assertIsNone(forms.job_of(other))

    def test_values_of_json_are_read_by_their_type(self):
        kind = "ROW<`a``b` DECIMAL(3, 1), `c,>` ARRAY<ROW<`x` DATE>>, `d` TIMESTAMP(3)>"
        read = of_json({"a`b": "1.5", "c,>": [{"x": "2026-01-02"}, None], "d": "2026-01-02 03:04:05.6"}, kind)
        self.assertEqual(str(read["a`b"]), "1.5")
        self.assertEqual(str(read["c,>"][0]["x"]), "2026-01-02")
        self.assertEqual(read["d"].microsecond, 600_000)
