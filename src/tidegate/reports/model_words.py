"""Trend models in words, from the plain values of an advantage."""

from collections.abc import Callable

from .log_words import Plain
from .numbers import count, figure

Span = Callable[[float], str]
SHOWN = 0.01  # the least weight of a family that tables and pictures show


def family_words(one: Plain, span: Span) -> str:
    """What a family of models says about the world."""
    memory = span(one["memory"])
    return {
        "level": "a level that stands still",
        "line": "a line that goes on",
        "rough": f"wandering, forgotten after {memory}",
        "smooth": f"smooth movement over {memory}",
        "break": f"another level until {memory} ago",
        "trend": "the chosen trend",
    }[str(one["kind"])]


def shown_families(advantage: Plain) -> list[Plain]:
    """The families that matter, in order of weight."""
    return [one for one in advantage["models"] if (one["weight"] or 0.0) >= SHOWN]


def model_line(advantage: Plain, span: Span) -> str:
    """The leading model, the season if there is one, and how it would have done in the past.

    Empty for a trend that was chosen by hand: then nothing leads.
    """
    if len(advantage["models"]) < 2 or advantage["models"][0]["weight"] is None:
        return ""
    first = advantage["models"][0]
    season, past = advantage["season"], advantage["past"]
    words = family_words(first, span)
    cycle = f" with a season of about {span(season['period'])}" if season else ""
    weight = f" (weight {first['weight']:.0%})"
    tried = ""
    if past and past["off"] is not None:
        dates = count(past["dates"], "past date")
        tried = f"; its forecasts have been off by {figure(past['off'], 2)} at {dates}"
    return f"Leading model: {words}{cycle}{weight}{tried}."
