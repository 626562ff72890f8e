"""Strangers at a port, each with bad manners of its own. Runs in a host; prints what it saw as JSON.

    strangers.py KIND ADDRESS PORT [FILE]

Kinds: many, silent, http, tls, half, random, replay (of FILE), and two that go on until they are ended and
stand between (they listen at PORT of all addresses): record (to FILE), middle (with the certificate FILE).

`bytes` is what the other side said, without the handshake of TLS; `ended` how many connections it has ended.
"""

import json
import os
import random
import socket
import ssl
import struct
import sys
import threading
import time

CONNECTIONS = 10_000
# Connections at a time; the rest wait, as a port scanner's do.
AT_A_TIME = 500
SILENT = 200
SECONDS_MAX = 60
# What a stranger waits for: longer than a handshake may take.
PATIENCE_S = 20
RECORDED_BYTES_MAX = 1 << 24
TLS_ALERT, TLS_HANDSHAKE = 21, 22


def connect(to, patience_s=PATIENCE_S):
    return socket.create_connection(to, timeout=patience_s)


def hear(connection):
    """What the other side says until it ends the connection, and whether it does."""
    said = b""
    try:
        while data := connection.recv(4096):
            said += data
            if len(said) > RECORDED_BYTES_MAX:
                break
        return said, True
    except TimeoutError:
        return said, False
    except OSError:
        return said, True


def try_each(to, contents, at_a_time=AT_A_TIME):
    """Sends each content over a connection of its own, and listens."""
    lock, left = threading.Lock(), list(contents)
    found = {"connected": 0, "refused": 0, "ended": 0, "bytes": 0, "said": ""}

    def work():
        while True:
            with lock:
                if not left:
                    return
                content = left.pop()
            try:
                with connect(to) as connection:
                    with lock:
                        found["connected"] += 1
                    try:
                        connection.sendall(content)
                    except OSError:
                        pass
                    said, is_ended = hear(connection)
            except OSError:
                with lock:
                    found["refused"] += 1
                continue
            with lock:
                found["ended"] += is_ended
                rest = without_alerts(said)
                found["bytes"] += len(rest)
                found["said"] = found["said"] or rest[:80].hex()

    threads = [threading.Thread(target=work, daemon=True) for _ in range(min(at_a_time, len(left)))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found


def without_alerts(said):
    """What is no alert of TLS."""
    rest = said
    while len(rest) >= 5 and rest[0] == TLS_ALERT:
        rest = rest[5 + struct.unpack(">H", rest[3:5])[0]:]
    return rest


def many(to, _):
    """Connects ten thousand times, and leaves at once."""
    found = {"connected": 0, "refused": 0, "ended": 0, "bytes": 0, "said": ""}
    held = []
    for _ in range(CONNECTIONS):
        try:
            held.append(connect(to, 5))
            found["connected"] += 1
        except OSError:
            found["refused"] += 1
        while len(held) > AT_A_TIME:
            held.pop(0).close()
    return found


def silent(to, _):
    """Says nothing."""
    return try_each(to, [b""] * SILENT, SILENT)


def http(to, _):
    return try_each(to, [b"GET / HTTP/1.1\r\nHost: h1\r\n\r\n"] * 20)


def hello():
    """The beginning of a TLS handshake, as a client sends it."""
    context = plain_context()
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    try:
        context.wrap_bio(incoming, outgoing, server_hostname="h1").do_handshake()
    except ssl.SSLWantReadError:
        pass
    return outgoing.read()


def plain_context():
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


def half(to, _):
    """Begins a handshake, and stops in the middle."""
    whole = hello()
    found = try_each(to, [whole[:size] for size in range(1, len(whole), max(1, len(whole) // 40))])
    return found


def tls(to, _):
    """Shakes hands with TLS, without the secret, and says what a member might."""
    found = {"connected": 0, "refused": 0, "ended": 0, "bytes": 0, "said": "", "shaken": 0}
    for content in (b"", b"\0" * 64, os.urandom(64), b"{}\n", struct.pack(">I", 1 << 31)):
        try:
            with connect(to) as connection:
                found["connected"] += 1
                with plain_context().wrap_socket(connection, server_hostname="h1") as wrapped:
                    found["shaken"] += 1
                    if content:
                        wrapped.sendall(content)
                    said, is_ended = hear(wrapped)
                    found["ended"] += is_ended
                    found["bytes"] += len(said)
                    found["said"] = found["said"] or said[:80].hex()
        except OSError:
            found["ended"] += 1
    return found


def random_bytes(to, _):
    own = random.Random(7)
    contents = [own.randbytes(own.randrange(1, 5000)) for _ in range(200)]
    # Also such that begin as a handshake does.
    contents += [bytes([TLS_HANDSHAKE, 3, own.randrange(4)]) + own.randbytes(600) for _ in range(100)]
    return try_each(to, contents)


def replay(to, path):
    """Says again what a member has said."""
    with open(path, "rb") as file:
        content = file.read()
    found = try_each(to, [content, content[:len(content) // 2], content])
    return {**found, "replayed": len(content)}


def relay(port, to, forward):
    """Takes connections at a port, and connects each with the other side."""
    server = socket.create_server(("0.0.0.0", port), backlog=16)
    print("ready", flush=True)
    while True:
        connection, _ = server.accept()
        threading.Thread(target=forward, args=(connection, to), daemon=True).start()


def pump(source, sink, note=None):
    try:
        while data := source.recv(1 << 16):
            if note:
                note(data)
            sink.sendall(data)
    except OSError:
        pass
    for end in (source, sink):
        try:
            end.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass


def both_ways(near, far, note=None):
    back = threading.Thread(target=pump, args=(far, near), daemon=True)
    back.start()
    pump(near, far, note)
    back.join(SECONDS_MAX)


def record(to, path):
    """Relays bytes as they are, and keeps what the first connection says."""
    kept, first = [0], threading.Lock()

    def note(data):
        if kept[0] < RECORDED_BYTES_MAX:
            kept[0] += len(data)
            with open(path, "ab") as file:
                file.write(data)

    def forward(near, to):
        is_first = first.acquire(blocking=False)
        far = connect(to)
        for end in (near, far):
            end.settimeout(None)
        both_ways(near, far, note if is_first else None)

    relay(to[1], to, forward)


def middle(to, path):
    """Ends TLS on one side, and begins it on the other: it would read everything."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(path)

    def forward(near, to):
        try:
            far = plain_context().wrap_socket(connect(to), server_hostname="h1")
            near.settimeout(PATIENCE_S)
            near = context.wrap_socket(near, server_side=True)
        except OSError as error:
            print(json.dumps({"handshake": str(error)}), flush=True)
            near.close()
            return
        for end in (near, far):
            end.settimeout(None)
        note = lambda data: print(json.dumps({"read": len(data)}), flush=True)
        both_ways(near, far, note)

    relay(to[1], to, forward)


KINDS = {"many": many, "silent": silent, "http": http, "tls": tls, "half": half, "random": random_bytes,
         "replay": replay, "record": record, "middle": middle}


def main():
    kind, address, port, *rest = sys.argv[1:]
    begun = time.monotonic()
    found = KINDS[kind]((address, int(port)), rest[0] if rest else None)
    print(json.dumps({**found, "seconds": round(time.monotonic() - begun, 1)}))


if __name__ == "__main__":
    main()
