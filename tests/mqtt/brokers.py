"""Brokers for measurements: each on a free port of the loopback address, with its files in a folder."""

import os
import shutil
import socket
import subprocess
import time
from pathlib import Path

START_S = 60


def free_port():
    """A port of the loopback address that nothing listens at."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def found(program):
    """The path of a program, also of one that only root has in its path."""
    return shutil.which(program, path=os.environ.get("PATH", "") + ":/usr/sbin:/usr/lib/rabbitmq/bin")


class Broker:
    """A broker that this program has started."""

    def await_port(self, what):
        """Returns when the broker accepts connections."""
        end = time.monotonic() + START_S
        while time.monotonic() < end:
            if self.process.poll() is not None:
                break
            try:
                socket.create_connection(("127.0.0.1", self.port), 1).close()
                return
            except OSError:
                time.sleep(0.05)
        log = self.log.read_text(errors="replace")[-2000:]
        self.stop()
        raise SystemExit(f"error: {what} does not accept connections:\n{log}")

    def stop(self):
        """Ends the broker."""
        self.process.terminate()
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


class Mosquitto(Broker):
    """Eclipse Mosquitto, which keeps nothing on the disk here."""

    # The newest MQTT that the broker of Debian 12 speaks.
    VERSION = "5"

    @staticmethod
    def missing():
        """What is missing to start it, and how to get it; `None` if nothing is."""
        return None if found("mosquitto") else "mosquitto is missing: apt-get install mosquitto"

    def __init__(self, folder):
        self.port, self.log = free_port(), folder / "mosquitto.log"
        settings = folder / "mosquitto.conf"
        settings.write_text(f"listener {self.port} 127.0.0.1\nallow_anonymous true\npersistence false\n"
                            "set_tcp_nodelay true\nmax_queued_messages 0\nmax_inflight_messages 0\n")
        with self.log.open("w") as log:
            self.process = subprocess.Popen([found("mosquitto"), "-c", settings], stdout=log, stderr=log)
        self.pid = self.process.pid
        self.await_port("mosquitto")


class RabbitMQ(Broker):
    """RabbitMQ with its plugin for MQTT, as a node of its own."""

    VERSION = "3.1.1"

    @staticmethod
    def missing():
        """What is missing to start it, and how to get it; `None` if nothing is."""
        return None if found("rabbitmq-server") else "rabbitmq is missing: apt-get install rabbitmq-server"

    def __init__(self, folder):
        self.port, self.log = free_port(), folder / "rabbitmq.log"
        amqp, distribution, data = free_port(), free_port(), folder / "rabbitmq"
        data.mkdir(exist_ok=True)
        plugins, settings = data / "enabled_plugins", data / "rabbitmq.conf"
        plugins.write_text("[rabbitmq_mqtt].\n")
        settings.write_text(f"listeners.tcp.local = 127.0.0.1:{amqp}\nmqtt.allow_anonymous = true\n"
                            f"mqtt.listeners.tcp.local = 127.0.0.1:{self.port}\nmqtt.prefetch = 1000\n")
        # The script that Debian installs in /usr/sbin changes to another user; this is the server's own.
        server = Path("/usr/lib/rabbitmq/bin/rabbitmq-server")
        self.environment = dict(
            os.environ, HOME=str(data), RABBITMQ_NODENAME=f"rounds{self.port}@localhost",
            RABBITMQ_MNESIA_BASE=str(data / "mnesia"), RABBITMQ_LOG_BASE=str(data / "log"),
            RABBITMQ_PID_FILE=str(data / "pid"), RABBITMQ_ENABLED_PLUGINS_FILE=str(plugins),
            RABBITMQ_CONFIG_FILE=str(settings), RABBITMQ_DIST_PORT=str(distribution),
            ERL_EPMD_PORT=str(free_port()), RABBITMQ_CONF_ENV_FILE=str(data / "none"),
        )
        command = [server if server.exists() else found("rabbitmq-server")]
        with self.log.open("w") as log:
            self.process = subprocess.Popen(command, env=self.environment, cwd=data, stdout=log, stderr=log)
        self.await_port("rabbitmq")
        # The script starts the virtual machine and waits for it, or becomes it.
        self.pid = self.machine()

    def stop(self):
        super().stop()
        # The node has started Erlang's daemon of names, which stays behind.
        if found("epmd"):
            subprocess.run([found("epmd"), "-kill"], env=self.environment, capture_output=True, timeout=20)

    def machine(self):
        """The process of the node: the one of its descendants that has used the most CPU time."""
        family, best = [self.process.pid], (0, self.process.pid)
        for pid in family:
            stat = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
            best = max(best, (int(stat[11]) + int(stat[12]), pid))
            for task in Path(f"/proc/{pid}/task").iterdir():
                family += [int(child) for child in (task / "children").read_text().split()]
        return best[1]


KINDS = {"mosquitto": Mosquitto, "rabbitmq": RabbitMQ}
