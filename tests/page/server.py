"""The page of a server in Debian's Chromium: `make test-page`.

As in page.py, what takes time is printed, never asserted.
"""

import argparse
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.parse
import urllib.request

from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

from page import FIRST_CHART, PATIENCE_S, Browser, bad_or_late

# A name that would do harm as markup, in a path, and in SQL.
ODD = "<b>x</b> \"y\" 'z'/%41?#.v"

VISITS = """CREATE TABLE visits (ts_ms BIGINT, ip STRING, ts AS TO_TIMESTAMP_LTZ(ts_ms, 3),
  WATERMARK FOR ts AS ts - INTERVAL '1' SECOND)
WITH ('connector' = 'datagen', 'generator' = 'uservisits', 'rate' = '500/s');
SET 'checkpoint_interval' = '500 ms';
CREATE MATERIALIZED VIEW busy AS SELECT ip, COUNT(*) AS visits FROM visits GROUP BY ip;
CREATE MATERIALIZED VIEW paused AS SELECT COUNT(*) AS n FROM visits;
CREATE MATERIALIZED VIEW {odd} AS SELECT COUNT(*) AS n FROM visits;
STOP JOB paused;
"""

# Late rows, and rows that are not valid: one sink leaves them out, and one fails.
FILE = """CREATE TABLE {table} (ms BIGINT, k STRING, ts AS TO_TIMESTAMP_LTZ(ms, 3), WATERMARK FOR ts AS ts)
WITH ('connector' = 'file', 'path' = '{folder}/in.csv', 'replay_rate' = '1000/s'{more});
SET 'checkpoint_interval' = '500 ms';
CREATE SINK {sink} AS SELECT k, COUNT(*) AS n FROM TUMBLE(TABLE {table}, DESCRIPTOR(ts), INTERVAL '1' SECOND)
GROUP BY window_start, window_end, k WITH ('connector' = 'blackhole', 'latency_target' = '10 ms');
"""


class Server:
    """A server in a folder of its own, at an address that stays."""

    def __init__(self, program, *options):
        self.program, self.options = program, options
        self.folder = tempfile.TemporaryDirectory()
        self.address = "127.0.0.1:0"
        self.start()

    def start(self):
        command = [self.program, "serve", "--dir", "data", "--pg", "off", "--http", self.address]
        command += self.options
        self.process = subprocess.Popen(command, cwd=self.folder.name, stderr=subprocess.PIPE, text=True)
        log = []
        for line in self.process.stderr:
            log.append(line)
            found = re.search(r"ready for a browser at (http://(\S+)/)", line)
            if found:
                self.url, self.address = found.groups()
                return
        raise AssertionError(f"the server ended before it had a page: {''.join(log)}")

    def stop(self):
        self.process.terminate()
        self.process.communicate(timeout=PATIENCE_S)

    def ask(self, method, path, body=None):
        """The answer as text; an error's answer, too."""
        body = None if body is None else body.encode()
        request = urllib.request.Request(self.url + path, data=body, method=method)
        try:
            with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:
                return answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.read().decode()

    def sql(self, text):
        answer = self.ask("POST", "v1/sql", text)
        assert '"error"' not in answer, answer
        return answer

    def job(self, name):
        return json.loads(self.ask("GET", f"v1/jobs/{urllib.parse.quote(name, safe='')}"))

    def status(self, name):
        return self.job(name).get("status")

    def processes(self):
        """Its own, and those of its jobs."""
        jobs = json.loads(self.ask("GET", "v1/jobs"))
        return [self.process.pid, *(job["process"] for job in jobs if job["process"])]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()
        self.folder.cleanup()


def quoted(name):
    return '"' + name.replace('"', '""') + '"'


