"""The paper's studies as functions: settings in, rows out."""
