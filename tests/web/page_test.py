#!/usr/bin/env python3
"""Drives the web page in Chromium, on a server with a tiny model.

Usage: tests/web/with_selenium tests/web/page_test.py BINARY --screenshots FOLDER [unittest's arguments]
"""
import argparse
import json
import pathlib
import shutil
import sys
import tempfile
import unittest
import urllib.request

import tiny_model
from page import Browser
from selenium.webdriver.common.keys import Keys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "support"))
from bitloom_server import Server

# What a model may say at worst, and what it should say well.
HOSTILE = """# Result

```python
print("<b>bold</b>")
```

<img src=x onerror="window.hacked = 1"> <script>window.hacked = 2</script> [press](javascript:window.hacked=3)
![picture](http://elsewhere.example/a.png) <iframe src="javascript:window.hacked=4"></iframe> **bold** [site](https://example.org)

| number |
|---:|
| 1 |

<svg onload="window.hacked = 5"></svg><a href="data:text/html,x" onclick="window.hacked = 6" style="position:fixed">y</a>
"""


class PageTest(unittest.TestCase):
    binary = browser = models = None
    arguments = ()

    @classmethod
    def setUpClass(cls):
        cls.server = Server(cls.binary, *(argument.replace("MODELS", str(cls.models)) for argument in cls.arguments))
        cls.browser.requested()  # what the pages of the tests before asked for last
        cls.browser.open(cls.server.address)

    @classmethod
    def tearDownClass(cls):
        cls.browser.driver.get("about:blank")
        cls.server.stop()

    def assert_stays_within_origin(self):
        allowed = (self.server.address + "/", "data:", "blob:")
        strangers = [url for url in self.browser.requested() if not url.startswith(allowed) and url != "about:blank"]
        self.assertEqual(strangers, [])


