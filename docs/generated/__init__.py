"""Pages of the reference that are made from the code: one file per page, each with a function that gives its text."""
