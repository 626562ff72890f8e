"""Starts two servers, one that lets everybody in and one with a password and TLS, and runs the tests.

run.py SERVER: SERVER is crates/serve/examples/postgres_server.rs, which has the same door as
`slackwater serve` before a few rows in memory. Each of psql, Python's drivers and Go's is tested if it is
there.
"""

import os
import shutil
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))


def start(command):
    """Starts a server. It ends with its standard input, and prints its address."""
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    address = process.stdout.readline().strip()
    if not address:
        sys.exit(f"{command[0]} has not started")
    return process, address.rsplit(":", 1)[1]


def certificate(folder):
    """A certificate for 127.0.0.1, and its key."""
    files = [os.path.join(folder, name) for name in ("certificate.pem", "key.pem")]
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1",
                    "-nodes", "-days", "2", "-subj", "/CN=127.0.0.1",
                    "-addext", "subjectAltName=IP:127.0.0.1", "-out", files[0], "-keyout", files[1]],
                   check=True, capture_output=True)
    return files


def main(server):
    parts = {"psql": [sys.executable, "-m", "unittest", "test_psql"],
             "python3": [sys.executable, "-m", "unittest", "test_clients"],
             "go": ["go", "test", "-count=1", "./..."]}
    failed = []
    with tempfile.TemporaryDirectory() as folder:
        passwords = os.path.join(folder, "passwords")
        with open(passwords, "w") as file:
            file.write("ada:secret\n")
        files = certificate(folder)
        open_server, port = start([server, "127.0.0.1:0"])
        tls_server, tls_port = start([server, "127.0.0.1:0", passwords, *files])
        environment = os.environ | {"PYTHONDONTWRITEBYTECODE": "1", "PGPORT": port, "TLS_PORT": tls_port,
                                    "TLS_CERTIFICATE": files[0]}
        for program, command in parts.items():
            if not shutil.which(program):
                print(f"note: {program} is missing: its tests are skipped")
                continue
            where = os.path.join(HERE, "go") if program == "go" else HERE
            print(f"{program}:", flush=True)
            if subprocess.run(command, cwd=where, env=environment, timeout=600).returncode:
                failed.append(program)
        for process in (open_server, tls_server):
            process.stdin.close()
            if process.wait(timeout=60):
                failed.append("the server")
    sys.exit(f"failed: {', '.join(failed)}" if failed else None)


if __name__ == "__main__":
    main(os.path.abspath(sys.argv[1]))
