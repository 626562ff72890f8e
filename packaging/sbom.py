#!/usr/bin/env python3
"""What is inside of the published programs: an SBOM and the licenses of everything.

    python3 packaging/sbom.py --features kafka,s3 --out FOLDER [--check]

Writes sbom.cdx.json (CycloneDX 1.5) and LICENSE-THIRD-PARTY. What is listed is what cargo resolves for the
programs and these features on this platform, without what only the build or the tests need; and the C
libraries that are compiled in. --check validates the SBOM against CycloneDX's schema (cyclonedx-python-lib).
"""

import argparse
import datetime
import hashlib
import json
import os
import pathlib
import re
import subprocess
import sys
import tomllib
import uuid

ROOT = pathlib.Path(__file__).resolve().parents[1]
# Each package that is published, and whether it has the features.
PUBLISHED = {
    "slackwater": True, "slackwater-power": False, "slackwater-sockets": False, "slackwater-python": True,
}
# C libraries in crates: name, license, the file that has the version, and its license file, in the crate.
BUNDLED = {
    "libmimalloc-sys": ("mimalloc", "MIT", "", r"", "c_src/mimalloc/v2/LICENSE"),
    "libsqlite3-sys": (
        "sqlite", "blessing", "sqlite3/sqlite3.h", r'define SQLITE_VERSION\s+"([\d.]+)"', ""),
    "libz-sys": (
        "zlib", "Zlib", "src/zlib/zlib.h", r'define ZLIB_VERSION\s+"([\d.]+)"', "src/zlib/LICENSE"),
    "rdkafka-sys": ("librdkafka", "BSD-2-Clause", "", r"", "librdkafka/LICENSES.txt"),
    "zstd-sys": ("zstd", "BSD-3-Clause", "", r"", "zstd/LICENSE"),
}
NO_FILE = "The crate has no file with its license; its manifest names it."
LICENSE_FILES = re.compile(r"(?i)^(licen[cs]e|copying|notice|unlicense|copyright)([-._].*)?$")


def cargo(*arguments):
    command = ["cargo", *arguments]
    return subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout


def resolved(features):
    """What each (name, version) depends on, for all that is published."""
    edges = {}
    for package, has_features in PUBLISHED.items():
        if not any((ROOT / "crates" / folder / "Cargo.toml").exists() for folder in folders(package)):
            continue
        asked = ["tree", "--locked", "-p", package, "-e", "normal,no-proc-macro", "--prefix", "depth"]
        if has_features and features:
            asked += ["--features", features]
        above = []
        for line in cargo(*asked, "-f", "{p}").splitlines():
            depth, name, version = re.match(r"(\d+)(\S+) v(\S+)", line).groups()
            depth, node = int(depth), (name, version)
            del above[depth:]
            edges.setdefault(node, set())
            if above:
                edges[above[-1]].add(node)
            above.append(node)
    return edges


def folders(package):
    return [package.removeprefix("slackwater-"), package]


def checksums():
    lock = tomllib.loads((ROOT / "Cargo.lock").read_text())
    return {(package["name"], package["version"]): package.get("checksum") for package in lock["package"]}


def bundled(name, package):
    """The C library in a crate as (name, version, license, its license file), if there is one."""
    if name not in BUNDLED:
        return None
    library, license_, header, pattern, text = BUNDLED[name]
    folder = pathlib.Path(package["manifest_path"]).parent
    if header:
        version = re.search(pattern, (folder / header).read_text(errors="replace"))[1]
    else:
        # Such as 4.10.0+2.12.1 and 2.1.2+zstd.1.5.7; mimalloc's crate does not say it.
        version = package["version"].partition("+")[2].removeprefix(f"{library}.")
    return library, version, license_, folder / text if text else None


def component(name, version, package, checksum):
    ours = package["source"] is None
    found = {
        "type": "library",
        "bom-ref": f"pkg:cargo/{name}@{version}",
        "name": name,
        "version": version,
        "scope": "required",
        "licenses": [{"expression": package["license"].replace("/", " OR ")}],
        "purl": f"pkg:cargo/{name}@{version}",
    }
    if package.get("description"):
        found["description"] = " ".join(package["description"].split())
    if ours:
        del found["purl"]
    if checksum:
        found["hashes"] = [{"alg": "SHA-256", "content": checksum}]
    if package.get("repository"):
        found["externalReferences"] = [{"type": "vcs", "url": package["repository"]}]
    return found