def fill(server):
    """Jobs that run, that are stopped, that leave rows out, that fail, and that have finished."""
    rows = "".join(bad_or_late(number) for number in range(60_000))
    (pathlib.Path(server.folder.name) / "in.csv").write_text(rows)
    server.sql(VISITS.format(odd=quoted(ODD)))
    server.sql(FILE.format(table="t", sink="late_and_bad", folder=server.folder.name, more=""))
    # It fails at its seventh row, which may be while the statement waits for its start.
    more = ", 'on_error' = 'fail'"
    fails = FILE.format(table="strict", sink="fails", folder=server.folder.name, more=more)
    server.ask("POST", "v1/sql", fails)
    (pathlib.Path(server.folder.name) / "few.csv").write_text("1\n2\n")
    server.sql("CREATE TABLE few (a INT) WITH ('connector' = 'file', 'path' = 'few.csv');"
               "CREATE MATERIALIZED VIEW done AS SELECT a FROM few")


class Page:
    """The page of a server in a browser."""

    def __init__(self, browser, url):
        self.browser, self.driver, self.url = browser, browser.driver, url
        self.driver.get("about:blank")
        self.driver.get_log("browser")
        self.driver.get(url)

    def find(self, identifier):
        return self.driver.find_element(By.ID, identifier)

    def text(self, identifier):
        return self.find(identifier).text

    def until(self, holds, what):
        self.browser.until(holds, what)

    def until_says(self, identifier, words):
        self.until(lambda: words in self.text(identifier), f"'{words}' in #{identifier}")

    def jobs(self):
        """The listed jobs and their states."""
        return dict(self.driver.execute_script(
            "return [...document.querySelectorAll('#jobs button')]"
            ".map((button) => [button.value, button.lastChild.textContent])"))

    def choose(self, name):
        buttons = self.driver.find_elements(By.CSS_SELECTOR, "#jobs button")
        next(button for button in buttons if button.get_attribute("value") == name).click()
        self.until(lambda: self.text("job-name") == name, f"job {name}")

    def looks(self):
        """How often the job's counts were shown."""
        return int(self.driver.execute_script("return document.getElementById('main').dataset.looks || 0"))

    def run(self, text):
        """Runs SQL with the button."""
        self.find("sql-text").clear()
        self.find("sql-text").send_keys(text)
        self.find("sql-run").click()

    def rows(self):
        return [row.text for row in self.driver.find_elements(By.CSS_SELECTOR, "#rows tbody tr")]

    def tab_to(self, identifier, *more):
        """Reaches an element with the Tab key."""
        for _ in range(80):
            active = self.driver.switch_to.active_element
            if active.get_attribute("id") == identifier or active.get_attribute("value") == identifier:
                return active
            active.send_keys(*more, Keys.TAB)
        raise AssertionError(f"the Tab key does not reach {identifier}")

    def check(self, axe, name):
        """No serious fault in light and dark, wide and narrow; a picture of each."""
        for scheme, width in (("light", 1280), ("dark", 390)):
            self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {
                "features": [{"name": "prefers-color-scheme", "value": scheme}]})
            self.driver.set_window_size(width, 1600)
            time.sleep(1.2)
            faults = self.browser.faults(axe)
            self.browser.picture(f"server-{name}-{scheme}-{width}")
            assert not faults, (name, scheme, width, faults)
            wide = self.driver.execute_script(
                "return document.documentElement.scrollWidth - document.documentElement.clientWidth")
            assert wide <= 0, f"{name}: the page scrolls sideways by {wide}"
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})
        self.driver.set_window_size(1280, 1600)

    def check_requests(self):
        """Nothing was asked for but at the server's own address, and no script failed."""
        names = self.driver.execute_script(
            "return performance.getEntriesByType('resource').map((entry) => entry.name)")
        assert names and all(name.startswith(self.url) for name in names), names
        # An answer with an error, or none while the server is away, is the page's to show.
        severe = [entry["message"] for entry in self.driver.get_log("browser")
                  if entry["level"] == "SEVERE" and "Failed to load resource" not in entry["message"]]
        assert not severe, severe


