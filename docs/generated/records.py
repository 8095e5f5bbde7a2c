"""The records of all kinds: their JSON Schema, and the page that explains it."""

import json
from collections.abc import Mapping

from tidegate.checks.findings import Level
from tidegate.commands import (
    BacktestRecord,
    CheckRecord,
    Evaluation,
    GateRecord,
    Outcome,
    PlainSettings,
    PlanRecord,
    SearchChoices,
    WatchRecord,
)
from tidegate.commands.description import PolicyDescription
from tidegate.forecast import Forecast
from tidegate.gates.ledger import FORMAT as LEDGER_FORMAT
from tidegate.gates.ledger import KIND as LEDGER
from tidegate.gates.ledger import Ledger
from tidegate.gates.multiplicity import Multiplicity
from tidegate.gates.signatures import ALGORITHM
from tidegate.gates.watch_records import WatchReason
from tidegate.reasons import Reason, Status, Verdict
from tidegate.record import FORMAT, SEAL, SIGNATURE, Advantage

from .record_types import HASH, NULL, NUMBER, TEXT, TEXTS, Schema, Types, any_of, closed
from .schemas import fields
from .words import code, page, table

DIALECT = "https://json-schema.org/draft/2020-12/schema"
TRUTH: Schema = {"type": "boolean"}
FOUND: Schema = {
    "type": "object"
}  # described settings of the library, which carry the names of their classes
WRITERS = {
    "gate": "`tidegate gate`, `tidegate.gate`; the service's `…/record`",
    "gate_error": "`tidegate gate` where nothing could be decided",
    "improve": "`tidegate improve`, `tidegate.improve`",
    "evaluate": "`tidegate evaluate`, `tidegate.evaluate`",
    "check": "`tidegate check`, `tidegate.check`",
    "backtest": "`tidegate backtest`, `tidegate.backtest`",
    "plan": "`tidegate plan`, `tidegate.plan`",
    "watch": "`tidegate watch`, `tidegate.commands.watch`",
    "watch_error": "`tidegate watch` where the log cannot be read",
    "verify": "`tidegate verify`, `tidegate.commands.verify`; it is not sealed",
    "budget": "the ledger of `--budget`",
}
INTRODUCTION = """
A record is what `--json` prints, `--record` writes and `to_dict` gives: plain JSON values. A number that is
not finite is null. [`record.schema.json`](record.schema.json) is its JSON Schema (draft
2020-12), and every record that is written validates against it. All fields are there,
and no others, so a program can rely on them.
"""
SEALED = """
`kind` says which record it is. `format` is raised when a field of records changes; a ledger has its own,
since it outlives the format of records. `record_hash` is the SHA-256 of everything else but `signature`. It
reveals accidental changes but does not prevent forgery: see [what a confirmed record
proves](logs.md#what-a-confirmed-record-proves).
"""
MEANINGS = {
    "kind": "Which record it is.",
    "format": "The version of the format.",
    SEAL: "The hash of the record's content.",
    SIGNATURE: "Only if the record was signed.",
    "status": "The outcome in the words of deployment pipelines.",
    "verdict": "DEPLOY or KEEP.",
    "reason": "Why, as a name for programs.",
    "sentence": "Why, in words.",
    "headline": "Verdict and reason in one line.",
    "candidate": "The new policy.",
    "safe": "The policy to beat, or to fall back on.",
    "policy": "The policy.",
    "advantage": "The forecast of candidate − safe, and the bound that decides.",
    "settings": "How the forecast was made, from which a replay starts.",
    "seed": "The seed that was given.",
    "test_data_hash": "SHA-256 of the episodes that were tested.",
    "training_data_hash": "The same of those that the candidate was found with; null if there are none.",
    "candidate_from": "What the owner says about where the candidate came from.",
    "checks": "Findings about the tested episodes, by role.",
    "check": "The findings.",
    "level": "The worst of the findings.",
    "findings": "The findings.",
    "caveats": "Sentences that belong beside the answer; with any, a verdict is not guaranteed.",
    "assumptions": "What no log can show, and is taken on trust.",
    "allow_unguaranteed": "Whether a caveat was allowed to deploy.",
    "guaranteed": "Whether there is no caveat.",
    "range": "The finite-sample bound, if the range of returns was given.",
    "decided_at": "When, in UTC.",
    "expires_at": "Until when the answer is good, in UTC.",
    "overlap": "How the log relates to the episodes that the candidate was made with.",
    "training": "What the candidate's search has seen, if `improve` found it.",
    "outlook": "How many more episodes might open the gate.",
    "dates": "At how many past dates the gate was tried.",
    "backtest": "What the gate would have said at past dates, and what came next.",
    "budget": "What the error budget granted; null if the test used all of α.",
    "provenance": "The log as it was read, and the software that computed this.",
    "guardrails": "The tests of the guardrails; null if there are none.",
    "goodness_of_fit": "Which tests of the trend fail.",
    "policy_class": "The class of the policy that was found.",
    "search": "How it was searched.",
    "description": "What the found policy does, beside the log.",
    "forecast": "The forecast.",
    "stationary": "The forecast that assumes that nothing changes.",
    "streamed": "Whether the log was too large to be held.",
    "plan": "How many more episodes, and why.",
    "lacking_actions": "Actions that lack data, by their names in the log.",
    "rolls_back": "Whether the advice is to roll back.",
    "advice": "ROLL BACK or KEEP RUNNING.",
    "since": "The first time that counts, as it was given.",
    "watch": "What is watched, and how.",
    "signal": "What the watch says at the end.",
    "curves": "What it knew on the way.",
    "warning": "What the gate forecasts from the episodes since the release; null if it was not asked.",
    "confirmed": "Whether the record is confirmed.",
    "outcome": "The result of the replay.",
    "recorded_verdict": "The verdict in the record.",
    "replayed_verdict": "The verdict of the replay; null if it did not come to one.",
    "differences": "The first values that the replay does not give.",
    "num_differences": "How many there are.",
    "versions": "Versions that have changed since.",
    "notes": "What the answer does not rest on.",
    "alpha": "The budget: the α that all of its tests share.",
    "entries": "Every test that drew on it, in order.",
}  # fmt: skip
LEDGER_MEANINGS = {"plan": "The rule by which α is shared out, and for how many tests."}