def bom(edges, packages):
    sums = checksums()
    components, dependencies = [], []
    for node in sorted(edges):
        name, version = node
        package = packages[node]
        components.append(component(name, version, package, sums.get(node)))
        needed = [f"pkg:cargo/{other}@{its}" for other, its in sorted(edges[node])]
        library = bundled(name, package)
        if library:
            library, its, license_, _ = library
            reference = f"{library}@{its}" if its else library
            components.append({
                "type": "library", "bom-ref": reference, "name": library, "scope": "required",
                **({"version": its} if its else {}),
                "description": f"C library, compiled into the crate {name}",
                "licenses": [{"license": {"id": license_}}],
            })
            dependencies.append({"ref": reference, "dependsOn": []})
            needed.append(reference)
        dependencies.append({"ref": f"pkg:cargo/{name}@{version}", "dependsOn": needed})
    version = packages_of(packages, "slackwater")["version"]
    seconds = int(os.environ.get("SOURCE_DATE_EPOCH", "0"))
    time = datetime.datetime.fromtimestamp(seconds, datetime.timezone.utc)
    content = hashlib.sha256(json.dumps(components).encode()).hexdigest()
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "serialNumber": uuid.uuid5(uuid.NAMESPACE_URL, content).urn,
        "version": 1,
        "metadata": {
            "timestamp": time.strftime("%Y-%m-%dT%H:%M:%SZ"),
            "component": {
                "type": "application", "bom-ref": "slackwater-packages", "name": "slackwater",
                "version": version, "licenses": [{"license": {"id": "Apache-2.0"}}],
            },
        },
        "components": components,
        "dependencies": [
            {"ref": "slackwater-packages",
             "dependsOn": [f"pkg:cargo/{name}@{its}" for name, its in sorted(edges) if name in PUBLISHED]},
            *dependencies,
        ],
    }


def packages_of(packages, name):
    return next(package for (one, _), package in packages.items() if one == name)


def licenses(edges, packages):
    """The text of each license, once, with the crates that have it."""
    users = {}
    for node in sorted(edges):
        package = packages[node]
        if package["source"] is None:
            continue
        name, version = node
        folder = pathlib.Path(package["manifest_path"]).parent
        named = [path for path in sorted(folder.iterdir()) if LICENSE_FILES.match(path.name)]
        files = [path for path in named if path.is_file()]
        label = f"{name} {version} ({package['license']})"
        library = bundled(name, package)
        if library and library[3]:
            users.setdefault(library[3].read_text(errors="replace").strip(), []).append(
                f"{library[0]} {library[1]} ({library[2]}), in {name}".replace("  ", " "))
        if not files:
            users.setdefault(NO_FILE, []).append(label)
        for path in files:
            users.setdefault(path.read_text(errors="replace").strip(), []).append(label)
    parts = ["Licenses of the libraries that are compiled into Slackwater's programs.\n"]
    for text, names in sorted(users.items(), key=lambda item: (-len(item[1]), item[1])):
        parts.append("\n".join(["=" * 80, *names, "-" * 80, "", text, ""]))
    return "\n".join(parts)


def check(path):
    from cyclonedx.schema import SchemaVersion
    from cyclonedx.validation.json import JsonStrictValidator

    problem = JsonStrictValidator(SchemaVersion.V1_5).validate_str(path.read_text())
    if problem:
        sys.exit(f"{path}: {problem}")
    print(f"{path}: valid")


def main():
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    parser.add_argument("--features", default="", help="features of the program")
    parser.add_argument("--out", type=pathlib.Path, required=True, help="the folder for both files")
    parser.add_argument("--check", action="store_true", help="only validate the SBOM that is there")
    options = parser.parse_args()
    path = options.out / "sbom.cdx.json"
    if options.check:
        return check(path)
    named = ",".join(f"slackwater/{one}" for one in options.features.split(",") if one)
    metadata = json.loads(cargo("metadata", "--locked", "--format-version", "1", "--features", named))
    packages = {(package["name"], package["version"]): package for package in metadata["packages"]}
    edges = resolved(options.features)
    options.out.mkdir(parents=True, exist_ok=True)
    found = bom(edges, packages)
    path.write_text(json.dumps(found, indent=1) + "\n")
    (options.out / "LICENSE-THIRD-PARTY").write_text(licenses(edges, packages))
    print(f"{path}: {len(found['components'])} components")
    return None


if __name__ == "__main__":
    main()
