#!/usr/bin/env python3
"""Fills in what Python's jinja2, set up as transformers sets it up, makes of the template cases.

Usage: tools/make_template_goldens.py [tests/data/jinja/cases.jsonl]   (needs jinja2 3.1)

Each line is one case: {"source": …, "variables": …}. The script rewrites the file with "text" (the rendering) or
"error" (the message given to raise_exception; null for any other error) after them, so a new case is a new line
with the first two keys only. `now` among the variables is the clock of strftime_now, in UTC.
"""
import datetime
import json
import pathlib
import sys

import jinja2
import jinja2.ext
import jinja2.sandbox


class Raised(jinja2.exceptions.TemplateError):
    pass


class Generation(jinja2.ext.Extension):
    """{% generation %} renders its body; only transformers' training code looks at where it stood."""

    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return jinja2.nodes.CallBlock(self.call_method("_render"), [], [], body).set_lineno(line)

    def _render(self, caller):
        return caller()


def make_environment(now):
    def raise_exception(message):
        raise Raised(message)

    def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)

    def strftime_now(format):
        return datetime.datetime.fromtimestamp(now, datetime.timezone.utc).replace(tzinfo=None).strftime(format)

    environment = jinja2.sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, jinja2.ext.loopcontrols])
    environment.filters["tojson"] = tojson
    environment.globals["raise_exception"] = raise_exception
    environment.globals["strftime_now"] = strftime_now
    return environment


def expectation(case):
    variables = dict(case["variables"])
    environment = make_environment(variables.pop("now", 0))
    try:
        text = environment.from_string(case["source"]).render(**variables)
        text.encode()
        return {"text": text}
    except Raised as error:
        return {"error": str(error)}
    except Exception as error:  # noqa: BLE001: any failure of the template is the expectation
        if "--verbose" in sys.argv:
            print(repr(case["source"]), "->", repr(error))
        return {"error": None}


def main():
    paths = [argument for argument in sys.argv[1:] if not argument.startswith("--")]
    path = pathlib.Path(paths[0] if paths else "tests/data/jinja/cases.jsonl")
    lines = []
    for line in path.read_text().splitlines():
        case = json.loads(line)
        case = {"source": case["source"], "variables": case["variables"]}
        lines.append(json.dumps(case | expectation(case), ensure_ascii=False) + "\n")
    path.write_text("".join(lines))
    print(f"{len(lines)} cases in {path}")


if __name__ == "__main__":
    main()