def test_jobs(browser, program, axe):
    """The list, what is shown of a job in each state, and a name that is markup."""
    with Server(program) as server:
        fill(server)
        page = Page(browser, server.url + "#job=busy")
        page.url = server.url
        first = browser.driver.execute_async_script(FIRST_CHART)
        print(f"a server's page: first chart {first:.0f} ms after it was asked for")
        states = {ODD: "running", "busy": "running", "done": "finished", "fails": "failed",
                  "late_and_bad": "running", "paused": "stopped"}
        page.until(lambda: page.jobs() == states, f"{states}")
        assert page.text("job-name") == "busy", "the job of the address"
        page.until(lambda: "rows/s" in page.text("graph"), "rows per second in the plan")
        assert len(browser.driver.find_elements(By.CSS_SELECTOR, "svg.plan g")) >= 4
        assert len(browser.driver.find_elements(By.CSS_SELECTOR, "#charts canvas")) == 3
        page.until(lambda: re.search(r"[1-9]\d* stored", page.text("facts")), "checkpoints")
        page.until(lambda: re.search(r"visits .*2015-07-15", page.text("sources")), "a watermark")
        page.check(axe, "running")
        page.choose("late_and_bad")
        reason = "column 'ms' (BIGINT): can't read '<i>broken</i>'"
        page.until_says("bad", reason)
        counted = r"[1-9]\d* late, [1-9]\d* bad"
        page.until(lambda: re.search(counted, page.text("rows-said")), "late and bad rows")
        page.until_says("sinks", "10 ms")
        assert not page.find("rows-of").is_displayed(), "a sink has no rows to read"
        page.check(axe, "late_and_bad")
        page.choose("fails")
        page.until_says("reason", reason)
        assert page.text("status") == "failed" and not page.find("live").is_displayed()
        assert page.find("start").is_enabled() and not page.find("stop").is_enabled()
        page.check(axe, "failed")
        page.choose("paused")
        page.until_says("in-words", "It is stopped.")
        assert not page.find("live").is_displayed()
        page.check(axe, "stopped")
        page.choose("done")
        page.until_says("in-words", "Its inputs have ended.")
        page.until(lambda: page.looks() > 1 and page.text("status") == "finished", "a finished job")
        assert not page.find("start").is_enabled()
        page.find("rows-of").click()
        page.until(lambda: page.rows() == ["1", "2"], "the rows of a finished view")
        page.check(axe, "finished")
        page.choose(ODD)
        page.until(lambda: page.looks() > 2, "counts of a job with an odd name")
        assert not browser.driver.find_elements(By.CSS_SELECTOR, "body b, body i"), "markup of a name"
        # The address leads back to it.
        browser.driver.refresh()
        page.until(lambda: page.text("job-name") == ODD, "the job of the address")
        browser.driver.back()
        page.until(lambda: page.text("job-name") == "done", "the job before")
        page.check_requests()


def test_changes(browser, program, axe):
    """Start, stop and drop, and a latency target that stays."""
    with Server(program) as server:
        fill(server)
        page = Page(browser, server.url)
        page.until(lambda: len(page.jobs()) == 6, "the jobs")
        page.choose("paused")
        page.find("start").click()
        page.until_says("job-said", "paused was started.")
        page.until(lambda: page.jobs()["paused"] == "running" and page.looks() > 0, "a job that runs")
        assert server.status("paused") == "running"
        page.choose(ODD)
        page.until(lambda: page.looks() > 1, "counts")
        page.find("stop").click()
        page.until_says("job-said", "was stopped.")
        assert page.jobs()[ODD] == "stopped" == server.status(ODD)
        page.find("drop").click()
        browser.driver.switch_to.alert.dismiss()
        assert server.status(ODD) == "stopped", "not confirmed"
        page.find("drop").click()
        assert ODD in browser.driver.switch_to.alert.text
        browser.driver.switch_to.alert.accept()
        page.until(lambda: ODD not in page.jobs(), "a job that is gone")
        assert server.status(ODD) is None
        # What others do is seen as well.
        server.sql("STOP JOB paused")
        page.until(lambda: page.jobs()["paused"] == "stopped", "a job that was stopped elsewhere")
        page.choose("busy")
        page.until(lambda: page.looks() > 1, "counts")
        browser.pull("50 ms")

        def target():
            return server.job("busy")["report"]["counts"]["sinks"][0]["target_ms"]
        assert target() == 50.0, target()
        # A process that is killed is replaced.
        os.kill(server.job("busy")["process"], signal.SIGKILL)
        page.until_says("since", "started 2 times")
        page.until(lambda: page.text("status") == "running", "a new process")
        page.until(lambda: page.text("target-value") == "50 ms", "its target")
        assert target() == 50.0, target()
        server.stop()
        page.until_says("problem", "The server does not answer")
        assert page.text("status") == "no connection"
        page.check(axe, "away")
        server.start()
        page.until(lambda: page.text("problem") == "", "the server again")
        page.until(lambda: page.text("status") == "running", "its job")
        page.until(lambda: page.text("target-value") == "50 ms", "the target after a restart")
        assert target() == 50.0, target()
        assert page.jobs()["paused"] == "stopped", "stopped jobs stay stopped"
        page.check_requests()


