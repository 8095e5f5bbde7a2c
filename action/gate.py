"""Gate a log in a step of GitHub Actions: run `tidegate gate`, and tell the workflow what came out.

What a log or a workflow names is data: it reaches no shell, cannot end its cell in the summary's table, adds
no output of its own, and starts no line of the step's log that the runner would take for a command.
"""

import html
import json
import os
import re
import shlex
import subprocess
import sys
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

DECIDED = (0, 1)
UNFIT = 2
YES, NO = ("true", "yes", "1"), ("false", "no", "0")
MOST_CELL = 500


class Wrong(Exception):
    """An input of the step is not usable."""


def main(environment: Mapping[str, str]) -> int:
    """Run the gate as the environment says; the exit code of the step."""
    try:
        record, fails = path_of(environment, "RECORD"), choice(environment, "FAIL_ON_KEEP")
        command = command_of(environment, record)
    except Wrong as error:
        return report(environment, {"status": "error", "sentence": str(error)}, "", UNFIT)
    done = subprocess.run(command, cwd=workspace(environment), capture_output=True, text=True, check=False)
    show(done.stdout + done.stderr)
    content = read(record)
    if done.returncode not in DECIDED or content.get("verdict") is None:
        told = content if content.get("status") == "error" else {}  # another one is of an earlier run
        sentence = told.get("sentence") or f"the gate ended with code {done.returncode}."
        where = environment["INPUT_RECORD"] if told else ""
        return report(environment, {**told, "status": "error", "sentence": sentence}, where, UNFIT)
    return report(environment, content, environment["INPUT_RECORD"], done.returncode if fails else 0)


def command_of(environment: Mapping[str, str], record: Path) -> list[str]:
    """The gate's command line; no shell reads it."""
    flags = ["--candidate", asked(environment, "CANDIDATE"), "--record", str(record)]
    for name in ("SAFE", "LOOKAHEAD"):
        if environment.get(f"INPUT_{name}"):
            flags += [f"--{name.lower()}", environment[f"INPUT_{name}"]]
    try:
        more = shlex.split(environment.get("INPUT_ARGUMENTS", ""), comments=True)
    except ValueError as error:
        raise Wrong(f"the arguments cannot be read: {error}.") from error
    log = str(path_of(environment, "LOG"))
    return [sys.executable, "-m", "tidegate", "gate", *flags, *more, "--", log]


def workspace(environment: Mapping[str, str]) -> Path:
    """The folder that paths are relative to."""
    return Path(environment.get("GITHUB_WORKSPACE") or ".").resolve()


def path_of(environment: Mapping[str, str], name: str) -> Path:
    """A path in the workspace, whatever its characters."""
    return workspace(environment) / asked(environment, name)


def asked(environment: Mapping[str, str], name: str) -> str:
    """An input that must be there."""
    value = environment.get(f"INPUT_{name}", "")
    if not value or "\0" in value:
        raise Wrong(f"the input {name.lower().replace('_', '-')} is missing.")
    return value


def choice(environment: Mapping[str, str], name: str) -> bool:
    """An input that is true or false, and nothing between."""
    word = environment.get(f"INPUT_{name}", "true").strip().lower()
    if word not in (*YES, *NO):
        raise Wrong(f"the input {name.lower().replace('_', '-')} is neither true nor false.")
    return word in YES


def read(record: Path) -> dict[str, Any]:
    """The decision record, if one was written."""
    try:
        content = json.loads(record.read_bytes())
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}


def report(environment: Mapping[str, str], content: Mapping[str, Any], record: str, code: int) -> int:
    """Write summary and outputs, say the verdict in the step's log, and give the exit code back."""
    append(environment.get("GITHUB_STEP_SUMMARY"), summary(content))
    values = {"status": content["status"], "verdict": content.get("verdict") or "", "record": record}
    append(environment.get("GITHUB_OUTPUT"), "".join(output(name, str(one)) for name, one in values.items()))
    show(f"{content.get('verdict') or 'No verdict'}: {content['sentence']}")
    return code


def summary(content: Mapping[str, Any]) -> str:
    """The verdict as a table of HTML, which no cell can break."""
    head = f"<h3>Tidegate: {cell(content.get('verdict') or 'no verdict')}</h3>"
    rows = "".join(f"<tr><th>{cell(name)}</th><td>{cell(one)}</td></tr>" for name, one in facts(content))
    return f"{head}\n<table>{rows}</table>\n\n"


def facts(content: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """What the table says, row by row."""
    yield "Status", content["status"]
    yield "Why", content["sentence"]
    if content.get("candidate"):
        yield "Candidate, safe policy", f"{content['candidate']}, {content.get('safe')}"
    advantage = content.get("advantage")
    if isinstance(advantage, dict):
        yield "Advantage", f"{advantage['point']:.4g}, at least {advantage['lower']:.4g}"
    for one in (content.get("guardrails") or {}).get("outcomes", []):
        yield f"Guardrail {one['outcome']}", one["sentence"]
    for caveat in content.get("caveats") or []:
        yield "Caveat", caveat
    if content.get("expires_at"):
        yield "Good until", content["expires_at"]
    if content.get("record_hash"):
        yield "Record", content["record_hash"]


def cell(value: Any) -> str:
    """Text that is only text, in HTML and in Markdown around it."""
    line = " ".join(plain(str(value)).split())
    line = line if len(line) <= MOST_CELL else line[: MOST_CELL - 1] + "…"
    escaped = html.escape(line)
    return re.sub(r"[\\`*_\[\]|~#:@]", lambda found: f"&#{ord(found[0])};", escaped)


def output(name: str, value: str) -> str:
    """An output of the step, under a delimiter that nobody can have written before."""
    end = f"end_{uuid.uuid4().hex}"
    return f"{name}<<{end}\n{' '.join(plain(value).splitlines())}\n{end}\n"


def show(text: str) -> None:
    """Print lines that the runner takes for no command."""
    for line in plain(text).splitlines():
        sys.stdout.write(f"  {line}\n".replace("::", ": :").replace("##[", "# #["))


def plain(text: str) -> str:
    """Text without what drives a terminal, or hides or turns what is read; lines stay lines."""
    return "".join(one if one == "\n" or one.isprintable() else " " for one in text.replace("\r", "\n"))


def append(path: str | None, text: str) -> None:
    """Add to a file that the runner reads."""
    if path:
        with open(path, "a", encoding="utf-8") as file:
            file.write(text)


if __name__ == "__main__":
    sys.exit(main(os.environ))
