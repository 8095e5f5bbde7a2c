"""Plain words: what nobody would say to a colleague stands in no page, message or docstring."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

PROJECT = Path(__file__).parent.parent
PAGES = [PROJECT / "README.md", PROJECT / "CHANGELOG.md", *sorted((PROJECT / "docs").rglob("*.md"))]
SOURCES = sorted((PROJECT / "src").rglob("*.py"))
TEMPLATES = sorted((PROJECT / "src").rglob("*.html"))
QUOTED = re.compile(r"```.*?```|`[^`\n]*`|\]\([^)]*\)|<!--.*?-->", re.DOTALL)  # code, addresses, comments

# As patterns, without regard to case. A word that is right somewhere is forbidden only where it is not.
FILLERS = (
    "simply", "just", "basically", "obviously", "actually", "of course", "in order to", "so as to",
    "please note", "note that", "it should be noted", "needless to say", "due to the fact", "at this point",
    "with regard to", "a variety of",
)  # fmt: skip
TRANSLATED = (
    "anew", "along time", "to the bit", "weightiest", "(?:preset|version) of before", "so-and-so",
    "look(?:ed)? who was right", "from when on", "is to be seen in", "what is to be seen", "hangs? on",
    "(?:no|a) way out", "by far not", "(?:requests|programs|what) (?:that )?nobody wrote", "what is kept of",
    "evaluation that kills", "is answered by", "is said once", "said beside", "turns? a verdict", "shall say",
    "rests? mostly on", "intervals of nominal", "led both to", "goes with the reward", "the most of all",
    "much worse happens", "weighed by", "ever rolled back with", "rolls? a new policy back",
    "tak(?:e|es|ing) (?:the )?noise out", "takes? out (?:the )?noise", "part buys", "it buys", "who must not",
    "in doubt use", "is no theorem",
)  # fmt: skip
POMPOUS = (
    "utili[sz]\\w*", "leverag(?:es|ed|ing)", "to leverage", "robustly", "seamless\\w*", "effortless\\w*",
    "cutting-edge", "state-of-the-art", "world-class", "powerful", "blazing\\w*", "holistic\\w*",
    "synerg\\w*", "facilitat\\w*", "aforementioned", "herein", "thereof", "hereby", "whilst", "amongst",
    "henceforth", "plethora", "myriad", "delv(?:e|es|ing)", "paradigm\\w*", "best-in-class", "empower\\w*",
    "streamlin\\w*",
)  # fmt: skip
STIFF = (
    "of it bias", "steps have episodes", "searches a rule", "mend(?:s|ed|ing)?", "nobody need", "listen at",
    "so far is the", "changes by accident", "can try forecasts", "is not how to ask", "a second and token",
    "as its owner says", "not of the present",
)  # fmt: skip
AVOIDED = re.compile(rf"\b(?:{'|'.join((*FILLERS, *POMPOUS, *STIFF, *TRANSLATED))})\b", re.IGNORECASE)


def _strings(path: Path) -> Iterator[str]:
    """Messages and docstrings of a file, the parts of each f-string as one text."""
    tree = ast.parse(path.read_text())
    inside = {id(part) for one in ast.walk(tree) if isinstance(one, ast.JoinedStr) for part in one.values}
    for one in ast.walk(tree):
        if isinstance(one, ast.JoinedStr):
            parts = (part.value if isinstance(part, ast.Constant) else "…" for part in one.values)
            yield "".join(map(str, parts))
        elif isinstance(one, ast.Constant) and isinstance(one.value, str) and id(one) not in inside:
            yield one.value


def _found(text: str) -> list[str]:
    plain = QUOTED.sub(" ", text)
    return [
        " ".join(plain[max(0, one.start() - 40) : one.end() + 40].split()) for one in AVOIDED.finditer(plain)
    ]


@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(PROJECT)))
def test_pages(path: Path) -> None:
    assert not _found(path.read_text())


def test_messages_and_docstrings() -> None:
    found = {
        str(path.relative_to(PROJECT)): said
        for path in SOURCES
        for text in _strings(path)
        if (said := _found(text))
    }
    assert not found


def test_templates() -> None:
    found = {str(path.relative_to(PROJECT)): said for path in TEMPLATES if (said := _found(path.read_text()))}
    assert not found


def test_what_is_avoided_is_found() -> None:
    assert _found("You can simply utilise it, in order to win.")
    assert _found("The model takes noise out, and the watch begins anew.")
    assert not _found("A leverage of 1/2; `just` is a tool. The justice of it.")
