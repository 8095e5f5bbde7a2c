"""Pages of the reference that are made from the code: one file and one function for each."""
