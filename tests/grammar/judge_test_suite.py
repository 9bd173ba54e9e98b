#!/usr/bin/env python3
"""Runs the required parts of JSON-Schema-Test-Suite (drafts 7 and 2020-12) against schema_judge.

Prints a table (test_suite.md has a copy): how many tests of each group are kept, how many belong to
schemas that are refused by name, how many are valid only because an object or a tuple is open (see
closed_world.py), how many are valid only because the suite takes a format for a remark, and how many
are wrong. Ends with status 1 if any is wrong, or if the page that --check names has another table.
"""

import argparse
import collections
import json
import pathlib
import subprocess
import sys
import tarfile

import jsonschema

from closed_world import ClosedWorld
from judged_program import JudgedProgram, reason_of, written_forms
from schema_faults import orders, without_fractions

_ROOT = pathlib.Path(__file__).resolve().parents[2]
_PACKAGE = ("jsonschema==4.26.0", "jsonschema-4.26.0.tar.gz",
            "0c26707e2efad8aa1bfc5b7ce170f3fccc2e4918ff85989ba9ffa9facb2be326")
_SKIPPED = 77  # CTest shows this status as skipped
_COLUMNS = ("kept", "refused", "only open", "format", "wrong")
_DRAFTS = {"7": ("draft7", jsonschema.Draft7Validator), "2020-12": ("draft2020-12", jsonschema.Draft202012Validator)}


def fetched_suite(folder):
    """Fetches the source package of jsonschema, which carries the suite; returns the suite's folder."""
    package, name, sha256 = _PACKAGE
    suite = folder / "json" / "tests"
    if not suite.is_dir():
        folder.mkdir(parents=True, exist_ok=True)
        fetched = subprocess.run([_ROOT / "tools" / "fetch_pinned", folder, package, name, sha256])
        if fetched.returncode != 0:
            print("SKIPPED: the suite could not be fetched", file=sys.stderr)
            sys.exit(_SKIPPED)
        with tarfile.open(folder / name) as archive:
            for member in archive.getmembers():
                inside = pathlib.PurePosixPath(member.name).parts[1:]
                if inside[:2] == ("json", "tests") and member.isfile():
                    target = folder.joinpath(*inside)
                    target.parent.mkdir(parents=True, exist_ok=True)
                    target.write_bytes(archive.extractfile(member).read())
        (folder / name).unlink()
    return suite


class Judge:
    def __init__(self, program, kind):
        self._program = program
        self._kind = kind

    def of_group(self, group):
        """Returns (column, test) for each test of a group."""
        schema = group["schema"]
        questions = [self._variants(schema, test) for test in group["tests"]]
        texts = [text for variants in questions for variant in variants for text in written_forms(variant)]
        accepted, refused = self._program.accepts(schema, texts)
        if refused is not None:
            return [("refused", {**test, "message": refused}) for test in group["tests"]]
        answers = iter(accepted)
        return [(self._column(schema, test, [[next(answers) for _ in written_forms(variant)] for variant in variants]),
                 test) for test, variants in zip(group["tests"], questions)]

    # The ways of writing a value of which one has to be accepted.
    def _variants(self, schema, test):
        if not test["valid"]:
            return [test["data"]]
        found = self._looked_at(lambda: orders(self._kind(schema), test["data"])) or [test["data"]]
        return found + [without_fractions(test["data"])]

    def _column(self, schema, test, answers):
        if not test["valid"]:
            return "wrong" if any(answers[0]) else "kept"
        if any(all(forms) for forms in answers):
            return "kept"
        if self._looked_at(lambda: ClosedWorld(self._kind(schema)).needs_openness(test["data"])):
            return "only open"
        if "only an annotation" in test["description"]:
            return "format"
        checked = self._kind(schema, format_checker=jsonschema.FormatChecker())
        return "format" if self._looked_at(lambda: not checked.is_valid(test["data"])) else "wrong"

    @staticmethod
    def _looked_at(look):
        try:
            return look()
        except Exception:  # a reference that leads out of the document: such a schema is refused
            return None


