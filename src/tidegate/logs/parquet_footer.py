"""How large is a Parquet file once it is decoded? Read from its footer, before anything is decoded.

A run of equal values takes a few bytes in the file and eight bytes each in memory, so the size of the file
says nothing. The footer is a record in Thrift's compact protocol; its field numbers are those of
`parquet.thrift` in the Parquet format's specification.
"""

import dataclasses
import struct
from typing import Any

MAGIC = b"PAR1"
TEXT_TYPES = (6, 7)  # BYTE_ARRAY, FIXED_LEN_BYTE_ARRAY
NUMBER_BYTES, VIEW_BYTES = 8, 16  # a number, and a reference to a text, in memory
OBJECT_BYTES = 100  # of Python objects per byte of a footer, at most


@dataclasses.dataclass(frozen=True)
class DecodedSize:
    """What the footer says: the rows, the columns, and the bytes of all columns in memory."""

    rows: int
    columns: int
    bytes: int


def footer_length(content: bytes) -> int:
    """How long the footer of a Parquet file is; 0 if there is none."""
    if len(content) < 12 or content[-4:] != MAGIC:
        return 0
    return min(int(struct.unpack("<I", content[-8:-4])[0]), len(content) - 8)


def decoded_size(content: bytes) -> DecodedSize | None:
    """The size of the decoded table; None if the footer cannot be read, which the parser will report."""
    length = footer_length(content)
    try:
        meta = _Compact(content[len(content) - 8 - length : -8]).struct()
        groups = meta.get(4, [])
        chunks = [chunk[3] for group in groups for chunk in group[1]]
        columns = len(groups[0][1]) if groups else 0
        return DecodedSize(int(meta[3]), columns, sum(map(_chunk_bytes, chunks)))
    except (IndexError, KeyError, TypeError, ValueError, AttributeError, RecursionError):
        return None


def _chunk_bytes(chunk: dict[int, Any]) -> int:
    values, encoded = max(0, int(chunk[5])), max(0, int(chunk[6]))
    return values * VIEW_BYTES + encoded if chunk[1] in TEXT_TYPES else values * NUMBER_BYTES


class _Compact:
    """A reader of Thrift's compact protocol: a struct becomes a dictionary by field number."""

    def __init__(self, content: bytes) -> None:
        self.content, self.at = content, 0

    def struct(self) -> dict[int, Any]:
        fields: dict[int, Any] = {}
        number = 0
        while kind := (head := self._byte()) & 15:
            number = number + (head >> 4) if head >> 4 else self._signed()
            fields[number] = kind == 1 if kind in (1, 2) else self._value(kind)
        return fields

    def _value(self, kind: int) -> Any:
        match kind:
            case 1 | 2 | 3:
                return self._byte()
            case 4 | 5 | 6:
                return self._signed()
            case 7:
                return self._skip(8)
            case 8:
                return self._skip(self._unsigned())
            case 9 | 10:
                head = self._byte()
                count = head >> 4 if head >> 4 < 15 else self._unsigned()
                return [self._value(head & 15) for _ in range(count)]
            case 12:
                return self.struct()
        raise ValueError(f"type {kind} does not occur in a footer")

    def _byte(self) -> int:
        self.at += 1
        return self.content[self.at - 1]

    def _skip(self, count: int) -> None:
        self.at += count
        if self.at > len(self.content):
            raise ValueError("a value goes beyond the footer")

    def _unsigned(self) -> int:
        value = shift = 0
        while (part := self._byte()) & 128:
            value, shift = value | (part & 127) << shift, shift + 7
            if shift > 63:
                raise ValueError("a number has more than 64 bits")
        return value | part << shift

    def _signed(self) -> int:
        value = self._unsigned()
        return value >> 1 ^ -(value & 1)
