"""Is the log fit for a verdict, and does its trend fit? Also backtests, and plans for more episodes."""
