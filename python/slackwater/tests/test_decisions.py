"""The decisions: numbers of hosts, and agents that are started and drained."""

import unittest

from slackwater import hosts
from slackwater.fleet import PAUSE_MAX_S, Fleet, Gone, Node
from slackwater.hosts import Known, Limits
from slackwater.problem import USAGE, Problem
from slackwater.ray import options


class Hosts(unittest.TestCase):
    def test_a_number_or_limits_are_parsed(self):
        self.assertEqual(hosts.parse("3"), Limits(3, 3))
        self.assertEqual(hosts.parse("1..4"), Limits(1, 4))
        self.assertEqual([str(hosts.parse(text)) for text in ("3", "1..4")], ["3", "1..4"])
        for text in ("", "0", "4..1", "1..", "-1", "a", "1..2..3"):
            with self.assertRaises(Problem) as caught:
                hosts.parse(text)
            self.assertEqual(caught.exception.code, USAGE)
            self.assertIn(f"--hosts {text}:", str(caught.exception))

    def test_an_answer_is_read_and_anything_else_is_nothing(self):
        said = b'{"wanted":3,"reason":"busy","used":2,"joined":2,"min":1,"max":4}\n'
        self.assertEqual(hosts.known(said), Known(3, 2, "busy"))
        for body in (b"null\n", b"", b"<html>", b"[1]", b'{"wanted":"x"}', b"\xff"):
            self.assertIsNone(hosts.known(body))

    def test_nobody_answers(self):
        self.assertIsNone(hosts.read("127.0.0.1:1", None))


class Nodes:
    """Nodes in memory."""

    def __init__(self, count):
        self.there = [Node(f"n{number}", f"10.0.0.{number}", 2) for number in range(1, count + 1)]
        self.running, self.drained, self.gone, self.requested = [], [], [], []

    def alive(self):
        return self.there

    def start(self, node):
        assert node.id not in self.running
        self.running.append(node.id)

    def drain(self, node):
        self.drained.append(node)

    def ended(self):
        gone, self.gone = self.gone, []
        for node, _ in gone:
            self.running.remove(node)
        return gone

    def request(self, hosts_wanted):
        self.requested.append(hosts_wanted)