def schema() -> Schema:
    """The schema of every record."""
    known = Types()
    kinds = {name: {"$ref": f"#/$defs/{name}"} for name in WRITERS}
    records = dict(zip(WRITERS, _records(known), strict=True))
    return {
        "$schema": DIALECT,
        "title": "A record of Tidegate",
        "oneOf": list(kinds.values()),
        "$defs": records | dict(sorted(known.definitions.items())),
    }


def schema_file() -> str:
    """The schema as its file holds it."""
    return json.dumps(schema(), indent=1, ensure_ascii=False) + "\n"


def records_page() -> str:
    """The page about records."""
    definitions = schema()["$defs"]
    kinds = table(["record", "kind", "comes from"], [_kind_row(name, definitions[name]) for name in WRITERS])
    shown = [f"## {name} record\n\nFrom {WRITERS[name]}.\n\n{fields(definitions[name])}" for name in WRITERS]
    parts = [_part(name, one) for name, one in definitions.items() if name not in WRITERS]
    return page("Records", INTRODUCTION, kinds, SEALED, *shown, "## Parts of records", *parts)


def _kind_row(name: str, one: Schema) -> tuple[str, str, str]:
    return f"[{name}](#{name}-record)", code(one["properties"]["kind"]["const"]), WRITERS[name]


def _part(name: str, one: Schema) -> str:
    listed = table(["value", "means"], map(_value, one.get("oneOf", ())))
    listed = listed or fields(one) or f"One of {code(one.get('enum'))}."
    return "\n\n".join(part for part in (f"### {name}", one.get("description", ""), listed) if part)


def _value(choice: Schema) -> tuple[str, str]:
    """A value among several, and its sentence; where the record holds both, by its name."""
    if "const" in choice:
        return code(choice["const"]), choice["description"]
    held = choice["properties"]
    return code(held["name"]["const"]), held["sentence"]["const"]


def _records(known: Types) -> list[Schema]:
    """The schemas of the records, in the order of `WRITERS`."""
    gate = _gate(known)
    told = {"caveats": TEXTS, "assumptions": TEXTS}
    return [
        sealed("gate", gate),
        sealed("gate", _undecided("verdict", "expires_at")),
        sealed("improve", {**gate, **_found(known)}),
        sealed("evaluate", {"caveats": TEXTS, **known.fields(Evaluation)}),
        sealed("check", {"level": known.of(Level), **known.fields(CheckRecord)}),
        sealed("backtest", {**told, **known.fields(BacktestRecord)}),
        sealed("plan", {**told, "lacking_actions": TEXTS, **known.fields(PlanRecord)}),
        sealed("watch", _watch(known)),
        sealed("watch", _undecided("rolls_back", "reason")),
        _verify(),
        sealed(LEDGER, known.fields(Ledger), LEDGER_FORMAT, LEDGER_MEANINGS),
    ]


