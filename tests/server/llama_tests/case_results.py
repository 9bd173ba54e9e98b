"""A plugin of pytest for llama.cpp's tests: chooses the cases, and writes down how each of them ended.

The runner (run_llama_tests) says in the environment:
  LLAMA_TESTS_CASES    a file with the ids of the cases to run, one a line; without it all run
  LLAMA_TESTS_RESULTS  the file that gets a line of JSON for each case
"""
import json
import os
import socket
import sys
import types

# llama.cpp's tests import wget to fetch further models. Cases that do so are not applicable and fail with this stand-in.
sys.modules["wget"] = types.ModuleType("wget")

outcomes = {}


def pytest_collection_modifyitems(config, items):
    """Cases that llama.cpp marks as slow fetch models of gigabytes; they are only reported."""
    chosen = []
    wanted = None
    if "LLAMA_TESTS_CASES" in os.environ:
        with open(os.environ["LLAMA_TESTS_CASES"], encoding="utf-8") as file:
            wanted = set(file.read().split("\n"))
    for item in items:
        if item.get_closest_marker("slow"):
            write(item.nodeid, "slow", 0, "")
        elif wanted is None or item.nodeid in wanted:
            chosen.append(item)
        else:
            write(item.nodeid, "not chosen", 0, "")
    config.hook.pytest_deselected(items=[item for item in items if item not in chosen])
    items[:] = chosen


def pytest_collection_finish():
    """Gives every server a port that is free, and fetches no models: one model stands in for all."""
    server_tests = sys.modules.get("utils")
    if server_tests is None:
        return
    server_tests.ServerPreset.load_all = staticmethod(lambda: None)
    start = server_tests.ServerProcess.start

    def start_on_free_port(self, *arguments, **named):
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.server_port = probe.getsockname()[1]
        return start(self, *arguments, **named)

    server_tests.ServerProcess.start = start_on_free_port


def pytest_runtest_logreport(report):
    """The worst of setting up, running and tearing down is the case's outcome."""
    outcome, seconds, message = outcomes.get(report.nodeid, ("passed", 0, ""))
    seconds += report.duration
    if report.failed:
        outcome, message = "failed", getattr(report.longrepr, "reprcrash", None) or str(report.longrepr)
        message = getattr(message, "message", message)
    elif report.skipped and outcome == "passed":
        outcome, message = "skipped", str(report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr)
    outcomes[report.nodeid] = (outcome, seconds, message)
    if report.when == "teardown":
        write(report.nodeid, outcome, seconds, message)


def pytest_collectreport(report):
    if report.failed:
        write(report.nodeid, "failed", 0, str(report.longrepr))


def write(case, outcome, seconds, message):
    with open(os.environ["LLAMA_TESTS_RESULTS"], "a", encoding="utf-8") as file:
        line = {"case": case, "outcome": outcome, "seconds": round(seconds, 2), "message": str(message)[:400]}
        file.write(json.dumps(line) + "\n")
