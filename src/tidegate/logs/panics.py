"""Keep the parser's own cries off the terminal of a command."""

import contextlib
import os
import sys
import tempfile
from collections.abc import Iterator


@contextlib.contextmanager
def without_panic_text() -> Iterator[None]:
    """Drop what polars' threads print when they meet a damaged file; `LogError` says it better.

    For the command line: it holds back standard error of the whole process meanwhile, and passes it
    on at the end unless a thread has panicked.
    """
    sys.stderr.flush()
    saved = os.dup(2)
    with tempfile.TemporaryFile() as held:
        os.dup2(held.fileno(), 2)
        try:
            yield
        finally:
            sys.stderr.flush()
            os.dup2(saved, 2)
            os.close(saved)
            held.seek(0)
            text = held.read()
            if b"panicked at" not in text:
                os.write(2, text)
