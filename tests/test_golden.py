"""The stored records still come out: to the bit on a machine like theirs, else up to its rounding."""

import hashlib
import json

import pytest

from tests.golden.cases import CASES
from tests.golden.compare import differences
from tests.golden.stored import hashes, path_of, text_of, tolerance


@pytest.mark.parametrize("name", CASES)
def test_the_record_is_the_stored_one(name: str) -> None:
    stored = path_of(name).read_bytes()
    assert hashlib.sha256(stored).hexdigest() == hashes()[name]
    given = json.loads(text_of(CASES[name]()))
    assert not list(differences(json.loads(stored), given, tolerance(name)))
