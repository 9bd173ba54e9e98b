"""Shared by the comparisons with peers: running programs, medians of rounds, a table."""

import json
import statistics
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def say(text):
    print(f"{Path(sys.argv[0]).name}: {text}", file=sys.stderr, flush=True)


def run(command, **options):
    return subprocess.run([str(part) for part in command], check=True, **options)


def kl_divergence(args, folder):
    """Returns how far the model in `folder` is from args.model on args.rows rows of args.text, by args.bitloom on args.backend."""
    done = run([args.bitloom, "eval", "kld", "-q", "-m", folder, "--base", args.model, "--text", args.text, "--rows", args.rows,
                "--backend", args.backend, "--json"], stdout=subprocess.PIPE)
    return json.loads(done.stdout)["kld"]


def commit():
    git = ["git", "-C", str(ROOT)]
    head = subprocess.run([*git, "rev-parse", "--short", "HEAD"], capture_output=True, text=True)
    dirty = subprocess.run([*git, "diff", "--quiet", "HEAD", "--", "src"], capture_output=True)
    return head.stdout.strip() + (" with changes" if dirty.returncode else "")


def summarise(rounds, peer):
    """Returns for each test the median, best and every value of both programs, and the median ratio of the rounds.

    rounds: [{"bitloom": {test: speed}, peer: {test: speed}}], with the same tests in each."""
    summary = {}
    for test in rounds[0]["bitloom"]:
        ours = [r["bitloom"][test] for r in rounds]
        theirs = [r[peer][test] for r in rounds]
        summary[test] = {
            "bitloom": {"median": statistics.median(ours), "best": max(ours), "all": ours},
            peer: {"median": statistics.median(theirs), "best": max(theirs), "all": theirs},
            "ratio": statistics.median(a / b for a, b in zip(ours, theirs)),
        }
    return summary


def table(summary, peer):
    lines = [f"| test | bitloom (median, best) | {peer} (median, best) | ratio of a round (median) |",
             "|---|---|---|---|"]
    for test, of in summary.items():
        ours, theirs = of["bitloom"], of[peer]
        lines.append(f"| {test} | {ours['median']:.0f}, {ours['best']:.0f} | "
                     f"{theirs['median']:.0f}, {theirs['best']:.0f} | {of['ratio']:.2f} |")
    return "\n".join(lines)


def progress_line(number, rounds, entry):
    say(f"round {number} of {rounds}: " + "; ".join(
        f"{name} " + ", ".join(f"{test} {speed:.0f}" for test, speed in speeds.items())
        for name, speeds in entry.items()))
