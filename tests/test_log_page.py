"""The page of a record: self-contained, small, escaped, and its numbers are the JSON's."""

import html
import json
import re
import shutil
import subprocess
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from tidegate.commands import (
    LogFile,
    PlainSettings,
    Preset,
    backtest,
    check,
    evaluate,
    gate,
    improve,
    plan,
)
from tidegate.commands.settings import SearchChoices
from tidegate.gates.guardrails import Guardrail
from tidegate.gates.ledger import Budget
from tidegate.logs import Columns
from tidegate.reports.log_page import log_page
from tidegate.reports.numbers import signed

CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")
# What a reader would miss: text outside its picture, and anything beyond the window that does not scroll.
MEASURE = """<script>
const cut = [], wide = innerWidth + 1;
for (const svg of document.querySelectorAll("svg")) {
  const box = svg.getBoundingClientRect();
  for (const text of box.width ? svg.querySelectorAll("text") : []) {
    const at = text.getBoundingClientRect();
    const beside = at.left < box.left - 1 || at.right > box.right + 1;
    if (beside || at.top < box.top - 1 || at.bottom > box.bottom + 1) cut.push(text.textContent);
  }
}
for (const one of document.body.querySelectorAll("*"))
  if (!one.closest(".scroll, pre, svg") && one.getBoundingClientRect().right > wide) cut.push(one.outerHTML);
const style = getComputedStyle(document.body);
document.title = JSON.stringify({
  cut, window: innerWidth, page: document.documentElement.scrollWidth, ink: style.color,
  ground: style.backgroundColor,
  picture: [...document.querySelectorAll("svg text")].map(one => getComputedStyle(one).fill)[0],
});
</script>"""
EVIL = "<script>alert('x')</script>"
VOID = {"meta", "br", "link", "img", "input", "hr"}
KINDS = ("gate", "paper gate", "improve", "evaluate", "check", "backtest", "plan")
PAPER = PlainSettings(Preset.PAPER, lookahead=20, order=1)
DEFAULT = PlainSettings(lookahead=20)