class Chat(PageTest):
    # Words of random letters without end.
    arguments = ("-m", "MODELS/first", "--regex", "([a-z]{2,9} )*", "--preset", "MODELS/endless.json")

    def setUp(self):
        self.browser.set_width(1280, 860)
        self.browser.wait(lambda: self.browser.find("#model-name").text == "first", "the model is not shown")
        self.browser.new_chat()
        self.browser.set_sampling(max_tokens=40, temperature=3, seed="")

    def test_streams_and_stops(self):
        page = self.browser
        page.set_sampling(max_tokens="")
        page.write("#prompt", "Go on" + Keys.ENTER)
        lengths = set()
        page.wait(lambda: lengths.add(len(page.texts("assistant")[-1])) or len(lengths - {0}) > 2, "nothing is streamed")
        self.assertTrue(page.is_running())
        page.click("#send")
        page.finished()
        self.assertIn("stopped", page.find(".assistant .meta").text)
        self.assertEqual(page.find("#send").get_attribute("aria-label"), "Send")
        at_stop = page.texts("assistant")
        self.assertRegex(at_stop[0], r"^([a-z]{2,9}\s)*[a-z]*$")
        page.driver.refresh()
        page.wait(lambda: page.texts("assistant") == at_stop, "what was stopped is not kept")
        # The server has let go of the request as well.
        slots = json.load(urllib.request.urlopen(self.server.address + "/slots"))
        self.assertFalse(any(slot["is_processing"] for slot in slots))

    def test_branches(self):
        page = self.browser
        first = page.ask("A question")
        self.assertIn(len(first), (39, 40), "a space at the end is not seen")
        page.click(".assistant .again")
        page.wait(lambda: page.find(".assistant .branches").text == "2/2", "there is no second answer")
        page.finished()
        second = page.texts("assistant")[-1]
        self.assertNotEqual(first, second)
        page.click(".assistant .previous")
        page.wait(lambda: page.texts("assistant") == [first], "the first answer is not shown")
        page.ask("Further")
        page.click(".user .edit")
        page.write(".edit-box", "Another question")
        page.click(".edit-buttons .save")
        page.wait(lambda: page.texts("user") == ["Another question"], "the edited message is not shown")
        page.finished()
        page.screenshot("branches")
        page.click(".user .previous")
        page.wait(lambda: page.texts("user") == ["A question", "Further"], "the old branch is lost")
        self.assertEqual(page.texts("assistant")[0], first)
        page.click(".assistant .next")
        page.wait(lambda: page.texts("assistant") == [second], "the second answer is lost")
        page.click(".assistant .edit")
        page.write(".edit-box", "my own words")
        page.click(".edit-buttons .save")
        page.wait(lambda: page.texts("assistant") == ["my own words"], "the answer cannot be edited")
        page.driver.refresh()
        page.wait(lambda: page.texts("assistant") == ["my own words"], "a reload forgets the branch")
        self.assertEqual(page.find(".assistant .branches").text, "3/3")

    def test_conversations_are_kept_exported_and_imported(self):
        page = self.browser
        answer = page.ask("Keep this")
        page.wait(lambda: page.find("#conversations [aria-current]").text == "Keep this", "the chat is not listed")
        page.click("#conversations li:has([aria-current]) .rename")
        page.write("dialog input", "Kept" + Keys.ENTER)
        page.wait(lambda: page.find("#conversations [aria-current]").text == "Kept", "it is not renamed")
        page.driver.refresh()
        page.wait(lambda: page.texts("assistant") == [answer], "a reload forgets the conversation")
        page.click("#export")
        saved = page.downloaded()
        conversation = next(one for one in json.loads(saved)["conversations"] if one["title"] == "Kept")
        page.click("#conversations li:has([aria-current]) .delete")
        page.click("dialog .danger")
        page.wait(lambda: "Kept" not in page.find("#conversations").text, "it is not deleted")
        file = page.downloads / "import.txt"
        file.write_text(saved)
        page.find("#import-file").send_keys(str(file))
        page.wait(lambda: page.texts("assistant") == [answer], "it is not imported")
        conversation["nodes"][1]["parent"] = "nowhere"
        for text in ("{", "{}", json.dumps({**json.loads(saved), "conversations": [conversation]})):
            file.write_text(text)
            page.script("document.getElementById('notice').hidePopover()")
            page.find("#import-file").send_keys(str(file))
            self.assertIn("This file", page.shown("#notice").text)
        self.assertEqual(page.texts("assistant"), [answer])

    def test_settings_reach_the_server(self):
        page = self.browser
        page.click("#show-settings")
        page.write("#system", "Be brief")
        page.set_sampling(seed=7, max_tokens=20, temperature=0.5)
        page.screenshot("settings")
        answers = []
        for _ in range(2):
            page.new_chat()
            answers.append(page.ask("Again"))
        self.assertEqual(answers[0], answers[1], "one seed draws one answer")
        self.assertIn(len(answers[0]), (19, 20))
        self.assertIn("tokens/s", page.find(".assistant .meta").text)
        # Begin of text, 8 letters of the system prompt, a mark on each side of 5 letters.
        self.assertRegex(page.find(".assistant .meta").text, r"20 tokens · prompt 16, 1[0-9] cached")
        page.set_sampling(temperature=-3)
        page.ask("Wrong")
        self.assertIn("temperature is -3, should be 0", page.find(".assistant:last-child .error").text)
        page.click("#reset-sampling")
        self.assertEqual(page.find("#sampling-temperature").get_attribute("value"), "")
        self.assertEqual(page.find("#sampling-temperature").get_attribute("placeholder"), "1")
        page.write("#system", " ")
        page.click("#close-settings")

    def test_probabilities(self):
        page = self.browser
        page.click("#probabilities")
        answer = page.ask("How sure are you?")
        page.click("#probabilities")
        page.click(".assistant .show-tokens")
        tokens = page.all(".assistant .token")
        self.assertEqual("".join(token.text or " " for token in tokens).split(), answer.split())
        page.script("document.querySelector('.token').focus()")
        self.assertRegex(page.shown("#token-card").text, r"%")
        self.assertGreaterEqual(len(page.all("#token-card tbody tr")), 5)
        page.screenshot("probabilities")
        page.find(".token").send_keys(Keys.ARROW_RIGHT)
        self.assertEqual(page.script("return [...document.querySelectorAll('.token')].indexOf(document.activeElement)"), 1)

    def test_reasoning_is_folded(self):
        page = self.browser
        page.script("""
            const real = window.fetch;
            window.fetch = (path, options) => {
              if (path !== "v1/chat/completions") return real(path, options);
              window.fetch = real;
              const say = (delta, finish_reason = null) => `data: ${JSON.stringify({choices: [{delta, finish_reason}]})}\\n\\n`;
              return Promise.resolve(new Response(": alive\\n\\n" + say({reasoning_content: "I **weigh** it."}) +
                say({content: "It is so."}) + say({}, "stop") + "data: [DONE]\\n\\n"));
            };""")
        page.ask("Think")
        self.assertFalse(page.find(".reasoning").get_attribute("open"))
        self.assertEqual(page.find(".assistant .body > .markdown").text, "It is so.")
        page.click(".reasoning summary")
        self.assertEqual(page.shown(".reasoning strong").text, "weigh")

    def test_narrow_screen(self):
        page = self.browser
        page.set_sampling(max_tokens=400)
        page.ask("W" * 300)
        for width in (320, 390):
            page.set_width(width)
            wide = page.script("return [...document.querySelectorAll('main *')].filter(e => "
                               "e.getBoundingClientRect().right > innerWidth + 1).map(e => e.outerHTML.slice(0, 80))")
            self.assertEqual(wide, [])
            self.assertLessEqual(page.script("return document.documentElement.scrollWidth"), width)
        page.wait(lambda: not page.find("#sidebar").is_displayed(), "the list is in the way")
        page.screenshot("phone")
        page.click("#show-sidebar")
        page.shown("#sidebar")
        page.wait(lambda: page.find("#sidebar").rect["x"] == 0, "the list does not slide in")
        page.screenshot("phone-conversations")
        page.click("#new-chat")
        page.wait(lambda: not page.find("#sidebar").is_displayed(), "the list stays in the way")

    def test_keyboard(self):
        page = self.browser
        page.ask("First")
        page.find("#prompt").send_keys(Keys.ALT + "r")
        page.wait(lambda: page.find(".assistant .branches").text == "2/2", "Alt+R does not regenerate")
        page.finished()
        page.find("#prompt").send_keys(Keys.ALT + "n")
        page.wait(lambda: not page.all(".message"), "Alt+N opens no new chat")
        self.assertEqual(page.driver.switch_to.active_element.get_attribute("id"), "prompt")
        page.find("#prompt").send_keys(Keys.ALT + "m")
        page.shown("#models")
        page.driver.switch_to.active_element.send_keys(Keys.ESCAPE)
        page.wait(lambda: not page.find("#models").is_displayed(), "Escape does not close the dialog")
        page.driver.switch_to.active_element.send_keys("and on")
        self.assertEqual(page.find("#prompt").get_attribute("value"), "and on")
        page.find("#prompt").clear()
        nameless = page.script("return [...document.querySelectorAll('button, input, textarea')].filter(e => "
                               "!(e.ariaLabel || e.innerText || e.labels?.[0]?.innerText || e.textContent.trim()))"
                               ".map(e => e.outerHTML)")
        self.assertEqual(nameless, [])

    def test_light_and_dark(self):
        page = self.browser
        page.ask("A word")
        background = lambda: page.script("return getComputedStyle(document.body).backgroundColor")
        seen = {}
        for name in ("light", "dark"):
            page.set_theme(name)
            seen[name] = background()
            page.screenshot(f"chat-{name}")
        self.assertNotEqual(seen["light"], seen["dark"])
        for expected in ("light", "dark"):  # the switch goes from the system's to light, to dark
            page.click("#theme")
            self.assertEqual(background(), seen[expected])
        page.driver.refresh()
        self.assertEqual(background(), seen["dark"])
        page.wait(lambda: page.find("body[data-ready]"), "the page did not start")
        page.click("#theme")
        page.set_theme("light")


