"""The notebook of the examples: its cells run, one after the other, and show what it says."""

import contextlib
import importlib
import io
import json
import os
import unittest

from engine import needs, needs_engine
from served import ROOT

PATH = os.path.join(ROOT, "examples/latency.ipynb")


def cells():
    with open(PATH, encoding="utf-8") as file:
        return json.load(file)["cells"]


class Notebook(unittest.TestCase):
    def test_it_is_stored_without_outputs(self):
        for cell in cells():
            if cell["cell_type"] == "code":
                self.assertEqual((cell["outputs"], cell["execution_count"]), ([], None), cell["id"])

    @needs_engine
    @needs("matplotlib")
    def test_its_cells_run(self):
        import matplotlib

        matplotlib.use("Agg")
        # Small enough for a build without optimizations on a machine that is busy.
        names, printed = {"display": print}, io.StringIO()
        shorter = {"SECONDS": 3, "RATE": 2000, "TARGETS": ["5 ms", "500 ms"]}
        for cell in cells():
            if cell["cell_type"] == "code":
                code = compile("".join(cell["source"]), f"{PATH}, cell {cell['id']}", "exec")
                with contextlib.redirect_stdout(printed):
                    exec(code, names)  # noqa: S102 - it is a file of this checkout
                if "parameters" in cell["metadata"].get("tags", ()):
                    self.assertLessEqual(shorter.keys(), names.keys())
                    names.update(shorter)
        figure, samples, reports = names["figure"], names["samples"], names["reports"]
        self.assertEqual([axis.get_ylabel() for axis in figure.axes], ["rows/s", "p99 (ms)", "cores"])
        self.assertTrue(all(axis.lines[0].get_ydata().size == len(samples) for axis in figure.axes))
        self.assertEqual([sample["target"] for sample in samples][:: len(samples) - 1], shorter["TARGETS"])
        self.assertTrue(all(report.rows_in > 0 for report in reports.values()))
        # Not how fast it is: with a hundredfold target, rows wait for each other.
        wakeups = [report.wakeups / report.rows_in for report in reports.values()]
        self.assertLess(wakeups[1], wakeups[0] / 2)
        self.assertEqual(len(printed.getvalue().splitlines()), 1 + len(reports))
        importlib.import_module("matplotlib.pyplot").close(figure)


if __name__ == "__main__":
    unittest.main()