def sealed(
    kind: str, properties: Mapping[str, Schema], version: int = FORMAT, meanings: Mapping[str, str] = {}
) -> Schema:
    """A record with its kind, its format and its seal; gates may be signed."""
    signature = closed({"algorithm": {"const": ALGORITHM}, "value": TEXT})
    whole: dict[str, Schema] = {
        "kind": {"const": kind},
        "format": {"const": version},
        **properties,
        SEAL: HASH,
        SIGNATURE: signature,
    }
    return closed(_explained(whole, meanings), optional=(SIGNATURE,))


def _explained(properties: Mapping[str, Schema], meanings: Mapping[str, str] = {}) -> dict[str, Schema]:
    known = {**MEANINGS, **meanings}
    return {name: {"description": known[name], **one} for name, one in properties.items()}


def _gate(known: Types) -> dict[str, Schema]:
    """What the decision says, what the gate adds, and what it says anew."""
    role = {"policy": TEXT, "policy_hash": TEXT, **known.definition(Forecast)["properties"]}
    rest = {name: one for name, one in known.fields(GateRecord).items() if name != "guarded"}
    return {
        "status": {"enum": [Status.PASS.value, Status.INCONCLUSIVE.value, Status.FAIL.value]},
        "verdict": known.of(Verdict),
        "reason": known.of(Reason),
        "sentence": TEXT,
        "advantage": known.of(Advantage),
        "test_data_hash": HASH,
        "training_data_hash": any_of(HASH, NULL),
        **rest,
        "candidate": known.named(
            "Role", lambda: closed(role, "A policy of the test: what it is, and its forecast.")
        ),
        "safe": {"$ref": "#/$defs/Role"},
        "headline": TEXT,
        "guaranteed": TRUTH,
        "guardrails": any_of(known.named("Guardrails", lambda: _guardrails(known)), NULL),
        "goodness_of_fit": known.named("GoodnessOfFit", _goodness),
        "settings": known.named("GateSettings", lambda: known.record(PlainSettings, forecast=FOUND)),
    }


def _goodness() -> Schema:
    return closed({"passed": TRUTH, "failed": TEXTS}, "Whether the tests of the trend pass, and which fail.")


def _guardrails(known: Types) -> Schema:
    outcome = {
        "outcome": TEXT, "margin": NUMBER, "lower_is_better": TRUTH, "holds": TRUTH,
        "reason": known.of(Reason), "sentence": TEXT, "candidate": NUMBER, "safe": NUMBER, "change": NUMBER,
        "bound": NUMBER, "p_value": NUMBER, "level": NUMBER, "constant": NUMBER, "test_data_hash": HASH,
    }  # fmt: skip
    told = (
        "The test of one guardrail, in the outcome's own direction; `bound` is the worst change that is not "
        "ruled out."
    )
    one = known.named("GuardrailTest", lambda: closed(outcome, told))
    return closed(
        {
            "multiplicity": known.of(Multiplicity),
            "sentence": TEXT,
            "num_tests": {"type": "integer"},
            "alpha": NUMBER,
            "reward": closed({"improves": TRUTH, "p_value": NUMBER, "level": NUMBER}),
            "outcomes": {"type": "array", "items": one},
        },
        "All tests of the outcomes, and how they share α.",
    )


def _found(known: Types) -> dict[str, Schema]:
    """What a search adds to the record of its gate."""
    search = known.named("Search", lambda: known.record(SearchChoices, settings=FOUND))
    return {"policy_class": TEXT, "search": search, "description": known.of(PolicyDescription)}


def _undecided(*absent: str) -> dict[str, Schema]:
    """The record of a question that got no answer."""
    error: Schema = {"const": Status.ERROR.value}
    times = {name: TEXT for name in absent if name.endswith("_at")}
    nothing = {name: NULL for name in absent if name not in times}
    return {"status": error, **nothing, "sentence": TEXT, "decided_at": TEXT, **times}


def _watch(known: Types) -> dict[str, Schema]:
    return {
        "status": known.of(Status),
        "rolls_back": TRUTH,
        "advice": {"enum": ["ROLL BACK", "KEEP RUNNING"]},
        "reason": known.of(WatchReason),
        "sentence": TEXT,
        "headline": TEXT,
        "caveats": TEXTS,
        **known.fields(WatchRecord),
    }


def _verify() -> Schema:
    difference = closed({"where": TEXT, "recorded": {}, "replayed": {}})
    listed = {"type": "array", "items": difference}
    properties: dict[str, Schema] = {
        "kind": {"const": "verify"}, "confirmed": TRUTH, "outcome": {"enum": [one.name for one in Outcome]},
        "sentence": TEXT, "recorded_verdict": TEXT, "replayed_verdict": {"type": ["string", "null"]},
        "differences": listed, "num_differences": {"type": "integer"}, "versions": listed, "notes": TEXTS,
    }  # fmt: skip
    return closed(_explained(properties))