class Page(HTMLParser):
    """Tags with their attributes, the numbers in <data>, and the text in cells of numbers."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[tuple[str, str]] = []
        self.numbers: list[tuple[str, str]] = []
        self.bare: list[str] = []
        self.words: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self.tags.append((tag, given))
        if tag not in VOID:
            self.open.append((tag, given.get("class") or ""))
        if tag == "data":
            self.numbers.append((given["value"] or "", ""))

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        while self.open and self.open.pop()[0] != tag:
            pass

    def handle_data(self, data: str) -> None:
        tags = [tag for tag, _ in self.open]
        if "data" in tags:
            self.numbers[-1] = (self.numbers[-1][0], self.numbers[-1][1] + data)
        elif any(tag == "td" and "r" in name.split() for tag, name in self.open):
            self.bare.append(data)
        if not {"style", "svg", "pre"} & set(tags):
            self.words.append(data)


def _frame(episodes: int) -> pd.DataFrame:
    rng = np.random.default_rng(0)
    episode = np.repeat(np.arange(1, episodes + 1), 2)
    action = rng.integers(0, 2, episode.size)
    return pd.DataFrame(
        {
            "episode": episode,
            "step": np.tile([0, 1], episodes),
            "action": action,
            "behavior_prob": 0.5,
            EVIL: np.where(action == 1, episode / episodes, 0.5) + 0.1 * rng.normal(size=action.size),
            f"p{EVIL}": np.where(action == 1, 0.8, 0.2),
            "x": rng.normal(size=action.size),
        }
    )


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> LogFile:
    path = tmp_path_factory.mktemp("logs") / "<script>alert(1)<&.csv"
    _frame(200).to_csv(path, index=False)
    return LogFile(path, Columns(reward=EVIL, features=("x",)))


@pytest.fixture(scope="module")
def records(log: LogFile, tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    candidate, budget = f"column:p{EVIL}", tmp_path_factory.mktemp("budget") / "ledger.json"
    watched = LogFile(log.source, Columns(reward=EVIL, outcomes=("x",)))
    made = (
        gate(
            watched,
            candidate=candidate,
            settings=DEFAULT,
            guardrails=[Guardrail("x", 2.0)],
            budget=Budget(budget),
        ),
        gate(log, candidate=candidate, settings=PAPER, dates=5),
        improve(log, settings=PAPER, search=SearchChoices(steps=2)),
        evaluate(watched, policy=candidate, settings=DEFAULT),
        check(watched, policy=candidate, settings=DEFAULT),
        backtest(log, candidate=candidate, settings=PAPER, dates=5),
        plan(log, candidate=candidate, settings=PAPER),
    )
    return dict(zip(KINDS, (one.to_dict() for one in made), strict=True))


def _numbers(values: Any) -> set[float]:
    if isinstance(values, dict):
        return set().union(*map(_numbers, values.values()))
    if isinstance(values, list):
        return set().union(*map(_numbers, values))
    return {float(values)} if isinstance(values, int | float) else set()


@pytest.mark.parametrize("kind", KINDS)
def test_numbers_are_those_of_the_record(kind: str, records: dict[str, dict[str, Any]]) -> None:
    page, known = Page(log_page(records[kind])), _numbers(records[kind])
    assert page.numbers
    for value, text in page.numbers:
        assert float(value) in known
        scale = 100 if "%" in text else 1
        shown = float(re.sub(r"[,%\s]", "", text)) / scale
        assert shown == pytest.approx(float(value), rel=1e-2 if scale == 100 else 1e-3)
    assert not re.search(r"\d", "".join(page.bare)), "a number outside a <data> element"


@pytest.mark.parametrize("kind", KINDS)
def test_page_stands_alone_and_is_small(kind: str, records: dict[str, dict[str, Any]]) -> None:
    text = log_page(records[kind])
    assert len(text.encode()) < 1_000_000
    page = Page(text)
    assert not {tag for tag, _ in page.tags} & {
        "script",
        "link",
        "iframe",
        "object",
        "embed",
        "base",
    }
    for _, given in page.tags:
        for name, value in given.items():
            assert not name.startswith("on")
            if name in ("src", "href", "xlink:href", "action", "srcset"):
                assert str(value).startswith(("#", "data:image/png;base64,"))
    assert not re.search(r"url\(\s*['\"]?(?!#)", text)
    assert "@import" not in text


@pytest.mark.parametrize("kind", KINDS)
def test_names_of_users_are_escaped(kind: str, records: dict[str, dict[str, Any]]) -> None:
    text = log_page(records[kind])
    assert "<script" not in text
    words = "".join(Page(text).words)
    assert "<script>alert(1)<&.csv" in words  # the file, as a reader sees it
    assert EVIL in words  # the column


def _measured(page: str, folder: Path, width: int, *, dark: bool = False) -> dict[str, Any]:
    """What Chromium makes of a page without its content policy, which would not let it be measured."""
    assert CHROMIUM is not None
    path, profile = folder / "page.html", folder / "profile"
    page = re.sub(r'<meta http-equiv="Content-Security-Policy"[^>]*>', "", page)
    path.write_text(page.replace("<details>", "<details open>").replace("</body>", f"{MEASURE}</body>"))
    done = subprocess.run(
        [
            CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--dump-dom",
            f"--user-data-dir={profile}", f"--window-size={width},900",
            f"--blink-settings=preferredColorScheme={0 if dark else 1}", path.as_uri(),
        ],
        capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip
    title = re.search(r"<title>(.*?)</title>", done.stdout, re.DOTALL)
    assert title is not None
    found: dict[str, Any] = json.loads(html.unescape(title[1]))
    return found


@pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium")
@pytest.mark.parametrize("kind", KINDS)
def test_nothing_is_cut_on_a_phone(kind: str, records: dict[str, dict[str, Any]], tmp_path: Path) -> None:
    found = _measured(log_page(records[kind]), tmp_path, 500)
    assert found["window"] == 500
    assert found["page"] <= found["window"]
    assert found["cut"] == []


@pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium")
def test_a_page_and_its_pictures_are_dark_by_night(
    records: dict[str, dict[str, Any]], tmp_path: Path
) -> None:
    page = log_page(records["gate"])
    night, day = (_measured(page, tmp_path, 1100, dark=dark) for dark in (True, False))
    assert night["cut"] == day["cut"] == []
    for name in ("ink", "picture"):
        light, dark = (_brightness(one[name]) for one in (night, day))
        assert light > 180 > 90 > dark
    assert _brightness(night["ground"]) < 40
    assert day["ground"] == "rgb(255, 255, 255)"


def _brightness(color: str) -> float:
    return float(np.mean([float(one) for one in re.findall(r"[\d.]+", color)[:3]]))


def test_a_stored_record_gives_the_same_page(records: dict[str, dict[str, Any]]) -> None:
    stored = json.loads(json.dumps(records["gate"]))
    assert log_page(stored) == log_page(records["gate"])


def test_the_decision_comes_first_and_the_record_is_inside(
    records: dict[str, dict[str, Any]],
) -> None:
    record = records["paper gate"]
    text = log_page(record)
    words = " ".join(" ".join(Page(text).words).split())
    assert words.index(record["verdict"]) < words.index("The numbers") < words.index("Backtest")
    for finding in record["checks"]["candidate"]["findings"]:
        assert finding["sentence"] in words
    inside = re.search(r"<pre>(\{.*?)</pre>", text, re.DOTALL)
    assert inside is not None
    assert json.loads(html.unescape(inside[1])) == record


def _words(record: Any) -> str:
    return " ".join(" ".join(Page(log_page(record)).words).split())


def test_two_bounds_and_a_paired_test_say_what_opens_the_gate(
    records: dict[str, dict[str, Any]],
) -> None:
    paper, paired = (_words(records[kind]) for kind in ("paper gate", "gate"))
    assert "only if the candidate's lower bound is above the safe policy's upper bound" in paper
    assert "p-value: how often chance" not in paper
    assert "span of the basis" in paper
    assert "time scale" not in paper
    for absent in ("lower bound is above", "span of the basis"):
        assert absent not in paired
    assert "only if the probability that the candidate is not better, over all trend models" in paired
    assert "p-value: the probability, over all trend models" in paired
    assert "This is test 1 of an error budget (harmonic, planned for 52 tests)" in paired
    assert "intervals may overlap" in paired
    evaluation = _words(records["evaluate"])
    assert "a movement like one of those in the list of trend models" in evaluation
    assert "basis" not in evaluation.replace("basis_", "")


def test_every_family_of_weight_has_its_row_and_its_mark(records: dict[str, dict[str, Any]]) -> None:
    record = records["gate"]
    text, advantage = log_page(record), record["advantage"]
    table = re.search(r"What each model of the trend says</h2>.*?<tbody>(.*?)</tbody>", text, re.DOTALL)
    assert table is not None
    rows = re.findall(r"<tr[^>]*>(.*?)</tr>", table[1], re.DOTALL)
    families = [one for one in advantage["models"] if one["weight"] >= 0.01]
    assert 3 < len(rows) == len(families) < len(advantage["models"])
    for row, family in zip(rows, families, strict=True):
        shown = [json.loads(one) for one in re.findall(r'<data value="(.*?)">', row)]
        assert shown == [family[name] for name in ("weight", "point", "standard_error", "lower", "p_value")]
    told = re.findall(r'<svg [^>]*role="img" aria-label="(The forecast advantage[^"]*)"', text)
    assert len(told) == 2  # one wide, one narrow
    for family in families:
        assert f"(weight {family['weight']:.0%}): {signed(family['point'], 3)}, at least " in told[0]
    assert "What each model" not in log_page(records["paper gate"])


def test_a_season_and_past_forecasts_are_told(records: dict[str, dict[str, Any]]) -> None:
    record = json.loads(json.dumps(records["gate"]))
    record["advantage"] |= {
        "season": {"period": 24.0, "weight": 0.9}, "past": {"dates": 7, "off": 0.25, "misfit": 0.5}
    }  # fmt: skip
    words = _words(record)
    assert "A season of about 24 episodes is seen." in words
    assert "have been off by 0.25 at 7 past dates" in words
    record["advantage"] |= {"season": None, "past": None}
    words = _words(record)
    assert "season of about" not in words
    assert "have been off" not in words


def test_a_model_without_a_number_is_told(records: dict[str, dict[str, Any]]) -> None:
    record = json.loads(json.dumps(records["gate"]))
    record["advantage"] |= {"lower": None, "p_value": None}
    for family in record["advantage"]["models"]:
        family |= {"point": None, "standard_error": None, "p_value": None}
    text = log_page(record)
    assert not re.search(r"\b(nan|inf|None)\b", " ".join(Page(text).words))
    assert "not known" in text
    for family in record["advantage"]["models"]:
        family["weight"] = None
    assert not re.search(r"\b(nan|inf|None)\b", " ".join(Page(log_page(record)).words))
    record["advantage"]["models"] = []
    assert "What each model of the trend says</h2>" not in log_page(record)


def test_a_plan_shows_how_much_more_traffic_would_help(records: dict[str, dict[str, Any]]) -> None:
    record = records["plan"]
    numbers = {"more_episodes": 40, "likely_episodes": None, "more_traffic": 2.5}
    page = Page(log_page({**record, "plan": {**record["plan"], **numbers}}))
    words = " ".join(" ".join(page.words).split())
    assert "2.5 times as many episodes in the same time" in words
    assert "40 more episodes for an even chance" in words
    assert "odds of 4 to 1" not in words


@pytest.mark.parametrize(
    ("episodes", "reward", "preset"),
    [
        (1, None, Preset.PAPER),
        (4, None, Preset.PAPER),
        (4, None, Preset.MULTISCALE),
        (60, 1e300, Preset.PAPER),
    ],
)
def test_keep_without_finite_bounds(episodes: int, reward: float | None, preset: Preset) -> None:
    frame = _frame(episodes)
    if reward is not None:
        frame[EVIL] = reward
    settings = PlainSettings(preset, lookahead=5)
    log = LogFile(frame, Columns(reward=EVIL))
    record = gate(log, candidate=f"column:p{EVIL}", settings=settings).to_dict()
    assert record["verdict"] == "KEEP"
    text = log_page(record)
    assert "Keep the safe policy" in text
    assert not re.search(r"\b(nan|inf|None)\b", " ".join(Page(text).words))
    assert None in (record["candidate"]["lower"], record["candidate"]["standard_error"])
    assert "not known" in text


def test_warnings_and_estimated_propensities_stand_at_the_top() -> None:
    frame = _frame(200)
    frame[EVIL] = np.where(frame["episode"] > 170, 5.0, 0.0) + 0.1 * frame["x"]  # a jump
    log = LogFile(frame, Columns(reward=EVIL), estimate_propensities=True)
    record = gate(log, candidate=f"column:p{EVIL}", settings=PAPER).to_dict()
    words = " ".join(" ".join(Page(log_page(record)).words).split())
    top = words[: words.index("The gate opens only if")]
    assert "Propensities estimated: not guaranteed." in top
    assert "The log fails goodness-of-fit tests for the candidate (trend misfit" in top
    assert "Method: multinomial" in words or "Method: action frequencies" in words


def test_guardrails_stand_beside_the_verdict(records: dict[str, dict[str, Any]]) -> None:
    calls = {
        "outcome": EVIL, "margin": 0.5, "lower_is_better": True, "holds": True, "reason": "BETTER",
        "sentence": "it is kept.", "candidate": 1.25, "safe": 1.5, "change": -0.25, "bound": 0.125,
        "p_value": 0.015625, "level": 0.025, "constant": None, "test_data_hash": "0",
    }  # fmt: skip
    falls = {**calls, "outcome": "kept", "holds": False, "p_value": None, "bound": None}
    guardrails = {
        "multiplicity": "HOLM", "sentence": "Holm.", "num_tests": 3, "alpha": 0.05,
        "reward": {"improves": True, "p_value": 0.001, "level": 0.0166}, "outcomes": [calls, falls],
    }  # fmt: skip
    record = records["paper gate"]
    content = {**record, "reason": "BETTER", "verdict": "KEEP", "guardrails": guardrails}
    text = log_page(content)
    assert "<script" not in text
    page = Page(text)
    words = " ".join(" ".join(page.words).split())
    assert "but not that every guardrail holds (kept)" in words
    assert words.index("Guardrails") < words.index("The numbers")
    assert {float(value) for value, _ in page.numbers} >= {-0.25, 0.125, 0.5, 0.015625, 0.025}
    assert not re.search(r"\d", "".join(page.bare)), "a number outside a <data> element"
    held = {**guardrails, "outcomes": [calls]}
    text = log_page({**content, "verdict": "DEPLOY", "guardrails": held})
    assert "and that every guardrail holds." in " ".join(" ".join(Page(text).words).split())
    text = log_page({**content, "reason": "NOT_BETTER"})
    assert "nor that every guardrail holds (kept)" in " ".join(" ".join(Page(text).words).split())
    for absent in ({}, {"guardrails": None}):
        rest = {name: value for name, value in content.items() if name != "guardrails"}
        assert "every guardrail" not in log_page({**rest, **absent})
