"""The events of Vowpal Wabbit's dsjson, as Azure Personalizer exports them: a JSON object for each decision.

The learner's label becomes the parts of a log: the reward is minus `_label_cost`, the action is that of
`_label_Action` counted from 0, its probability `_label_probability`. What the context `c` says about all
actions together becomes columns such as `User.age`; what it says about each of them (`_multi`) is left out.
Lines that are no decisions to learn from are dropped: rewards that found no event, and events never shown.
"""

from collections.abc import Iterator

import polars as pl

from ..errors import LogError

COST, PROBABILITY, ACTION, SLOTS = "_label_cost", "_label_probability", "_label_Action", "_outcomes"
SKIPPED, CONTEXT, PER_ACTION = "_skipLearn", "c", "_multi"
OBSERVED = ("RewardValue", "ActionTaken")  # in a line that says how an event went, not what it was
PATH = "."


def is_dsjson(head: bytes) -> bool:
    """Whether text begins with such an event."""
    return f'"{COST}"'.encode() in head and f'"{PROBABILITY}"'.encode() in head


def event_columns(kinds: pl.Schema) -> dict[str, pl.Expr]:
    """The columns of the log in terms of those of the lines."""
    columns = {name: pl.col(name) for name, kind in kinds.items() if not kind.is_nested()}
    context = kinds.get(CONTEXT)
    if isinstance(context, pl.Struct):
        columns |= dict(_features(pl.col(CONTEXT), context, ""))
    if COST in kinds:
        columns.setdefault("reward", 0.0 - pl.col(COST).cast(pl.Float64, strict=False))
    if ACTION in kinds:
        columns.setdefault("action", pl.col(ACTION).cast(pl.Int64, strict=False) - 1)
    return columns


def _features(at: pl.Expr, kind: pl.Struct, prefix: str) -> Iterator[tuple[str, pl.Expr]]:
    """What a namespace holds, by its path; of a list of namespaces, the first counts."""
    for field in kind.fields:
        name, value, inner = prefix + field.name, at.struct.field(field.name), field.dtype
        if isinstance(inner, pl.List) and isinstance(inner.inner, pl.Struct):
            value, inner = value.list.get(0, null_on_oob=True), inner.inner
        if field.name == PER_ACTION:
            continue
        if isinstance(inner, pl.Struct):
            yield from _features(value, inner, name + PATH)
        elif not inner.is_nested():
            yield name, value


def needed(kinds: pl.Schema) -> pl.Schema:
    """The same types without what no column is made of."""
    context = kinds.get(CONTEXT)
    if not isinstance(context, pl.Struct):
        return kinds
    kept = [field for field in context.fields if field.name != PER_ACTION]
    return pl.Schema({**kinds, CONTEXT: pl.Struct(kept)})


def no_decision(kinds: pl.Schema) -> pl.Expr:
    """Whether a line is to be dropped: it was never shown, or it only says how an event went."""
    skipped = (
        pl.col(SKIPPED).cast(pl.Boolean, strict=False) if kinds.get(SKIPPED) == pl.Boolean else pl.lit(False)
    )
    labels = [pl.col(name).is_null() for name in (COST, PROBABILITY, ACTION) if name in kinds]
    seen = [pl.col(name).is_not_null() for name in OBSERVED if name in kinds]
    dangling = pl.all_horizontal(labels) & pl.any_horizontal(seen) if labels and seen else pl.lit(bool(seen))
    return skipped | dangling


def require_one_slot(kinds: pl.Schema, name: str) -> None:
    """Each event is one decision."""
    if kinds.get(SLOTS, pl.Null()) != pl.Null():
        raise LogError(
            f"{name} has events of several decisions ('{SLOTS}').",
            expected="one action for each event",
            remedy="Write each slot as a row of its own, with its action, probability and reward.",
        )
