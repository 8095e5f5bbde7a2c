"""The colours of all pages and pictures, by day and by night.

A picture is drawn in the colours of the day. `themed` then names them, so that a page, or the picture itself
as a file, can say what they are by night.
"""

import re

# The light colours differ from each other: each is found by its own digits.
COLORS = {
    "ink": ("#111827", "#f3f4f6"),
    "axis": ("#374151", "#d1d5db"),
    "quiet": ("#4b5563", "#a9b1bd"),
    "line": ("#e5e7eb", "#374151"),
    "ground": ("#ffffff", "#12161d"),
    "panel": ("#f9fafb", "#1b212b"),
    "candidate": ("#c2410c", "#fb923c"),
    "safe": ("#1d4ed8", "#7aa8ff"),
    "observed": ("#9ca3af", "#7b8494"),
    "better": ("#15803d", "#4ade80"),
    "worse": ("#b91c1c", "#f87171"),
    "stationary": ("#7e22ce", "#c893ff"),
    "alert": ("#b45309", "#fbbf24"),
    "alert-ground": ("#fffbeb", "#2a2310"),
    "teal": ("#0d9488", "#2dd4bf"),
    "olive": ("#a16207", "#eab308"),
    "cyan": ("#0e7490", "#38bdf8"),
    "orange": ("#ea580c", "#fdba74"),
}
LIGHT = {name: light for name, (light, _) in COLORS.items()}
_NAMES = {light: name for name, light in LIGHT.items()}
_PAINT = re.compile(r"(fill|stroke): (#[0-9a-f]{6})\b")


def themed(svg: str) -> str:
    """The same picture with its colours named; whoever does not know a name sees the colour of the day."""

    def named(found: re.Match[str]) -> str:
        paint, light = found.groups()
        return f"{paint}: {color(_NAMES[light])}" if light in _NAMES else found[0]

    return _PAINT.sub(named, svg)


def color(name: str) -> str:
    """A colour for a style: the one of this name, or that of the day where nobody says what it is."""
    return f"var(--{name}, {LIGHT[name]})"


def palette_css(selector: str = ":root") -> str:
    """The colours as names that a style sheet can use."""
    day, night = (
        "; ".join(f"--{name}: {colors[which]}" for name, colors in COLORS.items()) for which in (0, 1)
    )
    return (
        f"{selector} {{ color-scheme: light dark; {day}; }}\n"
        f"@media (prefers-color-scheme: dark) {{ {selector} {{ {night}; }} }}"
    )
