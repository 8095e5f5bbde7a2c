"""How the tables came to be, step by step; Alembic runs these at every start."""
