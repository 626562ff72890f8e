"""Connections to a server, and answers over them. Only the standard library.

Connections are kept and used again, each by one request at a time; several threads may ask. An answer that
was not read to its end closes its connection, by which the server learns that nobody wants the rest.
"""

from __future__ import annotations

import http.client
import json
import os
import select
import socket
import ssl
import threading
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

from . import refusals
from .refusals import server_error

# Connections without a request that are kept. The server has room for 64 of all clients.
_IDLE_MAX = 4

# Bytes of an answer that is read as a whole, of an error's answer, and of a line.
BODY_BYTES_MAX = 64 << 20
_ERROR_BYTES_MAX = 1 << 20
LINE_BYTES_MAX = 64 << 20

# A peer that vanished without a word is noticed after 20 + 4 * 5 seconds.
_SILENCE_S, _PROBE_S, _PROBES = 20, 5, 4

_PORT = 7480


class Wire:
    """The way to one server."""

    def __init__(self, url: str, token: str | None, ca: str | None, timeout: float) -> None:
        if "://" not in url:
            url = f"http://{url}"
        try:
            parts = urlsplit(url)
            host, port = parts.hostname, parts.port
        except ValueError as error:
            raise _bad_address(url, str(error)) from None
        if parts.scheme not in ("http", "https"):
            raise _bad_address(url, f"'{parts.scheme}' is neither http nor https")
        if not host or parts.query or parts.fragment:
            raise _bad_address(url, "it has no host" if not host else "it has more than a path")
        if parts.username is not None:
            raise _bad_address(url, "it has a user; give the token as token='…'")
        self.host, self.port = host, port or (443 if parts.scheme == "https" else _PORT)
        shown = f"[{host}]" if ":" in host else host
        #: The address, as messages show it.
        self.url = f"{parts.scheme}://{shown}:{self.port}{parts.path.rstrip('/')}"
        self.timeout = timeout
        self._prefix = parts.path.rstrip("/")
        self._headers = {"Connection": "keep-alive", "User-Agent": "slackwater-python"}
        if token is None:
            token = os.environ.get("SLACKWATER_TOKEN") or None
        if token is not None:
            if not token.isascii() or not token.isprintable():
                hint = "it is ASCII without line ends: strip() what was read from a file"
                raise server_error("the token has characters that a header can't have", hint, "denied")
            self._headers["Authorization"] = f"Bearer {token}"
        self._tls = _context(ca) if parts.scheme == "https" else None
        self._lock = threading.Lock()
        self._idle: list[http.client.HTTPConnection] = []

    def ask(
        self,
        method: str,
        path: str,
        *,
        parameters: dict[str, str] | None = None,
        body: bytes | None = None,
        kind: str = "text/plain; charset=utf-8",
        accept: str = "application/json",
        lasts: bool = False,
        changes: bool = False,
        timeout: float | None = None,
    ) -> Answer:
        """Sends a request. The answer's head is there when this returns.

        `lasts`: the answer goes on until somebody stops it. `changes`: the request must not be sent twice.
        """
        target = self._prefix + path + (f"?{urlencode(parameters)}" if parameters else "")
        headers = {**self._headers, "Accept": accept}
        if body is not None:
            headers["Content-Type"] = kind
        connection, was_used = self._take(timeout or self.timeout)
        try:
            try:
                taken = _exchange(connection, method, target, body, headers)
            except (ConnectionError, http.client.RemoteDisconnected):
                connection.close()
                # A connection that waited may have been closed by the server just now.
                if not was_used or changes:
                    raise
                connection = self._open(timeout or self.timeout)
                taken = _exchange(connection, method, target, body, headers)
        except BaseException as error:
            connection.close()
            if isinstance(error, (OSError, http.client.HTTPException)):
                raise self._failed(error) from error
            raise
        return Answer(self, connection, *taken, lasts)

    def close(self) -> None:
        """Closes the connections that nobody uses."""
        with self._lock:
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()

    def __del__(self) -> None:
        if hasattr(self, "_idle"):
            self.close()

    def keep(self, connection: http.client.HTTPConnection) -> None:
        """Takes back a connection whose answer was read to the end."""
        with self._lock:
            if len(self._idle) < _IDLE_MAX:
                return self._idle.append(connection)
        connection.close()

    def _take(self, timeout: float) -> tuple[http.client.HTTPConnection, bool]:
        while True:
            with self._lock:
                connection = self._idle.pop() if self._idle else None
            if connection is None:
                try:
                    return self._open(timeout), False
                except OSError as error:
                    raise self._failed(error) from error
            if connection.sock is not None and not _is_readable(connection.sock):
                connection.sock.settimeout(timeout)
                return connection, True
            # The server has closed it, or said something that nobody asked for.
            connection.close()

    def _open(self, timeout: float) -> http.client.HTTPConnection:
        connection: http.client.HTTPConnection
        if self._tls is None:
            connection = http.client.HTTPConnection(self.host, self.port, timeout=timeout)
        else:
            connection = http.client.HTTPSConnection(
                self.host, self.port, timeout=timeout, context=self._tls
            )
        try:
            connection.connect()
            connection.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            _watch(connection.sock)
        except BaseException:
            connection.close()
            raise
        return connection

    def _failed(self, error: Exception) -> Exception:
        """The error for a request that failed before its answer began."""
        if isinstance(error, ssl.SSLCertVerificationError):
            why, hint = error.verify_message, "name the file with the server's authority: ca='ca.pem'"
        elif isinstance(error, ssl.SSLError):
            why = str(error.reason or error)
            hint = "does this address speak TLS? If not, write http:// instead of https://"
        elif isinstance(error, socket.gaierror):
            why, hint = f"the name '{self.host}' can't be resolved", "check the name, or write the address"
        elif isinstance(error, TimeoutError):
            why = "no answer in time"
            hint = "is the server busy, or behind a firewall? connect(…, timeout=120) waits longer"
        elif isinstance(error, ConnectionRefusedError):
            why = "nobody listens there"
            hint = f"start the server: slackwater serve --dir DIR --http {self.host}:{self.port}"
        elif isinstance(error, ConnectionError):
            why = f"the connection was closed before an answer ({error})"
            hint = "is the server still there, and is this the address of --http, not that of --pg?"
        elif isinstance(error, http.client.HTTPException):
            return refusals.not_ours(self.url, f"it is not HTTP ({type(error).__name__})")
        else:
            why, hint = str(getattr(error, "strerror", None) or error), "check the address"
        return server_error(f"{self.url}: {why}", hint)


