"""Starts two servers, one that lets everybody in and one with a password and TLS, and runs the tests.

run.py PROGRAM [--dbt DBT] [--only PART]: PROGRAM is slackwater. Each of psql, Python's drivers (python3),
Go's and dbt is tested if it is there.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.dirname(HERE))

import objects
import serving


def certificate(folder):
    """A certificate for 127.0.0.1, and its key."""
    files = [os.path.join(folder, name) for name in ("certificate.pem", "key.pem")]
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1",
                    "-nodes", "-days", "2", "-subj", "/CN=127.0.0.1",
                    "-addext", "subjectAltName=IP:127.0.0.1", "-out", files[0], "-keyout", files[1]],
                   check=True, capture_output=True)
    return files


def main(program, dbt, only):
    parts = {"psql": [sys.executable, "-m", "unittest", "test_psql"],
             "python3": [sys.executable, "-m", "unittest", "test_clients"],
             "go": ["go", "test", "-count=1", "./..."],
             dbt: [sys.executable, "-m", "unittest", "test_dbt"]}
    if only:
        parts = {only: parts[only]}
    failed = []
    with tempfile.TemporaryDirectory() as folder:
        folders = [os.path.join(folder, name) for name in ("open", "closed")]
        for each in folders:
            os.mkdir(each)
        passwords = os.path.join(folder, "passwords")
        with open(passwords, "w") as file:
            file.write("ada:secret\n")
        files = certificate(folder)
        servers = [serving.Server(program, folders[0], http=True),
                   serving.Server(program, folders[1], "--passwords", passwords,
                                  "--tls-certificate", files[0], "--tls-key", files[1], http=True)]
        ports = [str(server.pg_port) for server in servers]
        try:
            for server, each in zip(servers, folders):
                objects.make(program, server, each)
            environment = os.environ | {"PYTHONDONTWRITEBYTECODE": "1", "PGPORT": ports[0],
                                        "TLS_PORT": ports[1], "TLS_CERTIFICATE": files[0], "DBT": dbt,
                                        "PYTHONPATH": os.path.dirname(HERE)}
            for name, command in parts.items():
                if not shutil.which(name):
                    print(f"note: {name} is missing: its tests are skipped")
                    continue
                where = os.path.join(HERE, "go") if name == "go" else HERE
                print(f"{name}:", flush=True)
                if subprocess.run(command, cwd=where, env=environment, timeout=600).returncode:
                    failed.append(name)
        finally:
            ended = [server.stop() for server in servers]
        if not all(ended):
            failed.append("a server")
        if failed:
            print("the log of the server that lets everybody in:", *servers[0].log[-20:], sep="\n")
    sys.exit(f"failed: {', '.join(failed)}" if failed else None)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("--dbt", default="dbt")
    parser.add_argument("--only")
    given = parser.parse_args()
    main(os.path.abspath(given.program), given.dbt, given.only)
