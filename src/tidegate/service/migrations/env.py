"""How Alembic reaches the database: by the connection of whoever asks, in its transaction."""

from alembic import context

from tidegate.service.events import tables  # noqa: F401 - which belong to the metadata
from tidegate.service.schema import metadata

context.configure(connection=context.config.attributes["connection"], target_metadata=metadata)
context.run_migrations()