class Hostile(PageTest):
    # Every answer is this text.
    arguments = ("-m", "MODELS/first", "--choice", json.dumps([HOSTILE]))

    def setUp(self):
        self.browser.new_chat()
        self.browser.complaints()

    def assert_harmless(self, root):
        page = self.browser
        found = page.script("""
            const all = [...document.querySelectorAll(`${arguments[0]} *`)];
            return all.filter((e) => ["IMG", "SCRIPT", "IFRAME", "STYLE", "svg"].includes(e.tagName) && !e.closest("button")
                || [...e.attributes].some(({name, value}) => name.startsWith("on") || name === "style"
                    || /^\\s*(javascript|data):/i.test(value))).map((e) => e.outerHTML)""", root)
        self.assertEqual(found, [])
        self.assertIsNone(page.script("return window.hacked ?? null"))

    def test_markup_of_messages_runs_nothing(self):
        page = self.browser
        page.requested()
        page.script("document.getElementById('prompt').value = arguments[0];"
                    "document.getElementById('prompt').dispatchEvent(new Event('input'))", HOSTILE)
        page.click("#send")
        page.wait(lambda: page.all(".assistant"), "there is no answer")
        page.finished()
        self.assert_harmless("#messages")
        self.assertIn("<img src=x", page.texts("user")[0])
        self.assertIn("<img src=x", page.texts("assistant")[0], "raw HTML is shown as it was written")
        self.assertEqual(page.find(".assistant h1").text, "Result")
        self.assertEqual(page.find(".assistant strong").text, "bold")
        self.assertEqual(page.find(".assistant td").value_of_css_property("text-align"), "right")
        hrefs = page.script("return [...document.querySelectorAll('.assistant a')].map(a => [a.getAttribute('href'), a.target, a.rel])")
        self.assertIn(["https://example.org", "_blank", "noopener noreferrer"], hrefs)
        page.screenshot("hostile")
        self.assertEqual(page.complaints(), [], "the policy had nothing to refuse")
        self.assert_stays_within_origin()

    def test_the_sanitizer_alone_is_enough(self):
        page = self.browser
        page.driver.execute_async_script("""
            const done = arguments[arguments.length - 1];
            import("./ui/markdown.js").then(({sanitized}) => {
              const place = document.createElement("div");
              place.id = "judged";
              document.body.append(place);
              place.append(sanitized(arguments[0] + "<form action=x><input name=attributes></form><b style='color:red'>z</b>"));
              done();
            });""", HOSTILE)
        self.assert_harmless("#judged")
        self.assertEqual(page.all("#judged form, #judged input"), [])
        page.script("document.getElementById('judged').remove()")

    def test_code_is_copied(self):
        page = self.browser
        page.ask("Code")
        page.driver.execute_cdp_cmd("Browser.grantPermissions", {"permissions": ["clipboardReadWrite",
                                                                                 "clipboardSanitizedWrite"]})
        page.click(".copy-code")
        copied = page.driver.execute_async_script("navigator.clipboard.readText().then(arguments[0], (e) => arguments[0](String(e)))")
        self.assertEqual(copied, 'print("<b>bold</b>")')
        self.assertEqual(page.find(".code-head span").text, "python")

    def test_the_policy_is_strict(self):
        policy = urllib.request.urlopen(urllib.request.Request(self.server.address, headers={"Accept": "text/html"})
                                        ).headers["Content-Security-Policy"]
        self.assertIn("default-src 'none'", policy)
        self.assertNotIn("unsafe", policy)
        refused = self.browser.driver.execute_async_script("""
            const script = document.createElement("script");
            script.textContent = "window.hacked = 7";
            document.head.append(script);
            fetch("http://elsewhere.example/").catch(() => arguments[0](window.hacked === undefined));""")
        self.assertTrue(refused)
        self.assertGreaterEqual(len(self.browser.complaints()), 2)


