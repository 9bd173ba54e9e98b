"""Talks to the program schema_judge, which says what texts our constraints accept."""

import json
import re
import subprocess


class JudgedProgram:
    def __init__(self, path):
        self._program = subprocess.Popen([path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                                         encoding="utf-8")

    def ask(self, question):
        """Sends one object and returns the answer; ends the whole run if there is none."""
        self._program.stdin.write(json.dumps(question) + "\n")
        self._program.stdin.flush()
        line = self._program.stdout.readline()
        if not line:
            raise SystemExit(f"schema_judge ended (status {self._program.wait()}) at {json.dumps(question)[:2000]}")
        answer = json.loads(line)
        if "error" in answer:
            raise SystemExit(f"schema_judge did not understand {json.dumps(question)[:2000]}: {answer['error']}")
        return answer

    def accepts(self, schema, texts):
        """Returns (None, message) if the schema is refused, else (list of whether it accepts, None)."""
        answer = self.ask({"schema_text": json.dumps(schema), "texts": texts})
        return answer.get("accepted"), answer.get("refused")


def reason_of(refusal):
    """A message of refusal without the place and what was quoted, so that equal reasons count together."""
    refusal = re.sub(r"(at|in|of) [^ ]*[#/][^ ]*", r"\1 …", refusal)
    return re.sub(r'"(?:[^"\\]|\\.)*"', '"…"', refusal)[:150]


def written_forms(value):
    """The ways in which a value may be written: compact, Python's separators, indented by 2 and 4."""
    return [json.dumps(value, separators=(",", ":")), json.dumps(value), json.dumps(value, ensure_ascii=False),
            json.dumps(value, indent=2), json.dumps(value, indent=4, ensure_ascii=False)]
