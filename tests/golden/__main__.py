"""Compare the stored records with what the package gives now, or store that."""

import json
import sys

from tests import conftest  # the flags of the test suite, before JAX is imported  # noqa: F401

import jax  # isort: skip

from tests.golden.cases import CASES  # isort: skip
from tests.golden.compare import differences  # isort: skip
from tests.golden.stored import path_of, text_of, tolerance, write_hashes  # isort: skip


def main(arguments: list[str]) -> int:
    """Exit code 1 if a record is not the stored one."""
    names = [one for one in arguments if one != "--write"] or list(CASES)
    failed = 0
    for name in names:
        with jax.enable_x64(True):
            text = text_of(CASES[name]())
        if "--write" in arguments:
            path_of(name).write_text(text)
            continue
        stored = json.loads(path_of(name).read_text())
        found = list(differences(stored, json.loads(text), tolerance(name)))
        print(f"{name}: {len(found)} differences" if found else f"{name}: the same")
        print("".join(f"  {one}\n" for one in found[:20]), end="", flush=True)
        failed += bool(found)
    if "--write" in arguments:
        write_hashes(list(CASES))
    return min(failed, 1)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
