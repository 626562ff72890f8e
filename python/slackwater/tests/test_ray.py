"""With a Ray and a program that stand for the real ones: processes, secrets, and what goes wrong."""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time
import unittest

HERE = pathlib.Path(__file__).resolve().parent
PROGRAM = str(HERE / "fake" / "slackwater")
sys.path.insert(0, str(HERE / "fake"))

import ray  # noqa: E402
from slackwater import program  # noqa: E402
from slackwater.fleet import Node  # noqa: E402
from slackwater.kept import Kept  # noqa: E402
from slackwater.problem import Problem  # noqa: E402
from slackwater.ray.agents import Order, RayNodes  # noqa: E402

PATIENCE_S = 60
# An agent without a query lives as long; shorter, a busy machine has not even started it.
ORPHAN_S = 5


def eventually(what, look):
    """Waits until something is so; returns it."""
    until = time.monotonic() + PATIENCE_S
    while True:
        found = look()
        if found:
            return found
        if time.monotonic() > until:
            raise AssertionError(what)
        time.sleep(0.01)


class Case(unittest.TestCase):
    def setUp(self):
        made = tempfile.TemporaryDirectory()
        self.addCleanup(made.cleanup)
        self.folder = pathlib.Path(made.name)
        os.environ["FAKE_FOLDER"] = made.name
        # Secrets go there, too, so that what is left can be seen.
        (self.folder / "tmp").mkdir()
        tempfile.tempdir = str(self.folder / "tmp")

    def tearDown(self):
        tempfile.tempdir = None

    def told(self, name):
        path = self.folder / f"{name}.json"
        return eventually(name, lambda: path.exists() and json.loads(path.read_text()))

    def secrets(self):
        return list((self.folder / "tmp").rglob("cluster.key"))

    def left(self):
        return list((self.folder / "tmp").iterdir())

    def agent(self, name="h2", **more):
        def command(secret, mark):
            own = ["--secret", secret, "--joined", mark, "--name", name]
            return [PROGRAM, "worker", "--join", "h1:7070", *own, *more.get("options", [])]

        return Kept(command, "the key\n", has_mark=True)


class Keeper(Case):
    def test_a_secret_is_for_the_user_alone_and_gone_when_the_agent_has_joined(self):
        agent = self.agent()
        told = self.told("agent-h2")
        self.assertEqual((told["mode"], told["key"]), (0o600, "the key\n"))
        eventually("the secret is removed", lambda: not self.secrets())
        agent.stop()
        ended = agent.wait()
        self.assertEqual((ended.code, ended.said), (0, "h2 leaves\n"))
        self.assertEqual(self.left(), [])

    def test_an_agent_that_fails_is_told_of(self):
        ended = self.agent(options=["--cores", "refused"]).wait()
        self.assertEqual((ended.code, ended.said), (1, "error: refused\n"))
        self.assertEqual(self.left(), [])

    def test_a_program_that_can_not_be_started_is_told_of(self):
        ended = Kept(lambda *_: ["/nowhere/slackwater"], "k", has_mark=True).wait()
        self.assertEqual(ended.code, 127)
        self.assertIn("/nowhere/slackwater", ended.said)
        self.assertEqual(self.left(), [])

    def orphan(self):
        """An agent whose starter has gone; its mark."""
        text = (
            f"import sys; sys.path[:0] = {[str(HERE.parent)]!r}\n"
            "import tempfile; from slackwater import kept\n"
            f"tempfile.tempdir = {tempfile.tempdir!r}; kept.ORPHAN_PATIENCE_S = {ORPHAN_S}\n"
            f"kept.Kept(lambda secret, mark: [{PROGRAM!r}, 'worker', '--secret', secret, '--joined', mark,"
            " '--name', 'h2'], 'k', has_mark=True)\n"
        )
        subprocess.run([sys.executable, "-c", text], check=True, timeout=PATIENCE_S)
        self.told("agent-h2")
        return eventually("the mark", lambda: list((self.folder / "tmp").rglob("joined")))[0]

    def test_an_orphan_goes_on_with_its_query_and_ends_with_it(self):
        self.orphan()
        # Longer than an orphan without a query may live.
        time.sleep(ORPHAN_S + 1)
        self.assertEqual(len(self.left()), 1, "it goes on")
        (self.folder / "over").touch()
        eventually("it ends with its query", lambda: not self.left())

    def test_an_orphan_that_has_lost_its_query_is_ended(self):
        self.orphan().unlink()
        eventually("it is ended", lambda: not self.left())