class KeysAndModels(PageTest):
    arguments = ("--models", "MODELS", "--loras", "MODELS/loras", "--api-key", "ordinary-key", "--admin-key", "admin-key-1",
                 "--regex", "([a-z]{2,9} )+", "-n", "12")

    def test_asks_for_the_keys_and_loads(self):
        page = self.browser
        self.assertIn("a key is needed", page.shown("dialog[open] p").text)
        page.screenshot("key")
        page.write("dialog[open] input", "wrong-key-0" + Keys.ENTER)
        page.wait(lambda: "not one of this server's" in page.find("dialog[open] p").text, "a wrong key is taken")
        page.write("dialog[open] input", "ordinary-key" + Keys.ENTER)
        page.wait(lambda: page.find("#model-name").text == "first", "the models are not shown")
        self.assertTrue(page.ask("Hello"))
        self.assertEqual(page.script("return localStorage.getItem('bitloom.key')"), "ordinary-key")
        self.assertNotIn("ordinary-key", page.driver.current_url)
        page.click("#model")
        page.click("[data-model=second] button")
        page.wait(lambda: "admin key" in page.find("dialog.question p").text, "no admin key is asked for")
        page.write("dialog.question input", "admin-key-1" + Keys.ENTER)
        page.wait(lambda: "loaded" in page.find("[data-model=second] small").text, "the model is not loaded")
        page.click("[data-model=second] input")
        page.wait(lambda: page.find("#model-name").text == "second", "the model is not picked")
        page.click("#adapter-list input[type=checkbox]")
        page.click("#apply-adapters")
        page.wait(lambda: page.find("#notice").text == "The adapters are in use.", "the adapter is not loaded")
        page.screenshot("models")
        page.click("#models [data-close]")
        page.ask("Which one?")
        self.assertIn("second", page.find(".assistant:last-child .meta").text)
        self.assert_stays_within_origin()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("binary")
    parser.add_argument("--screenshots", type=pathlib.Path, required=True)
    arguments, others = parser.parse_known_args()
    arguments.screenshots.mkdir(parents=True, exist_ok=True)
    PageTest.binary = arguments.binary
    PageTest.models = pathlib.Path(tempfile.mkdtemp(prefix="bitloom-models-"))
    for name in ("first", "second"):
        tiny_model.make_model(PageTest.models / name)
    tiny_model.make_adapter(PageTest.models / "loras" / "attn")
    (PageTest.models / "endless.json").write_text(json.dumps({"ban_eos_token": True}))
    PageTest.browser = Browser(arguments.screenshots)
    try:
        unittest.main(argv=[sys.argv[0], *others], verbosity=2)
    finally:
        PageTest.browser.quit()
        shutil.rmtree(PageTest.models)


if __name__ == "__main__":
    main()