class Answer:
    """An answer that is being read, by one thread. Another one may `abort` it."""

    def __init__(
        self,
        wire: Wire,
        connection: http.client.HTTPConnection,
        response: http.client.HTTPResponse,
        sock: socket.socket,
        lasts: bool,
    ) -> None:
        self._wire, self._connection, self._response, self._socket = wire, connection, response, sock
        self._is_closed = False
        self._rest = b""
        self.status = response.status
        self.kind = (response.headers.get("Content-Type") or "").partition(";")[0].strip().lower()
        self.was_aborted = False
        if lasts and self.status == 200:
            self._socket.settimeout(None)
        if response.length is None and not response.chunked:
            self.close()
            raise refusals.not_ours(wire.url, "it has no length")
        if 300 <= self.status < 400:
            target = response.headers.get("Location", "another address")
            self.close()
            hint = "connect to that address: redirects are not followed, because they would get the token"
            raise server_error(f"{wire.url}: it redirects to {target}", hint)

    @property
    def url(self) -> str:
        """The address that was asked."""
        return self._wire.url

    def checked(self, *kinds: str, text: str = "", begin: int = 0) -> Answer:
        """This answer, if it is a success of one of these content types; otherwise its error is raised."""
        if self.status != 200:
            body = self.read_all(_ERROR_BYTES_MAX)
            raise refusals.of_answer(self.url, self.status, body, text, begin)
        if self.kind not in kinds:
            self.close()
            raise refusals.not_ours(self.url, f"its content type is '{self.kind}', not {kinds[0]}")
        return self

    def read(self, count: int = -1) -> bytes:
        """So many bytes; fewer at the end of the answer."""
        piece = self._read(lambda: self._response.read(None if count < 0 else count), count != 0)
        if len(piece) < count and self._response.length and not self.was_aborted:
            self.close()
            raise refusals.broke_off(self.url, "the connection was closed")
        return piece

    def read_some(self) -> bytes:
        """What has arrived, at least a byte; none at the end of the answer."""
        return self._read(lambda: self._response.read1(1 << 16), True)

    def read_all(self, most: int = BODY_BYTES_MAX) -> bytes:
        """All of it."""
        pieces, length = [], 0
        while piece := self.read_some():
            pieces.append(piece)
            length += len(piece)
            if length > most:
                self.close()
                raise refusals.not_ours(self.url, f"it is longer than {most} bytes")
        return b"".join(pieces)

    def lines(self) -> list[bytes]:
        """The lines that have arrived, at least one; none at the end of the answer."""
        while True:
            piece = self.read_some()
            if not piece:
                last, self._rest = self._rest, b""
                return [last] if last else []
            *found, self._rest = (self._rest + piece).split(b"\n")
            if len(self._rest) > LINE_BYTES_MAX:
                self.close()
                raise refusals.not_ours(self.url, f"a line is longer than {LINE_BYTES_MAX} bytes")
            if found:
                return found

    def json(self, *, text: str = "", begin: int = 0) -> Any:
        """Its value, if it is a success."""
        body = self.checked("application/json", text=text, begin=begin).read_all()
        try:
            return json.loads(body)
        except ValueError as error:
            raise refusals.not_ours(self.url, f"it is not JSON ({error})") from None

    def abort(self) -> None:
        """Ends it from any thread: a read that waits ends, too."""
        if self._is_closed:
            return
        self.was_aborted = True
        try:
            # Not the method of TLS, which changes what the reader's thread uses.
            socket.socket.shutdown(self._socket, socket.SHUT_RDWR)
        except OSError:
            pass

    def close(self) -> None:
        """Gives the connection back if the answer was read, and closes it otherwise."""
        if self._is_closed:
            return
        self._is_closed = True
        response = self._response
        # An answer with a length is not closed by its last byte in every version of Python.
        was_read = response.isclosed() or response.length == 0
        response.close()
        if was_read and not response.will_close and not self.was_aborted:
            self._wire.keep(self._connection)
        else:
            self._connection.close()

    def __del__(self) -> None:
        if hasattr(self, "_is_closed"):
            self.close()

    def _read(self, read: Any, wanted: bool) -> bytes:
        try:
            piece: bytes = read()
        except (OSError, http.client.HTTPException, ValueError) as error:
            self.close()
            if self.was_aborted:
                return b""
            raise refusals.broke_off(self.url, _why(error)) from error
        except BaseException:
            # Such as KeyboardInterrupt: the server is released at once.
            self.close()
            raise
        if not piece and wanted:
            if self._response.length and not self.was_aborted:
                self.close()
                raise refusals.broke_off(self.url, "the connection was closed")
            self.close()
        return piece


