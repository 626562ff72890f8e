"""What programs do with TCP sockets, and what comes of it.

Prints a line for each case. It is run over plain TCP and under the library of `slackwater sockets`, and the
outputs must be equal: no line says anything about time. `suite.py CASE …` runs only those.
"""

import signal
import sys

from ends import WAIT_S
from processes import (
    duplicates, fork_server, shared_after_fork, executed, passed, nonblocking_poll, edge_triggered,
    two_of_an_epoll, order_of_arrival, epoll_of_a_poll, closed_port, nonblocking_connect, killed,
    killed_while_full, many,
)
from streams import (
    half_close, half_close_first, shut_both, receive_timeout, send_timeout, peek, wait_for_all,
    discarded, urgent, urgent_inline, vectors, files, unread, sends_after_close, pipe_signal, interrupted,
    threads, counts, ipv6, server_speaks, random_operations,
)

CASES = [
    half_close, half_close_first, shut_both, receive_timeout, send_timeout, peek, wait_for_all, discarded,
    urgent, urgent_inline, vectors, files, duplicates, fork_server, shared_after_fork, executed, passed,
    nonblocking_poll, edge_triggered, two_of_an_epoll, order_of_arrival, epoll_of_a_poll, unread,
    sends_after_close, pipe_signal, closed_port, nonblocking_connect, killed, killed_while_full, interrupted,
    many, threads, counts, ipv6, server_speaks, random_operations,
]


def main():
    wanted = sys.argv[1:]
    for case in CASES:
        if wanted and case.__name__ not in wanted:
            continue
        signal.alarm(WAIT_S * 3)
        try:
            outcome = list(case())
        except Exception as failed:  # pylint: disable=broad-except
            outcome = [f"{type(failed).__name__}: {failed}"]
        signal.alarm(0)
        print(case.__name__, *outcome, flush=True)


if __name__ == "__main__":
    main()