class Results:
    """What has been counted for every file of every draft."""

    def __init__(self):
        self.counts = {}  # (draft, file) to a Counter of columns
        self.wrong = []
        self.refused = {}  # (draft, file, description) to (message, number of tests)

    def add(self, draft, stem, group, columns):
        counts = self.counts.setdefault((draft, stem), collections.Counter())
        for column, test in columns:
            counts[column] += 1
            if column == "wrong":
                self.wrong.append((draft, stem, group, test))
            if column == "refused":
                self.refused[draft, stem, group["description"]] = (test["message"], len(columns))

    def total(self, draft=None):
        return sum((counts for (of, _), counts in self.counts.items() if draft in (None, of)), collections.Counter())

    def table(self):
        """The table, as lines of Markdown."""
        columns = [f"{draft} {column}" for draft in _DRAFTS for column in _COLUMNS]
        lines = ["| group | " + " | ".join(columns) + " |", "|---|" + "--:|" * len(columns)]
        for stem in sorted({stem for _, stem in self.counts}):
            lines.append(self._line(stem, [self.counts.get((draft, stem), {}) for draft in _DRAFTS]))
        return [*lines, self._line("together", [self.total(draft) for draft in _DRAFTS])]

    @staticmethod
    def _line(name, of_drafts):
        numbers = [str(counts.get(column) or "") for counts in of_drafts for column in _COLUMNS]
        return f"| {name} | " + " | ".join(numbers) + " |"

    def reasons(self):
        """A table of why schemas are refused, as lines of Markdown."""
        tests = collections.Counter()
        for message, number in self.refused.values():
            tests[reason_of(message)] += number
        return ["| tests | refused because |", "|--:|---|",
                *(f"| {number} | {reason} |" for reason, number in sorted(tests.items(), key=lambda x: (-x[1], x[0])))]


def page(results):
    total = results.total()
    return "\n".join([
        "# JSON-Schema-Test-Suite", "",
        "`tests/grammar/judge_test_suite.py PROGRAM --write tests/grammar/test_suite.md` writes this page.",
        f"Required parts of drafts 7 and 2020-12, from {_PACKAGE[0]}: {sum(total.values())} tests.", "",
        "* kept: the answer is the suite's. refused: the schema is refused by name.",
        "* only open: valid, but with members or items that an object or tuple with a description does not invite.",
        "* format: valid, because the suite does not check formats; we do.",
        "* wrong: none may be.", "",
        *results.table(), "", *results.reasons(), ""])


def run(program, suite, only):
    results = Results()
    for draft, (folder, kind) in _DRAFTS.items():
        for file in sorted((suite / folder).glob("*.json")):
            if only and only not in file.stem:
                continue
            for group in json.loads(file.read_text(encoding="utf-8")):
                schema = group["schema"]
                if draft == "7" and isinstance(schema, dict):
                    group["schema"] = {"$schema": "http://json-schema.org/draft-07/schema#", **schema}
                results.add(draft, file.stem, group, Judge(program, kind).of_group(group))
    return results


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("program", help="path of schema_judge")
    parser.add_argument("--suite", type=pathlib.Path, help="folder with draft7/ and draft2020-12/ (default: fetched)")
    parser.add_argument("--folder", type=pathlib.Path, default=_ROOT / "build" / "json-schema-test-suite",
                        help="where the suite is fetched to")
    parser.add_argument("--groups", help="only files whose name contains this")
    parser.add_argument("--reasons", action="store_true", help="list the groups that are refused, with the messages")
    parser.add_argument("--write", type=pathlib.Path, help="write the page with the table here")
    parser.add_argument("--check", type=pathlib.Path, help="fail if this page has another table")
    options = parser.parse_args()
    suite = options.suite or fetched_suite(options.folder)
    results = run(JudgedProgram(options.program), suite, options.groups)
    print("\n".join(results.table()))
    for (draft, stem, description), (message, _) in results.refused.items() if options.reasons else ():
        print(f"refused: {draft} {stem}: {description}: {message}")
    for draft, stem, group, test in results.wrong:
        print(f"wrong: {draft} {stem}: {group['description']}: {test['description']} "
              f"({'valid' if test['valid'] else 'invalid'})\n  {json.dumps(group['schema'], ensure_ascii=False)}\n"
              f"  {json.dumps(test['data'], ensure_ascii=False)}")
    if options.write:
        options.write.write_text(page(results), encoding="utf-8")
    stale = options.check and options.check.read_text(encoding="utf-8") != page(results)
    if stale:
        print(f"{options.check} has another table: write it anew with --write and look at what changed")
    sys.exit(1 if results.wrong or stale else 0)


if __name__ == "__main__":
    main()