class Nodes(Case):
    def nodes(self, binary=PROGRAM, cpus=None, options=()):
        ray.STARTED.clear()
        return RayNodes(ray, Order(binary, "127.0.0.1:7070", tuple(options), cpus), "the key\n")

    def test_an_agent_is_started_on_its_node_named_after_it_and_drained(self):
        nodes = self.nodes()
        node = nodes.alive()[1]
        nodes.start(node)
        name = node.id[:12]
        told = self.told(f"agent-{name}")
        joins = ["worker", "--join", "127.0.0.1:7070"]
        self.assertEqual(told["arguments"][1:4], joins)
        strategy = ray.STARTED[0]["scheduling_strategy"]
        self.assertEqual((strategy.node_id, strategy.soft), (node.id, False))
        self.assertEqual((ray.STARTED[0]["num_cpus"], ray.STARTED[0]["max_restarts"]), (2.0, 0))
        self.assertEqual(nodes.ended(), [])
        nodes.drain(node.id)
        ended = eventually("it has left", nodes.ended)
        self.assertEqual([(one, gone.is_failure) for one, gone in ended], [(node.id, False)])
        self.assertEqual(self.left(), [])

    def test_an_agent_uses_the_cpus_that_it_reserves(self):
        nodes = self.nodes(cpus=1)
        nodes.start(nodes.alive()[0])
        told = self.told(f"agent-{nodes.alive()[0].id[:12]}")["arguments"]
        cores = sorted(os.sched_getaffinity(0))
        if len(cores) > 1:
            self.assertEqual(told[told.index("--cores") + 1], str(cores[0]))
        self.assertEqual(ray.STARTED[0]["num_cpus"], 1)
        (self.folder / "over").touch()
        eventually("it ends", nodes.ended)

    def test_a_node_without_the_program_is_named(self):
        nodes = self.nodes(binary="/nowhere/slackwater")
        node = nodes.alive()[0]
        nodes.start(node)
        [(ended, gone)] = eventually("it fails", nodes.ended)
        self.assertEqual((ended, gone.is_failure), (node.id, True))
        self.assertIn(f"{node}: there is no program '/nowhere/slackwater'", gone.said)
        self.assertIn("--binary PATH", gone.said)

    def test_nodes_are_asked_for_that_hold_one_agent_each(self):
        nodes = self.nodes()
        nodes.alive()
        nodes.request(3)
        self.assertEqual(ray.autoscaler.sdk.REQUESTED[-1], [{"CPU": 2.0}] * 3)
        nodes.request(0)
        self.assertEqual(ray.autoscaler.sdk.REQUESTED[-1], [])
        self.nodes(cpus=9)
        self.assertEqual(self.nodes(cpus=9).alive(), [], "too small for an agent")

    def test_a_lost_actor_is_a_failure(self):
        nodes = self.nodes()
        node = Node("n" * 56, "10.0.0.9", 1)

        reference = ray.Reference(lambda: None, ())
        reference.is_done.wait()
        reference.error = ray.exceptions.RayError("The actor died.\nmore")
        nodes._running[node.id] = (None, reference)  # pylint: disable=protected-access
        self.assertEqual(nodes.ended()[0][1].said, "its actor is lost: The actor died.")


class Command(Case):
    def run_it(self, *arguments, paths=(HERE / "fake",), address="auto"):
        environment = dict(os.environ, PYTHONPATH=os.pathsep.join(map(str, [*paths, HERE.parent])))
        environment["TMPDIR"] = str(self.folder / "tmp")
        command = [sys.executable, "-m", "slackwater.ray", *arguments, "--address", address]
        return subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=PATIENCE_S, check=False
        )

    def test_a_query_runs_with_as_many_agents_as_it_wants_and_its_exit_code_counts(self):
        file = self.folder / "q.sql"
        file.touch()
        ended = self.run_it("run", str(file), "--hosts", "1..3", "--state", "/s", "--binary", PROGRAM)
        self.assertEqual(ended.returncode, 7, ended.stderr)
        told = self.told("run")
        arguments = told["arguments"]
        self.assertEqual(arguments[1:3], ["run", str(file)])
        self.assertIn("rescale=auto", arguments)
        self.assertEqual(arguments[arguments.index("--hosts") + 1], "1..3")
        self.assertEqual((told["mode"], told["key"]), (0o600, "a key\n"))
        agents = list(self.folder.glob("agent-*.json"))
        self.assertEqual(len(agents), 2)
        for agent in agents:
            joined = json.loads(agent.read_text())["arguments"]
            listened = arguments[arguments.index("--listen") + 1]
            self.assertEqual(joined[joined.index("--join") + 1], listened)
        self.assertEqual(self.left(), [])

    def test_ray_that_is_missing_is_a_message_with_the_command(self):
        (self.folder / "ray.py").write_text("raise ImportError('No module named ray')\n")
        ended = self.run_it("run", "q.sql", "--hosts", "1", "--binary", PROGRAM, paths=[self.folder])
        self.assertEqual(ended.returncode, 2)
        self.assertIn("error: Ray is not installed", ended.stderr)
        self.assertIn("pip install ray", ended.stderr)

    def test_a_cluster_that_is_missing_is_a_message_with_the_command(self):
        ended = self.run_it("run", "q.sql", "--hosts", "1", "--binary", PROGRAM, address="nowhere")
        self.assertEqual(ended.returncode, 1)
        expected = "--address nowhere: Could not find any running Ray instance.\n  = ray start"
        self.assertIn(expected, ended.stderr)
        client = self.run_it("run", "q.sql", "--hosts", "1", "--binary", PROGRAM, address="ray://h:1")
        self.assertEqual(client.returncode, 2)
        self.assertNotIn("Traceback", ended.stderr + client.stderr)

    def test_a_program_that_is_missing_here_is_a_message(self):
        ended = self.run_it("run", "q.sql", "--hosts", "1", "--binary", "/nowhere/slackwater")
        self.assertEqual(ended.returncode, 1)
        self.assertIn("this node: there is no program '/nowhere/slackwater'", ended.stderr)

    def test_a_detached_query_needs_state(self):
        ended = self.run_it("run", "q.sql", "--hosts", "1", "--detach", "--binary", PROGRAM)
        self.assertEqual(ended.returncode, 2)
        self.assertIn("--detach needs --state", ended.stderr)


class Key(unittest.TestCase):
    def test_what_is_not_the_program_is_a_message(self):
        for path in ("/bin/false", "/bin/true", "/nowhere/slackwater"):
            with self.assertRaises(Problem) as caught:
                program.generate_key(path)
            self.assertIn(f"{path} key: ", str(caught.exception))


if __name__ == "__main__":
    unittest.main()
