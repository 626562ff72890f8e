"""Ray itself: imported when it is needed, so that a missing one is a message."""

from __future__ import annotations

import os
from typing import Any

from ..problem import USAGE, Problem

PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def load() -> Any:
    """The module `ray`."""
    try:
        import ray  # pylint: disable=import-outside-toplevel
    except ImportError as error:
        raise Problem(
            f"Ray is not installed: {error}", "python3 -m pip install ray", USAGE
        ) from error
    return ray


def connect(address: str) -> Any:
    """Joins the cluster as a driver; returns the module."""
    if address.startswith("ray://"):
        raise Problem(
            f"--address {address}: Ray's client can't be used, because hosts have to reach the query",
            "run this on a node of the cluster, or use --detach there",
            USAGE,
        )
    ray = load()
    try:
        ray.init(
            address=address, namespace="slackwater", logging_level="ERROR", log_to_driver=False,
            # Nodes need Ray and the program, and not this package.
            runtime_env={"py_modules": [PACKAGE]},
        )
    except (ConnectionError, RuntimeError, ValueError, TimeoutError) as error:
        reason = str(error).strip().splitlines()
        raise Problem(
            f"--address {address}: {reason[0] if reason else 'no answer'}",
            "ray start --head on this node, or ray start --address HEAD:6379 to join a cluster",
        ) from error
    return ray
