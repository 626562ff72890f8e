"""Tests of the client's packets and of the figures. `python3 -m unittest discover -s tests/mqtt`"""

import contextlib
import io
import unittest

import client
import rounds


class PacketsTest(unittest.TestCase):
    def test_a_packet_is_found_wherever_the_stream_is_cut(self):
        payloads = [bytes([n % 251]) * n for n in (0, 1, 127, 128, 20_000)]
        sent = [client.publish(client.text("t"), payload, 1, 7) for payload in payloads]
        stream = b"".join(sent)
        for size in (1, 2, 3, 1000, len(stream)):
            packets, found = client.Packets(), []
            for start in range(0, len(stream), size):
                found += packets.add(stream[start:start + size])
            self.assertEqual([body[5:] for _, _, body in found], payloads)
            self.assertEqual({(kind, flags) for kind, flags, _ in found}, {(client.PUBLISH, 2)})

    def test_a_length_of_more_than_four_bytes_is_an_error(self):
        with self.assertRaises(client.ProtocolError):
            client.Packets().add(b"\x30\xff\xff\xff\xff\x01")

    def test_a_message_of_quality_0_has_no_identifier(self):
        self.assertEqual(client.publish(client.text("t"), b"x", 0, 9), b"\x30\x04\x00\x01tx")


class FiguresTest(unittest.TestCase):
    def test_percentiles_are_values_that_were_measured(self):
        self.assertEqual(rounds.percentile([1, 2, 3, 4], 50), 2)
        self.assertEqual(rounds.percentile(list(range(1, 1001)), 99), 990)
        self.assertEqual(rounds.percentile([5], 99), 5)

    def test_wrong_options_are_named(self):
        for wrong, said in (
            (["--rates", "0"], "--rates"), (["--rates", "5,x"], "--rates"),
            (["--middles", "all"], "'all' is unknown"), (["--seconds", "0"], "--seconds"),
            (["--rates", "100000", "--seconds", "600"], "2,000,000"),
            (["--program", "/nothing/here"], "'/nothing/here' is not a program"),
            (["--broker", "x"], "--broker"),
        ):
            output = io.StringIO()
            with self.assertRaises(SystemExit) as ended, contextlib.redirect_stderr(output):
                rounds.parsed(wrong)
            self.assertEqual(ended.exception.code, 2)
            self.assertIn(said, output.getvalue())


if __name__ == "__main__":
    unittest.main()
