"""As much of PostgreSQL's protocol and of HTTP as the attacks need. Only the standard library."""

import base64
import hashlib
import hmac
import os
import socket
import struct

USER, PASSWORD = "ada", "secret"


class Refused(Exception):
    """An error that the server has sent, with its SQLSTATE."""


def message(kind, body):
    return kind + struct.pack("!I", len(body) + 4) + body


def startup(user=USER):
    body = struct.pack("!I", 3 << 16) + f"user\0{user}\0database\0slackwater\0\0".encode()
    return struct.pack("!I", len(body) + 4) + body


def query(text):
    return message(b"Q", text.encode() + b"\0")


class Pg:
    """A connection that reads what it is sent, unless somebody leaves it alone."""

    def __init__(self, port, patience_s=60, receive_bytes=None):
        self.socket = socket.socket()
        if receive_bytes:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
        self.socket.settimeout(patience_s)
        self.socket.connect(("127.0.0.1", port))
        self.kept = b""

    def begun(self, password=PASSWORD):
        """Begins a conversation with a password."""
        self.socket.sendall(startup())
        self.log_in(password)
        self.until(b"Z")
        return self

    def log_in(self, password):
        first = "n=,r=" + base64.b64encode(os.urandom(12)).decode()
        self.expect(b"R", 10)
        body = f"n,,{first}".encode()
        self.socket.sendall(message(b"p", b"SCRAM-SHA-256\0" + struct.pack("!I", len(body)) + body))
        challenge = self.expect(b"R", 11).decode()
        parts = dict(part.split("=", 1) for part in challenge.split(","))
        salt, rounds = base64.b64decode(parts["s"]), int(parts["i"])
        salted = hashlib.pbkdf2_hmac("sha256", password.encode(), salt, rounds)
        last = f"c=biws,r={parts['r']}"
        signed = f"{first},{challenge},{last}".encode()
        key = hmac.digest(salted, b"Client Key", "sha256")
        signature = hmac.digest(hashlib.sha256(key).digest(), signed, "sha256")
        proof = base64.b64encode(bytes(a ^ b for a, b in zip(key, signature))).decode()
        self.socket.sendall(message(b"p", f"{last},p={proof}".encode()))
        self.expect(b"R", 12)

    def expect(self, kind, number):
        found, body = self.receive()
        if found == b"E":
            raise Refused(code(body))
        if found != kind or struct.unpack("!I", body[:4])[0] != number:
            raise Refused(f"unexpected message {found} {body[:40]}")
        return body[4:]

    def receive(self):
        head = self.take(5)
        return head[:1], self.take(struct.unpack("!I", head[1:])[0] - 4)

    def take(self, count):
        while len(self.kept) < count:
            piece = self.socket.recv(1 << 16)
            if not piece:
                raise ConnectionError("the server has closed the connection")
            self.kept += piece
        taken, self.kept = self.kept[:count], self.kept[count:]
        return taken

    def until(self, kind):
        """The messages until one of a kind; the codes of errors stand for errors."""
        found = []
        while True:
            own, body = self.receive()
            found.append((own, code(body) if own == b"E" else body))
            if own == kind:
                return found

    def rows(self, text):
        """The rows of a query, as text."""
        self.socket.sendall(query(text))
        answer = self.until(b"Z")
        for kind, body in answer:
            if kind == b"E":
                raise Refused(body)
        return [fields(body) for kind, body in answer if kind == b"D"]

    def close(self):
        self.socket.close()


def fields(body):
    found, at = [], 2
    for _ in range(struct.unpack("!H", body[:2])[0]):
        length = struct.unpack("!i", body[at:at + 4])[0]
        at += 4
        found.append(body[at:at + max(length, 0)].decode() if length >= 0 else None)
        at += max(length, 0)
    return found


def code(body):
    parts = [part for part in body.split(b"\0") if part]
    return next((part[1:].decode() for part in parts if part[:1] == b"C"), "?")


def http(port, request, body=b"", patience_s=60):
    """The status and the body of an answer to a request such as `GET /healthz`."""
    with socket.create_connection(("127.0.0.1", port), timeout=patience_s) as connection:
        head = f"{request} HTTP/1.1\r\nhost: 127.0.0.1:{port}\r\ncontent-length: {len(body)}\r\n"
        connection.sendall(head.encode() + b"connection: close\r\n\r\n")
        try:
            connection.sendall(body)
        except OSError:
            # The server may answer before it has got everything, and then close.
            pass
        answer = b""
        try:
            while piece := connection.recv(1 << 16):
                answer += piece
        except ConnectionError:
            if not answer:
                raise
    head, _, body = answer.partition(b"\r\n\r\n")
    if not head.startswith(b"HTTP/1.1 "):
        raise ConnectionError("the server has closed the connection")
    return int(head.split(b" ")[1]), body
