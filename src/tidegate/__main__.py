"""`python -m tidegate` is the command."""

from .cli import main

main()
