"""A browser for the tests of the web page."""
import json
import pathlib
import shutil
import tempfile

from selenium import webdriver
from selenium.common.exceptions import TimeoutException
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.support.ui import WebDriverWait

PATIENCE = 20  # seconds; other work may keep the machine busy


class Browser:
    """Chromium, headless, with a new profile."""

    def __init__(self, screenshots):
        self.screenshots = screenshots
        self.downloads = pathlib.Path(tempfile.mkdtemp(prefix="bitloom-page-"))
        options = webdriver.ChromeOptions()
        options.binary_location = shutil.which("chromium")
        for flag in ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--window-size=1280,860",
                     "--disable-background-networking", "--disable-component-update", "--no-first-run"):
            options.add_argument(flag)
        options.add_experimental_option("prefs", {"download.default_directory": str(self.downloads),
                                                  "download.prompt_for_download": False})
        options.set_capability("goog:loggingPrefs", {"performance": "ALL", "browser": "ALL"})
        self.driver = webdriver.Chrome(service=Service(shutil.which("chromedriver")), options=options)
        self.driver.set_script_timeout(PATIENCE)

    def quit(self):
        self.driver.quit()
        shutil.rmtree(self.downloads)

    # -- finding and waiting

    def find(self, selector):
        return self.driver.find_element(By.CSS_SELECTOR, selector)

    def all(self, selector):
        return self.driver.find_elements(By.CSS_SELECTOR, selector)

    def script(self, text, *arguments):
        return self.driver.execute_script(text, *arguments)

    def wait(self, condition, what):
        try:
            return WebDriverWait(self.driver, PATIENCE, 0.05, (Exception,)).until(lambda _: condition(), what)
        except TimeoutException:
            self.screenshot("failure")
            raise

    def shown(self, selector):
        return self.wait(lambda: next((one for one in self.all(selector) if one.is_displayed()), None),
                         f"{selector} is not shown")

    def click(self, selector):
        # Buttons of messages are seen when the pointer is over them; a script clicks them wherever it is.
        self.wait(lambda: self.script("const found = document.querySelector(arguments[0]); found?.click(); return found !== null",
                                      selector), f"there is no {selector}")

    def write(self, selector, text):
        box = self.shown(selector)
        box.clear()
        box.send_keys(text)

    def open(self, address):
        self.driver.get(address)
        self.wait(lambda: self.find("body[data-ready]"), "the page did not start")

    def screenshot(self, name):
        self.driver.save_screenshot(str(self.screenshots / f"{name}.png"))

    def set_width(self, width, height=844):
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", {
            "width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600})

    def set_theme(self, name):
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {
            "features": [{"name": "prefers-color-scheme", "value": name}]})

    def requested(self):
        """The addresses of all requests since the last call."""
        events = [json.loads(entry["message"])["message"] for entry in self.driver.get_log("performance")]
        return [event["params"]["request"]["url"] for event in events if event["method"] == "Network.requestWillBeSent"]

    def complaints(self):
        """What the console says of scripts, styles and images that may not be."""
        return [entry["message"] for entry in self.driver.get_log("browser") if "Content Security Policy" in entry["message"]]

    # -- the chat

    def texts(self, role):
        return self.script("return [...document.querySelectorAll(`.message.${arguments[0]} .body`)].map(e => e.innerText)",
                           role)

    def is_running(self):
        return self.find("#send").get_attribute("data-does") == "stop"

    def finished(self):
        self.wait(lambda: not self.is_running() and not self.all(".message.running"), "the answer does not end")

    def ask(self, text):
        """Sends a message and returns the whole answer to it."""
        before = len(self.all(".message.assistant"))
        self.write("#prompt", text)
        self.click("#send")
        self.wait(lambda: len(self.all(".message.assistant")) > before, "there is no answer")
        self.finished()
        return self.texts("assistant")[-1]

    def new_chat(self):
        self.click("#new-chat")
        self.wait(lambda: not self.all(".message"), "the new chat is not empty")

    def set_sampling(self, **values):
        for name, value in values.items():
            box = self.find(f"#sampling-{name}")
            self.script("arguments[0].value = arguments[1]; arguments[0].dispatchEvent(new Event('input'))", box, str(value))

    def downloaded(self):
        """The text of the file that was downloaded last."""
        # Chromium first makes an empty file of that name, and writes into another one, which takes its place.
        def newest():
            files = [file for file in self.downloads.iterdir() if file.suffix == ".json" and file.stat().st_size > 0]
            return max(files, key=lambda file: file.stat().st_mtime_ns, default=None)
        file = self.wait(newest, "nothing was downloaded")
        text = file.read_text()
        file.unlink()
        return text