def test_sql(browser, program, axe):
    with Server(program) as server:
        page = Page(browser, server.url)
        page.until(lambda: page.find("no-jobs").is_displayed(), "a server without jobs")
        assert not page.find("main").is_displayed()
        page.check(axe, "empty")
        page.find("example").click()
        assert "CREATE MATERIALIZED VIEW busy" in page.find("sql-text").get_attribute("value")
        page.run("CREATE TABLE visits (ts_ms BIGINT, ip STRING) WITH ('connector' = 'datagen', "
                 "'generator' = 'uservisits', 'rate' = '100/s');\nCREATE MATERIALIZED VIEW v AS "
                 "SELECT COUNT(*) AS n, MAX(9007199254740993) AS large, '<u>x</u>' AS text FROM visits;")
        page.until_says("sql-done", "CREATE MATERIALIZED VIEW")
        assert "CREATE TABLE" in page.text("sql-done")
        page.until(lambda: page.jobs() == {"v": "running"} and page.looks() > 0, "the new job")
        page.run("SELECT large, text FROM v")
        # More digits than a number of JavaScript has.
        page.until(lambda: page.rows() == ["9007199254740993 <u>x</u>"], "the rows of a view")
        assert page.text("sql-said") == "1 row.", page.text("sql-said")
        page.run("SHOW JOBS")
        page.until(lambda: "v materialized view running" in " ".join(page.rows()), "SHOW JOBS")
        # The emoji is one character to the server and two to JavaScript.
        page.run("SHOW TABLES;\n-- \N{LATIN SMALL LETTER E WITH ACUTE}\nSELECT n, missing FROM v")
        page.until_says("sql-error", "Line 3, column 11: there is no column 'missing'")
        assert "SHOW TABLES" not in page.text("sql-error") and "visits" in " ".join(page.rows())
        assert browser.driver.execute_script("return getSelection().toString()") == "missing"
        assert page.text("sql-place").endswith("^")
        page.check(axe, "error")
        page.find("changes-of").click()
        page.until_says("sql-said", "changes")
        assert page.find("sql-text").get_attribute("value") == 'SUBSCRIBE "v"'
        newest = page.rows()[0]
        page.until(lambda: page.rows()[0] != newest, "changes as they happen")
        assert newest[0] in "+-", newest
        page.check(axe, "changes")
        page.find("sql-end").click()
        page.until_says("sql-said", "Ended.")
        assert not page.find("sql-end").is_enabled()
        ended = page.rows()
        time.sleep(1)
        assert page.rows() == ended
        # One that others depend on.
        server.sql("CREATE SINK s FROM v WITH ('connector' = 'blackhole')")
        page.find("drop").click()
        browser.driver.switch_to.alert.accept()
        page.until_says("job-said", "Error")
        assert server.status("v") == "running"
        page.check_requests()


