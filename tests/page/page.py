"""The page in Debian's Chromium: `make test-page`.

What takes time is printed, never asserted. What the page shows, where its requests go and whether axe-core
finds serious faults is asserted.
"""

import argparse
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time

from selenium import webdriver
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

ROOT = pathlib.Path(__file__).resolve().parents[2]
PATIENCE_S = 60

# A source that is open and silent.
IDLE = """CREATE TABLE t (ms BIGINT, k STRING, ts AS TO_TIMESTAMP_LTZ(ms, 3), WATERMARK FOR ts AS ts)
WITH ('connector' = 'tcp', 'address' = '127.0.0.1:0', 'mode' = 'listen');
CREATE TABLE o (k STRING, n BIGINT) WITH ('connector' = 'blackhole');
INSERT INTO o SELECT k, COUNT(*) FROM TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '1' SECOND)
GROUP BY window_start, window_end, k;
"""

# Bad and late rows, several sinks with targets of their own, checkpoints, several instances.
RICH = """SET 'checkpoint_interval' = '300 ms';
SET 'parallelism' = '2';
CREATE TABLE t (ms BIGINT, k STRING, ts AS TO_TIMESTAMP_LTZ(ms, 3), WATERMARK FOR ts AS ts)
WITH ('connector' = 'file', 'path' = 'in.csv', 'replay_rate' = '1000/s');
CREATE TABLE soon (k STRING, n BIGINT) WITH ('connector' = 'blackhole', 'latency_target' = '10 ms');
CREATE TABLE later (k STRING) WITH ('connector' = 'blackhole', 'latency_target' = '200 ms');
INSERT INTO soon SELECT k, COUNT(*) FROM TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '1' SECOND)
GROUP BY window_start, window_end, k;
INSERT INTO later SELECT k FROM t WHERE k <> '<b>x</b>';
"""


class Query:
    """A running query with its page."""

    def __init__(self, program, text_or_file, *options):
        self.folder = tempfile.TemporaryDirectory()
        if isinstance(text_or_file, pathlib.Path):
            file = text_or_file
        else:
            file = pathlib.Path(self.folder.name) / "query.sql"
            file.write_text(text_or_file)
        if "in.csv" in file.read_text():
            rows = "".join(bad_or_late(number) for number in range(60_000))
            (pathlib.Path(self.folder.name) / "in.csv").write_text(rows)
        self.began = time.monotonic()
        self.process = subprocess.Popen(
            [program, "run", str(file), "--quiet", "--page", *options],
            cwd=self.folder.name, stderr=subprocess.PIPE, text=True)
        for line in self.process.stderr:
            found = re.search(r"page at (http://\S+)", line)
            if found:
                self.url = found.group(1)
                return
        raise AssertionError("the query ended before it had a page")

    def age_s(self):
        return time.monotonic() - self.began

    def cpu_s(self):
        """The CPU time of all threads, as the scheduler counts it."""
        tasks = pathlib.Path(f"/proc/{self.process.pid}/task")
        stats = [(task / "schedstat").read_text() for task in tasks.iterdir()]
        return sum(int(stat.split()[0]) for stat in stats) / 1e9

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.terminate()
        self.process.communicate(timeout=PATIENCE_S)
        self.folder.cleanup()


def bad_or_late(number):
    if number % 500 == 7:
        return "<i>broken</i>,x\n"
    return f"{number * 10 - (3000 if number % 100 == 99 else 0)},k{number % 7}\n"


