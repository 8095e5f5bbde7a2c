"""The body of a request -> rows that have passed the door, or an error that names the rows.

These are the checks that `tidegate check` makes of a file, in the same words. An episode is sent whole, in
one request; its steps are checked together.
"""

import dataclasses
import functools
import hashlib
import io

import polars as pl

from ..arrays import Integers
from ..logs import Format, LoadedLog, SpecKind
from ..logs.fitting import by_name
from ..logs.formats import parse
from ..logs.memory import MemoryLimit
from ..logs.reading import checked_log
from ..logs.specs import resolve_policy
from ..logs.table import Places, Table
from ..serving import PolicyFile
from . import uploads
from .definitions import GateDefinition
from .keys import episode_keys
from .refusals import OtherMedium

BODY = "the request"
MEDIA = {
    "application/x-ndjson": Format.JSONL,
    "application/jsonl": Format.JSONL,
    "application/vnd.apache.parquet": Format.PARQUET,
}
GROWTH = 64  # times the size of the body that its table may take: a small Parquet file may claim to be huge
LEAST_ROOM, MOST_ROOM = 64 * 2**20, 2**30


@dataclasses.dataclass(frozen=True, eq=False)
class Rows:
    """Rows that may be stored: the columns as they came, compressed, and the keys of their episodes."""

    content: bytes
    keys: Integers
    episodes: int
    steps: int

    @functools.cached_property
    def sha256(self) -> str:
        return hashlib.sha256(self.content).hexdigest()


def format_of(medium: str) -> Format:
    """The format of a media type."""
    name = medium.partition(";")[0].strip().lower()
    if name not in MEDIA:
        raise OtherMedium(f"the body is of type '{name}'.", expected=" or ".join(MEDIA))
    return MEDIA[name]


def read_rows(
    body: bytes, format: Format, definition: GateDefinition, policies: dict[str, PolicyFile]
) -> Rows:
    """The rows of a request, if this gate can use them; `policies` are its files, by hash."""
    limit = MemoryLimit(min(MOST_ROOM, max(LEAST_ROOM, GROWTH * len(body))))
    frame, numbers = parse(body, BODY, format, limit)
    table = Table(frame, Places(("",), (0,), numbers), BODY)
    columns = definition.columns
    if definition.estimate_propensities:
        columns = dataclasses.replace(columns, behavior_prob=None)
    loaded = checked_log(table, columns, limit)
    if not definition.estimate_propensities:  # which nobody has yet, without the rest of the log
        _require_policies(loaded, definition, policies)
    return Rows(_packed(frame), episode_keys(loaded), loaded.log.num_episodes, frame.height)


def unpacked(content: bytes) -> pl.DataFrame:
    """The columns of a stored batch."""
    return pl.read_ipc_stream(io.BytesIO(content))


def needed_columns(definition: GateDefinition, policies: dict[str, PolicyFile]) -> list[str]:
    """All columns that an evaluation reads."""
    parts = definition.columns.parts
    named = [one.name for one in definition.specs if one.kind in (SpecKind.COLUMN, SpecKind.RATIO)]
    features = [one.name for file in policies.values() for one in file.features or ()]
    return list(dict.fromkeys((*parts, *named, *features)))


def policy_files(contents: dict[str, bytes]) -> dict[str, PolicyFile]:
    """The files by hash, read; they never change, so that each is read once."""
    return {sha256: _policy_file(content) for sha256, content in contents.items()}


@functools.lru_cache(64)
def _policy_file(content: bytes) -> PolicyFile:
    return uploads.parsed(content)


def _require_policies(loaded: LoadedLog, definition: GateDefinition, policies: dict[str, PolicyFile]) -> None:
    """Each policy says how likely the logged actions were."""
    for spec in definition.specs:
        if spec.kind is SpecKind.POLICY:
            by_name(policies[spec.name.removeprefix("sha256:")], str(spec), loaded)
        else:
            _, loaded = resolve_policy(spec, loaded)


def _packed(frame: pl.DataFrame) -> bytes:
    content = io.BytesIO()
    frame.write_ipc_stream(content, compression="zstd")
    return content.getvalue()
