"""A finding as a folder: the SQL, its inputs, the commands, and the expected and the actual answer."""

import os
import re
from dataclasses import dataclass


@dataclass
class Finding:
    number: int
    seed: str
    case: object
    setting: object
    problem: str
    reason: str
    """Why the finding is known; None for a new one."""
    steps: int
    folder: str = None

    def title(self):
        kinds = ", ".join(dict.fromkeys(query.kind for query in self.case.queries))
        return f"{kinds}: {self.problem.splitlines()[0][:160]}"

    def write(self, options, want, got):
        kind = re.sub(r"\W+", "-", self.case.queries[0].kind if self.case.queries else "case")
        base = os.path.join(options.out, "known" if self.reason else "new")
        self.folder = os.path.join(base, f"{re.sub(r'[^A-Za-z0-9]+', '-', self.seed)}-{self.number}-{kind}")
        os.makedirs(self.folder, exist_ok=True)
        self.case.write(self.folder, self.setting.rate)
        resets = "rm -rf state *.tmp-* .o*.unfinished\n" if self.setting.state else ""
        script = ["#!/bin/bash", "# The program to try: SLACKWATER, or slackwater of the path.", 'cd "$(dirname "$0")"', resets + "shopt -s expand_aliases"]
        script += ['SLACKWATER="${SLACKWATER:-slackwater}"'] + self.setting.commands('"$SLACKWATER"')
        script += [f"echo '--- {query.name}.csv, as it came'; cat {query.path()}{'/part-*' if query.folder else ''}" for query in self.case.queries] + ["echo '--- wanted, as a table'; cat wanted"]
        self.put("repro.sh", "\n".join(script) + "\n")
        os.chmod(os.path.join(self.folder, "repro.sh"), 0o755)
        self.put("wanted", shown(self.case, want))
        self.put("got", got + "\n" if isinstance(got, str) else shown(self.case, got))
        notes = [self.title(), "", self.problem, "", f"Found by: make fuzz-sql SEED={self.seed} FIRST={self.number} QUERIES=1", f"Reduced in {self.steps} steps."]
        notes += ["", "Times are microseconds since 1970, days days since 1970; a row's number of times stands before it."]
        notes += [f"Known: {self.reason}"] if self.reason else []
        self.put("README", "\n".join(notes) + "\n")

    def put(self, name, text):
        with open(os.path.join(self.folder, name), "w", encoding="utf-8") as out:
            out.write(text)


def shown(case, answers):
    lines = []
    for query in case.queries:
        answer = answers.get(query.name, "nobody knows")
        lines.append(f"{query.name}: " + ", ".join(column.name for column in query.columns()))
        if isinstance(answer, str):
            lines.append(answer)
        else:
            lines += sorted(f"{count} x {' | '.join(cells)}" for cells, count in answer.items())
    return "\n".join(lines) + "\n"