class Browser:
    """Chromium without a window, which finds no host but this one."""

    def __init__(self):
        options = webdriver.ChromeOptions()
        for option in ["--headless=new", "--no-sandbox", "--disable-gpu", "--window-size=1280,1600",
                       "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1"]:
            options.add_argument(option)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
        self.driver = webdriver.Chrome(service=Service("/usr/bin/chromedriver"), options=options)
        self.driver.set_script_timeout(PATIENCE_S)

    def open(self, url):
        self.driver.get(url)
        self.until(lambda: int(self.driver.execute_script(
            "return document.getElementById('main').dataset.looks || 0")) > 0)

    def until(self, holds, what="the page"):
        end = time.monotonic() + PATIENCE_S
        while time.monotonic() < end:
            if holds():
                return
            time.sleep(0.02)
        raise AssertionError(f"{what}: not within {PATIENCE_S} s")

    def text(self, identifier):
        return self.driver.find_element(By.ID, identifier).text

    def pull(self, target):
        """Moves the slider with the keyboard."""
        slider = self.driver.find_element(By.ID, "slider")
        slider.send_keys(Keys.HOME)
        for _ in range(40):
            if slider.get_attribute("aria-valuetext") == target:
                break
            slider.send_keys(Keys.ARROW_RIGHT)
        assert slider.get_attribute("aria-valuetext") == target
        said = f"The target is now {target}."
        self.until(lambda: self.text("target-said") == said, said)

    def faults(self, axe):
        """The serious faults that axe-core finds."""
        self.driver.execute_script(axe)
        found = self.driver.execute_async_script(
            "const done = arguments[0]; axe.run(document).then((found) => done(found.violations));")
        return [(fault["id"], fault["impact"], [node["html"][:120] for node in fault["nodes"]][:5])
                for fault in found if fault["impact"] in ("serious", "critical")]

    def picture(self, name):
        folder = ROOT / "target" / "page"
        folder.mkdir(parents=True, exist_ok=True)
        height = self.driver.execute_script("return document.documentElement.scrollHeight")
        width = self.driver.execute_script("return window.innerWidth")
        self.driver.set_window_size(width, max(600, min(4000, height + 150)))
        self.driver.save_screenshot(str(folder / f"{name}.png"))

    def check_requests(self, url):
        """Nothing was asked for but at the query's own address, and nothing went wrong."""
        names = self.driver.execute_script(
            "return performance.getEntriesByType('resource').map((entry) => entry.name)")
        assert all(name.startswith(url) for name in names), names
        severe = [entry["message"] for entry in self.driver.get_log("browser") if entry["level"] == "SEVERE"]
        assert not severe, severe


FIRST_CHART = """
const done = arguments[0];
const wait = () => {
  const drawn = document.getElementById('charts').dataset.firstLine;
  drawn ? done(Number(drawn)) : setTimeout(wait, 5);
};
wait();
"""


def test_accessibility(browser, program, axe):
    with Query(program, RICH, "--state", "state") as query:
        browser.open(query.url)
        first = browser.driver.execute_async_script(FIRST_CHART)
        print(f"first chart {first:.0f} ms after the page was asked for")
        table = lambda name: browser.driver.find_element(By.ID, name).text
        browser.until(lambda: "<i>broken</i>" in table("bad"), "a bad row, as text")
        browser.until(lambda: "stored" in browser.text("facts"), "checkpoints")
        assert "soon" in table("sinks") and "later" in table("sinks")
        nodes = browser.driver.find_elements(By.CSS_SELECTOR, "svg.plan g")
        assert len(nodes) >= 4, len(nodes)
        browser.until(lambda: any("rows/s" in node.text for node in nodes), "rows per second in the plan")
        # The first thing that a keyboard reaches leads to the content.
        browser.driver.find_element(By.TAG_NAME, "body").send_keys(Keys.TAB)
        active = browser.driver.switch_to.active_element
        assert active.get_attribute("class") == "skip", active.get_attribute("outerHTML")
        # One sink's target.
        browser.driver.find_element(By.CSS_SELECTOR, "#sink option[value=later]").click()
        browser.pull("1 s")
        time.sleep(2.5)
        rows = [row.text for row in browser.driver.find_elements(By.CSS_SELECTOR, "#sinks tbody tr")]
        assert any(row.startswith("later") and " 1 s " in row for row in rows), rows
        assert any(row.startswith("soon") and " 10 ms " in row for row in rows), rows
        price = browser.driver.find_element(By.ID, "price")
        price.clear()
        price.send_keys("0")
        browser.until(lambda: browser.text("money") == "0.00", "no money")
        price.clear()
        price.send_keys("0.04")
        for scheme in ("light", "dark"):
            browser.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {
                "features": [{"name": "prefers-color-scheme", "value": scheme}]})
            for width in (1280, 390):
                browser.driver.set_window_size(width, 1600)
                time.sleep(1.5)
                faults = browser.faults(axe)
                browser.picture(f"{scheme}-{width}")
                assert not faults, (scheme, width, faults)
                wide = browser.driver.execute_script(
                    "return document.documentElement.scrollWidth - document.documentElement.clientWidth")
                assert wide <= 0, f"{width}: the page scrolls sideways by {wide}"
        print("axe-core: nothing serious, light and dark, wide and narrow")
        browser.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})
        browser.driver.set_window_size(1280, 1600)
        browser.check_requests(query.url)
    browser.until(lambda: browser.text("status") == "gone", "the end of the query")
    browser.driver.get("about:blank")
    # It has asked in vain whether the query runs again.
    browser.driver.get_log("browser")


