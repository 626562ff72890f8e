"""What each activation of a traced thread executed. See README.md.

usage: report.py PROGRAM MAPS STEPS [FUNCTIONS]
"""

import bisect
import collections
import struct
import subprocess
import sys

# Waits end an activation.
WAITS = {271: "ppoll", 281: "epoll_pwait", 441: "epoll_pwait2"}
CALLS = {0: "read", 1: "write", 44: "sendto", 45: "recvfrom", 202: "futex", **WAITS}
LINE, PAGE = 64, 4096


def symbols(program):
    """The program's functions, by address."""
    command = ["nm", "--demangle", "--defined-only", program]
    listed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    fields = (line.split(" ", 2) for line in listed.splitlines())
    return sorted((int(f[0], 16), f[2]) for f in fields if len(f) == 3 and f[1] in "tTwWi")


def mappings(path):
    """Begin, end and name of each mapping."""
    found = []
    for line in open(path):
        fields = line.split()
        begin, end = (int(address, 16) for address in fields[0].split("-"))
        found.append((begin, end, fields[5] if len(fields) > 5 else "?"))
    return found


def namer(program, maps):
    """A function from an address to the name of its function."""
    own = [mapping for mapping in maps if mapping[2] == program]
    base = min(begin for begin, _, _ in own)
    known = symbols(program)
    addresses = [address for address, _ in known]

    def name(address):
        for begin, end, path in maps:
            if begin <= address < end and path == program:
                return known[bisect.bisect_right(addresses, address - base) - 1][1]
            if begin <= address < end:
                return f"[{path.rsplit('/', 1)[-1]}]"
        return "[vdso]"

    return name


def activations(path):
    """The addresses between two waits, and the system calls."""
    data = open(path, "rb").read()
    addresses, calls = [], []
    for (entry,) in struct.iter_unpack("<Q", data):
        call = (entry >> 48) - 1
        addresses.append(entry & ((1 << 48) - 1))
        if call >= 0:
            calls.append(CALLS.get(call, str(call)))
        if call in WAITS:
            yield addresses, calls
            addresses, calls = [], []


def main(program, maps, steps, functions=20):
    name = namer(program, mappings(maps))
    # The first one begins in the middle.
    found = list(activations(steps))[1:]
    print("instructions, cache lines and pages of code; system calls")
    for addresses, calls in found:
        lines, pages = ({address // size for address in addresses} for size in (LINE, PAGE))
        counted = ", ".join(f"{n} {call}" for call, n in collections.Counter(calls).items())
        print(f"{len(addresses):8} {len(lines):6} {len(pages):5}  {counted}")
    addresses = max(found, key=lambda one: len(one[1]))[0]
    executed, lines = collections.Counter(), collections.defaultdict(set)
    names = {}
    for address in addresses:
        function = names.setdefault(address, None) or name(address)
        names[address] = function
        executed[function] += 1
        lines[function].add(address // LINE)
    print("\nthe one with the most system calls: instructions and lines by function")
    for function, _ in sorted(executed.items(), key=lambda one: -len(lines[one[0]]))[: int(functions)]:
        print(f"{executed[function]:8} {len(lines[function]):6}  {function[:100]}")


if __name__ == "__main__":
    if len(sys.argv) < 4:
        sys.exit(__doc__)
    main(*sys.argv[1:5])
