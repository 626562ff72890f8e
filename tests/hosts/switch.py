"""A switch in user space between the TUN devices of hosts: it delays, loses and cuts what they send.

Orders come as JSON over a socket, its standard input, and each is answered with the counters when it is in
force. The end of that socket ends the switch.
"""

import heapq
import json
import os
import random
import select
import socket
import time

# Packets under way at once: 10,000 of 1,500 bytes are 15 MB, a gigabit per second with a delay of 120 ms.
UNDER_WAY_MAX = 10_000
# What waits for a sender with a limited rate, in seconds of that rate; more is dropped, as routers do.
BACKLOG_S_MAX = 0.25
# Packets taken from one host before the others get their turn.
TURN_MAX = 64
PACKET_BYTES_MAX = 1 << 16
ORDER_BYTES_MAX = 1 << 16
# Where IPv4 has the last byte of a packet's destination.
DESTINATION_AT = 19


class Switch:
    """Ports are numbered by the last byte of the host's address."""

    def __init__(self, orders):
        self.orders = orders
        self.ports, self.numbers = {}, {}
        self.settings = {"delay_ms": 0.0, "jitter_ms": 0.0, "loss": 0.0, "mbit": 0.0}
        self.cut, self.one_way = set(), set()
        self.under_way, self.sequence = [], 0
        self.free_at, self.last_at = {}, {}
        self.counts = {"delivered": 0, "lost": 0, "cut": 0, "dropped": 0, "bytes": 0}
        self.random = random.Random(1)

    def run(self):
        while True:
            wait = None
            if self.under_way:
                wait = max(0.0, self.under_way[0][0] - time.monotonic())
            readable, _, _ = select.select([self.orders, *self.numbers], [], [], wait)
            self.deliver()
            for descriptor in readable:
                if descriptor is not self.orders:
                    self.take(descriptor)
                elif not self.obey():
                    return
            self.deliver()

    def deliver(self):
        now = time.monotonic()
        while self.under_way and self.under_way[0][0] <= now:
            _, _, source, to, packet = heapq.heappop(self.under_way)
            if self.is_cut(source, to):
                self.counts["cut"] += 1
                continue
            try:
                os.write(self.ports[to], packet)
                self.counts["delivered"] += 1
                self.counts["bytes"] += len(packet)
            except OSError:
                self.counts["dropped"] += 1

    def take(self, descriptor):
        source = self.numbers[descriptor]
        for _ in range(TURN_MAX):
            try:
                packet = os.read(descriptor, PACKET_BYTES_MAX)
            except BlockingIOError:
                return
            except OSError:
                # The host is gone.
                self.numbers.pop(descriptor)
                self.ports.pop(source)
                return
            self.forward(source, packet)

    def forward(self, source, packet):
        is_v4 = len(packet) > DESTINATION_AT and packet[0] >> 4 == 4
        to = packet[DESTINATION_AT] if is_v4 else None
        if to not in self.ports:
            self.counts["dropped"] += 1
        elif self.is_cut(source, to):
            self.counts["cut"] += 1
        elif self.random.random() < self.settings["loss"]:
            self.counts["lost"] += 1
        else:
            self.send(source, to, packet)

    def send(self, source, to, packet):
        now = at = time.monotonic()
        if self.settings["mbit"]:
            begin = max(now, self.free_at.get(source, 0.0))
            if begin - now > BACKLOG_S_MAX:
                self.counts["dropped"] += 1
                return
            at = self.free_at[source] = begin + len(packet) * 8 / (self.settings["mbit"] * 1e6)
        if len(self.under_way) >= UNDER_WAY_MAX:
            self.counts["dropped"] += 1
            return
        jitter_ms = self.settings["jitter_ms"] * self.random.uniform(-1, 1)
        at += max(0.0, self.settings["delay_ms"] + jitter_ms) / 1000
        # No packet overtakes another on its way: a network's jitter comes from queues, which keep the order.
        at = self.last_at[source, to] = max(at, self.last_at.get((source, to), 0.0))
        self.sequence += 1
        heapq.heappush(self.under_way, (at, self.sequence, source, to, packet))

    def is_cut(self, source, to):
        return source in self.cut or to in self.cut or (source, to) in self.one_way or to not in self.ports

    def obey(self):
        data, descriptors, _, _ = socket.recv_fds(self.orders, ORDER_BYTES_MAX, 4)
        if not data:
            return False
        order = json.loads(data)
        if order["do"] == "port":
            self.ports[order["port"]] = descriptors[0]
            self.numbers[descriptors[0]] = order["port"]
        elif order["do"] == "set":
            self.settings.update(order["settings"])
        elif order["do"] == "cut":
            self.cut.add(order["port"])
        elif order["do"] == "one_way":
            self.one_way.add((order["source"], order["to"]))
        elif order["do"] == "heal":
            port = order["port"]
            self.cut = {other for other in self.cut if port not in (None, other)}
            self.one_way = {pair for pair in self.one_way if port is not None and port not in pair}
        self.orders.send(json.dumps(self.counts).encode())
        return True


if __name__ == "__main__":
    Switch(socket.socket(fileno=0)).run()
