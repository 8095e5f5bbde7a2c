"""What a log and its trend must be like for a verdict to mean something."""
