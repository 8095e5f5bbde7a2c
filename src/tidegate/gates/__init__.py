"""Several outcomes and many tests, with one error rate for all."""
