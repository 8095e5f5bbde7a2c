"""Tidegate's worlds in Gymnasium's registry; the worlds and JAX load when one is made.

Gymnasium 1.0 dropped the entry points by which an installed package registered itself unasked. So the
names are known once Tidegate is imported, and Tidegate must not import Gymnasium for that.
"""

import importlib.util
import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

from ..errors import SettingsError

WORLDS = {
    "tidegate/RecoSys-v0": "RecoSysEnv",
    "tidegate/T1D-v0": "T1DEnv",
}


def missing_gymnasium() -> SettingsError:
    """What to tell somebody who has not installed it."""
    return SettingsError(
        "this part of Tidegate needs Gymnasium.",
        remedy="Install it: pip install 'tidegate[gymnasium]'.",
    )


def register_worlds() -> None:
    """Make `gymnasium.make("tidegate/…")` work now; doing it twice changes nothing."""
    try:
        import gymnasium
    except ImportError as error:
        raise missing_gymnasium() from error
    for name, cls in WORLDS.items():
        if name not in gymnasium.registry:
            gymnasium.register(name, entry_point=f"{__package__}.gymnasium_envs:{cls}")


def register_when_imported() -> None:
    """Register now if Gymnasium is already imported, otherwise as soon as somebody imports it."""
    if sys.modules.get("gymnasium") is not None:
        register_worlds()
    elif not any(isinstance(finder, _AfterGymnasium) for finder in sys.meta_path):
        sys.meta_path.insert(0, _AfterGymnasium())


class _AfterGymnasium(MetaPathFinder):
    """Leaves the finding of Gymnasium to the other finders, and registers once it has loaded."""

    def __init__(self) -> None:
        self._asking_others = False

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != "gymnasium" or self._asking_others:
            return None
        self._asking_others = True
        try:
            spec = importlib.util.find_spec(fullname)
        finally:
            self._asking_others = False
        if spec is not None and spec.loader is not None:
            load = spec.loader.exec_module

            def load_and_register(module: ModuleType) -> None:
                load(module)
                register_worlds()

            spec.loader.exec_module = load_and_register  # type: ignore[method-assign]
        return spec
