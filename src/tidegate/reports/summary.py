"""What a record says, in a few lines: the end of what a command prints, and `print(record)`.

All is said from a record's plain values, so that a stored record has the same summary.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from .calendar import Clock
from .log_words import moment, names
from .model_words import model_line
from .numbers import count, figure, lift, signed

Plain = Mapping[str, Any]
BEWARE = "BEWARE: "


def summary(content: Plain) -> list[str]:
    """The lines of a record, given as its `to_dict`; those of a caveat begin with `BEWARE`."""
    return list(_SUMMARIES[content["kind"]](content))


def _gate(content: Plain) -> Iterator[str]:
    if content["verdict"] is None:
        yield f"Nothing was decided: {content['sentence']}"
        return
    yield content["headline"]
    yield advantage_line(content)
    yield from filter(None, [model_line(content["advantage"], Clock.of(content["provenance"]).span)])
    yield from _caveats(content)
    yield f"Status {content['status']}, good until {moment(content['expires_at'])}."


def advantage_line(content: Plain) -> str:
    """The forecast advantage of a gate's record with its bound, in per cent, and for which time."""
    found = content["advantage"]
    if found["point"] is None:
        return "The advantage of the candidate is not known."
    share = lift(found["point"], content["safe"])
    over = f"the safe policy's {figure(content['safe']['point'])}"
    relative = f" ({share})" if share else f" over {over}"
    at_least = "" if found["lower"] is None else f", at least {signed(found['lower'], 3)}"
    p_value = found["p_value"]
    tested = "" if p_value is None else f" (p = {p_value:.2g}, which must be at most {found['level']:.3g})"
    return (
        f"Advantage {unit_words(content)}: {signed(found['point'], 3)}{relative}{at_least}{tested}, over "
        f"{window_words(content, content['safe'])}."
    )


def _evaluate(content: Plain) -> Iterator[str]:
    forecast = content["forecast"]
    yield (
        f"{content['policy']} is forecast to earn {_interval(forecast)} {unit_words(content)} over "
        f"{window_words(content, forecast)}."
    )
    yield f"If nothing changed: {_interval(content['stationary'])}."
    yield from _caveats(content)


def _check(content: Plain) -> Iterator[str]:
    warned = [one for one in content["check"]["findings"] if one["level"] == "WARNING"]
    yield from _caveats(content["provenance"])
    causes = list({one["sentence"]: one for one in reversed(warned)}.values())[::-1]
    if causes:
        yield f"{count(len(causes), 'warning')}: {names(causes)}."
    else:
        yield "This log can be used: no check found a problem."
    if content["policy"] == "behavior":
        yield "Name a policy (`policy`) to check overlap and support for it."


def _backtest(content: Plain) -> Iterator[str]:
    yield from _caveats(content)
    yield content["backtest"]["sentence"]


def _plan(content: Plain) -> Iterator[str]:
    yield from _caveats(content)
    found = content["plan"]
    yield found["sentence"]
    if found["more_episodes"]:
        wait = Clock.of(content["provenance"]).growth(found["more_episodes"] / found["num_episodes"])
        yield from [f"At the pace of this log, that takes about {wait}."] if wait else []
    if content["lacking_actions"]:
        yield f"Actions that lack data: {', '.join(content['lacking_actions'])}."


def _watch(content: Plain) -> Iterator[str]:
    if content["rolls_back"] is None:
        yield f"Nothing could be watched: {content['sentence']}"
        return
    yield content["headline"]
    yield watch_line(content)
    if content["warning"]:
        yield forecast_line(content)
    yield from _caveats(content)
    yield f"Status {content['status']}."


def watch_line(content: Plain) -> str:
    """What rolled back and when, or the reward's advantage so far, in numbers."""
    clock, harm = Clock.of(content["provenance"]), content["signal"]["harm"]
    if harm and harm["upper"] is not None:
        return (
            f"At {clock.at(harm['episode'])}, after {count(harm['num_episodes'], 'episode')}: advantage of "
            f"'{harm['sequence']}' {signed(harm['mean'], 3)} per episode, at most "
            f"{signed(harm['upper'], 3)}, which is below {figure(-harm['margin'])} (level "
            f"{harm['level']:.3g})."
        )
    if harm:
        return f"At {clock.at(harm['episode'])}, after {count(harm['num_episodes'], 'episode')}."
    reward, number = content["signal"]["sequences"][0], content["signal"]["num_episodes"]
    if reward["lower"] is None:
        return f"No bound yet, after {count(number, 'episode')}."
    return (
        f"Advantage {unit_words(content)} since the release: {signed(reward['mean'], 3)}, between "
        f"{signed(reward['lower'], 3)} and {signed(reward['upper'], 3)} (level {reward['level']:.3g} each), "
        f"over {count(number, 'episode')}."
    )


def forecast_line(content: Plain) -> str:
    """What the gate forecasts from the episodes since the release."""
    warning = content["warning"]
    word = "Warning: " if warning["warns"] else "Forecast: "
    span = Clock.of(content["provenance"]).span(warning["lookahead"])
    return (
        f"{word}{warning['sentence']} For the next {span}: {signed(warning['point'], 3)}, at least "
        f"{signed(warning['lower'], 3)}."
    )


def _verify(content: Plain) -> Iterator[str]:
    title = "CONFIRMED" if content["confirmed"] else "NOT CONFIRMED"
    yield f"{title} ({content['recorded_verdict']}): {content['sentence']}"
    yield from (f"Different version, {_difference(one)}." for one in content["versions"])
    yield from map(_difference, content["differences"])
    rest = content["num_differences"] - len(content["differences"])
    if rest > 0:
        yield f"and {count(rest, 'more difference')}"
    yield from content["notes"]


def _difference(one: Plain) -> str:
    return f"{one['where']}: recorded {one['recorded']}, replayed {one['replayed']}"


def _caveats(content: Plain) -> Iterator[str]:
    return (BEWARE + one for one in content["caveats"])


def unit_words(content: Plain) -> str:
    """What is earned: the reward by its name, unless that is its name."""
    name = content["provenance"]["columns"]["reward"]
    return "per episode" if name == "reward" else f"per episode ('{name}')"


def _interval(forecast: Plain) -> str:
    point, lower, upper = (figure(forecast[name]) for name in ("point", "lower", "upper"))
    return f"{point} ({lower} to {upper}, α = {forecast['alpha']:g})"


def window_words(content: Plain, forecast: Plain | None) -> str:
    """For which time a forecast is: its own window, or as long as the record's lookahead."""
    ends = None if forecast is None else forecast["forecast_episodes"]
    clock = Clock.of(content["provenance"])
    return clock.window(*ends) if ends else f"the next {clock.span(content['settings']['lookahead'])}"


_SUMMARIES: dict[str, Callable[[Plain], Iterator[str]]] = {
    "gate": _gate,
    "improve": _gate,
    "evaluate": _evaluate,
    "check": _check,
    "backtest": _backtest,
    "plan": _plan,
    "verify": _verify,
    "watch": _watch,
}
