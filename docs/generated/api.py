"""The public names, by package, then by every module from which a page of the documentation imports.

`mkdocstrings` fills in signatures and docstrings.
"""

import ast
import importlib
import re
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

import tidegate

from .words import first_sentence, page, table

ROOT = Path(tidegate.__file__).parent
PAGES = Path(__file__).resolve().parent.parent
IMPORT = re.compile(r"^(?:from|import) (tidegate\.[\w.]+)", re.MULTILINE)
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
    """The package, each folder in it that offers names, and modules that a page imports from."""
    packages = [*_packages()]
    yield from packages
    yield from sorted(_imported() - set(packages))


def _packages() -> Iterator[str]:
    yield "tidegate"
    for folder in sorted({path.parent for path in ROOT.rglob("__init__.py")}):
        parts = folder.relative_to(ROOT).parts
        if parts and not TOLD_ELSEWHERE & set(parts) and _offers(folder):
            yield ".".join(["tidegate", *parts])


def _offers(folder: Path) -> bool:
    """Whether the folder has names of its own, at once or on first use."""
    return (folder / "__init__.pyi").exists() or "\nfrom ." in (folder / "__init__.py").read_text()


def _imported() -> set[str]:
    """The modules from which the pages' blocks of Python import."""
    return {one for path in PAGES.rglob("*.md") for one in IMPORT.findall(path.read_text())}


def module_page(name: str) -> str:
    """An overview of a module's names, and a place for each of them."""
    module = importlib.import_module(name)
    names = public_names(module)
    overview = table(
        ["name", "what it is"],
        [(f"[`{one}`](#{name}.{one})", summary(getattr(module, one))) for one in names],
    )
    directives = "\n\n".join(f"::: {name}.{one}" for one in names)
    return page(
        f"`{name}`",
        INTRODUCTION.get(name) or first_sentence(module.__doc__ or ""),
        overview,
        "## In full",
        directives,
    )


def public_names(module: ModuleType) -> list[str]:
    """What the module offers, in the order of the alphabet."""
    offered = getattr(module, "__all__", None) or (
        [name for name, one in vars(module).items() if not isinstance(one, ModuleType)]
        if hasattr(module, "__path__")
        else _defined(module)
    )
    known = {name for name in offered if not name.startswith("_")}
    return sorted((one for one in known if not isinstance(getattr(module, one), TypeVar)), key=str.lower)


def _defined(module: ModuleType) -> list[str]:
    """The functions, classes and constants of a file, without what it imports."""
    names: list[str] = []
    for one in ast.parse(Path(str(module.__file__)).read_text()).body:
        if isinstance(one, ast.FunctionDef | ast.ClassDef):
            names.append(one.name)
        elif isinstance(one, ast.Assign | ast.AnnAssign):
            targets = one.targets if isinstance(one, ast.Assign) else [one.target]
            names.extend(target.id for target in targets if isinstance(target, ast.Name))
    return names


def summary(value: Any) -> str:
    """What a name is, in the first sentence of its docstring."""
    documented = callable(value) or isinstance(value, type)
    return first_sentence(value.__doc__ or "") if documented else "A constant."
