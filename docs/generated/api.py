"""The public names, by package; `mkdocstrings` fills in signatures and docstrings."""

import importlib
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import tidegate

from .words import first_sentence, page, table

ROOT = Path(tidegate.__file__).parent
TOLD_ELSEWHERE = {"service", "adapters", "events", "page", "cli"}  # programs, not libraries
INTRODUCTION = {
    "tidegate": "`import tidegate` is quick: a name loads what it needs when it is first used.",
    "tidegate.commands": "These are the functions behind the commands, with all of their records. `gate`, "
    "`evaluate`, `check`, `improve`, `backtest` and `plan` are names of `tidegate` too.",
}


def api_pages() -> dict[str, str]:
    """The pages of the Python interface, by the name of their file."""
    return {f"api/{name}.md": module_page(name) for name in modules()}


def modules() -> Iterator[str]:
    """The package, and each folder in it that offers names."""
    yield "tidegate"
    for folder in sorted({path.parent for path in ROOT.rglob("__init__.py")}):
        parts = folder.relative_to(ROOT).parts
        if parts and not TOLD_ELSEWHERE & set(parts) and _offers(folder):
            yield ".".join(["tidegate", *parts])


def _offers(folder: Path) -> bool:
    """Whether the folder has names of its own, at once or on first use."""
    return (folder / "__init__.pyi").exists() or "\nfrom ." in (folder / "__init__.py").read_text()


def module_page(name: str) -> str:
    """An overview of a module's names, and a place for each of them."""
    module = importlib.import_module(name)
    names = public_names(module)
    overview = table(
        ["name", "what it is"],
        [(f"[`{one}`](#{name}.{one})", summary(getattr(module, one))) for one in names],
    )
    directives = "\n\n".join(f"::: {name}.{one}" for one in names)
    return page(f"`{name}`", INTRODUCTION.get(name, ""), overview, "## In full", directives)


def public_names(module: ModuleType) -> list[str]:
    """What the module offers, in the order of the alphabet."""
    offered = getattr(module, "__all__", None) or [
        name
        for name, one in vars(module).items()
        if not name.startswith("_") and not isinstance(one, ModuleType)
    ]
    return sorted(set(offered) - {"__version__"}, key=str.lower)


def summary(value: Any) -> str:
    """What a name is, in the first sentence of its docstring."""
    documented = callable(value) or isinstance(value, type)
    return first_sentence(value.__doc__ or "") if documented else "A constant."