class Follows(unittest.TestCase):
    def setUp(self):
        self.told = []

    def fleet(self, nodes, low=1, high=3):
        return Fleet(nodes, Limits(low, high), self.told.append)

    def known(self, wanted, nodes):
        return Known(wanted, len(nodes.running), "busy")

    def test_the_fewest_hosts_are_started_before_the_query_answers(self):
        nodes = Nodes(3)
        fleet = self.fleet(nodes, low=2)
        for second in range(5):
            fleet.tick(second, None)
        self.assertEqual((nodes.running, nodes.requested), (["n1", "n2"], [2]))

    def test_hosts_are_added_and_the_last_ones_drained(self):
        nodes = Nodes(4)
        fleet = self.fleet(nodes)
        fleet.tick(0, self.known(1, nodes))
        fleet.tick(1, self.known(3, nodes))
        self.assertEqual(nodes.running, ["n1", "n2", "n3"])
        fleet.tick(2, self.known(1, nodes))
        self.assertEqual(nodes.drained, ["n3", "n2"])
        nodes.gone = [("n3", Gone(False, ""))]
        fleet.tick(3, self.known(1, nodes))
        self.assertEqual(nodes.drained, ["n3", "n2"], "each once")
        nodes.gone = [("n2", Gone(False, ""))]
        fleet.tick(4, self.known(1, nodes))
        self.assertEqual((nodes.running, fleet.size, nodes.requested), (["n1"], 1, [1, 3, 1]))
        self.assertIn("3 hosts are wanted (busy)", self.told)

    def test_a_wish_beyond_the_limits_is_not_followed(self):
        nodes = Nodes(9)
        fleet = self.fleet(nodes)
        fleet.tick(0, Known(9, 0, "busy"))
        self.assertEqual(len(nodes.running), 3)

    def test_hosts_of_others_count(self):
        nodes = Nodes(3)
        fleet = self.fleet(nodes)
        fleet.tick(0, Known(3, 2, "busy"))
        self.assertEqual(nodes.running, ["n1"])

    def test_an_agent_that_has_not_joined_yet_is_not_drained_for_one_of_another(self):
        nodes = Nodes(3)
        fleet = self.fleet(nodes)
        fleet.tick(0, Known(1, 0, "fits"))
        fleet.tick(1, Known(1, 0, "fits"))
        fleet.tick(2, Known(1, 1, "fits"))
        self.assertEqual((nodes.running, nodes.drained), (["n1"], []))

    def test_nothing_is_drained_while_the_query_does_not_answer(self):
        nodes = Nodes(3)
        fleet = self.fleet(nodes)
        fleet.tick(0, Known(3, 0, "busy"))
        for second in range(1, 9):
            fleet.tick(second, None)
        self.assertEqual((len(nodes.running), nodes.drained), (3, []))

    def test_an_agent_that_the_query_has_lost_is_replaced_on_another_node_and_later_on_its_own(self):
        nodes = Nodes(2)
        fleet = self.fleet(nodes)
        fleet.tick(0, self.known(1, nodes))
        nodes.gone = [("n1", Gone(True, "its actor is lost"))]
        fleet.tick(1, Known(1, 0, "fits"))
        self.assertEqual(nodes.running, ["n2"])
        self.assertIn("warning: node 10.0.0.1 (n1): its actor is lost", self.told)
        fleet.tick(2.5, Known(2, 1, "busy"))
        self.assertEqual(nodes.running, ["n2", "n1"])

    def test_a_host_that_the_query_has_lost_is_replaced_before_ray_notices(self):
        nodes = Nodes(3)
        fleet = self.fleet(nodes)
        fleet.tick(0, Known(1, 0, "unknown"))
        for second in range(1, 20):
            fleet.tick(second, Known(1, 1, "fits"))
        fleet.tick(20, Known(1, 0, "fits"))
        self.assertEqual(nodes.running, ["n1", "n2"])
        # It joins, and only then Ray says that the first one is dead.
        fleet.tick(21, Known(1, 0, "fits"))
        for second in range(22, 60):
            fleet.tick(second, Known(1, 1, "fits"))
        self.assertEqual((nodes.running, nodes.drained), (["n1", "n2"], []))
        nodes.gone = [("n1", Gone(True, "its actor is lost"))]
        fleet.tick(60, Known(1, 1, "fits"))
        self.assertEqual((nodes.running, nodes.drained), (["n2"], []))

    def test_a_node_that_fails_again_and_again_is_tried_less_and_less(self):
        nodes = Nodes(1)
        fleet = self.fleet(nodes)
        tries = []
        for tenth in range(6_000):
            if nodes.running:
                tries.append(tenth / 10)
                nodes.gone = [("n1", Gone(True, "no program"))]
            fleet.tick(tenth / 10, Known(1, 0, "unknown"))
        pauses = [round(after - before, 1) for before, after in zip(tries, tries[1:])]
        self.assertGreater(len(tries), 8)
        self.assertEqual(pauses, sorted(pauses))
        self.assertLessEqual(pauses[-1], PAUSE_MAX_S + 1)

    def test_it_says_once_that_nodes_are_missing(self):
        nodes = Nodes(1)
        fleet = self.fleet(nodes, low=3)
        for second in range(5):
            fleet.tick(second, None)
        self.assertEqual(self.told, ["2 more nodes are needed"])


class Options(unittest.TestCase):
    def test_what_follows_the_dashes_is_for_the_program(self):
        told, more = options.parse(["run", "q.sql", "--hosts", "1..2", "--", "--report", "r.json"])
        self.assertEqual((told.query, told.hosts, more), ("q.sql", "1..2", ["--report", "r.json"]))

    def test_what_is_set_here_can_not_be_set_there(self):
        for option in ("--listen=x", "--hosts", "--secret", "--metrics", "--state"):
            with self.assertRaises(Problem) as caught:
                options.parse(["run", "q.sql", "--hosts", "2", "--", option])
            self.assertEqual(caught.exception.code, USAGE)
        with self.assertRaises(Problem):
            options.parse(["run", "q.sql", "--hosts", "2", "--cpus", "0"])


if __name__ == "__main__":
    unittest.main()
