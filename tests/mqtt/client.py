"""A minimal client of MQTT 3.1.1: the packets that a round needs, at quality of service 0 or 1."""

import select
import socket

CONNECT, CONNACK, PUBLISH, PUBACK, SUBSCRIBE, SUBACK, DISCONNECT = 1, 2, 3, 4, 8, 9, 14
# The largest remaining length that the standard allows: four bytes of seven bits.
LENGTH_MAX = 268_435_455
ANSWER_S = 10


class ProtocolError(Exception):
    """The peer sent something that the standard does not allow, or refused something."""


def packet(kind, flags, body):
    """The bytes of a packet."""
    if len(body) > LENGTH_MAX:
        raise ProtocolError(f"a packet of {len(body)} bytes: at most {LENGTH_MAX} are allowed")
    length, rest = bytearray(), len(body)
    while True:
        rest, low = rest >> 7, rest & 0x7F
        length.append(low | (0x80 if rest else 0))
        if not rest:
            return bytes([kind << 4 | flags]) + bytes(length) + body


def text(value):
    """A string as a packet contains it."""
    encoded = value.encode()
    return len(encoded).to_bytes(2, "big") + encoded


def publish(topic, payload, qos, number):
    """A PUBLISH packet; `number` is its identifier, which quality of service 0 doesn't use."""
    identifier = number.to_bytes(2, "big") if qos else b""
    return packet(PUBLISH, qos << 1, topic + identifier + payload)


class Packets:
    """Cuts what arrives into packets."""

    def __init__(self):
        self.rest = b""

    def add(self, data):
        """The packets that are complete now: kind, flags and body of each."""
        data, start, found = self.rest + data, 0, []
        while len(data) - start >= 2:
            length, at, shift = 0, start + 1, 0
            while at < len(data):
                byte = data[at]
                length |= (byte & 0x7F) << shift
                at, shift = at + 1, shift + 7
                if not byte & 0x80:
                    break
                if shift == 28:
                    raise ProtocolError("the length of a packet has more than four bytes")
            else:
                break
            if len(data) - at < length:
                break
            found.append((data[start] >> 4, data[start] & 0x0F, data[at:at + length]))
            start = at + length
        self.rest = data[start:]
        return found


class Client:
    """A connection to a broker. Packets to send are collected until `flush`."""

    def __init__(self, port, name, qos):
        self.qos = qos
        self.number = 0
        self.out = bytearray()
        self.packets = Packets()
        self.arrived = []
        self.socket = socket.create_connection(("127.0.0.1", port), ANSWER_S)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        # Version 4 is MQTT 3.1.1; a clean session; no keep-alive.
        self.out += packet(CONNECT, 0, text("MQTT") + bytes([4, 2, 0, 0]) + text(name))
        answer = self.expect(CONNACK)
        if answer[1] != 0:
            raise ProtocolError(f"the broker refused the connection of '{name}', code {answer[1]}")

    def expect(self, kind):
        """Waits for a packet of this kind, and returns its body."""
        self.flush()
        self.socket.settimeout(ANSWER_S)
        while True:
            for found, _, body in self.read():
                if found == kind:
                    return body

    def subscribe(self, topic):
        """Subscribes to a topic, and waits until the broker has agreed."""
        self.out += packet(SUBSCRIBE, 2, self.next().to_bytes(2, "big") + text(topic) + bytes([self.qos]))
        if self.expect(SUBACK)[2] > 2:
            raise ProtocolError(f"the broker refused the subscription to '{topic}'")

    def next(self):
        """The next packet identifier, 1 to 65,535."""
        self.number = self.number % 65_535 + 1
        return self.number

    def publish(self, topic, payload):
        """Adds a message to what is sent; `topic` is encoded already (`text`)."""
        self.out += publish(topic, payload, self.qos, self.next() if self.qos else 0)

    def flush(self):
        """Sends what has been collected."""
        if self.out:
            self.socket.settimeout(ANSWER_S)
            self.socket.sendall(self.out)
            self.out.clear()

    def read(self):
        """Reads once, and returns the packets."""
        data = self.socket.recv(1 << 16)
        if not data:
            raise ProtocolError("the broker closed the connection")
        return self.packets.add(data)

    def messages(self, wait_s):
        """The payloads of messages that arrive within `wait_s`; returns with the first that are there. Their
        acknowledgements are collected."""
        if not select.select([self.socket], [], [], max(wait_s, 0))[0]:
            return []
        payloads = []
        for kind, flags, body in self.read():
            if kind != PUBLISH:
                continue
            at = 2 + int.from_bytes(body[:2], "big")
            if flags & 0x06:
                self.out += packet(PUBACK, 0, body[at:at + 2])
                at += 2
            payloads.append(body[at:])
        return payloads

    def close(self):
        """Says good-bye."""
        self.out += packet(DISCONNECT, 0, b"")
        self.flush()
        self.socket.close()
