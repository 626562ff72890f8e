"""The live plot: one page, and what it draws as a stream of events."""

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

# Pages that may be open at once.
PAGES_MAX = 8


class Page:
    """A server of the page on a free port of the loopback address."""

    def __init__(self):
        self.changed = threading.Condition()
        self.number, self.seen, self.closed = 0, b"{}", False
        self.open = 0
        page = self

        class Handler(BaseHTTPRequestHandler):
            """Answers with the page, or with its events."""

            timeout = 30

            def do_GET(self):
                if self.path == "/events":
                    page.events(self)
                elif self.path == "/":
                    text = Path(__file__).with_name("page.html").read_bytes()
                    page.answer(self, 200, "text/html; charset=utf-8", text)
                else:
                    page.answer(self, 404, "text/plain", b"not found: use /\n")

            def log_message(self, *_):
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.address = f"http://127.0.0.1:{self.server.server_address[1]}/"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    @staticmethod
    def answer(handler, status, kind, body):
        """Sends a whole answer."""
        handler.send_response(status)
        handler.send_header("Content-Type", kind)
        handler.send_header("Content-Length", str(len(body)))
        handler.end_headers()
        handler.wfile.write(body)

    def show(self, seen):
        """Sends this to all open pages; costs nothing if there is none."""
        with self.changed:
            if not self.open:
                return
            self.number, self.seen = self.number + 1, json.dumps(seen).encode()
            self.changed.notify_all()

    def events(self, handler):
        """Sends what is shown until the page is left."""
        with self.changed:
            is_free = self.open < PAGES_MAX
            self.open += is_free
        if not is_free:
            self.answer(handler, 503, "text/plain", b"too many pages are open: close one\n")
            return
        try:
            handler.send_response(200)
            handler.send_header("Content-Type", "text/event-stream")
            handler.send_header("Cache-Control", "no-store")
            handler.end_headers()
            number = 0
            while True:
                with self.changed:
                    self.changed.wait_for(lambda: self.closed or self.number != number, 10)
                    if self.closed:
                        return
                    number, seen = self.number, self.seen
                handler.wfile.write(b"data: " + seen + b"\n\n")
        except OSError:
            pass  # The page was left.
        finally:
            with self.changed:
                self.open -= 1

    def close(self):
        """Ends the streams and the server."""
        with self.changed:
            self.closed = True
            self.changed.notify_all()
        self.server.shutdown()
        self.server.server_close()