def test_keyboard(browser, program, axe):
    """Nothing here needs a mouse."""
    with Server(program) as server:
        fill(server)
        page = Page(browser, server.url)
        page.until(lambda: len(page.jobs()) == 6 and page.looks() > 0, "the jobs")
        body = browser.driver.find_element(By.TAG_NAME, "body")
        body.send_keys(Keys.TAB)
        skip = browser.driver.switch_to.active_element
        assert skip.get_attribute("class") == "skip", skip.get_attribute("outerHTML")
        page.tab_to("busy").send_keys(Keys.ENTER)
        page.until(lambda: page.text("job-name") == "busy" and page.looks() > 0, "busy")
        # The list is refreshed; its button keeps the focus.
        time.sleep(2.5)
        assert browser.driver.switch_to.active_element.get_attribute("value") == "busy"
        page.tab_to("sql-text").send_keys("SELECT COUNT(*) AS n FROM busy", Keys.CONTROL, Keys.ENTER)
        page.until(lambda: len(page.rows()) == 1, "Ctrl+Enter runs it")
        page.tab_to("stop").send_keys(Keys.SPACE)
        page.until_says("job-said", "busy was stopped.")
        active = lambda: browser.driver.switch_to.active_element
        page.until(lambda: active().get_attribute("id") == "start", "the focus")
        active().send_keys(Keys.ENTER)
        page.until_says("job-said", "busy was started.")
        page.until(lambda: page.looks() > 1, "counts")
        slider = page.tab_to("slider")
        slider.send_keys(Keys.HOME, Keys.ARROW_RIGHT)
        page.until_says("target-said", "The target is now 1 ms.")
        page.check_requests()


def test_token(browser, program, axe):
    with Server(program, "--token", "secret") as server:
        page = Page(browser, server.url)
        page.until(lambda: page.find("token-form").is_displayed(), "the question for the token")
        assert not page.find("main").is_displayed() and not page.find("server").is_displayed()
        page.check(axe, "token")
        assert browser.driver.switch_to.active_element.get_attribute("id") == "token"
        page.find("token").send_keys("secrets", Keys.ENTER)
        page.until_says("problem", "The token is wrong.")
        page.find("token").send_keys("secret", Keys.ENTER)
        page.until(lambda: page.find("no-jobs").is_displayed(), "the jobs")
        assert page.text("problem") == "" and not page.find("token-form").is_displayed()
        page.run("SHOW JOBS")
        page.until_says("sql-said", "0 rows.")
        browser.driver.refresh()
        page.until(lambda: page.find("no-jobs").is_displayed(), "the token is kept while the tab is open")
        page.check_requests()


IDLE = """CREATE TABLE {table} (k STRING)
WITH ('connector' = 'tcp', 'address' = '127.0.0.1:0', 'mode' = 'listen');
CREATE MATERIALIZED VIEW v_{table} AS SELECT k, COUNT(*) AS n FROM {table} GROUP BY k;"""


def test_costs(browser, program, axe):
    with Server(program) as server:
        for table in ("one", "two", "three"):
            server.sql(IDLE.format(table=table))

        processes = server.processes()
        # Until the threads that answered it have ended.
        time.sleep(12)

        def cpu_s():
            # The clocks of processes, as of clock_getcpuclockid(3): with threads that have ended.
            return sum(time.clock_gettime(~process << 3 | 2) for process in processes)

        def share(seconds):
            begin, begin_s = time.monotonic(), cpu_s()
            time.sleep(seconds)
            return (cpu_s() - begin_s) / (time.monotonic() - begin) * 100

        alone = share(10)
        page = Page(browser, server.url)
        page.until(lambda: page.looks() > 1, "counts")
        opened = share(20)
        browser.driver.get("about:blank")
        time.sleep(12)
        closed = share(10)
        shares = f"its page open: {opened:.3f} %; closed: {closed:.4f} %"
        print(f"an idle server and its 3 jobs: {alone:.4f} % of a core; {shares}")


TESTS = {"jobs": test_jobs, "changes": test_changes, "sql": test_sql, "keyboard": test_keyboard,
         "token": test_token, "costs": test_costs}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--program", required=True)
    parser.add_argument("--axe", required=True)
    parser.add_argument("tests", nargs="*", default=list(TESTS))
    arguments = parser.parse_args()
    axe = pathlib.Path(arguments.axe).read_text()
    browser = Browser()
    try:
        for test in arguments.tests:
            TESTS[test](browser, os.path.abspath(arguments.program), axe)
            print(f"the page of a server: {test} ok")
    finally:
        browser.driver.quit()


if __name__ == "__main__":
    sys.exit(main())