def _exchange(
    connection: http.client.HTTPConnection,
    method: str,
    target: str,
    body: bytes | None,
    headers: dict[str, str],
) -> tuple[http.client.HTTPResponse, socket.socket]:
    """The answer to a request, and its socket, which the response takes over if nothing follows it."""
    sock = connection.sock
    try:
        connection.request(method, target, body=body, headers=headers)
    except (BrokenPipeError, ConnectionResetError) as error:
        # A server that refuses a long body answers before it has all of it.
        try:
            return connection.getresponse(), sock
        except (OSError, http.client.HTTPException):
            raise error from None
    return connection.getresponse(), sock


def _why(error: Exception) -> str:
    if isinstance(error, TimeoutError):
        return "no further bytes in time"
    if isinstance(error, http.client.IncompleteRead):
        return "the connection was closed"
    return str(error) or type(error).__name__


def _is_readable(sock: socket.socket) -> bool:
    poll = select.poll()
    poll.register(sock, select.POLLIN)
    return bool(poll.poll(0))


def _watch(sock: socket.socket) -> None:
    """Has the kernel notice a peer that is gone."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    options = {"TCP_KEEPIDLE": _SILENCE_S, "TCP_KEEPINTVL": _PROBE_S, "TCP_KEEPCNT": _PROBES}
    for name, value in options.items():
        if (option := getattr(socket, name, None)) is not None:
            sock.setsockopt(socket.IPPROTO_TCP, option, value)


def _context(ca: str | None) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=ca)
    except (OSError, ssl.SSLError) as error:
        hint = "ca='…' names a file of certificates in PEM format"
        raise server_error(f"{ca}: {error.strerror or error}", hint) from None


def _bad_address(url: str, why: str) -> Exception:
    return server_error(f"'{url}' is not an address of a server: {why}", "write http://127.0.0.1:7480")


def part(name: str) -> str:
    """A name as a part of a path."""
    return quote(name, safe="")
