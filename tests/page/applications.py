"""The pages of the slide viewer and of the robots in Debian's Chromium: `make test-page`.

What takes time is printed, never asserted. What the pages show, where their requests go and whether axe-core
finds serious faults is asserted.
"""

import argparse
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

from page import PATIENCE_S, ROOT, Browser

# The colors of a canvas, the background of a slide's view left out.
COLORS = """
const canvas = document.getElementById(arguments[0]), seen = new Set();
const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
for (let at = 0; at < data.length; at += 4) {
  if (data[at + 3]) seen.add((data[at] << 16) | (data[at + 1] << 8) | data[at + 2]);
}
seen.delete(0xdddddd);
return seen.size;
"""

# The color of the corner of a slide's view.
CORNER = """
const { data } = document.getElementById("view").getContext("2d").getImageData(2, 2, 1, 1);
return [...data].slice(0, 3);
"""


class Program:
    """A program that prints the address of its page."""

    def __init__(self, arguments, folder):
        self.process = subprocess.Popen(arguments, cwd=folder, stdout=subprocess.PIPE,
                                        stderr=subprocess.STDOUT, text=True)
        self.said = ""
        for line in self.process.stdout:
            self.said += line
            found = re.search(r"(http://127\.0\.0\.1:\d+/)", line)
            if found:
                self.url = found.group(1)
                return
        raise AssertionError(f"there is no page: {self.said}")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.terminate()
        self.said += self.process.communicate(timeout=PATIENCE_S)[0]


def lines(browser):
    return [line.text for line in browser.driver.find_elements(By.CSS_SELECTOR, "#log div")]


def completes(browser):
    return [line for line in lines(browser) if line.startswith("complete")]


def test_slides(browser, program, axe):
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([program, "generate", "slide.tif", "--width", "3000", "--height", "2000"], cwd=folder,
                       check=True, stdout=subprocess.DEVNULL)
        arguments = [program, "serve", "--slide", "slide.tif", "--listen", "127.0.0.1:0"]
        with Program(arguments, folder) as served:
            browser.driver.get(served.url)
            body = browser.driver.find_element(By.TAG_NAME, "body")
            browser.until(lambda: completes(browser), "a first update")
            print("slides:", completes(browser)[0])
            colors = browser.driver.execute_script(COLORS, "view")
            assert colors > 100, f"{colors} colors are no slide"
            # Zooming: everything is asked for.
            body.send_keys("+")
            browser.until(lambda: len(completes(browser)) > 1, "a zoom")
            # Panning: what has become visible is asked for alone.
            place, count = browser.text("place"), len(lines(browser))
            body.send_keys(Keys.ARROW_RIGHT)
            browser.until(lambda: len(lines(browser)) > count, "a partial update")
            assert browser.text("place") != place
            assert lines(browser)[count].startswith("partial"), lines(browser)
            print("slides:", lines(browser)[count])
            # A target that can't be kept marks what misses it.
            target = browser.driver.find_element(By.ID, "target")
            target.send_keys(Keys.CONTROL, "a")
            target.send_keys("0.001")
            browser.driver.find_element(By.ID, "view").click()
            body.send_keys("-")
            late = lambda: browser.driver.find_elements(By.CSS_SELECTOR, "#log div.late")
            browser.until(lambda: late(), "a late update")
            assert "of" in browser.text("share")
            corner = browser.driver.execute_script(CORNER)
            assert corner == [0xdd] * 3, f"{corner} beside the slide: what was there before zooming out"
            assert not any("failed" in line for line in lines(browser)), lines(browser)
            faults = browser.faults(axe)
            browser.driver.save_screenshot(str(pictures() / "slides.png"))
            assert not faults, faults
            browser.check_requests(served.url)
        browser.driver.get("about:blank")
        browser.driver.get_log("browser")


def test_robots(browser, program, axe):
    arguments = [sys.executable, "-B", str(ROOT / "examples" / "robots" / "demo.py"), "--program", program,
                 "--robots", "20", "--seconds", "40", "--lasers", "2", "--broadcast-seconds", "0"]
    with tempfile.TemporaryDirectory() as folder, Program(arguments, folder) as demo:
        browser.driver.get(demo.url)
        browser.until(lambda: browser.text("state") == "running", "the robots")
        browser.until(lambda: browser.text("crossing").startswith("20 robots"), "20 robots")
        browser.until(lambda: "error" in browser.text("slam"), "poses")
        browser.until(lambda: "p99" in browser.text("latency"), "latency")
        for canvas, least in [("circle", 20), ("hall", 4), ("plot", 3)]:
            browser.until(lambda: browser.driver.execute_script(COLORS, canvas) >= least, canvas)
        print(f"robots: {browser.text('crossing')}; {browser.text('slam')}; {browser.text('latency')}")
        faults = browser.faults(axe)
        browser.driver.save_screenshot(str(pictures() / "robots.png"))
        assert not faults, faults
        browser.check_requests(demo.url)
    ended = "the demonstration has ended"
    browser.until(lambda: browser.text("state") == ended, ended)
    browser.driver.get("about:blank")
    browser.driver.get_log("browser")


def pictures():
    folder = ROOT / "target" / "page"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--examples", required=True, help="the folder of the programs `slides` and `robots`")
    parser.add_argument("--axe", required=True)
    arguments = parser.parse_args()
    axe = pathlib.Path(arguments.axe).read_text()
    browser = Browser()
    try:
        test_slides(browser, os.path.abspath(os.path.join(arguments.examples, "slides")), axe)
        if shutil.which("mosquitto", path=f"{os.environ.get('PATH', '')}:/usr/sbin"):
            test_robots(browser, os.path.abspath(os.path.join(arguments.examples, "robots")), axe)
        else:
            print("robots: skipped: apt-get install mosquitto")
    finally:
        browser.driver.quit()
    print("ok")


if __name__ == "__main__":
    sys.exit(main())
