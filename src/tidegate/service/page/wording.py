"""How moments, states and names are said on the page."""

from markupsafe import Markup

from ...reports.numbers import count, signed

STATES = {
    "pass": "pass",
    "fail": "fail",
    "inconclusive": "inconclusive",
    "error": "error",
    "in_progress": "in progress",
    "pending": "waits for approval",
    None: "no decision",
}
MEANING = {
    "pass": "The candidate may run.",
    "fail": "Harm is shown, or a guardrail blocks: the safe policy runs.",
    "inconclusive": "There is not enough evidence: the safe policy runs.",
    "error": "The episodes are unfit for a decision: the safe policy runs.",
    "in_progress": "It is being computed.",
}
SHAPES = {
    "pass": '<circle class="solid" cx="8" cy="8" r="7"/><path class="cut" d="M4.6 8.3l2.3 2.4 4.5-5"/>',
    "fail": (
        '<path class="solid" d="M5.2 1h5.6L15 5.2v5.6L10.8 15H5.2L1 10.8V5.2z"/>'
        '<path class="cut" d="M5.4 5.4l5.2 5.2m0-5.2l-5.2 5.2"/>'
    ),
    "inconclusive": '<path class="hollow" d="M8 1.4L14.6 8 8 14.6 1.4 8z"/>',
    "pending": '<path class="solid" d="M3 1h10v2.6L9.4 8l3.6 4.4V15H3v-2.6L6.6 8 3 3.6z"/>',
    "error": '<path class="solid" d="M8 1l7.4 13.6H.6z"/><path class="cut" d="M8 5.8v4m0 1.8v.6"/>',
    "in_progress": '<circle class="hollow dashed" cx="8" cy="8" r="6.4"/>',
    None: '<path class="hollow" d="M3 8h10"/>',
    "candidate": '<path class="solid" d="M2 2l12 6-12 6z"/>',
    "safe": '<path class="solid" d="M8 .8l6.4 2.3v4.6c0 3.6-2.6 6.3-6.4 7.5-3.8-1.2-6.4-3.9-6.4-7.5V3.1z"/>',
}


def state(found: str | None) -> Markup:
    """A state by its shape, its colour and its word."""
    word = STATES.get(found, str(found).replace("_", " "))
    return _marked(found if found in SHAPES else None, word)


def policy(found: str) -> Markup:
    """Which policy runs, by its shape, its colour and its word."""
    return _marked(found, "candidate" if found == "candidate" else "safe policy")


def stamp(text: str | None) -> Markup:
    """A moment, as in 2026-03-04 13:05:09 UTC."""
    if not text:
        return Markup("–")
    return Markup('<time datetime="{}">{} {}\u00a0UTC</time>').format(text, text[:10], text[11:19])


def gain(value: float | None) -> Markup:
    """An advantage in three digits, with the record's own behind it."""
    if value is None:
        return Markup("–")
    return Markup('<data value="{}">{}</data>').format(value, signed(value, 3))


def brief(text: str | None) -> str:
    """The start of a hash."""
    return "–" if not text else f"{text[:12]}…"


def meaning(found: str | None) -> str:
    """What a state means for whoever asks which policy to run."""
    return MEANING.get(str(found), "Nothing has been decided yet.")


def number_of(value: int, name: str) -> str:
    """So many things, as in 1 episode or 3,000 episodes."""
    return count(value, name)


def words(name: str) -> str:
    """A key as words."""
    return name.replace("_", " ").replace(".", " ")


def _marked(shape: str | None, word: str) -> Markup:
    kind = "none" if shape is None else shape.replace("_", "-")
    drawn = Markup(SHAPES[shape])
    return Markup(
        '<span class="mark {}"><svg class="shape" viewBox="0 0 16 16" aria-hidden="true">{}</svg>{}</span>'
    ).format(kind, drawn, word)


FILTERS = (gain, state, policy, stamp, brief, meaning, number_of, words)
