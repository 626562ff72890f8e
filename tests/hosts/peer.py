"""What the self-test runs in hosts: an echo over TCP, datagrams that are counted, a clock, a sleeper.

    peer.py echo                       answers at port 7000
    peer.py ask ADDRESS COUNT          round trips in ms, as a JSON list
    peer.py reach ADDRESS SECONDS      whether a connection comes about
    peer.py count SECONDS              counts datagrams at port 7001 until none came for so long
    peer.py send ADDRESS COUNT         sends datagrams
    peer.py fill ADDRESS BYTES         how many bytes a second go to an echo and back
    peer.py clock                      CLOCK_MONOTONIC
    peer.py sleep SECONDS              starts a child, and both sleep
"""

import json
import os
import socket
import subprocess
import sys
import threading
import time

PORT, COUNTED_PORT = 7000, 7001
CONNECTIONS_MAX = 16


def echo():
    server = socket.create_server(("0.0.0.0", PORT), backlog=CONNECTIONS_MAX)
    print("ready", flush=True)
    while True:
        connection, _ = server.accept()
        threading.Thread(target=answer, args=(connection,), daemon=True).start()


def answer(connection):
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    while data := connection.recv(1 << 16):
        connection.sendall(data)


def ask(address, count):
    found = []
    with socket.create_connection((address, PORT), timeout=60) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for _ in range(int(count)):
            begun = time.monotonic()
            connection.sendall(b"x" * 32)
            left = 32
            while left:
                left -= len(connection.recv(left))
            found.append((time.monotonic() - begun) * 1000)
    print(json.dumps(found))


def reach(address, seconds):
    try:
        with socket.create_connection((address, PORT), timeout=float(seconds)):
            print(json.dumps(True))
    except OSError:
        print(json.dumps(False))


def count(seconds):
    server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    server.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 23)
    server.bind(("0.0.0.0", COUNTED_PORT))
    print("ready", flush=True)
    # The first datagram has time; after the last one it is over soon.
    server.settimeout(30)
    found = 0
    try:
        while server.recv(2048):
            found += 1
            server.settimeout(float(seconds))
    except TimeoutError:
        pass
    print(json.dumps(found))


def send(address, number):
    client = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    for at in range(int(number)):
        client.sendto(b"x" * 100, (address, COUNTED_PORT))
        # In bursts that no queue is too short for.
        if at % 20 == 19:
            time.sleep(0.002)


def fill(address, size):
    size = int(size)
    with socket.create_connection((address, PORT), timeout=60) as connection:
        begun = time.monotonic()
        threading.Thread(target=connection.sendall, args=(b"x" * size,), daemon=True).start()
        left = size
        while left:
            left -= len(connection.recv(1 << 16))
    print(json.dumps(size / (time.monotonic() - begun)))


def sleep(seconds):
    child = subprocess.Popen([sys.executable, "-c", f"import time; time.sleep({seconds})"])
    print("ready", flush=True)
    child.wait()


if __name__ == "__main__":
    what, arguments = sys.argv[1], sys.argv[2:]
    if what == "clock":
        print(json.dumps([time.monotonic(), socket.gethostname(), os.getpid()]))
    else:
        {"echo": echo, "ask": ask, "reach": reach, "count": count, "send": send, "fill": fill,
         "sleep": sleep}[what](*arguments)