def test_slider(browser, program):
    """The rate of the day curve is the same so long after its beginning as before its end, after 40 s.

    With a hundredth of the rate: at millions of rows per second chunks are full before 5 ms are over, so that
    a longer target saves nothing.
    """
    length_s, window_s, from_s = 40.0, 5.0, 6.0
    text = (ROOT / "examples" / "day_curve.sql").read_text()
    slow = text.replace("'3000000/s'", "'30000/s'").replace("'60040000'", "'640000'")
    assert slow.count("'30000/s'") == slow.count("'640000'") == 1
    with Query(program, slow) as query:
        browser.open(query.url)
        browser.pull("5 ms")
        time.sleep(max(0.0, from_s + window_s - query.age_s()))
        tight, p99 = float(browser.text("cores")), browser.text("p99")
        print(f"5 ms: {tight} cores, p99 {p99}, {browser.text('rate')} rows/s")
        browser.pull("500 ms")
        time.sleep(max(0.0, length_s - from_s - query.age_s()))
        loose, p99 = float(browser.text("cores")), browser.text("p99")
        print(f"500 ms: {loose} cores, p99 {p99}, {browser.text('rate')} rows/s")
        browser.picture("day_curve")
        assert loose < tight, (tight, loose)
        browser.check_requests(query.url)


def test_costs(browser, program):
    with Query(program, IDLE) as query:
        time.sleep(2)

        def share(seconds):
            begin, begin_s = time.monotonic(), query.cpu_s()
            time.sleep(seconds)
            return (query.cpu_s() - begin_s) / (time.monotonic() - begin) * 100

        alone = share(5)
        browser.open(query.url)
        time.sleep(2)
        opened = share(10)
        browser.driver.get("about:blank")
        time.sleep(2)
        closed = share(5)
        shares = f"its page open: {opened:.3f} %; closed: {closed:.4f} %"
        print(f"an idle query: {alone:.4f} % of a core; {shares}")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--program", required=True)
    parser.add_argument("--axe", required=True)
    parser.add_argument("tests", nargs="*", default=["accessibility", "costs", "slider"])
    arguments = parser.parse_args()
    program = os.path.abspath(arguments.program)
    browser = Browser()
    try:
        for test in arguments.tests:
            if test == "accessibility":
                test_accessibility(browser, program, pathlib.Path(arguments.axe).read_text())
            elif test == "costs":
                test_costs(browser, program)
            else:
                test_slider(browser, program)
    finally:
        browser.driver.quit()
    print("ok")


if __name__ == "__main__":
    sys.exit(main())
